# The portable edition: which role counts, the effects of a cancel, waits for the flush, which calls of lease_sync()
# renew, when a NOTIFY is sent, and a promoted standby.
# Promises: M, T, D, L, G
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Cluster;
use Test::More;

my $node = new_node('main', portable => 1, init => [ allows_streaming => 1 ]);

one('CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; GRANT CREATE ON SCHEMA public TO app');

sub as { my ($role, %opts) = @_; return session($node, user => $role, %opts); }

# Runs a statement. Returns synchronous_commit of its transaction after it; both are sent in one message, which is one
# transaction.
sub commits_as { my ($s, $sql) = @_; return (split /\n/, $s->query("$sql\\; SHOW synchronous_commit"))[-1]; }

subtest 'privileges in SECURITY DEFINER functions' => sub {
	my ($s, $o) = (as('app'), as('other'));
	my $token = $s->query(q{SELECT acquire_lock('w', '1 h')});

	$s->query(q{CREATE FUNCTION wrapped_acquire(n text) RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$ SELECT try_acquire_lock(n, '1 h') $$;
		CREATE FUNCTION wrapped_release(n text, t bigint) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT release_lock(n, t) $$});
	my $others = $o->query(q{SELECT wrapped_acquire('v')});
	is($o->query(q{SELECT role, owner IS NULL FROM lock_election.locks WHERE name = 'v'}), 'other|t', 'a lock that a SECURITY DEFINER function acquires belongs to the role of the session');
	$o->query("SELECT wrapped_release('w', $token)");
	like($o->error, qr/42501/, 'a SECURITY DEFINER function cannot release the lock of its owner for another role');
	$s->query("SELECT wrapped_release('v', $others)");
	like($s->error, qr/42501/, 'the owner of the function cannot release the lock of its caller');
	is($o->query("SELECT wrapped_release('v', $others)"), 't', 'the caller can release its lock through the function');
	is($s->query("SELECT is_held('w', $token), release_lock('w', $token)"), 't|t', q{the lock of the function's owner is unchanged});
	$_->quit foreach $s, $o;
};

# JIT compilation can take longer than a call may take.
is(one(q{SELECT string_agg(DISTINCT p.proname, ' ' ORDER BY p.proname) FROM pg_proc p WHERE p.prosecdef AND p.proowner = (SELECT nspowner FROM pg_namespace WHERE nspname = '_lock_election')
	AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql') AND NOT p.proconfig @> '{jit=off}'}), 'acquire_lock advisory_acquire advisory_release fence_guard release_lock try_acquire_lock version_guard',
	'JIT is off in all functions except the most frequent ones, where the setting itself is too expensive');

subtest 'cancels' => sub {
	my ($s, $o) = (as('app'), as('app'));

	# Timeouts during a wait, and while the critical section is occupied.
	$o->query(q{SELECT acquire_lock('held', '1 h')});
	$s->query(q{SET statement_timeout = '200 ms'; SELECT acquire_lock('held')});
	like($s->error, qr/57014/, 'statement_timeout ends a wait');
	$s->query(q{SET statement_timeout = 0; SET lock_timeout = '200 ms'; SELECT acquire_lock('held')});
	like($s->error, qr/55P03/, 'lock_timeout ends a wait');
	$o->query(q{BEGIN; SELECT token FROM enqueue_lock('taken', '1 h')});
	is($s->query(q{BEGIN; SET LOCAL lock_timeout = '7 s'; SELECT try_acquire_lock('taken') IS NULL; SHOW lock_timeout; COMMIT; SHOW lock_timeout}), "t\n7s\n200ms",
		'a try that fails changes no setting');
	$o->query('ROLLBACK');
	is($s->query(q{RESET lock_timeout; SELECT name, mode FROM lock_election.locks}), 'held|exclusive', 'cancelled calls leave no lock');

	# Cancels at random times.
	my ($held, $cancelled) = (0, 0);
	foreach my $n (1 .. 40)
	{
		my $out = $s->query("SET statement_timeout = " . (1 + $n % 8) . "; SELECT acquire_locks('{m1,m2,m3,m4}', '1 h', wait => '0'); SET statement_timeout = 0");
		my $names = one(q{SELECT count(*) FROM lock_election.locks WHERE name LIKE 'm_'});
		my $sections = one('SELECT count(*) FROM pg_locks WHERE pid = ' . $s->pid . q{ AND locktype = 'advisory'});
		$out =~ /^\d+$/ ? $held++ : $cancelled++;
		$out =~ /^\d+$/ ? $names == 4 : $names == 0 or die "$names names are held: $out " . $s->error;
		$sections == 0 or die "$sections sections are left";
		$s->query("SELECT release_locks('{m1,m2,m3,m4}', $out)") if $out =~ /^\d+$/;
	}
	pass("a cancelled call holds all names or none: acquired $held times, cancelled $cancelled times");
	one(q{SELECT force_release_role('app')});
	$_->quit foreach $s, $o;
};

subtest 'which calls wait for the flush' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my $busy = $o->query(q{SELECT acquire_lock('busy', '1 min')});
	is($s->query(q{BEGIN; SELECT try_acquire_lock('busy') IS NULL, acquire_lock('busy', wait => '50 ms') IS NULL, pg_current_xact_id_if_assigned() IS NULL; COMMIT}), 't|t|t',
		'a try on a held lock writes nothing');
	$o->query("SELECT release_lock('busy', $busy)");
	my $lease = $s->query(q{SELECT grant_lease('1 min')});
	my $long = $s->query(q{SELECT grant_lease('1 h')});
	my $call = 0;
	my $sync = sub {
		my ($items, $of, $seen) = @_;

		$call++;
		return 'SELECT event FROM lease_sync(' . ($of // $lease) . ", $call" . ($seen ? ", $seen" : '') . ($items ? ", items => '{$items}'" : '') . ')';
	};
	# Returns the state of a client that has seen all news.
	my $seen = sub { $call++; return $s->query("SELECT incarnation || ', ' || news FROM lease_sync($lease, $call) LIMIT 1"); };
	my $token = $s->query(q{SELECT acquire_lock('d', '1 min', lease => } . "$lease)");

	is(commits_as($s, $sync->()), 'on', 'a call that reports a grant waits for the flush');
	is(commits_as($s, $sync->(undef, undef, $seen->())), 'off', 'a call that only renews does not wait for the flush');
	is(commits_as($s, $sync->("1,release,d,$token,NULL,NULL", undef, $seen->())), 'off', 'a call that releases does not wait for the flush');
	is(commits_as($s, $sync->("1,release,d,$token,NULL,1 s")), 'on', 'a call that closes a name waits for the flush');
	is(commits_as($s, $sync->('1,try_lock,d,NULL,o,NULL')), 'on', 'a call that acquires waits for the flush');
	is(commits_as($s, $sync->('1,enqueue_lock,e,NULL,o,NULL')), 'on', 'a call that enqueues waits for the flush');
	is(commits_as($s, $sync->("1,release,d,77,NULL,NULL", $long)), 'on', 'a release on a lease with a long TTL waits for the flush, because a crash would restore the hold for long');
	$s->query(q{SET synchronous_commit = 'local'});
	is(commits_as($s, $sync->('1,try_lock,f,NULL,o2,NULL')), 'local', 'a call waits at the level of synchronous_commit of the caller');
	$token = $s->query(q{SELECT acquire_lock('g', '1 min')});
	is(commits_as($s, "SELECT renew_lock('g', $token)") . commits_as($s, "SELECT keep_alive($lease)") . commits_as($s, "SELECT release_lock('g', $token)"), 'local' x 3,
		'renew_lock(), keep_alive() and release_lock() never lower synchronous_commit');

	# A call that only renews grants a place.
	$token = $o->query(q{SELECT acquire_lock('h', '2 s')});
	$s->query($sync->('1,enqueue_lock,h,NULL,o3,NULL'));
	wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks WHERE name = 'h'}, '0');
	is(commits_as($s, $sync->()), 'local', 'a renewal that grants a place waits for the flush');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'h'}), '1', 'the place is granted');

	# With a synchronous standby, every call waits for it.
	one(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()});
	wait_for_sql($node, 'SHOW synchronous_standby_names', 'nobody');
	$o->query(q{SET synchronous_commit = 'local'});
	wait_until(sub { $o->query('SHOW synchronous_standby_names') eq 'nobody' }) or die 'no standby is named';
	is(commits_as($o, $sync->()), 'local', 'with a synchronous standby, a renewal does not lower synchronous_commit');
	one(q{ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()});
	wait_for_sql($node, 'SHOW synchronous_standby_names', '');
	one(q{SELECT force_release_role('app')});
	$_->quit foreach $s, $o;
};

subtest 'which calls renew' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my $lease = $s->query(q{SELECT grant_lease('1 min')});
	my $left = sub { return one("SELECT extract(epoch FROM expires_at - clock_timestamp())::int FROM _lock_election.lease WHERE id = $lease"); };
	my $age = sub { one("UPDATE _lock_election.lease SET expires_at = clock_timestamp() + interval '$_[0]' WHERE id = $lease"); return; };

	$age->('40 s');
	is($s->query("SELECT validity <= '40 s' FROM lease_sync($lease, 1, items => '{1,try_lock,r,NULL,o,NULL}') LIMIT 1"), 't', 'a call with items reports the remaining time');
	cmp_ok($left->(), '<=', 40, 'a call with items does not renew');
	is($s->query("SELECT validity FROM lease_sync($lease, 2) LIMIT 1"), '00:01:00', 'a call without items renews');
	cmp_ok($left->(), '>', 40, 'a call without items updates the lease row');
	$age->('20 s');
	is($s->query("SELECT validity FROM lease_sync($lease, 3, items => '{1,try_lock,r2,NULL,o2,NULL}') LIMIT 1"), '00:01:00', 'a call with items renews if little time is left');

	# A call with items that does not finish, as during its flush.
	$s->query("BEGIN; SELECT event FROM lease_sync($lease, 4, items => '{1,try_lock,r3,NULL,o3,NULL}')");
	$o->query(q{SET statement_timeout = '20 s'});
	is($o->query("SELECT keep_alive($lease)"), '00:01:00', 'an unfinished call with items does not block keep_alive()');
	is($o->query("SELECT validity FROM lease_sync($lease, 5) LIMIT 1"), '00:01:00', 'an unfinished call with items does not block the next call');
	$s->query('COMMIT');
	one(q{SELECT force_release_role('app')});
	$_->quit foreach $s, $o;
};

# A transaction that has sent a NOTIFY cannot be prepared.
subtest 'which calls send a NOTIFY' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my $notifies = sub {
		my ($sql) = @_;
		$s->query("BEGIN; $sql; PREPARE TRANSACTION 'n'");
		my $error = $s->error;
		return $error =~ /cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY/ ? 'yes' : $error if $error;
		$s->query(q{COMMIT PREPARED 'n'});
		return 'no';
	};

	is($notifies->(q{SELECT acquire_lock('n', '1 h')}), 'no', 'acquire_lock() sends no NOTIFY');
	is($notifies->(q{SELECT token FROM enqueue_lock('n', '1 h')}), 'no', 'enqueue_lock() sends no NOTIFY');
	my $token = one(q{SELECT token FROM lock_election.locks WHERE name = 'n'});
	is($notifies->("SELECT renew_lock('n', $token)"), 'no', 'renew_lock() sends no NOTIFY');
	is($notifies->("SELECT release_lock('n', $token)"), 'yes', 'a release sends a NOTIFY if a place is granted');
	$s->query("SELECT release_lock('n', $token)");
	$token = one(q{SELECT token FROM lock_election.locks WHERE name = 'n'});
	is($notifies->("SELECT release_lock('n', $token)"), 'no', 'a release sends no NOTIFY if nobody waits');
	is($notifies->(q{SELECT campaign('n', 'me', '1 h')}), 'yes', 'campaign() sends a NOTIFY');
	one(q{SELECT lock_election.configure('notify', 'waiters')});
	is($notifies->(q{SELECT campaign('n2', 'me', '1 h')}), 'no', 'campaign() sends no NOTIFY with notify = waiters');
	one(q{SELECT lock_election.configure('notify', 'all'); SELECT force_release_role('app')});
	$_->quit foreach $s, $o;
};

subtest 'advance_revision()' => sub {
	my $s = as('app');
	my $token = $s->query(q{SELECT acquire_lock('t')});
	my $min = $token + 1_000_000;

	is(one("SELECT advance_revision($min)"), $min, 'advance_revision() returns the new revision');
	cmp_ok($s->query(q{SELECT acquire_lock('t2')}), '>=', $min, 'the next token is at least the new revision');
	cmp_ok(one("SELECT advance_revision($token)"), '>', $min, 'advance_revision() never lowers the revision');
	like(error_of('SELECT advance_revision(9007199254740992)'), qr/22023/, 'advance_revision() rejects revisions beyond 2^53');
	one(q{SELECT force_release_role('app')});
	$s->quit;
};

subtest 'a standby' => sub {
	my $s = as('app');
	my $lease = $s->query(q{SELECT grant_lease('1 min')});
	my $token = $s->query("SELECT acquire_lock('s', lease => $lease)");
	my $own = $s->query(q{SELECT acquire_lock('own', '1 min')});
	$s->query(q{SELECT enqueue_lock('own', '1 h')});
	$s->quit; # Otherwise the server that is started next would inherit the session's input, and keep it open.
	$node->backup('b');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'b', has_streaming => 1);
	$standby->start;

	# A standby shows the state, but rejects requests.
	my $r = session($standby, user => 'app');
	$s = as('app');
	my $last = $s->query(q{SELECT acquire_lock('last', '1 min')});
	$node->wait_for_catchup('standby');
	is($r->query('SELECT name FROM lock_election.locks ORDER BY name') . $r->error, "last\nown\ns", 'a standby shows the locks');
	is($r->query('SELECT count(*) FROM lock_election.waiters') . $r->query('SELECT count(*) FROM lock_election.leases'), '00', 'a standby shows neither places nor leases, as in the C edition');
	is($r->query('SELECT ok, role, problem, replayed_at IS NOT NULL FROM lock_election.health()'), 'f|standby|the server is a standby|t', 'health() reports a standby, and the age of its data');
	is($r->query('SELECT DISTINCT connected IS NULL FROM lock_election.locks'), 't', 'a standby does not know the connections to the primary');
	foreach my $sql (q{acquire_lock('x')}, "renew_lock('s', $token)", "release_lock('s', $token)", "is_held('s', $token)", "keep_alive($lease)", "lease_sync($lease, 1)", q{enqueue_lock('x')},
		"fence_lock('s', $token)", q{advisory_acquire('x')}, q{force_release_lock('s')})
	{
		$r->query("SELECT $sql");
		like($r->error, qr/25006/, "rejected on a standby: $sql");
	}
	$r->quit;

	# The promotion starts a new life.
	one(q{UPDATE _lock_election.lease SET expires_at = clock_timestamp() + interval '20 s'; UPDATE _lock_election.hold SET expires_at = clock_timestamp() + interval '20 s' WHERE expires_at IS NOT NULL});
	$node->wait_for_catchup('standby');
	$s->quit;
	$node->stop('immediate');
	$standby->promote;
	$s = session($standby, user => 'app');
	is($s->query("SELECT is_held('s', $token), is_held('own', $own)"), 't|t', 'locks are held after a promotion');
	cmp_ok($s->query(q{SELECT acquire_lock('new')}), '>', $last + 2**20, 'tokens are at least 2^20 higher after a promotion');
	is($s->query(q{SELECT name, time_left > '40 s' FROM lock_election.locks WHERE name IN ('own', 's') ORDER BY name}), "own|t\ns|t", 'leases start again after a promotion');
	is($s->query("SELECT keep_alive($lease)"), '00:01:00', 'a client renews its lease after a promotion');
	is($s->query("SELECT release_lock('own', $own)") . $s->query(q{SELECT holds FROM lock_election.locks WHERE name = 'own'}), 't1', 'a released lock is granted to the next place after a promotion');
	$s->quit;
};

done_testing();
