# The recipes of docs/how-to/coordination.md, with the statements of the page, run by processes that use only psql:
# members of a double barrier, workers of a latch, and clients of a rate limit. Some are killed, some are stopped past
# their TTL, and the server crashes twice.
# Promises: M, D, L
use strict;
use warnings;
use LeDocs;
use LeTest;
use List::Util qw(min);
use PostgreSQL::Test::Utils;
use Test::More;

# The rate limit. The TTLs are those of the page; the test shortens them later.
use constant { PERIOD => 4, PERMITS => 5 };

my $page = slurp_file('docs/how-to/coordination.md');
my $node = new_node('main');
my $dir = PostgreSQL::Test::Utils::tempdir();
my $errors = "${PostgreSQL::Test::Utils::log_path}/072_coordination_processes.log";
my %alive; # leaders of process groups

END
{
	my $rc = $?;
	kill 'KILL', map { -$_ } keys %alive;
	$? = $rc;
}

# --- the statements of the page ---

my @of_page = map { $_->{sql} } map { statements_of($_->{text}) } grep { $_->{word} eq 'psql' } blocks_of($page);

# Returns the first statement of the page that matches, with the given replacements.
sub statement
{
	my ($pattern, @replaced) = @_;
	my ($sql) = map { s/\s*--.*//r } grep { $_ =~ $pattern } @of_page;

	while (my ($from, $to) = splice @replaced, 0, 2)
	{
		$sql =~ s/\Q$from\E/$to/g or die "'$from' is not in: $sql";
	}
	return $sql;
}

my %sql = (
	ENTER => statement(qr/owner => 'alice'/, 'build 7' => '$RUN', "'alice'" => q{'$NAME'}),
	OPEN => statement(qr/compare_and_set/, 'build 7' => '$RUN', '>= 2' => '>= $MEMBERS'),
	IS_OPEN => statement(qr/read_versioned/, 'build 7' => '$RUN'),
	RELEASE => statement(qr/all_holds/, 'build 7' => '$RUN', 266422190080003 => '$token'),
	LEAVE => statement(qr/acquire_lock\('build 7', ttl/, 'build 7' => '$RUN'),
	LEFT => statement(qr/release_lock\('build 7', \d+\)/, 'build 7' => '$RUN', 266422190080005 => '$token'),
	CLAIM => statement(qr/acquire_lock\('import 7/, 'import 7, part 3' => '$RUN, part $part'),
	IS_DONE => statement(qr/part = 3/, 'import 7' => '$RUN', 3 => '$part'),
	COUNT => statement(qr/INSERT/, 'import 7' => '$RUN', 3 => '$part'),
	DROP => statement(qr/release_lock\('import/, 'import 7, part 3' => '$RUN, part $part', 266422190080006 => '$token'),
	COMPLETE => statement(qr/AS open FROM part_done/, 'import 7' => '$RUN'),
	PERMIT => statement(qr/acquire_permit.*'0'/, 'mail' => '$RUN', ', 2,' => ', $MEMBERS,', '1 min' => '$PERIOD s'),
);

# --- the processes ---

# Functions of all scripts. ask() retries its statements until the server has executed them.
my $common = <<'SH' . join '', map { "$_() { echo \"$sql{$_}\"; }\n" } sort keys %sql;
say() { echo "$(date +%s.%N) $*" >>"$DIR/$RUN.$NAME"; }
try() { psql -XAtq -v ON_ERROR_STOP=1 "$@"; }
ask() { until try "$@"; do sleep 0.2; done; }
SH

my %script = (
	# Enters the barrier, works until it may go, and leaves. Stops working if it has lost its membership.
	member => <<'SH',
token=$(ask -c "$(ENTER)")
say holds $token
while sleep 1; do
	left=$(try -c "SELECT renew_lock('$RUN', $token)") && [ -z "$left" ] && touch "$DIR/$RUN.$NAME.lost" && exit
done &
renewals=$!
open=f
until [ "$open" = t ]; do
	ask -c "$(OPEN)" >/dev/null
	open=$(ask -c "$(IS_OPEN)")
	say looks $open
	sleep 0.3
done
say begins
until [ -e "$DIR/$RUN.$NAME.go" ]; do
	[ ! -e "$DIR/$RUN.$NAME.lost" ] || { say lost; exit; }
	sleep 0.1
done
say releases
kill $renewals
ask -c "$(RELEASE)" >/dev/null
token=
while [ -z "$token" ]; do
	say tries
	token=$(ask -c "$(LEAVE)")
done
say left
ask -c "$(LEFT)" >/dev/null
SH
	# Processes parts until all are done. Waits within a part while a file says so.
	worker => <<'SH',
until [ "$(ask -c "$(COMPLETE)")" = t ]; do
	for part in 1 2 3 4; do
		token=$(ask -c "$(CLAIM)")
		[ -n "$token" ] || continue
		if [ "$(ask -c "$(IS_DONE)")" = 0 ]; then
			say works $part $token
			while [ -e "$DIR/$RUN.$NAME.held" ]; do sleep 0.1; done
			if try -c BEGIN -c "INSERT INTO result VALUES ($part, '$NAME')" -c "$(COUNT)" -c COMMIT >/dev/null; then
				say counts $part
			else
				say refused $part
			fi
		fi
		ask -c "$(DROP)" >/dev/null
	done
	sleep 0.1
done
say complete
SH
	# Tries without waiting, so that each grant lies between two timestamps close to each other.
	taker => <<'SH',
while sleep 0.2; do
	sent=$(date +%s.%N)
	token=$(ask -c "$(PERMIT)")
	[ -z "$token" ] || say granted $sent
done
SH
);

# Starts a process in its own process group.
sub start
{
	my ($kind, $run, $name, $members) = @_;
	my $pid = fork // die "fork: $!";

	$alive{$pid} = 1 if $pid;
	return $pid if $pid;
	setpgrp;
	open STDOUT, '>>', $errors or die "$errors: $!";
	open STDERR, '>&', \*STDOUT or die "dup: $!";
	@ENV{qw(PGHOST PGPORT PGDATABASE)} = ($node->host, $node->port, 'postgres');
	@ENV{qw(DIR RUN NAME MEMBERS PERIOD)} = ($dir, $run, $name, $members // '', PERIOD);
	exec 'bash', '-c', $common . $script{$kind} or die "exec: $!";
}

sub send_signal
{
	my ($signal, @pids) = @_;

	foreach my $pid (@pids)
	{
		kill $signal, -$pid or die "kill: $!";
		next if $signal ne 'KILL';
		waitpid $pid, 0;
		delete $alive{$pid};
	}
	return;
}

# Returns [ time, word, arguments ] for each line of a process with this word.
sub said
{
	my ($run, $name, $word) = @_;
	my $file = "$dir/$run.$name";

	return grep { $_->[1] eq $word } map { [ split / / ] } -e $file ? split(/\n/, slurp_file($file)) : ();
}

sub when_said
{
	my ($line) = said(@_);

	return $line ? $line->[0] : undef;
}

sub wait_for
{
	my ($run, $word, @names) = @_;

	return ok(wait_until(sub { return @names == grep { said($run, $_, $word) } @names }), "$run: @names: $word");
}

# Waits until each of these processes has written the word three more times.
sub goes_on
{
	my ($run, $word, @names) = @_;
	my %before = map { $_ => scalar(my @lines = said($run, $_, $word)) } @names;
	my $slow = sub { return grep { (my @lines = said($run, $_, $word)) < $before{$_} + 3 } @names };

	return ok(wait_until(sub { return !$slow->() }), "$run: @names: $word repeatedly");
}

# The owners of the lock of a run.
sub holders { return one("SELECT string_agg(owner, ' ' ORDER BY owner) FROM lock_election.locks WHERE name = '$_[0]'"); }

sub touch { PostgreSQL::Test::Utils::append_to_file("$dir/$_", '') foreach @_; return; }
sub crash { $node->stop('immediate'); $node->start; return; }

# --- the scenario ---

$node->safe_psql('postgres', $_->{text}) foreach grep { $_->{word} eq 'sql' } blocks_of($page);
$node->safe_psql('postgres', 'CREATE TABLE result (part int, worker text)');

my @takers = map { start('taker', 'rate', $_, PERMITS) } 'a' .. 'c';
my %member = map { $_ => start('member', 'run 1', $_, 4) } 'a' .. 'c';
touch('import.a.held', 'import.b.held');
my %worker = map { $_ => start('worker', 'import', $_) } 'a', 'b';

wait_for('run 1', 'holds', 'a' .. 'c');
wait_for('import', 'works', 'a', 'b');
goes_on('run 1', 'looks', 'a' .. 'c');
crash();
goes_on('run 1', 'looks', 'a' .. 'c');
is(join(' ', grep { said('run 1', $_, 'begins') } 'a' .. 'c'), '', 'three of four members do not begin, despite a crash of the server');
$member{d} = start('member', 'run 1', 'd', 4);
wait_for('run 1', 'begins', 'a' .. 'd');
cmp_ok(min(map { when_said('run 1', $_, 'begins') } 'a' .. 'd'), '>=', when_said('run 1', 'd', 'holds'), 'no member begins before the fourth one has entered');

# Member b is killed while it works, c is stopped, d continues to work, and a wants to leave.
send_signal('KILL', $member{b}, $worker{a}, $takers[0]);
send_signal('STOP', $member{c}, $worker{b}, $takers[1]);
touch('run 1.a.go');
wait_for('run 1', 'releases', 'a');
goes_on('run 1', 'tries', 'a');
crash();
goes_on('run 1', 'tries', 'a');
is(holders('run 1'), 'b c d', 'the crash ends no membership');
foreach my $name ('b', 'c')
{
	my ($holds) = said('run 1', $name, 'holds');
	my ($works) = said('import', $name eq 'b' ? 'a' : 'b', 'works');

	one("SELECT renew_lock('run 1', $holds->[2], '1 s'), renew_lock('import, part $works->[2]', $works->[3], '1 s')");
}
ok(wait_until(sub { return holders('run 1') eq 'd' }), 'the memberships of the killed and the stopped member expire');
goes_on('run 1', 'tries', 'a');
is(holders('run 1'), 'd', 'the membership of the working member remains');
ok(!said('run 1', 'a', 'left'), 'a member that leaves waits for the working member');
touch('run 1.d.go');
wait_for('run 1', 'left', 'a', 'd');
cmp_ok(when_said('run 1', 'a', 'left'), '>=', when_said('run 1', 'd', 'releases'), 'the member leaves after the working member has released');
ok(!-e "$dir/run 1.c.lost", 'the stopped member has not noticed its loss yet');
send_signal('CONT', $member{c}, $takers[1]);
wait_for('run 1', 'lost', 'c');

start('member', 'run 1', 'e', 4);
touch('run 1.e.go');
wait_for('run 1', 'left', 'e');

# A member that restarts within its TTL.
my $alice = start('member', 'run 2', 'alice', 2);
wait_for('run 2', 'looks', 'alice');
send_signal('KILL', $alice);
start('member', 'run 2', 'alice', 2);
ok(wait_until(sub { (my @holds = said('run 2', 'alice', 'holds')) == 2 }), 'alice restarts');
goes_on('run 2', 'looks', 'alice');
my ($first, $second) = map { $_->[2] } said('run 2', 'alice', 'holds');
is($second, $first, 'a restarted member keeps its membership');
ok(!said('run 2', 'alice', 'begins'), 'a restarted member is not counted twice');
start('member', 'run 2', 'bob', 2);
touch('run 2.alice.go', 'run 2.bob.go');
wait_for('run 2', 'left', 'alice', 'bob');

# The latch: of the two workers that have started parts, one was killed, and one is stopped.
is(one(q{SELECT count(*) FROM result}), '0', 'no part is counted yet');
start('worker', 'import', 'c');
wait_for('import', 'complete', 'c');
unlink "$dir/import.b.held";
send_signal('CONT', $worker{b});
wait_for('import', 'refused', 'b');
wait_for('import', 'complete', 'b');
is(one(q{SELECT string_agg(part::text, ' ' ORDER BY part) FROM result}), '1 2 3 4', 'each part has one result');
is(one(q{SELECT count(*) FROM part_done WHERE run = 'import'}), '4', 'each part is counted once');

# The rate limit: the permits of the killed client count until their TTL.
my $granted = sub { return map { said('rate', $_, 'granted') } 'a' .. 'c' };
ok(wait_until(sub { return scalar(my @all = $granted->()) >= 5 * PERMITS }), 'permits are granted repeatedly');
send_signal('KILL', @takers[ 1, 2 ]);
my @grants = map { { sent => $_->[2], received => $_->[0] } } $granted->();
my $shortest = min(map {
	my $sent = $_->{sent};
	my @received = sort { $a <=> $b } map { $_->{received} } grep { $_->{sent} >= $sent } @grants;

	@received > PERMITS ? $received[PERMITS] - $sent : ();
} @grants);
cmp_ok($shortest, '>=', PERIOD, 'no period has more grants than permits') or diag(join "\n", map { "$_->{sent} $_->{received}" } @grants);
nothing_left($node);
$node->stop;
done_testing();
