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
		is(ctl('lock', 'x', sh("exit $code")), $code, "the exit code of the command: $code");
	}
	is(ctl('lock', 'x', sh('kill -9 $$')), 137, '128 + the signal that killed the command: SIGKILL');
	is(ctl('lock', 'x', sh('kill -TERM $$')), 143, '128 + the signal that killed the command: SIGTERM');
	foreach my $signal (1, 2, 9, 15)
	{
		my $c = start_ctl('lock', 'x', sh("kill -$signal \$\$"));
		is($c->wait . ' ' . $c->signal, 128 + $signal . " $signal",
			"lockctl dies of signal $signal if its command has");
	}
	my $interrupted = start_ctl('lock', 'x', sh('exit 130'));
	is($interrupted->wait . ' ' . $interrupted->signal, '130 0',
		'lockctl does not die of a signal if the command has exited with 130');
	is(ctl('lock', 'x', '--', "$dir/nothing"), 127, 'the command is not found');
	is(ctl('lock', 'x', '--', $dir), 126, 'the command is not executable');
	($rc, $out, $err) = ctl('lock', 'x', '--', 'no such command');
	is($rc, 127, 'the command is not found in PATH');
	like($err, qr/^lockctl: cannot run "no such command": No such file/, 'the error names the command');
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
		like($err, qr/^lockctl: \S/, 'the usage error starts with "lockctl:"');
		is($out, '', 'a usage error prints nothing to standard output');
	}
	foreach my $case ([ '-c', 'sh -c' ], [ '-x', 'without -s' ], [ '--nb', '--try' ], [ '--timeout', '--wait' ])
	{
		($rc, $out, $err) = ctl('lock', $case->[0], 'x', 'true');
		like("$rc $err", qr/^64 lockctl: unknown option "$case->[0]": .*\Q$case->[1]\E/, "the error of flock's option $case->[0] names that of lockctl");
	}
	like((ctl('elect', '-l'))[2], qr/--listen needs the name of the election/, 'elect --listen without a name');
	nothing_left($node);
};

# The words after the name are the command, as in flock and etcdctl.
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
	like($err, qr/cannot run "--"/, 'the error names the command --');
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

subtest 'the lock is not acquired' => sub {
	my $holder = start_ctl('lock', 'x', sh("echo started; exec sleep 1000"));
	wait_held('x');
	is(ctl('lock', '--try', 'x', 'true'), 3, '--try');
	is(ctl('lock', '--wait', '200ms', 'x', 'true'), 3, '--wait');
	is(ctl('lock', '--try', '-E', '0', 'x', 'true'), 0, '-E');
	is(ctl('lock', '--wait', '0.2', '--conflict-exit-code=77', 'x', 'true'), 77, '--conflict-exit-code');
	is(ctl('lock', '-n', 'x', 'true'), 3, '-n');
	is(ctl('lock', '-w', '0.2', 'x', 'true'), 3, '-w');
	is(ctl('lock', '-nsE', '9,8', 'x', 'true'), 9, 'several short options in one argument');
	is(ctl('acquire', '-n', 'x'), 3, 'acquire -n');
	is(ctl('acquire', '-w', '0.2', '-E', 7, 'x'), 7, 'acquire -w, -E');
	is(ctl('acquire', '-E', '7,8', 'x'), 64, 'acquire -E rejects a second code, because acquire cannot lose a lock');
	($rc, $out, $err) = ctl('lock', '--try', 'x', 'true');
	is($err, '', 'no message when the lock is held, because cron would send it as a mail');
	($rc, $out, $err) = ctl('-v', 'lock', '--try', 'x', 'true');
	like($err, qr/lock "x": not acquired/, '-v prints that the lock is not acquired');
	like((ctl('-v', 'lock', '-w', '0.2', 'x', 'true'))[2], qr/lock "x": not acquired in time$/m,
		'-v prints that the lock is not acquired in time');
	my $waiter = start_ctl('-v', 'lock', 'x', '--ttl', '3s', 'true');
	ok(wait_until(sub { $waiter->err =~ /^lockctl: waits for lock "x", position 1$/m }), '-v prints the position of the first waiter') or diag($waiter->err);
	my $behind = start_ctl('-v', 'lock', 'x', '--ttl', '1s', 'true');
	ok(wait_until(sub { $behind->err =~ /^lockctl: waits for lock "x", position 2$/m }), '-v prints the position of the second waiter') or diag($behind->err);
	$waiter->kill('TERM');
	is($waiter->wait, 143, 'the first waiter exits after SIGTERM');
	is(ctl('lock', '--try', 'y', 'true'), 0, 'another lock is free');
	my @before = times;
	is(ctl('lock', 'y', 'sleep', '1.5'), 0, 'a command that sleeps');
	my @after = times;
	cmp_ok($after[2] + $after[3] - $before[2] - $before[3], '<', 0.5,
		'lockctl and its guardian use no CPU time while the command sleeps');
	$behind->kill('TERM');
	is($behind->wait, 143, 'the second waiter has kept its place for longer than its TTL');
	is(scalar(() = $behind->err =~ /waits for/g), 1, 'the second waiter has printed its position once');
	$holder->kill('TERM');
	is($holder->wait, 143, 'the holder exits after SIGTERM');
	nothing_left($node);
};

subtest 'the environment' => sub {
	($rc, $out) = ctl('lock', 'a b', sh('echo "$LOCK_NAME $LOCK_TOKEN"'));
	like($out, qr/^a b \d{10,}$/, 'LOCK_NAME and LOCK_TOKEN');
	my ($token) = $out =~ /(\d+)$/;
	my $second = (ctl('lock', 'a b', sh('echo "$LOCK_TOKEN"')))[1];
	cmp_ok($second, '>', $token, 'tokens grow');
	($rc, $out) = ctl('lock', 'outer', '--', $lockctl, 'lock', 'inner', sh('echo "$LOCK_NAME"; exit 5'));
	is("$rc $out", "5 inner\n", 'nested: the inner command has the inner LOCK_NAME');
	($rc, $out) = ctl('lock', 'outer', sh(qq{$lockctl lock inner true; echo "\$LOCK_NAME"}));
	is($out, "outer\n", 'nested: the outer command keeps the outer LOCK_NAME');
	my $is_leader = q{psql -XAtc "SELECT is_leader('boss', $LOCK_TOKEN)"};
	($rc, $out) = ctl('elect', 'boss', 'me', sh(qq{echo "\$LOCK_NAME"; $is_leader}));
	is($out, "boss\nt\n", 'in an election, LOCK_TOKEN is the term');
	append_to_file("$dir/fence.sql", <<'SQL');
\getenv name LOCK_NAME
\getenv token LOCK_TOKEN
BEGIN;
SELECT fence_lock(:'name', :token);
SELECT 'fenced';
COMMIT;
SQL
	($rc, $out) = ctl('lock', q{o'brien}, '--', 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/fence.sql");
	like("$rc $out", qr/^0 \nfenced$/, 'psql fences with LOCK_NAME and LOCK_TOKEN');

	# Names that could not be separated in a list of lines, words or quoted strings.
	my @names = ("a\nb", 'c d', q{"e"\\'f'}, "\t\e[1m", 'Größe', '--');
	my $say = q{printf '%s %s\n' "${LOCK_NAME-none}" "$LOCK_NAMES"};
	($rc, $out) = ctl('lock', (map { ('--and', $_) } @names[ 1 .. $#names ]), $names[0], sh($say));
	is($rc, 0, 'several names');
	my ($one, $list) = $out =~ /^(\S+) (\[.*\])\n\z/;
	is($one, 'none', 'with several names, LOCK_NAME is not set');
	is(join('|', @{ JSON::PP->new->utf8->decode($list) }), join('|', map { my $n = $_; utf8::decode($n); $n } @names),
		'LOCK_NAMES contains all names');
	is((ctl('lock', $names[0], sh($say)))[1], qq{a\nb ["a\\u000ab"]\n},
		'with one name, LOCK_NAME and LOCK_NAMES are set');
	is((ctl('lock', 'outer', '--', $lockctl, 'lock', 'x', '--and', 'y', sh($say)))[1], qq{none ["x", "y"]\n},
		'nested: with several inner names, the outer LOCK_NAME is not inherited');
	append_to_file("$dir/fence_all.sql", <<'SQL');
\getenv names LOCK_NAMES
\getenv token LOCK_TOKEN
BEGIN;
SELECT fence_lock(name, :token) FROM json_array_elements_text(:'names') AS name;
SELECT 'fenced';
COMMIT;
SQL
	($rc, $out) = ctl('lock', q{o'brien}, '--and', 'x y', '--', 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/fence_all.sql");
	like("$rc $out", qr/^0 \n\nfenced$/, 'psql fences all names of LOCK_NAMES');
	append_to_file("$dir/in", "hello\n");
	($rc, $out) = ctl({ in => "$dir/in" }, 'lock', 'x', 'cat');
	is($out, "hello\n", 'standard input is passed on');
	($rc, $out) = ctl('lock', 'x', '--', 'echo', '$HOME', '*', '; exit 9');
	is($out, "\$HOME * ; exit 9\n", 'the command is run without a shell');
	nothing_left($node);
};

subtest 'signals' => sub {
	foreach my $signal (qw(INT TERM HUP QUIT USR1 USR2))
	{
		my $c = start_ctl('lock', 'x', sh("trap 'echo $signal; exit 9' $signal; echo ready; while :; do sleep 0.05; done"));
		wait_until(sub { $c->out =~ /ready/ });
		$c->kill($signal);
		is($c->wait, 9, "$signal is passed on");
		is($c->out, "ready\n$signal\n", "the command has received $signal");
	}
	foreach my $signal (qw(INT TERM HUP QUIT))
	{
		my $c = start_ctl('lock', 'x', sh("trap 'exit 9' $signal; echo \$\$; kill -STOP \$\$; while :; do sleep 0.05; done"));
		ok(wait_until(sub { $c->out =~ /^(\d+)\n/ && slurp_file("/proc/$1/stat") =~ /\) T / }),
			'the command has stopped itself');
		$c->kill($signal);
		is($c->wait, 9, "$signal continues a stopped command");
	}
	# A shell stops only after the program that it is about to start has ended, so let the shell exec the
	# program.
	my $stopped = start_ctl('lock', 'x', sh('echo $$; exec sleep 1000'));
	my $is_stopped = sub { return $stopped->out =~ /^(\d+)\n/ && slurp_file("/proc/$1/stat") =~ /\) T /; };
	wait_until(sub { $stopped->out =~ /\n/ });
	$stopped->kill('TSTP');
	ok(wait_until($is_stopped), 'SIGTSTP stops the command');
	$stopped->kill('CONT');
	ok(wait_until(sub { !$is_stopped->() }), 'SIGCONT continues the command');
	$stopped->kill('TERM');
	is($stopped->wait, 143, 'SIGTERM ends the continued command');
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
		is($c->signal, $number{$signal}, "lockctl dies of $signal");
		is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_election.waiters}), 0,
			"no place is left after $signal");
		is($c->out, '', "the command has not run after $signal");
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
	is($c->wait, 143, 'an inherited ignored SIGHUP stays ignored; SIGTERM is passed through both');
	nothing_left($node);
};

subtest 'without a command' => sub {
	my $c = start_ctl('lock', 'x');
	wait_until(sub { $c->out =~ /^\d+\n/ });
	chomp(my $token = $c->out);
	is($node->safe_psql('postgres', "SELECT is_held('x', $token)"), 't', 'lockctl prints the token and holds the lock');
	$c->kill('TERM');
	is($c->wait . ' ' . $c->signal, '143 15', 'SIGTERM ends lockctl without a command');
	nothing_left($node);

	$c = start_ctl('lock', 'x');
	wait_until(sub { $c->out =~ /^\d+\n/ });
	$node->safe_psql('postgres', q{SELECT force_release_lock('x')});
	is($c->wait, 4, 'lockctl without a command exits with 4 when the lock is lost');
	like($c->err, qr/lock "x" is lost/, 'the error says that the lock is lost');

	# The command of an evicted holder is dead before the next holder's command starts.
	my ($first, $second) = map { PostgreSQL::Test::Utils::tempdir() . '/times' } 1 .. 2;
	$c = start_ctl('lock', '--ttl', '3s', 'x', sh("while :; do date +%s%N >>'$first'; sleep 0.02; done"));
	ok(wait_until(sub { -s $first }), 'the first command runs');
	$node->safe_psql('postgres', q{SELECT evict_lock('x')});
	is(ctl('lock', 'x', sh("date +%s%N >'$second'")), 0, 'the second lockctl is granted the lock');
	is($c->wait, 4, 'the evicted lockctl exits with 4');
	like($c->err, qr/lock "x" (?:is lost|could not be renewed in time: the command was ended)/,
		'the error of the evicted lockctl');
	cmp_ok((split /\n/, slurp_file($first))[-1], '<', slurp_file($second) + 0,
		'the first command was dead before the second one started');

	foreach my $case ([ '9', 4 ], [ '9,8', 8 ], [ '0,0', 0 ])
	{
		foreach my $command ([], [ '--', 'sleep', '1000' ])
		{
			$c = start_ctl('lock', 'x', '-E', $case->[0], @$command);
			wait_held('x');
			$node->safe_psql('postgres', q{SELECT force_release_lock('x')});
			is($c->wait(30), $case->[1], "-E $case->[0]: exit code of a lost lock, with command (@$command)");
		}
	}
	is(ctl('lock', 'x', '-E', '9,8', sh("exit $_")), $_,
		"-E does not replace exit code $_ of the command") foreach 3, 4;
};

subtest 'modes and --hold-for' => sub {
	my @shared = map { start_ctl('lock', $_, 's', sh('echo ready; exec sleep 1000')) } '--shared', '-s';
	foreach my $c (@shared) { ok(wait_until(sub { $c->out =~ /ready/ }), 'a shared holder is granted beside others'); }
	is(ctl('lock', '--try', 's', 'true'), 3, 'an exclusive request is not granted beside shared holders');
	$_->kill('TERM') foreach @shared;
	$_->wait foreach @shared;

	is(ctl('lock', '--hold-for', '5s', 'h', 'true'), 0, '--hold-for');
	is(ctl('lock', '--try', 'h', 'true'), 3, 'the name is closed after a release with --hold-for');
	is(ctl('lock', '--wait', '30s', 'h', 'true'), 0, 'the name opens after the time of --hold-for');
	($rc, $out, $err) = ctl('lock', '--hold-for', '2d', 'h', sh('echo ran'));
	isnt($rc, 0, 'a --hold-for above max_hold_for is rejected');
	is($out, '', 'the command of a rejected --hold-for does not run');
	like($err, qr/hold_for is too long/, 'the error says that --hold-for is too long');
	nothing_left($node);

	my $dying = start_ctl('lock', '--ttl', '2s', '--hold-for', '1h', 'h', sh('exec sleep 1000'));
	wait_held('h');
	$dying->kill('KILL');
	$dying->wait;
	ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'lockctl%')}),
		'a killed lockctl has no connection left');
	is($node->safe_psql('postgres', q{SELECT lease_time_to_live(lease) > '50 min' FROM lock_election.locks WHERE name = 'h'}),
		't', 'the lock of a killed lockctl lasts for --hold-for, not for the shorter --ttl');
	$node->safe_psql('postgres', q{SELECT revoke_lease(lease) FROM lock_election.locks WHERE name = 'h'});
	nothing_left($node);

	my @permits = map { start_ctl('lock', '--permits', 2, 'p', sh('echo ready; exec sleep 1000')) } 1 .. 2;
	foreach my $c (@permits) { ok(wait_until(sub { $c->out =~ /ready/ }), 'one of two permits is granted'); }
	is(ctl('lock', '--try', '--permits', 2, 'p', 'true'), 3, 'a third permit is not granted');
	$_->kill('TERM') foreach @permits;
	$_->wait foreach @permits;
	($rc, $out) = ctl('lock', 'a', '--and', 'b', sh('psql -XAtc "SELECT count(*) FROM lock_election.locks"'));
	is("$rc $out", "0 2\n", '--and: both names are held');
	nothing_left($node);
};

subtest '--at-most' => sub {
	($rc, $out, $err) = ctl('lock', 'x', '--at-most', '3s', sh('trap "echo ended; exit 5" TERM; while :; do sleep 0.05; done'));
	is("$rc $out", "124 ended\n", 'the command receives SIGTERM after --at-most');
	like($err, qr/^lockctl: lock "x": ending the command, which has run for as long as --at-most allows$/m, 'the error says that --at-most has passed');
	($rc, $out, $err) = ctl('elect', 'boss', 'me', '--at-most', '3', '--grace', '100ms', sh('trap "" TERM; setsid sleep 1000 & echo $!; sleep 1000'));
	is($rc, 124, 'elect --at-most: SIGKILL after the grace');
	chomp $out;
	ok(!alive($out), '--at-most also kills the processes that the command has started');
	is(ctl('lock', 'x', '--at-most', '1h', sh("exit $_")), $_, "the exit code of a command that exits before --at-most: $_") foreach 0, 124;
	($rc, $out, $err) = ctl('lock', 'x', '--at-most', '1min');
	is($rc, 64, '--at-most requires a command');

	# The time of the wait does not count.
	my $holder = start_ctl('lock', 'x', sh('exec sleep 1000'));
	wait_held('x');
	my $start = boottime();
	my $waiter = start_ctl('lock', 'x', '--at-most', '8s', sh('exit 7'));
	wait_waiting('x');
	wait_until(sub { boottime() > $start + 9 });
	$holder->kill('TERM');
	is($waiter->wait, 7, '--at-most counts from the grant');
	nothing_left($node);
};

subtest 'processes that a command leaves behind' => sub {
	($rc, $out) = ctl('lock', '--grace', '100ms', 'x', sh('setsid sleep 1000 & echo $!; exit 6'));
	is($rc, 6, 'the exit code is that of the command');
	chomp $out;
	ok(!alive($out), 'a process that the command has left behind is killed');
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
