# Which processes the launcher starts, when it retries a failed start, and how many it starts at a time; and a failing
# notifier.
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

# Returns the start times, in seconds, of the managers of these databases. No view shows managers that are not connected
# yet.
sub managers_of
{
	my ($names) = @_;
	my $read = sub { open(my $file, '<', $_[0]) or return ''; return scalar(<$file>) // ''; }; # some processes have ended in the meantime
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

# Waits for the n-th hit. Returns two times between which it happened: the last check without it, and the first check
# with it.
sub until_hits
{
	my ($point, $n, $before) = @_;
	my $look;

	$before //= time;
	wait_until(sub { $look = time; return 1 if fault("hits('$point')") >= $n; $before = $look; return 0 }, undef, 0.005) or die "$point: no $n hits";
	return ($before, time);
}

# Makes the manager of this database fail repeatedly at the point. Returns the minimum and maximum time from the first
# hit to the n-th.
sub fails_for
{
	my ($dbname, $point, $n) = @_;
	my $start = time;

	fault("set('$point', 'error', times => 0)");
	$free->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = '$dbname'");
	my @first = until_hits($point, 1, $start);
	my @last = until_hits($point, $n);
	return ($last[0] - $first[1], $last[1] - $first[0]);
}

# The same in a new database without failures. Repeats the test if it takes too long, as on a busy machine.
sub fails_for_less_than
{
	my ($seconds, $point, $n) = @_;
	my ($least, $most, @served);

	for (my $try = 1; $try <= 3 && ($least // $seconds) >= $seconds; $try++)
	{
		$free->query('CREATE DATABASE fails');
		one($node, q{CREATE EXTENSION lock_election; SELECT release_lock('x', acquire_lock('x'))}, 'fails');
		($least, $most) = fails_for('fails', $point, $n);
		fault('clear()');
		push @served, one($node, q{SELECT release_lock('x', acquire_lock('x', wait => '20 s'))}, 'fails');
		$free->query('DROP DATABASE fails');
	}
	is(join(' ', @served), join(' ', map { 't' } @served), 'the database is served when its manager no longer fails');
	cmp_ok($least, '<', $seconds, "the retries take less than $seconds s");
	return $most;
}

# Waits until the launcher has read the databases twice, so that it has processed the results of the first read.
sub let_launcher_read
{
	foreach (1, 2)
	{
		my $before = fault(q{hits('launcher-scanned')});

		$free->query('ALTER DATABASE postgres CONNECTION LIMIT -1'); # wakes the launcher up
		until_hits('launcher-scanned', $before + 1);
	}
	return;
}

subtest 'a manager that fails repeatedly' => sub {
	my $token = $s->query(q{SELECT acquire_lock('x', '1 h')});

	my ($least, $most) = fails_for('postgres', 'manager-start', 6);
	cmp_ok($most, '>', 3.0, 'a failing manager is restarted after 0.1, 0.2, 0.4, 0.8 and 1.6 s');
	$s->async("SELECT is_held('x', $token)");
	sleep 0.5;
	ok(!$s->ready, 'a request waits while the manager fails');
	fault('clear()');
	is($s->wait, 't', 'the request gets its reply when the manager starts');
	is($s->query("SELECT release_lock('x', $token)"), 't', 'the lock is still held, and is released');
	$least < 15 ? pass('the retries take less than 15 s') : fails_for_less_than(15, 'manager-start', 6);
};

# The postmaster tells the launcher about the end of the process.
subtest 'a manager that fails before it takes its entry' => sub {
	my $most = fails_for_less_than(9, 'manager-before-entry', 4);
	cmp_ok($most, '>', 0.6, 'the manager is restarted after 0.1, 0.2 and 0.4 s');
};

# Each command that changes a database wakes the launcher up.
subtest 'a launcher that is woken up repeatedly' => sub {
	my $scans = sub { return fault(q{hits('launcher-scanned')}); };
	my ($start, $before) = (time, $scans->());

	$free->query(q{DO $$ BEGIN FOR i IN 1 .. 300 LOOP EXECUTE 'ALTER DATABASE postgres CONNECTION LIMIT ' || 50 + i % 2; COMMIT; END LOOP; END $$});
	is($free->error, '', 'a database is changed 300 times');
	cmp_ok($scans->() - $before, '<=', 2 + 10 * (time - $start), 'the launcher reads the databases at most ten times per second');
	$free->query('ALTER DATABASE postgres CONNECTION LIMIT -1');
};

subtest 'a manager that exits repeatedly' => sub {
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
	cmp_ok($took, '>', 0.7, 'the manager is restarted at most ten times per second');
	cmp_ok($took, '<', 30, 'the manager is restarted within 30 s');
};

# There may be many new databases, most of them without the extension.
subtest 'new databases' => sub {
	my $new = qr/new\d/;
	my $launcher = $free->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
	my $log_at = -s $node->logfile;
	my $looked_into = sub { return fault(q{hits('launcher-probe')}); };
	my $before = $looked_into->();
	my $started;

	fault(q{set('manager-before-entry', 'wait', times => 0)});
	stop_asleep($launcher);
	$free->query('CREATE DATABASE new9 IS_TEMPLATE true');
	$free->query("CREATE DATABASE new$_") foreach 1 .. 6;
	$free->query(q{UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'new6'}); # like a database whose DROP was interrupted
	kill 'CONT', $launcher;
	wait_until(sub { $started = managers_of($new); return @$started >= 3 });
	my $end = time + 2;
	wait_until(sub { my $now = managers_of($new); $started = $now if @$now > @$started; return time > $end });
	is(scalar @$started, 3, 'at most three new databases are probed at the same time');
	cmp_ok($started->[2] - $started->[0], '>', 1, 'the probes start one after another if each takes no more than a second');
	my ($shorter) = sort { $a <=> $b } map { $started->[ $_ + 1 ] - $started->[$_] } 0, 1;
	cmp_ok($shorter, '<', 4, 'a slow probe delays the next one by little more than a second'); # on a busy machine one of them may be
	my ($dropped) = grep { !@{ managers_of("new$_") } } 1 .. 5;
	$free->query("DROP DATABASE new$dropped");
	is($free->error, '', 'a database that is not probed yet can be dropped');
	let_launcher_read();
	$s->query(q{SELECT release_lock('x', acquire_lock('x'))});
	is($s->error, '', 'a database with the extension works in the meantime');
	go_on('manager-before-entry');
	ok(wait_until(sub { $looked_into->() - $before >= 4 && !@{ managers_of($new) } }), 'the other databases are probed, and no manager stays');
	$s->query('SELECT pg_sleep(0.3)');
	is($looked_into->() - $before, 4, 'templates, dropped and invalid databases are not probed');
	fault('clear()');
	my $log = slurp_file($node->logfile);
	is(join(' ', sort map { /CONTEXT:  lock_election manager (new\d)/ ? $1 : () } split /\n/, $log), '', 'a probe writes nothing to the log');
	unlike(slurp_file($node->logfile, $log_at), qr/FATAL/, 'no probe fails');
	$free->query('ALTER DATABASE new9 IS_TEMPLATE false');
	is(join('', map { $free->query("DROP DATABASE new$_") . $free->error } grep { $_ != $dropped } 1 .. 6, 9), '', 'all databases can be dropped');
};

# A command reserves a database that the launcher is about to probe.
subtest 'a new database that is reserved' => sub {
	my $launcher = $free->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
	my $probes = sub { return fault(q{hits('launcher-probe')}); };

	stop_asleep($launcher);
	$free->query('CREATE DATABASE reserved');
	$s->query('BEGIN; ALTER DATABASE reserved RENAME TO renamed');
	my ($before, $start) = ($probes->(), time);
	kill 'CONT', $launcher;
	until_hits('launcher-probe', $before + 4);
	cmp_ok(time - $start, '>=', 0.3, 'the probe is retried repeatedly, with pauses');
	is(@{ managers_of('reserved') }, 0, 'no manager is started for a reserved database');
	stop_at('manager-before-entry');
	$s->query('ROLLBACK');
	stopped('manager-before-entry');
	is(@{ managers_of('reserved') }, 1, 'a manager is started after the reservation');
	go_on('manager-before-entry');
	$free->query('DROP DATABASE reserved');
	is($free->error, '', 'the database is dropped after its manager has exited');
};

# A session that has waited for the start of the manager is connected to it once it runs.
subtest 'a manager that exits for good' => sub {
	$free->query('CREATE DATABASE gone');
	my ($asks, $admin) = map { session($node, dbname => 'gone') } 1 .. 2;
	my $pid = manager();

	stop_at('manager-start');
	$admin->query('CREATE EXTENSION lock_election');
	$asks->async(q{SELECT is_held('x', 1)});
	stopped('manager-start');
	asking($asks);
	go_on('manager-start');
	is($asks->wait, 'f', 'a session has waited for the manager');
	fault(q{set('manager-start', 'sleep', ms => 1, times => 0)});
	is($admin->query('DROP EXTENSION lock_election') . $admin->error, '', 'DROP EXTENSION ends the manager');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = 'gone'});
	kill 'TERM', $pid;
	until_hits('manager-start', 1);
	is($s->query(q{SELECT is_held('x', 1)}), 'f', 'the manager of another database is restarted');
	let_launcher_read();
	is(fault(q{hits('manager-start')}), 1, 'the manager of the dropped extension is not restarted');
	fault('clear()');
	$_->quit foreach $asks, $admin;
	ok(wait_until(sub { $free->query('DROP DATABASE gone'); return $free->error eq ''; }), 'the database is dropped when both sessions have ended');
};

# The effects of a command in a subtransaction belong to the transaction, although its number is higher than that of the
# command after it.
subtest 'commands in a subtransaction, and after it' => sub {
	foreach my $name (qw(sub_a sub_b))
	{
		$free->query("CREATE DATABASE $name");
		$node->safe_psql($name, q{CREATE EXTENSION lock_election; SELECT acquire_lock('x', '1 h', owner => 'me')});
	}
	is($s->query('BEGIN; SAVEPOINT a; ALTER DATABASE sub_a RENAME TO sub_c; RELEASE a; ALTER DATABASE sub_b RENAME TO sub_d; COMMIT') . $s->error, '',
		'two databases are renamed in one transaction');
	foreach my $name (qw(sub_c sub_d))
	{
		is($node->safe_psql($name, q{SELECT count(*) FROM lock_election.locks}), 1, "$name: its lock is held");
		my $error = ($node->psql($name, 'BEGIN; SAVEPOINT a; DROP EXTENSION lock_election; RELEASE a; CREATE EXTENSION lock_election; DROP EXTENSION lock_election; COMMIT'))[2];
		is($error, '', "$name: the extension is dropped, created and dropped");
		$free->query("DROP DATABASE $name");
		is($free->error, '', "$name: the database is dropped");
	}
};

subtest 'a notifier that fails repeatedly' => sub {
	my $sent = q{SELECT hints_sent, hints_dropped FROM lock_election.stat};
	my $start = time;

	fault(q{set('notifier-sent', 'fatal', times => 0)});
	is($s->query(q{SELECT (enqueue_lock('y')).granted}), 't', 'a lock is acquired');
	$s->query(q{SELECT token FROM enqueue_lock('y', owner => 'next')});
	is($s->query(q{SELECT release_lock('y')}), 't', 'the next place is granted');
	my @first = until_hits('notifier-sent', 1, $start);
	my @last = until_hits('notifier-sent', 3);
	cmp_ok($last[1] - $first[0], '>', 1.8, 'a failing notifier is restarted at most once per second');
	cmp_ok($last[0] - $first[1], '<', 30, 'a failing notifier is restarted within 30 s');
	is($free->query($sent), '0|0', 'no hint counts as sent');
	fault('clear()');
	ok(wait_for_sql($node, $sent, '1|0'), 'the hint is sent when the notifier no longer fails');
	$free->query(q{SELECT force_release_lock('y')});
	nothing_left($node);
};

subtest 'the notifier in pg_stat_activity' => sub {
	my $tells = sub {
		return $free->query("SELECT state, query, $_[0] FROM pg_stat_activity WHERE backend_type = 'lock_election notifier' AND datname = 'postgres'");
	};
	my $before = $free->query('SELECT clock_timestamp()');

	stop_at('notifier-before-commit');
	is($s->query(q{SELECT campaign('e', 'me', '1 h') IS NOT NULL}), 't', 'an election causes a notification');
	stopped('notifier-before-commit');
	is($tells->("xact_start > '$before'"), 'active|sending notifications|t', 'the notifier is active while it sends');
	go_on('notifier-before-commit');
	ok(wait_until(sub { $tells->('xact_start IS NULL') eq 'idle|sending notifications|t' }), 'the notifier is idle afterwards');
	my $sent = fault(q{hits('notifier-sent')});
	is($s->query(q{SELECT force_resign('e')}) . $s->error, '1', 'the term is ended by force');
	until_hits('notifier-sent', $sent + 1);
};

# A notifier that has committed is stopped before it counts its hints; in the meantime, another database gets its entry.
subtest 'a notifier whose entry is reused' => sub {
	my $announces = q{SELECT campaign('e', 'me', '1 h') IS NOT NULL};
	my $sent = q{SELECT hints_sent, hints_dropped FROM lock_election.stat};

	one($node, "CREATE DATABASE $_") foreach 'gone', 'heir'; # no database can be created while a process is stopped
	one($node, 'CREATE EXTENSION lock_election', 'gone');
	fault(q{set('notifier-sent', 'sleep', 3000)}); # a release of the fault point would let it notice that it has to exit
	is(one($node, $announces, 'gone'), 't', 'an election causes a notification');
	until_hits('notifier-sent', 1);
	my $old = $free->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election notifier' AND datname = 'gone'});
	kill 'STOP', $old;
	one($node, 'DROP EXTENSION lock_election', 'gone');
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = 'gone'}, '0');
	let_launcher_read(); # the launcher frees the entry
	one($node, 'CREATE EXTENSION lock_election', 'heir');
	is(one($node, $announces, 'heir'), 't', 'an election in another database causes a notification');
	wait_for_sql($node, $sent, '1|0', dbname => 'heir');
	kill 'CONT', $old;
	ok(wait_until(sub { !kill 0, $old }), 'the old notifier exits');
	is(one($node, $sent, 'heir'), '1|0', 'the old notifier does not count its hint for the other database');
	is(one($node, q{SELECT force_resign('e')}, 'heir'), '1', 'the other database works');
	wait_for_sql($node, $sent, '2|0', dbname => 'heir');
	is(join('', map { $free->query("DROP DATABASE $_") . $free->error } 'gone', 'heir'), '', 'both databases can be dropped');
};
$free->quit;

# The reason why there is no manager refers to the next manager, not to the previous one.
subtest 'a manager that starts after a lack of workers' => sub {
	my $few = new_node('few', faults => 1, conf => "autovacuum = off\nmax_worker_processes = 2\nmax_logical_replication_workers = 0\n");

	$free = session($few);
	one($few, 'CREATE DATABASE second');
	one($few, 'CREATE EXTENSION lock_election', 'second');
	my $waits = session($few, dbname => 'second');
	$waits->query(q{SELECT acquire_lock('x')});
	like($waits->error, qr/DETAIL:  No background worker is free for it/, 'one worker is not enough for two databases');
	stop_at('manager-start');
	is($free->query('DROP EXTENSION lock_election') . $free->error, '', 'the extension in the other database is dropped');
	stopped('manager-start');
	$waits->query(q{SELECT acquire_lock('x')});
	like($waits->error, qr/DETAIL:  It did not start within 5\.0 seconds\./, 'the error says that the next manager has not started yet');
	go_on('manager-start');
	like($waits->query(q{SELECT acquire_lock('x', wait => '20 s')}), qr/^\d+$/, 'requests are served when the manager has started');
	$_->quit foreach $waits, $free;
	$few->stop;
};

# The mail of ended sessions is in the entry of their database, which a new launcher must not free before it has seen
# the manager.
subtest 'sessions end after the launcher and the manager' => sub {
	my $worker = sub {
		return $free->query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election $_[0]' AND coalesce(datname, 'deserted') = 'deserted'");
	};
	my $gone = sub { my ($pid) = @_; return wait_until(sub { $free->query("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' }, undef, 0.01) || die "$pid does not end" };
	my $is_free = sub { return one($node, "SELECT try_acquire_lock('$_[0]', '1 h') IS NOT NULL", 'deserted') };

	$free = session($node);
	one($node, 'CREATE DATABASE deserted');
	one($node, 'CREATE EXTENSION lock_election', 'deserted');
	my ($acquires, $releases) = map { session($node, dbname => 'deserted') } 1 .. 2;

	# A rollback.
	$acquires->query(q{BEGIN; SELECT acquire_lock('open', '1 h')});
	my ($launcher, $manager, $pid) = ($worker->('launcher'), $worker->('manager'), $acquires->pid);
	kill 'STOP', $pid;
	foreach ($launcher, $manager) { kill 'TERM', $_; $gone->($_); }
	kill 'TERM', $pid;
	kill 'CONT', $pid;
	$gone->($pid);
	wait_until(sub { $worker->('launcher') }) or die 'there is no launcher';
	is($is_free->('open'), 't', 'a lock that was rolled back is free');

	# A release that was reported.
	my $token = $releases->query(q{SELECT acquire_lock('told', '5 min')});
	($launcher, $manager, $pid) = ($worker->('launcher'), $worker->('manager'), $releases->pid);
	stop_asleep($manager);
	is($releases->query("SELECT release_lock('told', $token)"), 't', 'a release is reported while the manager is stopped');
	$releases->quit;
	$gone->($pid);
	fault("set('manager-took', 'error', pid => $manager)");
	kill 'TERM', $launcher;
	$gone->($launcher);
	kill 'CONT', $manager;
	$gone->($manager);
	wait_until(sub { $worker->('launcher') }) or die 'there is no launcher';
	is($is_free->('told'), 't', 'the reported release is applied');

	# The launcher ignores query cancels.
	$launcher = $worker->('launcher');
	$free->query("SELECT pg_cancel_backend($launcher)");
	one($node, 'CREATE DATABASE later');
	one($node, 'CREATE EXTENSION lock_election', 'later');
	is($worker->('launcher'), $launcher, 'a cancel does not end the launcher');
	one($node, "DROP DATABASE $_") foreach 'deserted', 'later';
	$free->quit;
};

$s->quit;
$node->stop;
done_testing();
