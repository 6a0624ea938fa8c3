# The portable edition: the role that counts, the effects of a cancel, waits for the disk, which calls of lease_sync()
# renew, the target of a NOTIFY, and a promoted standby.
# Promises: M, T, D, L, G
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Cluster;
use Test::More;

my $node = new_node('main', portable => 1, init => [ allows_streaming => 1 ]);

one('CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; GRANT CREATE ON SCHEMA public TO app');

sub as { my ($role, %opts) = @_; return session($node, user => $role, %opts); }

# A statement, and what the transaction's synchronous_commit is after it: in one message, which is one transaction.
sub commits_as { my ($s, $sql) = @_; return (split /\n/, $s->query("$sql\\; SHOW synchronous_commit"))[-1]; }

subtest 'whose role counts' => sub {
	my ($s, $o) = (as('app'), as('other'));
	my $token = $s->query(q{SELECT acquire_lock('w', '1 h')});

	$s->query(q{CREATE FUNCTION wrapped_acquire(n text) RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$ SELECT try_acquire_lock(n, '1 h') $$;
		CREATE FUNCTION wrapped_release(n text, t bigint) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT release_lock(n, t) $$});
	my $others = $o->query(q{SELECT wrapped_acquire('v')});
	is($o->query(q{SELECT role, owner IS NULL FROM lock_election.locks WHERE name = 'v'}), 'other|t', q{a wrapper's lock is of the role of the session});
	$o->query("SELECT wrapped_release('w', $token)");
	like($o->error, qr/42501/, q{and the wrapper's owner lends no right to his locks});
	$s->query("SELECT wrapped_release('v', $others)");
	like($s->error, qr/42501/, 'nor has he one to those of its callers');
	is($o->query("SELECT wrapped_release('v', $others)"), 't', 'which they have');
	is($s->query("SELECT is_held('w', $token), release_lock('w', $token)"), 't|t', 'nothing has happened to his');
	$_->quit foreach $s, $o;
};

# one compilation takes longer than a call may
is(one(q{SELECT string_agg(DISTINCT p.proname, ' ' ORDER BY p.proname) FROM pg_proc p WHERE p.prosecdef AND p.proowner = (SELECT nspowner FROM pg_namespace WHERE nspname = '_lock_election')
	AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql') AND NOT p.proconfig @> '{jit=off}'}), 'acquire_lock advisory_acquire advisory_release fence_guard release_lock try_acquire_lock version_guard',
	'nothing is compiled, whatever it costs, but in what is called most often, where the setting itself costs');

subtest 'cancels' => sub {
	my ($s, $o) = (as('app'), as('app'));

	# a wait, and a section that is taken
	$o->query(q{SELECT acquire_lock('held', '1 h')});
	$s->query(q{SET statement_timeout = '200 ms'; SELECT acquire_lock('held')});
	like($s->error, qr/57014/, 'statement_timeout ends a wait');
	$s->query(q{SET statement_timeout = 0; SET lock_timeout = '200 ms'; SELECT acquire_lock('held')});
	like($s->error, qr/55P03/, 'so does lock_timeout');
	$o->query(q{BEGIN; SELECT token FROM enqueue_lock('taken', '1 h')});
	is($s->query(q{BEGIN; SET LOCAL lock_timeout = '7 s'; SELECT try_acquire_lock('taken') IS NULL; SHOW lock_timeout; COMMIT; SHOW lock_timeout}), "t\n7s\n200ms",
		'one that is refused has changed no setting');
	$o->query('ROLLBACK');
	is($s->query(q{RESET lock_timeout; SELECT name, mode FROM lock_election.locks}), 'held|exclusive', 'nothing is left');

	# at any moment
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
	pass("all names or none: acquired $held times, cancelled $cancelled times");
	one(q{SELECT force_release_role('app')});
	$_->quit foreach $s, $o;
};

subtest 'what waits for the disk' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my $busy = $o->query(q{SELECT acquire_lock('busy', '1 min')});
	is($s->query(q{BEGIN; SELECT try_acquire_lock('busy') IS NULL, acquire_lock('busy', wait => '50 ms') IS NULL, pg_current_xact_id_if_assigned() IS NULL; COMMIT}), 't|t|t',
		'an attempt at a lock that is held writes nothing');
	$o->query("SELECT release_lock('busy', $busy)");
	my $lease = $s->query(q{SELECT grant_lease('1 min')});
	my $long = $s->query(q{SELECT grant_lease('1 h')});
	my $call = 0;
	my $sync = sub {
		my ($items, $of, $seen) = @_;

		$call++;
		return 'SELECT event FROM lease_sync(' . ($of // $lease) . ", $call" . ($seen ? ", $seen" : '') . ($items ? ", items => '{$items}'" : '') . ')';
	};
	# what a client has seen that knows all
	my $seen = sub { $call++; return $s->query("SELECT incarnation || ', ' || news FROM lease_sync($lease, $call) LIMIT 1"); };
	my $token = $s->query(q{SELECT acquire_lock('d', '1 min', lease => } . "$lease)");

	is(commits_as($s, $sync->()), 'on', 'a call that tells of a grant waits for its flush');
	is(commits_as($s, $sync->(undef, undef, $seen->())), 'off', 'one that only renews waits for none');
	is(commits_as($s, $sync->("1,release,d,$token,NULL,NULL", undef, $seen->())), 'off', 'nor one that releases');
	is(commits_as($s, $sync->("1,release,d,$token,NULL,1 s")), 'on', 'one that closes a name does');
	is(commits_as($s, $sync->('1,try_lock,d,NULL,o,NULL')), 'on', 'and one that acquires');
	is(commits_as($s, $sync->('1,enqueue_lock,e,NULL,o,NULL')), 'on', 'or enqueues');
	is(commits_as($s, $sync->("1,release,d,77,NULL,NULL", $long)), 'on', 'and a release on a lease that a crash would bring back for long');
	$s->query(q{SET synchronous_commit = 'local'});
	is(commits_as($s, $sync->('1,try_lock,f,NULL,o2,NULL')), 'local', q{at the caller's level});
	$token = $s->query(q{SELECT acquire_lock('g', '1 min')});
	is(commits_as($s, "SELECT renew_lock('g', $token)") . commits_as($s, "SELECT keep_alive($lease)") . commits_as($s, "SELECT release_lock('g', $token)"), 'local' x 3,
		'the functions for SQL never lower it');

	# a grant to a place, by a call that only renews
	$token = $o->query(q{SELECT acquire_lock('h', '2 s')});
	$s->query($sync->('1,enqueue_lock,h,NULL,o3,NULL'));
	wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks WHERE name = 'h'}, '0');
	is(commits_as($s, $sync->()), 'local', 'a renewal that grants a place makes it durable');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'h'}), '1', 'which it has');

	# with a synchronous standby everything waits for that
	one(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()});
	wait_for_sql($node, 'SHOW synchronous_standby_names', 'nobody');
	$o->query(q{SET synchronous_commit = 'local'});
	wait_until(sub { $o->query('SHOW synchronous_standby_names') eq 'nobody' }) or die 'no standby is named';
	is(commits_as($o, $sync->()), 'local', 'with a synchronous standby no renewal lowers it');
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
	is($s->query("SELECT validity <= '40 s' FROM lease_sync($lease, 1, items => '{1,try_lock,r,NULL,o,NULL}') LIMIT 1"), 't', 'one that asks states what is left');
	cmp_ok($left->(), '<=', 40, 'and does not renew');
	is($s->query("SELECT validity FROM lease_sync($lease, 2) LIMIT 1"), '00:01:00', 'one that asks for nothing renews');
	cmp_ok($left->(), '>', 40, 'the row');
	$age->('20 s');
	is($s->query("SELECT validity FROM lease_sync($lease, 3, items => '{1,try_lock,r2,NULL,o2,NULL}') LIMIT 1"), '00:01:00', 'so does one that asks where little is left');

	# one that asks and hangs, as in its flush
	$s->query("BEGIN; SELECT event FROM lease_sync($lease, 4, items => '{1,try_lock,r3,NULL,o3,NULL}')");
	$o->query(q{SET statement_timeout = '20 s'});
	is($o->query("SELECT keep_alive($lease)"), '00:01:00', 'one that asks keeps nobody from renewing');
	is($o->query("SELECT validity FROM lease_sync($lease, 5) LIMIT 1"), '00:01:00', 'nor the next call');
	$s->query('COMMIT');
	one(q{SELECT force_release_role('app')});
	$_->quit foreach $s, $o;
};

# A transaction that has sent a NOTIFY cannot be prepared.
subtest 'where a NOTIFY is sent' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my $notifies = sub {
		my ($sql) = @_;
		$s->query("BEGIN; $sql; PREPARE TRANSACTION 'n'");
		my $error = $s->error;
		return $error =~ /cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY/ ? 'yes' : $error if $error;
		$s->query(q{COMMIT PREPARED 'n'});
		return 'no';
	};

	is($notifies->(q{SELECT acquire_lock('n', '1 h')}), 'no', 'not by acquiring');
	is($notifies->(q{SELECT token FROM enqueue_lock('n', '1 h')}), 'no', 'nor by waiting');
	my $token = one(q{SELECT token FROM lock_election.locks WHERE name = 'n'});
	is($notifies->("SELECT renew_lock('n', $token)"), 'no', 'nor by renewing');
	is($notifies->("SELECT release_lock('n', $token)"), 'yes', 'but by a release to one that waits');
	$s->query("SELECT release_lock('n', $token)");
	$token = one(q{SELECT token FROM lock_election.locks WHERE name = 'n'});
	is($notifies->("SELECT release_lock('n', $token)"), 'no', 'and not by one where nobody does');
	is($notifies->(q{SELECT campaign('n', 'me', '1 h')}), 'yes', 'an election is announced');
	one(q{SELECT lock_election.configure('notify', 'waiters')});
	is($notifies->(q{SELECT campaign('n2', 'me', '1 h')}), 'no', 'unless it is switched off');
	one(q{SELECT lock_election.configure('notify', 'all'); SELECT force_release_role('app')});
	$_->quit foreach $s, $o;
};

subtest 'tokens are moved on' => sub {
	my $s = as('app');
	my $token = $s->query(q{SELECT acquire_lock('t')});
	my $min = $token + 1_000_000;

	is(one("SELECT advance_revision($min)"), $min, 'to a number');
	cmp_ok($s->query(q{SELECT acquire_lock('t2')}), '>=', $min, 'from which the next one is given out');
	cmp_ok(one("SELECT advance_revision($token)"), '>', $min, 'never back');
	like(error_of('SELECT advance_revision(9007199254740992)'), qr/22023/, 'nor beyond 2^53');
	one(q{SELECT force_release_role('app')});
	$s->quit;
};

subtest 'a standby' => sub {
	my $s = as('app');
	my $lease = $s->query(q{SELECT grant_lease('1 min')});
	my $token = $s->query("SELECT acquire_lock('s', lease => $lease)");
	my $own = $s->query(q{SELECT acquire_lock('own', '1 min')});
	$s->query(q{SELECT enqueue_lock('own', '1 h')});
	$s->quit; # a server that is started keeps its input open
	$node->backup('b');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'b', has_streaming => 1);
	$standby->start;

	# all that is read is there, nothing is decided
	my $r = session($standby, user => 'app');
	$s = as('app');
	my $last = $s->query(q{SELECT acquire_lock('last', '1 min')});
	$node->wait_for_catchup('standby');
	is($r->query('SELECT name FROM lock_election.locks ORDER BY name') . $r->error, "last\nown\ns", 'it shows the locks');
	is($r->query('SELECT count(*) FROM lock_election.waiters') . $r->query('SELECT count(*) FROM lock_election.leases'), '00', 'and neither places nor leases, as in the C edition');
	is($r->query('SELECT ok, role, problem, replayed_at IS NOT NULL FROM lock_election.health()'), 'f|standby|the server is a standby|t', 'health() says what it is, and how new its data are');
	is($r->query('SELECT DISTINCT connected IS NULL FROM lock_election.locks'), 't', 'who is connected to the primary is not known');
	foreach my $sql (q{acquire_lock('x')}, "renew_lock('s', $token)", "release_lock('s', $token)", "is_held('s', $token)", "keep_alive($lease)", "lease_sync($lease, 1)", q{enqueue_lock('x')},
		"fence_lock('s', $token)", q{advisory_acquire('x')}, q{force_release_lock('s')})
	{
		$r->query("SELECT $sql");
		like($r->error, qr/25006/, "refused: $sql");
	}
	$r->quit;

	# promoted: a life begins
	one(q{UPDATE _lock_election.lease SET expires_at = clock_timestamp() + interval '20 s'; UPDATE _lock_election.hold SET expires_at = clock_timestamp() + interval '20 s' WHERE expires_at IS NOT NULL});
	$node->wait_for_catchup('standby');
	$s->quit;
	$node->stop('immediate');
	$standby->promote;
	$s = session($standby, user => 'app');
	is($s->query("SELECT is_held('s', $token), is_held('own', $own)"), 't|t', 'after a promotion the locks are held');
	cmp_ok($s->query(q{SELECT acquire_lock('new')}), '>', $last + 2**20, 'tokens go on far above');
	is($s->query(q{SELECT name, time_left > '40 s' FROM lock_election.locks WHERE name IN ('own', 's') ORDER BY name}), "own|t\ns|t", 'and leases begin anew');
	is($s->query("SELECT keep_alive($lease)"), '00:01:00', 'a client goes on');
	is($s->query("SELECT release_lock('own', $own)") . $s->query(q{SELECT holds FROM lock_election.locks WHERE name = 'own'}), 't1', 'so does a queue');
	$s->quit;
};

done_testing();
