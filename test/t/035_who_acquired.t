# Who has acquired a lock: the connection that is stored with it, the notice if two connections share an owner, the
# error about a lost lock, and the log and pg_stat_activity of waiters.
# Promises: -
use strict;
use warnings;
use IO::Socket::IP ();
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', init => [ allows_streaming => 1 ], conf => "log_lock_waits = on\ndeadlock_timeout = 100ms\nlisten_addresses = '*'\n");
my $s = session($node);

$s->query('CREATE ROLE worker; CREATE ROLE other; CREATE ROLE auditor IN ROLE pg_read_all_stats');

my $label = 'name, pid, application_name, client_addr, connected';

sub log_has
{
	my ($pattern, $test_name) = @_;

	return ok(wait_until(sub { slurp_file($node->logfile) =~ $pattern }), $test_name);
}

# --- the connection is stored with the lock ---

my $h = session($node, connstr => "application_name='nightly report' host=127.0.0.1");
my $place = session($node, connstr => "application_name=second");
my $hpid = $h->pid;
my $ppid = $place->pid;
my $token = $h->query(q{SELECT acquire_lock('x', ttl => '1 h')});
my $queued = (split /\|/, $place->query(q{SELECT token FROM enqueue_lock('x', ttl => '1 h')}))[0];
my $term = $h->query(q{SELECT campaign('e', 'candidate', ttl => '1 h')});

is($s->query("SELECT $label FROM lock_election.locks WHERE kind = 'lock'"), "x|$hpid|nightly report|127.0.0.1|t",
	'locks: connection that acquired the lock');
is($s->query("SELECT $label FROM lock_election.waiters"), "x|$ppid|second||t",
	'waiters: connection that enqueued; a local connection has no address');
is($s->query('SELECT pid, application_name, client_addr, connected FROM lock_election.elections'), "$hpid|nightly report|127.0.0.1|t", 'elections: connection that was elected');
$h->query('SET application_name = changed');
$h->query(q{SELECT acquire_lock('y', ttl => '1 h')});
is($s->query("SELECT name, application_name FROM lock_election.locks WHERE kind = 'lock' ORDER BY 1"), "x|nightly report\ny|changed",
	'locks: application_name at the time of the acquire');
is($s->query(qq{SET ROLE other \\; SELECT pid, application_name, client_addr, connected FROM lock_election.locks WHERE name = 'x' \\; RESET ROLE}),
	'|||', 'locks: another role does not see the connection');

foreach my $name (q{it's "quoted"}, 'a  b', ' ', '', 'x' x 100)
{
	$h->query("SET application_name = \$le\$$name\$le\$;");
	my $as = $h->query('SHOW application_name');
	my $t = $h->query(q{SELECT acquire_lock('named', ttl => '1 h')});
	is($s->query(q{SELECT application_name FROM lock_election.locks WHERE name = 'named'}), $as, "application_name '" . substr($name, 0, 12) . "'");
	$h->query("SELECT release_lock('named', $t)");
}

SKIP:
{
	skip 'IPv6 is not available', 2 unless IO::Socket::IP->new(LocalHost => '::1', Listen => 1);
	my @hosts = ([ '::1', '::1' ]);

	# A link-local address has a zone, which type inet cannot store.
	if (can_silence())
	{
		system_or_bail('ip', 'address', 'add', 'fe80::1/64', 'dev', 'lo', 'nodad');
		push @hosts, [ 'fe80::1%lo', 'fe80::1' ];
		$node->append_conf('pg_hba.conf', 'host all all fe80::/10 trust');
		$node->reload;
	}
	foreach my $host (@hosts)
	{
		my $six = session($node, connstr => "host=$host->[0]");

		$six->query(q{SELECT acquire_lock('six')});
		is($s->query(q{SELECT client_addr FROM lock_election.locks WHERE name = 'six'}) . $s->error, $host->[1], "locks: an IPv6 address: $host->[0]");
		$six->query(q{SELECT release_lock('six')});
		$six->quit;
	}
}

# The connection is kept after its end, after the end of the manager, and after a crash.
$h->quit;
$place->quit;
wait_for_sql($node, 'SELECT bool_or(connected) FROM lock_election.locks', 'f');
my $shown = sub {
	return $_[0]->query(qq{SELECT $label FROM lock_election.locks WHERE name = 'x'})
	  . $_[0]->query(qq{SELECT $label FROM lock_election.waiters});
};
my $expected = "x|$hpid|nightly report|127.0.0.1|fx|$ppid|second||f";
is($shown->($s), $expected, 'the connection is shown after it has ended');
is($s->query('SELECT blocked_by FROM lock_election.waiters'), '{}',
	'waiters: a process that has ended is not in blocked_by');
$node->backup('copy');
$s->quit;
$node->stop('immediate');
$node->start;
$s = session($node);
is($shown->($s), $expected, 'the connection is shown after a crash');
{
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	my $r;

	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	$node->wait_for_catchup($standby);
	$r = session($standby);
	is($r->query("SELECT $label FROM lock_election.locks WHERE name = 'x'"), "x|$hpid|nightly report|127.0.0.1|", 'a standby shows the connection, but not whether it is connected');
	$r->quit;
	$standby->stop;
}
$s->query(q{SELECT force_release_lock('x')});
is($s->query("SELECT $label FROM lock_election.locks WHERE name = 'x'"), "x|$ppid|second||f",
	'the connection of a place is kept with its grant');
$s->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
$s->query(q{SELECT force_resign('e')});
nothing_left($node);

# All locks of a session share one record of its connection. Measures the memory of a held lock.
{
	my $before = $s->query('SELECT memory FROM lock_election.manager');
	my $many = 12_500;

	$s->query('SET synchronous_commit = off');
	$s->query(qq{SELECT count(acquire_lock('m' || i, ttl => '1 h')) FROM generate_series(1, $many) i});
	my $each = ($s->query('SELECT memory FROM lock_election.manager') - $before) / $many;
	note("$each bytes a held lock");
	# Memory is allocated in blocks of doubling size; with this number of locks, the last block is not full.
	cmp_ok($each, '<', 600, 'a held lock costs less than 600 bytes');
	$s->query(q{SELECT count(force_release_lock(name)) FROM lock_election.locks});
	$s->query('RESET synchronous_commit');
}

# --- two connections with the same owner ---

my ($a, $b) = map { session($node) } 1 .. 2;
my $notice = qr/NOTICE:  00000: lock "job" was acquired by owner "w" on another connection, and both calls now hold it\nHINT:  An owner is an identity, not a label/;

$token = $a->query(q{SELECT acquire_lock('job', owner => 'w')});
is($a->error, '', 'the first acquire of an owner gives no notice');
is($a->query(q{SELECT acquire_lock('job', owner => 'w')}), $token,
	'the same connection acquires again and gets the same token');
is($a->error, '', 'a second acquire on the same connection gives no notice');
is($b->query(q{SELECT acquire_lock('job', owner => 'w')}), $token,
	'another connection of the owner gets the same token');
like($b->error, $notice, 'an acquire on another connection gives a notice');
$a->quit;
is($b->query(q{SELECT try_acquire_lock('job', owner => 'w')}), $token,
	'another connection gets the same token after the first one has ended');
like($b->error, $notice, 'an acquire after the end of the first connection gives a notice');
$b->query("SELECT release_lock('job', $token, all_holds => true)");
$a = session($node);
$term = $a->query(q{SELECT campaign('e', 'a', owner => 'w')});
is($b->query(q{SELECT campaign('e', 'b', owner => 'w')}), $term,
	'two candidates with the same owner get the same term');
like($b->error, qr/NOTICE:  00000: election "e" was acquired by owner "w" on another connection/,
	'the second candidate gets a notice');
$b->query(q{SELECT force_resign('e')});
{
	my $lease = $a->query(q{SELECT grant_lease()});
	$a->query("SELECT acquire_lock('leased', lease => $lease, owner => 'w')");
	$b->query("SELECT acquire_lock('leased', lease => $lease, owner => 'w')");
	is($b->error, '', 'two connections that share a lease get no notice');
	$a->query("SELECT revoke_lease($lease)");
}

# The owner waits on both connections. Both waits end with the same token.
$token = $s->query(q{SELECT acquire_lock('job')});
foreach my $c ([ $a, '1 h' ], [ $b, '1 min' ])
{
	$c->[0]->async("SELECT acquire_lock('job', ttl => '$c->[1]', owner => 'w')");
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters WHERE pid = ' . $c->[0]->pid, '1');
}
$s->query("SELECT release_lock('job', $token)");
is($a->wait, $b->wait, 'both connections get the same token');
is($a->error, '', 'the first connection gets no notice');
like($b->error, $notice, 'the second connection gets a notice');
$s->query(q{SELECT force_release_lock('job')});

# --- details of a lost lock ---

my $lost = sub {
	my ($how, $expected, $then) = @_;
	my $t = $a->query(q{SET ROLE worker \; SELECT acquire_lock('lost', ttl => '1 h')});

	$how->($t);
	$then->() if $then;
	$a->query("SELECT await_lock('lost', $t)");
	like($a->error, qr/ERROR:  LE001: token $t neither holds lock "lost" nor waits for it any more\nDETAIL:  $expected/, "LE001: $expected");
	$a->query("BEGIN; SELECT fence_lock('lost', $t)");
	like($a->error, qr/ERROR:  LE001: lock "lost" is not held by token $t\nDETAIL:  $expected/,
		"LE001 of a fence: $expected");
	$a->query('ROLLBACK');
	$a->query('RESET ROLE');
	$s->query(q{SELECT force_release_lock('lost')});
};
my $ago = qr{\d{1,3}\.\d s ago};

$lost->(sub { $a->query("SELECT release_lock('lost', $_[0])") }, qr/It was released $ago\. Nobody holds it now\./);
$lost->(sub { $s->query(q{SELECT force_release_lock('lost')}) }, qr/force_release_lock\(\) ended it $ago\. Nobody holds it now\./);
$lost->(sub {
		$a->query("SELECT renew_lock('lost', $_[0], '100 ms')");
		wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', '0');
	}, qr/It expired $ago: it was not renewed in time\. Nobody holds it now\./);
$b->query('SET application_name = successor');
$lost->(sub { $s->query(q{SELECT force_release_lock('lost')}) },
	qr/force_release_lock\(\) ended it $ago\. It is held by token \d+ now, acquired by process @{[ $b->pid ]} \(application "successor"\)\./,
	sub { $b->query(q{SET ROLE worker \; SELECT acquire_lock('lost')}) });
$b->query('RESET ROLE');
{
	my $far = session($node, connstr => "host=127.0.0.1 application_name=''");

	$lost->(sub { $s->query(q{SELECT force_release_lock('lost')}) },
		qr/force_release_lock\(\) ended it $ago\. It is held by token \d+ now, acquired by process @{[ $far->pid ]}(?: \(application "psql"\))? from 127\.0\.0\.1\.\n/,
		sub { $far->query(q{SET ROLE worker \; SELECT acquire_lock('lost')}) });
	$far->quit;
}

# With several holders, the detail names one that the caller may see.
{
	my ($one, $two) = map { session($node, connstr => "application_name=$_") } 'one', 'two';

	$lost->(sub { $s->query(q{SELECT force_release_lock('lost')}) },
		qr/force_release_lock\(\) ended it $ago\. It is held by token \d+ now, acquired by process @{[ $one->pid ]} \(application "one"\)\./,
		sub {
			$b->query(q{SET ROLE other \; SELECT acquire_lock('lost', mode => 'shared')});
			$one->query(q{SET ROLE worker \; SELECT acquire_lock('lost', mode => 'shared')});
			$two->query(q{SET ROLE other \; SELECT acquire_lock('lost', mode => 'shared')});
		});
	$b->query('RESET ROLE');
	$_->quit foreach $one, $two;
}
$lost->(sub { $s->query(q{SELECT force_release_lock('lost')}) }, qr/force_release_lock\(\) ended it $ago\. It is held by another role now\./,
	sub { $b->query(q{SET ROLE other \; SELECT acquire_lock('lost')}) });
$b->query('RESET ROLE');
$a->query(q{BEGIN});
$token = $a->query(q{SELECT acquire_lock('undone')});
$a->query('ROLLBACK');
$a->query("SELECT await_lock('undone', $token)");
like($a->error, qr/DETAIL:  The transaction that acquired it was rolled back $ago\. Nobody holds it now\.\n/, 'LE001: a rollback');
$term = $a->query(q{SELECT campaign('lost', 'a')});
$s->query(q{SELECT force_resign('lost')});
$a->query("SELECT await_leadership('lost', $term)");
like($a->error, qr/LE001: term $term neither holds election "lost" nor waits for it any more\n/, 'LE001: an election');
like($a->error, qr/DETAIL:  force_resign\(\) ended it $ago\. Nobody holds it now\.\n/,
	'the detail says how the term ended');
$token = $b->query(q{SELECT acquire_lock('bound', ttl => NULL)});
$b->quit;
wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks WHERE name = 'bound'}, '0');
$a->query("SELECT await_lock('bound', $token)");
like($a->error, qr/DETAIL:  The connection that it was bound to ended $ago\. Nobody holds it now\.\n/, 'LE001: the connection of a bound lock has ended');
{
	my $lease = $a->query('SELECT grant_lease()');
	$token = $a->query("SELECT acquire_lock('leased', lease => $lease)");
	$a->query("SELECT revoke_lease($lease)");
	$a->query("SELECT await_lock('leased', $token)");
	like($a->error, qr/DETAIL:  Its lease was revoked $ago\. Nobody holds it now\.\n/, 'LE001: a revoked lease');
	$a->query("SELECT acquire_lock('leased', lease => $lease)");
	like($a->error, qr/ERROR:  LE001: lease $lease does not exist, or has ended\nDETAIL:  It was revoked $ago\.\n/, 'LE001: an acquire on a revoked lease');
}
$a->query(q{SELECT await_lock('never', 4711)});
like($a->error, qr/DETAIL:  Nothing is known about it: it ended long ago, or was never granted\. Nobody holds it now\./, 'LE001: an unknown token');

# --- waiters ---

$token = $s->query(q{SELECT acquire_lock('slow')});
$a->async(q{SELECT acquire_lock('slow')});
my $apid = $a->pid;
log_has(qr/LOG:  process $apid still waiting for lock "slow" after \d{1,5}\.\d{3} ms\n/,
	'log_lock_waits: the wait is logged');
my $own = $s->query(q{SELECT current_setting('server_version_num')::int >= 170000}) eq 't';
is($s->query("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = $apid"), $own ? 'Extension|LockElectionLock' : 'Extension|Extension', 'pg_stat_activity shows the wait event of a waiter');
is($s->query(q{SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'}), $own ? 'LockElectionLauncher' : 'Extension', 'pg_stat_activity shows the wait event of the launcher');
# The manager dozes before it sleeps, so the test checks repeatedly.
my $looks = 0;
ok( wait_until(
		sub {
			my $is_so = $s->query(q{SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'lock_election manager'}) eq ($own ? 'LockElectionManager' : 'Extension');
			$looks = $is_so ? $looks + 1 : 0;
			return $looks == 20;
		}),
	'pg_stat_activity shows the wait event of an idle manager');
$s->query("SELECT release_lock('slow', $token)");
$a->wait;
log_has(qr/LOG:  process $apid no longer waits for lock "slow" after \d{1,5}\.\d{3} ms\n/,
	'log_lock_waits: the end of the wait is logged');
log_has(qr/LOG:  lock_election manager started\n.*CONTEXT:  lock_election manager postgres\n/, q{log lines of a manager contain its database});

$_->quit foreach $s, $a;
$node->stop;
done_testing();
