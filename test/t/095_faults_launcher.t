# What the launcher starts, how soon again where it fails, and how many at a time; and a notifier that fails.
# Promises: A
# Needs: faults
use strict;
use warnings;
use LePoints;
use LeTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\nlock_election.max_databases = 8\nmax_worker_processes = 16\n");
my ($s, $free) = map { session($node) } 1 .. 2;
points_by(\$free);

# When the managers of these databases were started, in seconds.  Those that are not connected yet are in no view.
sub managers_of
{
	my ($names) = @_;
	my $read = sub { open(my $file, '<', $_[0]) or return ''; return scalar(<$file>) // ''; }; # some have ended meanwhile
	my @started;

	foreach my $process (glob('/proc/[0-9]*'))
	{
		my ($command, $stat) = map { $read->("$process/$_") } 'cmdline', 'stat';
		my ($parent, $start) = (split ' ', $stat =~ s/.*\) //r)[ 1, 19 ];
		next unless $command =~ /lock_election manager (?:$names)\b/ && ($parent // 0) == $node->{_pid};
		push @started, $start / POSIX::sysconf(POSIX::_SC_CLK_TCK());
	}
	return [ sort { $a <=> $b } @started ];
}

sub manager { return $free->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = 'postgres'}); }

# How long the n-th hit from now on takes.  A busy machine may take longer for each of them.
sub until_hits
{
	my ($point, $n) = @_;
	my $start = time;

	wait_until(sub { fault("hits('$point')") >= $n }, undef, 0.005) or die "$point: no $n hits";
	return time - $start;
}

subtest 'a manager that fails again and again' => sub {
	my $token = $s->query(q{SELECT acquire_lock('x', '1 h')});

	fault(q{set('manager-start', 'error', times => 0)});
	kill 'TERM', manager();
	until_hits('manager-start', 1);
	my $took = until_hits('manager-start', 6);
	cmp_ok($took, '>', 3.0, 'is started after 0.1, 0.2, 0.4, 0.8 and 1.6 s');
	cmp_ok($took, '<', 30, 'and no later');
	$s->async("SELECT is_held('x', $token)");
	sleep 0.5;
	ok(!$s->ready, 'who asks meanwhile waits');
	fault('clear()');
	is($s->wait, 't', 'until one lives');
	is($s->query("SELECT release_lock('x', $token)"), 't', 'and nothing is lost');
};

subtest 'a manager that leaves again and again' => sub {
	my $pid = manager();
	my $started = q{SELECT extract(epoch FROM backend_start) FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = 'postgres' AND pid = };
	my $first = $free->query($started . $pid);

	foreach (1 .. 8)
	{
		kill 'TERM', $pid;
		wait_until(sub { my $next = manager(); return $next =~ /^\d+$/ && $next != $pid; }, undef, 0.005) or die 'no manager';
		$pid = manager();
	}
	my $took = $free->query($started . $pid) - $first;
	cmp_ok($took, '>', 0.7, 'is started ten times a second at most');
	cmp_ok($took, '<', 30, 'but that soon');
};

# They may be many, and most of them do not have the extension.
subtest 'databases that are new' => sub {
	my $new = qr/new\d/;
	my $launcher = $free->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
	my $started;

	fault(q{set('manager-before-entry', 'wait', times => 0)});
	stop_launcher($launcher);
	$free->query('CREATE DATABASE new9 IS_TEMPLATE true');
	$free->query("CREATE DATABASE new$_") foreach 1 .. 5;
	kill 'CONT', $launcher;
	wait_until(sub { $started = managers_of($new); return @$started >= 3 });
	my $end = time + 2;
	wait_until(sub { my $now = managers_of($new); $started = $now if @$now > @$started; return time > $end });
	is(scalar @$started, 3, 'three at a time are looked into');
	cmp_ok($started->[2] - $started->[0], '>', 1, 'one after the other, where that takes no more than a second');
	$s->query(q{SELECT release_lock('x', acquire_lock('x'))});
	is($s->error, '', 'a database that has the extension goes on');
	go_on('manager-before-entry');
	fault('clear()');
	ok(wait_until(sub { !@{ managers_of($new) } }), 'then the others, and none has a manager that stays');
	my $log = slurp_file($node->logfile);
	is(join(' ', sort map { /CONTEXT:  lock_election manager (new\d)/ ? $1 : () } split /\n/, $log), '', 'nor has anything to say');
	$free->query('ALTER DATABASE new9 IS_TEMPLATE false');
	$free->query("DROP DATABASE new$_") foreach 1 .. 5, 9;
	is($free->error, '', 'and all can be dropped');
};

# What the first of them has done counts for the transaction, although its number is higher than that of the second one.
subtest 'commands in a subtransaction, and after it' => sub {
	foreach my $name (qw(sub_a sub_b))
	{
		$free->query("CREATE DATABASE $name");
		$node->safe_psql($name, q{CREATE EXTENSION lock_election; SELECT acquire_lock('x', '1 h', owner => 'me')});
	}
	is($s->query('BEGIN; SAVEPOINT a; ALTER DATABASE sub_a RENAME TO sub_c; RELEASE a; ALTER DATABASE sub_b RENAME TO sub_d; COMMIT') . $s->error, '',
		'two databases are renamed');
	foreach my $name (qw(sub_c sub_d))
	{
		is($node->safe_psql($name, q{SELECT count(*) FROM lock_election.locks}), 1, "$name: its lock is held");
		my $error = ($node->psql($name, 'BEGIN; SAVEPOINT a; DROP EXTENSION lock_election; RELEASE a; CREATE EXTENSION lock_election; DROP EXTENSION lock_election; COMMIT'))[2];
		is($error, '', 'the extension is dropped, made and dropped');
		$free->query("DROP DATABASE $name");
		is($free->error, '', 'and the database');
	}
};

subtest 'a notifier that fails again and again' => sub {
	my $sent = q{SELECT hints_sent, hints_dropped FROM lock_election.stat};

	fault(q{set('notifier-sent', 'fatal', times => 0)});
	is($s->query(q{SELECT (enqueue_lock('y')).granted}), 't', 'a lock is held');
	$s->query(q{SELECT token FROM enqueue_lock('y', owner => 'next')});
	is($s->query(q{SELECT release_lock('y')}), 't', 'a place is granted');
	until_hits('notifier-sent', 1);
	my $took = until_hits('notifier-sent', 3);
	cmp_ok($took, '>', 1.8, 'is started once a second');
	cmp_ok($took, '<', 30, 'and no later');
	is($free->query($sent), '0|0', 'nothing counts as sent');
	fault('clear()');
	ok(wait_for_sql($node, $sent, '1|0'), 'until one lives');
	$free->query(q{SELECT force_release_lock('y')});
	nothing_left($node);
};
$free->quit;

# Why there is no manager is said of the one that is to come, not of the one before.
subtest 'a manager that begins after none could' => sub {
	my $few = new_node('few', faults => 1, conf => "autovacuum = off\nmax_worker_processes = 2\nmax_logical_replication_workers = 0\n");

	$free = session($few);
	one($few, 'CREATE DATABASE second');
	one($few, 'CREATE EXTENSION lock_election', 'second');
	my $waits = session($few, dbname => 'second');
	$waits->query(q{SELECT acquire_lock('x')});
	like($waits->error, qr/DETAIL:  No background worker is free for it/, 'one worker is not enough for two');
	stop_at('manager-start');
	is($free->query('DROP EXTENSION lock_election') . $free->error, '', 'the other one goes');
	stopped('manager-start');
	$waits->query(q{SELECT acquire_lock('x')});
	like($waits->error, qr/DETAIL:  It did not start within 5\.0 seconds\./, 'the next one has not begun yet');
	go_on('manager-start');
	like($waits->query(q{SELECT acquire_lock('x', wait => '20 s')}), qr/^\d+$/, 'then it has');
	$_->quit foreach $waits, $free;
	$few->stop;
};

$s->quit;
$node->stop;
done_testing();
