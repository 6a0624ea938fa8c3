# The notifier: whatever happens to it, no lock operation waits for it, and it is restarted.
# Promises: A
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# Capacity of the ring of hints between manager and notifier.
use constant RING => 2048;

# Maximum number of hints that one transaction sends or drops.
use constant HINTS_A_COMMIT => 64;

my $node = new_node('main', init => [ allows_streaming => 1 ], conf => "autovacuum = off\nmax_worker_processes = 8\ntrack_commit_timestamp = on\n");
my ($holder, $s, $listener) = map { session($node) } 1 .. 3;
my $channel = $s->query(q{SELECT channel FROM enqueue_lock('x')});
$s->query(q{SELECT release_lock('x', token) FROM lock_election.look()});
$listener->query("LISTEN $channel");

sub notifiers
{
	my ($database) = @_;
	return one("SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election notifier' AND datname = '" . ($database // 'postgres') . "'");
}

sub hints { return one('SELECT hints_sent, hints_dropped FROM lock_election.stat'); }

# Returns the counts once the notifier sleeps, because it updates them a moment after sending.
sub hints_at_rest
{
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'lock_election notifier' AND datname = 'postgres' AND wait_event_type IS DISTINCT FROM 'Extension'}, '0');
	return hints();
}

# Grants a waiting place, and returns its token.
sub hand_off
{
	my $held = $holder->query(q{SELECT acquire_lock('x', wait => '20 s')});
	my $token = $s->query(q{SELECT token FROM enqueue_lock('x')});

	$holder->query("SELECT release_lock('x', $held)");
	is($s->query("SELECT await_lock('x', $token)"), 't', 'a place is granted the lock');
	is($s->query("SELECT release_lock('x', $token)"), 't', 'the granted lock is released');
	return $token;
}

# Runs n hand-offs in one statement.
sub hand_offs
{
	my ($n) = @_;
	$s->query("DO \$\$ DECLARE held bigint; p bigint; BEGIN
		FOR i IN 1 .. $n LOOP
			held := acquire_lock('x', wait => '20 s');
			SELECT token INTO p FROM enqueue_lock('x');
			COMMIT;
			PERFORM release_lock('x', held);
			COMMIT;
			IF NOT await_lock('x', p) THEN RAISE 'not granted'; END IF;
			PERFORM release_lock('x', p);
			COMMIT;
		END LOOP; END \$\$");
	return is($s->error, '', "$n hand-offs succeed");
}

my $notices = '';

# Waits until this token or term has been announced. Returns how often.
sub announced
{
	my ($token) = @_;
	wait_until(sub { $notices .= $listener->query('SELECT 1'); return $notices =~ /"$token"/; });
	return scalar(() = $notices =~ /"(?:token|term)":"$token"/g);
}

subtest 'the first hint starts the notifier' => sub {
	is(notifiers(), '', 'no notifier runs at first');
	my $token = hand_off();
	is(announced($token), 1, 'the grant is announced once');
	like($notices, qr/"$channel" with payload "\{"event":"granted","token":"$token","sequence":1\}"/, 'the notification has the channel and payload');
	like(notifiers(), qr/^\d+$/, 'a notifier runs after the first hint');
	is(hints_at_rest(), '1|0', 'the sent hint is counted');
	my $start = time;
	is(announced(hand_off()), 1, 'the next grant is announced once');
	cmp_ok(time - $start, '<', 15, 'the notifier is woken up before it would check by itself');
	like($notices, qr/"sequence":2\}/, 'the next notification has the next sequence number');

	# A place of several names is announced once.
	my $held = $holder->query(q{SELECT acquire_locks('{x, y, z}')});
	$token = $s->query(q{SELECT token FROM enqueue_locks('{z, y, x}')});
	$holder->query("SELECT release_locks('{x, y, z}', $held)");
	is($s->query("SELECT await_locks('{x, y, z}', $token)"), 't', 'a place of several names is granted its locks');
	$s->query("SELECT release_locks('{x, y, z}', $token)");
	announced(hand_off());
	wait_until(sub { hints() !~ /^[0-3]\|/ });
	is(hints(), '4|0', 'the grant of several names is announced once');
};

# Returns the last sequence number with which this token was announced.
sub sequence_of
{
	my ($token) = @_;
	announced($token);
	return ($notices =~ /"token":"$token","sequence":(\d+)/g)[-1];
}

subtest 'a grant that is not written is not announced' => sub {
	my $before = sequence_of(hand_off());
	my $held = $holder->query(q{SELECT acquire_lock('x', wait => '20 s')});
	my $token = $s->query(q{SELECT token FROM enqueue_lock('x')});
	my $locker = session($node);

	$holder->query('SET lock_election.durable_release = on');    # otherwise the reply would come before the write
	$locker->query('BEGIN; LOCK TABLE _lock_election.slot');
	$holder->query("SELECT release_lock('x', $held)");
	like($holder->error, qr/ERROR:  55P03: /, 'the release cannot be written');
	$locker->query('ROLLBACK');
	is($holder->query("SELECT release_lock('x', $held)"), 't', 'the release succeeds after the table is unlocked');
	is($s->query("SELECT await_lock('x', $token)"), 't', 'the place is granted the lock');
	is(sequence_of($token), $before + 1, 'the failed release has sent no hint');
	$holder->query('RESET lock_election.durable_release');
	$s->query("SELECT release_lock('x', $token)");
	$locker->quit;
};

# The notifier is stopped until the grant is committed, and no other process flushes the WAL.
subtest 'the WAL of a grant is flushed before the announcement' => sub {
	$node->append_conf('postgresql.conf', 'bgwriter_lru_maxpages = 0'); # because writing a page flushes the WAL
	$node->reload;
	wait_for_sql($node, 'SHOW bgwriter_lru_maxpages', '0');
	announced(hand_off());
	my $held = $holder->query(q{SELECT acquire_lock('x', wait => '20 s')});
	my $token = $s->query(q{SELECT token FROM enqueue_lock('x')});
	my $notifier = notifiers();
	stop_asleep($notifier);
	my $walwriter = stop_walwriter($node);

	my $before = one('SELECT pg_current_wal_insert_lsn()');
	is($holder->query("SELECT release_lock('x', $held)"), 't', 'a place is granted the lock');
	is(one("SELECT pg_current_wal_flush_lsn() > '$before'"), 'f', 'the WAL of the grant is not flushed yet');
	kill 'CONT', $notifier;
	is(announced($token), 1, 'the grant is announced');
	is(one("SELECT pg_current_wal_flush_lsn() > '$before'"), 't',
		'the WAL of the grant is flushed before the announcement');
	kill 'CONT', $walwriter;
	$s->query("SELECT release_lock('x', $token)");
};

subtest 'lock_election.notify' => sub {
	my %quiet;

	$listener->query('LISTEN ' . one(q{SELECT quote_ident(observe_election('e'))}));
	foreach my $value ('none', 'elections')
	{
		$node->append_conf('postgresql.conf', "lock_election.notify = $value");
		$node->reload;
		wait_for_sql($node, 'SHOW lock_election.notify', $value);
		# The manager reloads the setting with its next request at the latest.
		wait_for_sql($node, "SELECT setting = '$value' FROM pg_settings WHERE name = 'lock_election.notify'");
		hand_off();
		my $leads = $holder->query(q{SELECT campaign('e', 'one')});
		my $candidate = $s->query(q{SELECT term FROM enqueue_candidate('e', 'two')});
		$holder->query("SELECT resign('e', $leads)");
		is($s->query("SELECT await_leadership('e', $candidate)"), 't', 'a candidate is elected');
		$s->query("SELECT resign('e', $candidate)");
		if ($value eq 'none') { $quiet{$_} = "$value: elections are not announced" foreach $leads, $candidate; }
		else { cmp_ok(announced($candidate), '>', 0, "$value: elections are announced"); }
		$quiet{ hand_off() } = "$value: grants are not announced";
	}
	$node->append_conf('postgresql.conf', 'lock_election.notify = all');
	$node->reload;
	wait_for_sql($node, 'SHOW lock_election.notify', 'all');
	hand_off();
	is(announced(hand_off()), 1, 'all: grants are announced');
	unlike($notices, qr/"$_"/, $quiet{$_}) foreach sort keys %quiet;
};

subtest 'the notifier ends' => sub {
	my $pid = notifiers();
	one("SELECT pg_cancel_backend($pid)");
	is(announced(hand_off()), 1, 'the notifier still works after pg_cancel_backend()');
	is(notifiers(), $pid, 'the notifier keeps running after pg_cancel_backend()');
	one("SELECT pg_terminate_backend($pid, 5000)");
	my $token = hand_off();
	is(announced($token), 1, 'a grant after the termination is announced');
	wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $pid FROM pg_stat_activity WHERE backend_type = 'lock_election notifier'");

	# The manager is replaced.
	my $old = notifiers();
	$pid = one('SELECT pid FROM lock_election.manager');
	kill 'TERM', $pid;
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	my $start = time;
	is(announced(hand_off()), 1, 'a new manager has a notifier');
	cmp_ok(time - $start, '<', 15, 'the new notifier starts before the old one would exit as idle');
	ok(wait_until(sub { scalar(split /\n/, notifiers()) == 1 }), 'only one notifier is left');
	isnt(notifiers(), $old, 'the remaining notifier is a new one');

	# A new notifier waits until the notifier of the old manager has ended.
	$old = notifiers();
	stop_asleep($old);
	$pid = one('SELECT pid FROM lock_election.manager');
	kill 'TERM', $pid;
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	$token = hand_off();
	ok(wait_until(sub { scalar(split /\n/, notifiers()) == 2 }), 'the next notifier starts');
	my ($next) = grep { $_ != $old } split /\n/, notifiers();
	wait_for_sql($node, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $next", 'Extension');
	my $used = cpu_time($next);
	$notices .= $listener->query('SELECT pg_sleep(0.5)');
	cmp_ok(cpu_time($next) - $used, '<', 0.1, 'the next notifier sleeps while it waits for the old one');
	unlike($notices, qr/"$token"/, 'the next notifier sends nothing while the old one exists');

	# The next notifier can be terminated while it waits.
	my $log = -s $node->logfile;
	is(one("SELECT pg_terminate_backend($next, 60000)"), 't', 'the waiting notifier can be terminated');
	ok(wait_until(sub { grep { $_ != $old && $_ != $next } split /\n/, notifiers() }), 'another notifier starts');
	unlike(slurp_file($node->logfile, $log), qr/notifier.*(?:FATAL| exited with exit code)/,
		'the terminated notifier exits normally');
	$notices .= $listener->query('SELECT 1');
	unlike($notices, qr/"$token"/, 'the other notifier sends nothing while the old one exists');
	kill 'CONT', $old;
	is(announced($token), 1, 'after the old notifier has ended, the grant is announced once');
	wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $old FROM pg_stat_activity WHERE backend_type = 'lock_election notifier'");
};

# The notifier must handle the same requests as any session.
subtest 'the notifier handles reloads and barriers' => sub {
	my $state = q{SELECT state, query FROM pg_stat_activity WHERE backend_type = 'lock_election notifier' AND datname = 'postgres'};
	my $configure = sub {
		my ($value, $reload) = @_;
		$node->append_conf('postgresql.conf', "track_activities = $value");
		$node->reload if $reload;
	};

	announced(hand_off());
	wait_for_sql($node, $state, 'idle|sending notifications');
	my $pid = notifiers();
	$configure->('off', 1);
	ok(wait_until(sub { announced(hand_off()); return one($state) =~ /^disabled/; }),
		'the notifier reloads its configuration');
	$configure->('on', 0);
	announced(hand_off()) foreach 1 .. 3;
	like(one($state), qr/^disabled/, 'the notifier does not reload its configuration without SIGHUP');
	$configure->('on', 1);
	ok(wait_until(sub { announced(hand_off()); return one($state) =~ /^idle/; }),
		'the notifier reloads its configuration again');
	is(notifiers(), $pid, 'the notifier keeps running');

	# DROP DATABASE waits until all processes have closed its files.
	announced(hand_off());
	my $start = time;
	one('CREATE DATABASE files');
	one('DROP DATABASE files');
	my $is = notifiers();
	$is = $pid if time - $start >= 20; # it may have exited because it was idle
	is($is, $pid, 'a sleeping notifier takes part in the barrier of DROP DATABASE');
};

subtest 'the notifier is stopped' => sub {
	my $pid = notifiers();
	my $token = hand_off();
	announced($token);
	my ($sent, $dropped) = split /\|/, hints_at_rest();
	hand_offs(300);
	wait_until(sub { return hints() eq ($sent + 300) . "|$dropped" });
	is(hints(), ($sent + 300) . "|$dropped", 'all hints are sent');
	stop_asleep($pid);
	hand_offs(RING + 100); # none waits for the notifier
	is(hints(), ($sent + 300) . '|' . ($dropped + 100), 'hints that do not fit into the ring are dropped and counted');
	kill 'CONT', $pid;
	wait_until(sub { return hints() eq ($sent + 300 + RING) . '|' . ($dropped + 100) });
	is(hints(), ($sent + 300 + RING) . '|' . ($dropped + 100), 'the other hints are sent later');
	is(announced(hand_off()), 1, 'the next grant is announced once');
};

# A session that commits its NOTIFY waits for a missing standby, and keeps the lock that all NOTIFYs need.
sub missing_standby
{
	my ($session, $names) = @_;

	$node->append_conf('postgresql.conf', "synchronous_standby_names = '$names'");
	$node->reload;
	wait_for_sql($node, 'SHOW synchronous_standby_names', $names) unless $names;
	return unless $names;
	# The checkpointer applies the setting.
	wait_until(
		sub {
			$session->async(q{WITH w AS (INSERT INTO written VALUES (1)) SELECT pg_notify('other', 'x')});
			wait_until(sub { $session->ready || one(q{SELECT wait_event FROM pg_stat_activity WHERE pid = } . $session->pid) eq 'SyncRep' });
			return 1 unless $session->ready;
			$session->wait;
			return 0;
		}) or die 'no commit waits for a standby';
	return;
}

subtest 'a NOTIFY that does not end' => sub {
	my $stuck = session($node);
	my $log = -s $node->logfile;
	$stuck->query('CREATE TABLE written (i int)');
	# These settings are meant for the sessions of users.
	$stuck->query("ALTER DATABASE postgres SET $_")
	  foreach q{lock_timeout = '10 ms'}, q{default_transaction_isolation = serializable}, q{default_transaction_deferrable = on},
	  q{default_transaction_read_only = on}, q{search_path = nowhere};
	$stuck->query(q{ALTER DATABASE postgres SET transaction_timeout = '100 ms'}) if $stuck->query('SHOW server_version_num') >= 170000;
	# In an existing session, which does not have these settings.
	$stuck->query(q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'lock_election notifier' AND datname = 'postgres'});
	is(announced(hand_off()), 1, 'a new notifier works although the database has these settings');
	$stuck->query('ALTER DATABASE postgres RESET ALL');
	hand_offs(300);
	my ($sent, $dropped) = split /\|/, hints();

	wait_until(sub { my ($n) = split /\|/, hints(); my $same = $n == $sent; $sent = $n; return $same; });
	$_->query('SET synchronous_commit = local') foreach $holder, $s;
	missing_standby($stuck, 'nobody');
	wait_for_sql($node, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $stuck->pid, 'SyncRep');
	hand_offs(300); # none waits for the NOTIFY
	ok(!$stuck->ready, 'the NOTIFY is still stuck');
	wait_for_sql($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted AND pid = (SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election notifier')}, '1');
	like(hints(), qr/^$sent\|/, 'the notifier waits for the NOTIFY');

	# A manager that exits does not wait for it either.
	my $pid = one('SELECT pid FROM lock_election.manager');
	kill 'TERM', $pid;
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	my $token = hand_off();
	one('SELECT pg_cancel_backend(' . $stuck->pid . ')');
	$stuck->wait;
	like($stuck->error, qr/canceling wait for synchronous replication/, 'the stuck session is cancelled');
	is(announced($token), 1, 'the grant is announced then, without waiting for a standby');

	# Also if its transaction writes WAL: the first transaction of a page of commit timestamps does.
	foreach my $before (1 .. 8)
	{
		$s->query("DO \$\$ BEGIN WHILE pg_snapshot_xmax(pg_current_snapshot())::text::bigint % 819 <> 819 - $before LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END \$\$");
		is(announced(hand_off()), 1, "a grant is announced, $before transactions before a page of commit timestamps");
	}
	unlike(slurp_file($node->logfile, $log), qr/(?:canceling statement|terminating connection) due to .*timeout/, 'the notifier does not use the settings of the database');
	missing_standby($stuck, '');
	$stuck->quit;
};

# As with a full notification queue, the transaction of a NOTIFY fails at its commit.
subtest 'a NOTIFY that fails' => sub {
	my $dir = $node->data_dir . '/pg_notify';
	my ($sent, $dropped) = split /\|/, hints_at_rest();
	my ($log, $start) = (-s $node->logfile, time);

	hand_offs(300);
	$listener->query('UNLISTEN *');
	chmod 0, $dir or die "chmod $dir: $!";
	hand_offs(RING);
	ok(wait_until(sub { my (undef, $n) = split /\|/, hints(); return $n > $dropped + 3 * HINTS_A_COMMIT; }), 'hints are dropped and counted');

	# At most ten times a second.
	my $pid = notifiers();
	my $drained = sub { my ($n, $m) = split /\|/, hints(); return $n + $m == $sent + $dropped + 300 + RING + $_[0]; };
	ok(wait_until(sub { $drained->(0) }), 'no hint is left in the ring');
	wait_for_sql($node, "SELECT state, wait_event_type FROM pg_stat_activity WHERE pid = $pid", 'idle|Extension');
	kill 'STOP', $pid;
	hand_offs(5 * HINTS_A_COMMIT);
	my $continued = time;
	kill 'CONT', $pid;
	wait_until(sub { $drained->(5 * HINTS_A_COMMIT) }, undef, 0.01);
	cmp_ok(time - $continued, '>=', 0.39, 'five failures have four pauses of 100 ms');
	chmod 0700, $dir;
	my $text = slurp_file($node->logfile, $log);
	my $said = () = $text =~ /lock_election could not send notifications/g;
	my $minutes = (time - $start) / 60;
	like($text, qr/ERROR:  (?:.*\n)?.*"pg_notify.*Permission denied\.?\n.*CONTEXT:  lock_election notifier\n(?:.*\n)*?.*notifier .*LOG:  lock_election could not send notifications\n/, 'the log contains the reason of the failure');
	ok($said >= 1 && $said <= 1 + $minutes, 'the log contains the failure at most once a minute') or diag("$said times in $minutes minutes");
	ok($drained->(5 * HINTS_A_COMMIT), 'all hints are counted');
	$listener->query("LISTEN $channel");
	is(announced(hand_off()), 1, 'the next grant is announced once');
	is(notifiers(), $pid, 'the notifier keeps running');
};

# The same for another database.
my $hand_off = q{
	DO $$ DECLARE held bigint; p bigint; BEGIN
		held := acquire_lock('x'); SELECT token INTO p FROM enqueue_lock('x'); COMMIT;
		PERFORM release_lock('x', held), enqueue_lock('x', '1 h'); COMMIT;
	END $$};

subtest 'DROP DATABASE, and other commands that need exclusive use' => sub {
	one('CREATE DATABASE a');
	$node->safe_psql('a', 'CREATE EXTENSION lock_election');
	$node->safe_psql('a', $hand_off);
	wait_for_sql($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = 'a' AND backend_type = 'lock_election notifier'});
	one('CREATE DATABASE b TEMPLATE a');
	is($node->safe_psql('b', q{SELECT granted FROM enqueue_lock('x')}), 't',
		'CREATE DATABASE .. TEMPLATE does not copy holders');
	is($node->safe_psql('b', q{SELECT count(*) FROM _lock_election.queue}), '0',
		'CREATE DATABASE .. TEMPLATE does not copy places');
	$node->safe_psql('a', $hand_off =~ s/'x'/'y'/gr);
	wait_for_sql($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = 'a' AND backend_type = 'lock_election notifier'});
	one('ALTER DATABASE a RENAME TO c');
	$node->safe_psql('c', $hand_off =~ s/'x'/'z'/gr);
	wait_for_sql($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = 'c' AND backend_type = 'lock_election notifier'});
	one('DROP DATABASE c');
	one('DROP DATABASE b');
	one('DROP EXTENSION lock_election');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type IN ('lock_election notifier', 'lock_election manager')});
	ok(1, 'manager and notifier exit after DROP EXTENSION');
	one('CREATE EXTENSION lock_election');
	is(announced(hand_off()), 1, 'a grant is announced after CREATE EXTENSION');
};

# lock_election.max_databases is 4: the last of the three databases gets the entry that the stopped notifier used.
subtest 'the entry of a stopped notifier is reused' => sub {
	one("CREATE DATABASE $_") foreach qw(d e f g);
	$node->safe_psql('d', 'CREATE EXTENSION lock_election');
	$node->safe_psql('d', $hand_off);
	ok(wait_until(sub { notifiers('d') ne '' }), 'the notifier runs');
	my $stopped = notifiers('d');
	stop_asleep($stopped);
	$node->safe_psql('d', 'DROP EXTENSION lock_election');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'd' AND backend_type = 'lock_election manager'});
	is($node->safe_psql($_, q{CREATE EXTENSION lock_election; SELECT acquire_lock('x') IS NOT NULL}), 't', "a lock is granted in database $_") foreach qw(e f g);
	kill 'CONT', $stopped;
	ok(wait_until(sub { notifiers('d') eq '' }), 'the notifier of the dropped extension exits');
	$node->safe_psql('g', $hand_off =~ s/'x'/'y'/gr);
	ok(wait_until(sub { $node->safe_psql('g', 'SELECT hints_sent FROM lock_election.stat') eq '1' }), 'the next notifier of the entry sends');
	one("DROP DATABASE $_") foreach qw(d e f g);
};

subtest 'an idle notifier exits' => sub {
	my $log = -s $node->logfile;
	my $start = time;

	announced(hand_off());
	my $took = time - $start;
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'lock_election notifier'}, '0');
	ok(1, 'the idle notifier exits');
	cmp_ok(time - $start, '>=', 20, 'the notifier is idle for 20 s before it exits');
	cmp_ok(time - $start - $took, '<', 35, 'the notifier exits soon after 20 s');
	unlike(slurp_file($node->logfile, $log), qr/notifier.* exited with exit code/, 'the idle notifier exits normally');
	is(announced(hand_off()), 1, 'the next grant is announced by a new notifier');
};

# No new process can connect to the database.
subtest 'the notifier cannot start' => sub {
	my $log = -s $node->logfile;
	my $failed = sub { return scalar(() = slurp_file($node->logfile, $log) =~ /lock_election notifier .*FATAL: .* is not currently accepting connections/g) };

	$s->query(q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'lock_election notifier' AND datname = 'postgres'});
	one('ALTER DATABASE postgres ALLOW_CONNECTIONS false', 'template1');
	my $start = time;
	my $token = hand_off();
	ok(wait_until(sub { $failed->() >= 5 }), 'the start of the notifier is retried without another hint');
	my $n = $failed->();
	cmp_ok($n, '<=', 2 + time - $start, 'the start is retried once a second');
	one('ALTER DATABASE postgres ALLOW_CONNECTIONS true', 'template1');
	is(announced($token), 1, 'the grant is announced after the notifier has started');
};

# There are workers for both launchers (ours and that of logical replication) and two managers.
subtest 'no worker is free for the notifier' => sub {
	one('CREATE DATABASE second');
	$node->append_conf('postgresql.conf', "max_worker_processes = 4\nmax_logical_replication_workers = 1");
	$_->quit foreach $holder, $s, $listener;
	$node->restart;
	($holder, $s, $listener) = map { session($node) } 1 .. 3;
	$listener->query("LISTEN $channel");
	is(one(q{CREATE EXTENSION lock_election; SELECT acquire_lock('x') > 0}, 'second'), 't', 'another database uses the last worker');
	my $token = hand_off();
	my $manager = manager_pid();
	ok(wait_until(sub { return slurp_file($node->logfile) =~ /could not register the lock_election notifier/ }), 'the log contains the failed start');
	my ($start, $used) = (time, cpu_time($manager));
	$s->query('SELECT pg_sleep(3)');
	cmp_ok(cpu_time($manager) - $used, '<', 0.02 * (time - $start), 'the manager retries only now and then');
	is(scalar(() = slurp_file($node->logfile) =~ /could not register the lock_election notifier/g), 1, 'the log contains the failed start once') if time - $start < 50;
	is(notifiers(), '', 'no notifier runs');
	is(hints(), '0|0', 'the hint waits in the ring');
	one('DROP EXTENSION lock_election', 'second');
	is(announced($token), 1, 'the grant is announced when a worker is free');
	nothing_left($node);
};

subtest 'the postmaster dies' => sub {
	$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
	$_->quit foreach $holder, $s, $listener;
	$node->restart;
	($holder, $s, $listener) = map { session($node) } 1 .. 3;
	$listener->query("LISTEN $channel");
	announced(hand_off());
	# A manager of another database may exist that finds no extension in it.
	my @workers = split /\n/, one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher' OR backend_type ~ '^lock_election' AND datname = 'postgres'});
	is(scalar @workers, 3, 'launcher, manager and notifier run');
	$node->kill9;
	ok(wait_until(sub { !grep { kill 0, $_ } @workers }),
		'launcher, manager and notifier exit after the death of the postmaster');

	# The start also removes the old shared memory.
	$_->quit foreach $holder, $s, $listener;
	ok(wait_until(sub { $node->start(fail_ok => 1) }), 'the server starts again');
};

$node->stop;
done_testing();
