# lockctl lock: exit codes, signals, environment, options.
# Promises: M
# Needs: lockctl
use strict;
use warnings;
use JSON::PP;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
ctl_node($node);
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($rc, $out, $err);

sub sh { return ('--', 'sh', '-c', @_); }

subtest 'exit codes' => sub {
	foreach my $code (0, 1, 3, 42, 255)
	{
		is(ctl('lock', 'x', sh("exit $code")), $code, "the command's own, $code");
	}
	is(ctl('lock', 'x', sh('kill -9 $$')), 137, '128 + its signal');
	is(ctl('lock', 'x', sh('kill -TERM $$')), 143, 'also SIGTERM');
	foreach my $signal (1, 2, 9, 15)
	{
		my $c = start_ctl('lock', 'x', sh("kill -$signal \$\$"));
		is($c->wait . ' ' . $c->signal, 128 + $signal . " $signal", "it dies of signal $signal as its command has");
	}
	my $interrupted = start_ctl('lock', 'x', sh('exit 130'));
	is($interrupted->wait . ' ' . $interrupted->signal, '130 0', 'and of none where the command has ended by itself');
	is(ctl('lock', 'x', '--', "$dir/nothing"), 127, 'not found');
	is(ctl('lock', 'x', '--', $dir), 126, 'cannot run');
	($rc, $out, $err) = ctl('lock', 'x', '--', 'no such command');
	is($rc, 127, 'not found in PATH');
	like($err, qr/^lockctl: cannot run "no such command": No such file/, 'and says so');
	foreach my $args (
		[], ['nothing'], ['lock'], [ 'lock', 'x', '--nothing' ], [ 'lock', 'x', '--ttl' ], [ 'lock', 'x', '--ttl', 'soon' ],
		[ 'lock', 'x', '--ttl', '1ms' ], [ 'lock', 'x', '--ttl', '25d' ], [ 'lock', 'x', '--ttl', '10s', '--grace', '4.6s' ],
		[ 'lock', 'x', '--ttl', '999ms', '--', 'true' ], [ 'elect', 'x', 'y', '--ttl', '999ms', '--', 'true' ],
		[ 'lock', '--permits', '0', 'x' ], [ 'lock', 'x', '--and', 'y', '--permits', 2, '--', 'true' ],
		[ 'lock', 'x', '-E', 256, '--', 'true' ], [ 'lock', 'x', '-E', '1,', '--', 'true' ], [ 'lock', 'x', '-E', '1,2,3', '--', 'true' ],
		[ 'held', '-n', 'x', 1 ], [ 'release', '-s', 'x', 1 ], [ 'elect', '-s', 'x', 'y', '--', 'true' ], [ 'lock', '-l', 'x' ],
		[ 'elect', '-l' ], [ 'elect', '-l', 'x', 'y' ], [ 'elect', '-l', 'x', '--', 'true' ], [ 'lock', '', '--', 'true' ], [ 'lock', 'x' x 256, '--', 'true' ],
		[ 'elect', 'x' ], [ 'elect', 'x', '--', 'true' ], [ 'elect', '--', 'x', '--', 'true' ],
		[ 'lock', 'x', '--' ], [ 'lock', '--', 'x', '--' ], [ 'lock', 'x', '--', '' ], [ 'lock', 'x', '' ], [ 'lock', '--ttl', '9s', '--' ],
		[ 'elect', 'x', 'y', '--' ], [ 'elect', 'x', 'y', '' ], [ 'lock', 'x', '--and' ],
		[ '-o', 'xml', 'locks' ], [ 'renew', 'x' ], [ 'renew', 'x', 'y' ], [ 'held', 'x', '-1' ], [ 'lease', 'nothing' ],
		[ 'elect', 'x', 'y', '--http', 'nothing', '--', 'true' ], [ 'locks', 'a', 'b' ], [ '-d', 'nothing=here', 'locks' ])
	{
		($rc, $out, $err) = ctl(@$args);
		is($rc, 64, substr("usage: @$args", 0, 60));
		like($err, qr/^lockctl: \S/, 'it says what is wrong');
		is($out, '', 'and nothing else');
	}
	foreach my $case ([ '-c', 'sh -c' ], [ '-x', 'without -s' ], [ '--nb', '--try' ], [ '--timeout', '--wait' ])
	{
		($rc, $out, $err) = ctl('lock', $case->[0], 'x', 'true');
		like("$rc $err", qr/^64 lockctl: unknown option "$case->[0]": .*\Q$case->[1]\E/, "flock's $case->[0] says its name here");
	}
	like((ctl('elect', '-l'))[2], qr/--listen needs the name of the election/, 'the name is missing');
	nothing_left($node);
};

# The words behind the name are the command's, as in flock and etcdctl.
subtest 'which words are the command' => sub {
	append_to_file("$dir/words", "#!/bin/sh\nprintf '%s' \"\$LOCK_NAME:\"\nprintf ' [%s]' \"\$@\"\n");
	chmod 0755, "$dir/words" or die $!;
	my @words = ("$dir/words", 'db1');

	foreach my $case (
		[ [ 'x', @words ], 'x: [db1]' ],
		[ [ 'x', '--', @words ], 'x: [db1]' ],
		[ [ 'x', @words, '--', 'true' ], 'x: [db1] [--] [true]' ],
		[ [ 'x', '--', @words, '--', 'true' ], 'x: [db1] [--] [true]' ],
		[ [ 'x', @words, '--ttl', '1s', '-E', '9', '--try', '--help' ], 'x: [db1] [--ttl] [1s] [-E] [9] [--try] [--help]' ],
		[ [ '--ttl', '20s', 'x', '--try', '-q', @words, '--nothing' ], 'x: [db1] [--nothing]' ],
		[ [ 'x', '--ttl', '20s', '--', @words, '-E' ], 'x: [db1] [-E]' ],
		[ [ '--', 'x', @words, '--', 'true' ], 'x: [db1] [--] [true]' ],
		[ [ '--', '-x', '--', @words, '--', 'true' ], '-x: [db1] [--] [true]' ])
	{
		($rc, $out, $err) = ctl('lock', @{ $case->[0] });
		is("$rc $out", "0 $case->[1]", "lock @{ $case->[0] }" =~ s/\Q$dir\E//r);
	}
	($rc, $out, $err) = ctl('lock', 'x', '--', '--', @words);
	is($rc, 127, 'a second -- is the command itself');
	like($err, qr/cannot run "--"/, 'which it tells');
	foreach my $case (
		[ [ 'boss', 'me', @words, '--', 'true' ], 'boss: [db1] [--] [true]' ],
		[ [ 'boss', '--ttl', '20s', 'me', '--try', '--', @words, '--try' ], 'boss: [db1] [--try]' ],
		[ [ '--', 'boss', '-me', '--', @words ], 'boss: [db1]' ],
		[ [ '--', 'boss', '-me', @words ], 'boss: [db1]' ])
	{
		($rc, $out, $err) = ctl('elect', @{ $case->[0] });
		is("$rc $out", "0 $case->[1]", "elect @{ $case->[0] }" =~ s/\Q$dir\E//r);
	}
	nothing_left($node);
};

subtest 'not acquired' => sub {
	my $holder = start_ctl('lock', 'x', sh("echo started; exec sleep 1000"));
	wait_held('x');
	is(ctl('lock', '--try', 'x', 'true'), 3, '--try');
	is(ctl('lock', '--wait', '200ms', 'x', 'true'), 3, '--wait');
	is(ctl('lock', '--try', '-E', '0', 'x', 'true'), 0, '-E');
	is(ctl('lock', '--wait', '0.2', '--conflict-exit-code=77', 'x', 'true'), 77, 'its long name');
	is(ctl('lock', '-n', 'x', 'true'), 3, '-n');
	is(ctl('lock', '-w', '0.2', 'x', 'true'), 3, '-w');
	is(ctl('lock', '-nsE', '9,8', 'x', 'true'), 9, 'several letters in one');
	is(ctl('acquire', '-n', 'x'), 3, 'acquire -n');
	is(ctl('acquire', '-w', '0.2', '-E', 7, 'x'), 7, 'acquire -w, -E');
	is(ctl('acquire', '-E', '7,8', 'x'), 64, 'which loses nothing');
	($rc, $out, $err) = ctl('lock', '--try', 'x', 'true');
	is($err, '', 'it is silent: cron would send a mail');
	($rc, $out, $err) = ctl('-v', 'lock', '--try', 'x', 'true');
	like($err, qr/lock "x": not acquired/, 'but for -v');
	like((ctl('-v', 'lock', '-w', '0.2', 'x', 'true'))[2], qr/lock "x": not acquired in time$/m, 'also after a wait');
	my $waiter = start_ctl('-v', 'lock', 'x', '--ttl', '3s', 'true');
	ok(wait_until(sub { $waiter->err =~ /^lockctl: waits for lock "x", position 1$/m }), 'which tells its place') or diag($waiter->err);
	my $behind = start_ctl('-v', 'lock', 'x', '--ttl', '1s', 'true');
	ok(wait_until(sub { $behind->err =~ /^lockctl: waits for lock "x", position 2$/m }), 'the next one, too') or diag($behind->err);
	$waiter->kill('TERM');
	is($waiter->wait, 143, 'ended');
	is(ctl('lock', '--try', 'y', 'true'), 0, 'another lock is free');
	my @before = times;
	is(ctl('lock', 'y', 'sleep', '1.5'), 0, 'a command that sleeps');
	my @after = times;
	cmp_ok($after[2] + $after[3] - $before[2] - $before[3], '<', 0.5, 'lockctl and its guardian sleep, too');
	$behind->kill('TERM');
	is($behind->wait, 143, 'who waits meanwhile, and has renewed its place');
	is(scalar(() = $behind->err =~ /waits for/g), 1, 'has told it once');
	$holder->kill('TERM');
	is($holder->wait, 143, 'the holder ends');
	nothing_left($node);
};

subtest 'the environment' => sub {
	($rc, $out) = ctl('lock', 'a b', sh('echo "$LOCK_NAME $LOCK_TOKEN"'));
	like($out, qr/^a b \d{10,}$/, 'name and token');
	my ($token) = $out =~ /(\d+)$/;
	my $second = (ctl('lock', 'a b', sh('echo "$LOCK_TOKEN"')))[1];
	cmp_ok($second, '>', $token, 'tokens grow');
	($rc, $out) = ctl('lock', 'outer', '--', $lockctl, 'lock', 'inner', sh('echo "$LOCK_NAME"; exit 5'));
	is("$rc $out", "5 inner\n", 'nested: that of the inner one');
	($rc, $out) = ctl('lock', 'outer', sh(qq{$lockctl lock inner true; echo "\$LOCK_NAME"}));
	is($out, "outer\n", 'and afterwards that of the outer one');
	my $is_leader = q{psql -XAtc "SELECT is_leader('boss', $LOCK_TOKEN)"};
	($rc, $out) = ctl('elect', 'boss', 'me', sh(qq{echo "\$LOCK_NAME"; $is_leader}));
	is($out, "boss\nt\n", 'of an election: the term');
	append_to_file("$dir/fence.sql", <<'SQL');
\getenv name LOCK_NAME
\getenv token LOCK_TOKEN
BEGIN;
SELECT fence_lock(:'name', :token);
SELECT 'fenced';
COMMIT;
SQL
	($rc, $out) = ctl('lock', q{o'brien}, '--', 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/fence.sql");
	like("$rc $out", qr/^0 \nfenced$/, 'psql fences with them');

	# Names that a list of lines, words or quotes would not keep apart.
	my @names = ("a\nb", 'c d', q{"e"\\'f'}, "\t\e[1m", 'Größe', '--');
	my $say = q{printf '%s %s\n' "${LOCK_NAME-none}" "$LOCK_NAMES"};
	($rc, $out) = ctl('lock', (map { ('--and', $_) } @names[ 1 .. $#names ]), $names[0], sh($say));
	is($rc, 0, 'several names');
	my ($one, $list) = $out =~ /^(\S+) (\[.*\])\n\z/;
	is($one, 'none', 'LOCK_NAME is not set: it could be taken for all of them');
	is(join('|', @{ JSON::PP->new->utf8->decode($list) }), join('|', map { my $n = $_; utf8::decode($n); $n } @names), 'LOCK_NAMES has each of them');
	is((ctl('lock', $names[0], sh($say)))[1], qq{a\nb ["a\\u000ab"]\n}, 'one name has both');
	is((ctl('lock', 'outer', '--', $lockctl, 'lock', 'x', '--and', 'y', sh($say)))[1], qq{none ["x", "y"]\n}, 'nested: nothing of the outer one');
	append_to_file("$dir/fence_all.sql", <<'SQL');
\getenv names LOCK_NAMES
\getenv token LOCK_TOKEN
BEGIN;
SELECT fence_lock(name, :token) FROM json_array_elements_text(:'names') AS name;
SELECT 'fenced';
COMMIT;
SQL
	($rc, $out) = ctl('lock', q{o'brien}, '--and', 'x y', '--', 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/fence_all.sql");
	like("$rc $out", qr/^0 \n\nfenced$/, 'psql fences all of them');
	append_to_file("$dir/in", "hello\n");
	($rc, $out) = ctl({ in => "$dir/in" }, 'lock', 'x', 'cat');
	is($out, "hello\n", 'standard input is passed on');
	($rc, $out) = ctl('lock', 'x', '--', 'echo', '$HOME', '*', '; exit 9');
	is($out, "\$HOME * ; exit 9\n", 'no shell');
	nothing_left($node);
};

subtest 'signals' => sub {
	foreach my $signal (qw(INT TERM HUP QUIT USR1 USR2))
	{
		my $c = start_ctl('lock', 'x', sh("trap 'echo $signal; exit 9' $signal; echo ready; while :; do sleep 0.05; done"));
		wait_until(sub { $c->out =~ /ready/ });
		$c->kill($signal);
		is($c->wait, 9, "$signal is passed on");
		is($c->out, "ready\n$signal\n", 'to the command');
	}
	foreach my $signal (qw(INT TERM HUP QUIT))
	{
		my $c = start_ctl('lock', 'x', sh("trap 'exit 9' $signal; echo \$\$; kill -STOP \$\$; while :; do sleep 0.05; done"));
		ok(wait_until(sub { $c->out =~ /^(\d+)\n/ && slurp_file("/proc/$1/stat") =~ /\) T / }), 'a command is stopped');
		$c->kill($signal);
		is($c->wait, 9, "$signal continues it");
	}
	# a shell that is about to start a program waits for that, and does not stop before it
	my $stopped = start_ctl('lock', 'x', sh('echo $$; exec sleep 1000'));
	my $is_stopped = sub { return $stopped->out =~ /^(\d+)\n/ && slurp_file("/proc/$1/stat") =~ /\) T /; };
	wait_until(sub { $stopped->out =~ /\n/ });
	$stopped->kill('TSTP');
	ok(wait_until($is_stopped), 'SIGTSTP stops the command');
	$stopped->kill('CONT');
	ok(wait_until(sub { !$is_stopped->() }), 'and SIGCONT continues it');
	$stopped->kill('TERM');
	is($stopped->wait, 143, 'ended');
	nothing_left($node);

	my $holder = start_ctl('lock', 'x', sh('exec sleep 1000'));
	wait_held('x');
	my %number = (INT => 2, TERM => 15, HUP => 1, QUIT => 3, USR1 => 10, USR2 => 12);
	foreach my $signal (qw(INT TERM HUP QUIT USR1 USR2))
	{
		my $c = start_ctl('lock', 'x', 'echo', 'granted');
		wait_waiting('x');
		$c->kill($signal);
		is($c->wait, 128 + $number{$signal}, "$signal ends the wait");
		is($c->signal, $number{$signal}, 'and lockctl');
		is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_election.waiters}), 0, 'and leaves no queue place');
		is($c->out, '', 'the command has not run');
	}
	$holder->kill('INT');
	is($holder->wait, 130, 'a command that dies of SIGINT');

	# nohup
	my $inner_command = qq{$lockctl lock y -- sh -c "echo ready; exec sleep 1000"};
	my $c = start_ctl('lock', 'x', sh("trap '' HUP; exec $inner_command"));
	ok(wait_until(sub { $c->out =~ /ready/ }), 'one lockctl below another') or diag($c->err);
	my $inner = child_of($c->guardian);
	kill 'HUP', $inner;
	$c->kill('TERM');
	is($c->wait, 143, 'what was ignored stays ignored; SIGTERM goes through both');
	nothing_left($node);
};

subtest 'without a command' => sub {
	my $c = start_ctl('lock', 'x');
	wait_until(sub { $c->out =~ /^\d+\n/ });
	chomp(my $token = $c->out);
	is($node->safe_psql('postgres', "SELECT is_held('x', $token)"), 't', 'the token is printed, and the lock held');
	$c->kill('TERM');
	is($c->wait . ' ' . $c->signal, '143 15', 'until a signal');
	nothing_left($node);

	$c = start_ctl('lock', 'x');
	wait_until(sub { $c->out =~ /^\d+\n/ });
	$node->safe_psql('postgres', q{SELECT force_release_lock('x')});
	is($c->wait, 4, 'or until it is lost');
	like($c->err, qr/lock "x" is lost/, 'which it tells');

	# evicted, and dead before the next one begins
	my ($first, $second) = map { PostgreSQL::Test::Utils::tempdir() . '/times' } 1 .. 2;
	$c = start_ctl('lock', '--ttl', '3s', 'x', sh("while :; do date +%s%N >>'$first'; sleep 0.02; done"));
	ok(wait_until(sub { -s $first }), 'at work');
	$node->safe_psql('postgres', q{SELECT evict_lock('x')});
	is(ctl('lock', 'x', sh("date +%s%N >'$second'")), 0, 'the next one has it');
	is($c->wait, 4, 'the first one has lost it');
	like($c->err, qr/lock "x" (?:is lost|could not be renewed in time: the command was ended)/, 'which it tells');
	cmp_ok((split /\n/, slurp_file($first))[-1], '<', slurp_file($second) + 0, 'it was dead before');

	foreach my $case ([ '9', 4 ], [ '9,8', 8 ], [ '0,0', 0 ])
	{
		foreach my $command ([], [ '--', 'sleep', '1000' ])
		{
			$c = start_ctl('lock', 'x', '-E', $case->[0], @$command);
			wait_held('x');
			$node->safe_psql('postgres', q{SELECT force_release_lock('x')});
			is($c->wait(30), $case->[1], "-E $case->[0]: lost, @{ $command }[0 .. 0]");
		}
	}
	is(ctl('lock', 'x', '-E', '9,8', sh("exit $_")), $_, "-E: $_ of the command's own") foreach 3, 4;
};

subtest 'how it is held' => sub {
	my @shared = map { start_ctl('lock', $_, 's', sh('echo ready; exec sleep 1000')) } '--shared', '-s';
	foreach my $c (@shared) { ok(wait_until(sub { $c->out =~ /ready/ }), 'shared'); }
	is(ctl('lock', '--try', 's', 'true'), 3, 'not beside an exclusive one');
	$_->kill('TERM') foreach @shared;
	$_->wait foreach @shared;

	is(ctl('lock', '--hold-for', '5s', 'h', 'true'), 0, '--hold-for');
	is(ctl('lock', '--try', 'h', 'true'), 3, 'keeps it closed');
	is(ctl('lock', '--wait', '30s', 'h', 'true'), 0, 'for that time');
	($rc, $out, $err) = ctl('lock', '--hold-for', '2d', 'h', sh('echo ran'));
	isnt($rc, 0, 'a --hold-for above max_hold_for is refused');
	is($out, '', 'before the command runs');
	like($err, qr/hold_for is too long/, 'which it tells');
	nothing_left($node);

	my $dying = start_ctl('lock', '--ttl', '2s', '--hold-for', '1h', 'h', sh('exec sleep 1000'));
	wait_held('h');
	$dying->kill('KILL');
	$dying->wait;
	ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'lockctl%')}),
		'a lockctl that was killed has no connection');
	is($node->safe_psql('postgres', q{SELECT lease_time_to_live(lease) > '50 min' FROM lock_election.locks WHERE name = 'h'}),
		't', 'and its lock lasts as long as --hold-for, not the shorter --ttl');
	$node->safe_psql('postgres', q{SELECT revoke_lease(lease) FROM lock_election.locks WHERE name = 'h'});
	nothing_left($node);

	my @permits = map { start_ctl('lock', '--permits', 2, 'p', sh('echo ready; exec sleep 1000')) } 1 .. 2;
	foreach my $c (@permits) { ok(wait_until(sub { $c->out =~ /ready/ }), 'a permit'); }
	is(ctl('lock', '--try', '--permits', 2, 'p', 'true'), 3, 'no third one');
	$_->kill('TERM') foreach @permits;
	$_->wait foreach @permits;
	($rc, $out) = ctl('lock', 'a', '--and', 'b', sh('psql -XAtc "SELECT count(*) FROM lock_election.locks"'));
	is("$rc $out", "0 2\n", 'several names');
	nothing_left($node);
};

subtest '--at-most' => sub {
	($rc, $out, $err) = ctl('lock', 'x', '--at-most', '3s', sh('trap "echo ended; exit 5" TERM; while :; do sleep 0.05; done'));
	is("$rc $out", "124 ended\n", 'SIGTERM');
	like($err, qr/^lockctl: lock "x": ending the command, which has run for as long as --at-most allows$/m, 'which it tells');
	($rc, $out, $err) = ctl('elect', 'boss', 'me', '--at-most', '3', '--grace', '100ms', sh('trap "" TERM; setsid sleep 1000 & echo $!; sleep 1000'));
	is($rc, 124, 'SIGKILL after the grace, for a leader as well');
	chomp $out;
	ok(!alive($out), 'and for all that it has started');
	is(ctl('lock', 'x', '--at-most', '1h', sh("exit $_")), $_, "the command's own code where it ends before: $_") foreach 0, 124;
	($rc, $out, $err) = ctl('lock', 'x', '--at-most', '1min');
	is($rc, 64, 'not without a command');

	# The wait does not count.
	my $holder = start_ctl('lock', 'x', sh('exec sleep 1000'));
	wait_held('x');
	my $start = boottime();
	my $waiter = start_ctl('lock', 'x', '--at-most', '8s', sh('exit 7'));
	wait_waiting('x');
	wait_until(sub { boottime() > $start + 9 });
	$holder->kill('TERM');
	is($waiter->wait, 7, 'counted from the grant');
	nothing_left($node);
};

subtest 'what a command leaves behind' => sub {
	($rc, $out) = ctl('lock', '--grace', '100ms', 'x', sh('setsid sleep 1000 & echo $!; exit 6'));
	is($rc, 6, 'the code is that of the command');
	chomp $out;
	ok(!alive($out), 'what it has left behind is ended');
	nothing_left($node);
};

subtest 'help' => sub {
	my @commands = qw(lock elect acquire renew release held lease locks waiters elections status watch top doctor);

	foreach my $command ('', @commands)
	{
		($rc, $out, $err) = ctl(grep({ $_ ne '' } $command), '--help');
		is($rc, 0, "lockctl $command --help");
		like($out, qr/Usage: lockctl \Q$command\E/, 'usage');
		is(join('|', grep { length > 110 } split /\n/, $out), '', 'no line is too long');
	}
	my ($version) = slurp_file('META.json') =~ /"version": "([\d.]+)"/;
	is((ctl('--version'))[1], "lockctl (lock_election) $version\n", '--version');
};

$node->stop;
done_testing();
