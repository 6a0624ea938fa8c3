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

# --- the connection is kept with the lock ---

my $h = session($node, connstr => "application_name='nightly report' host=127.0.0.1");
my $place = session($node, connstr => "application_name=second");
my $hpid = $h->pid;
my $ppid = $place->pid;
my $token = $h->query(q{SELECT acquire_lock('x', ttl => '1 h')});
my $queued = (split /\|/, $place->query(q{SELECT token FROM enqueue_lock('x', ttl => '1 h')}))[0];
my $term = $h->query(q{SELECT campaign('e', 'candidate', ttl => '1 h')});

is($s->query("SELECT $label FROM lock_election.locks WHERE kind = 'lock'"), "x|$hpid|nightly report|127.0.0.1|t", 'locks: who has acquired');
is($s->query("SELECT $label FROM lock_election.waiters"), "x|$ppid|second||t", 'waiters: who has asked; a local connection has no address');
is($s->query('SELECT pid, application_name, client_addr, connected FROM lock_election.elections'), "$hpid|nightly report|127.0.0.1|t", 'elections: the same');
$h->query('SET application_name = changed');
$h->query(q{SELECT acquire_lock('y', ttl => '1 h')});
is($s->query("SELECT name, application_name FROM lock_election.locks WHERE kind = 'lock' ORDER BY 1"), "x|nightly report\ny|changed",
	'as it was called at that moment');
is($s->query(qq{SET ROLE other \\; SELECT pid, application_name, client_addr, connected FROM lock_election.locks WHERE name = 'x' \\; RESET ROLE}),
	'|||', 'another role is not shown it');

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
	skip 'no IPv6', 2 unless IO::Socket::IP->new(LocalHost => '::1', Listen => 1);
	my @hosts = ([ '::1', '::1' ]);

	# an address of a link has a zone, which an inet has not
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
		is($s->query(q{SELECT client_addr FROM lock_election.locks WHERE name = 'six'}) . $s->error, $host->[1], "an IPv6 address: $host->[0]");
		$six->query(q{SELECT release_lock('six')});
		$six->quit;
	}
}

# The connections end, the manager ends, the server crashes: all of that is kept.
$h->quit;
$place->quit;
wait_for_sql($node, 'SELECT bool_or(connected) FROM lock_election.locks', 'f');
my $shown = sub {
	return $_[0]->query(qq{SELECT $label FROM lock_election.locks WHERE name = 'x'})
	  . $_[0]->query(qq{SELECT $label FROM lock_election.waiters});
};
my $expected = "x|$hpid|nightly report|127.0.0.1|fx|$ppid|second||f";
is($shown->($s), $expected, 'when the connection is gone');
is($s->query('SELECT blocked_by FROM lock_election.waiters'), '{}', 'a process that is gone blocks nobody');
$node->backup('copy');
$s->quit;
$node->stop('immediate');
$node->start;
$s = session($node);
is($shown->($s), $expected, 'after a crash');
{
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	my $r;

	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	$node->wait_for_catchup($standby);
	$r = session($standby);
	is($r->query("SELECT $label FROM lock_election.locks WHERE name = 'x'"), "x|$hpid|nightly report|127.0.0.1|", 'on a standby, which does not know whether it is connected');
	$r->quit;
	$standby->stop;
}
$s->query(q{SELECT force_release_lock('x')});
is($s->query("SELECT $label FROM lock_election.locks WHERE name = 'x'"), "x|$ppid|second||f", 'a place takes it with it');
$s->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
$s->query(q{SELECT force_resign('e')});
nothing_left($node);

# One record for all locks of a session: what a held lock costs.
{
	my $before = $s->query('SELECT memory FROM lock_election.manager');
	my $many = 12_500;

	$s->query('SET synchronous_commit = off');
	$s->query(qq{SELECT count(acquire_lock('m' || i, ttl => '1 h')) FROM generate_series(1, $many) i});
	my $each = ($s->query('SELECT memory FROM lock_election.manager') - $before) / $many;
	note("$each bytes a held lock");
	# sizes are of blocks that double: at this number they are not full
	cmp_ok($each, '<', 600, 'a held lock costs less than 600 bytes');
	$s->query(q{SELECT count(force_release_lock(name)) FROM lock_election.locks});
	$s->query('RESET synchronous_commit');
}

# --- two connections with one owner ---

my ($a, $b) = map { session($node) } 1 .. 2;
my $notice = qr/NOTICE:  00000: lock "job" was acquired by owner "w" on another connection, and both calls now hold it\nHINT:  An owner is an identity, not a label/;

$token = $a->query(q{SELECT acquire_lock('job', owner => 'w')});
is($a->error, '', 'the first acquire of an owner');
is($a->query(q{SELECT acquire_lock('job', owner => 'w')}), $token, 'again by the same connection');
is($a->error, '', 'without a notice');
is($b->query(q{SELECT acquire_lock('job', owner => 'w')}), $token, 'by another connection: the same token');
like($b->error, $notice, 'with a notice');
$a->quit;
is($b->query(q{SELECT try_acquire_lock('job', owner => 'w')}), $token, 'when the first connection is gone');
like($b->error, $notice, 'with a notice');
$b->query("SELECT release_lock('job', $token, all_holds => true)");
$a = session($node);
$term = $a->query(q{SELECT campaign('e', 'a', owner => 'w')});
is($b->query(q{SELECT campaign('e', 'b', owner => 'w')}), $term, 'two candidates with one owner');
like($b->error, qr/NOTICE:  00000: election "e" was acquired by owner "w" on another connection/, 'are told as well');
$b->query(q{SELECT force_resign('e')});
{
	my $lease = $a->query(q{SELECT grant_lease()});
	$a->query("SELECT acquire_lock('leased', lease => $lease, owner => 'w')");
	$b->query("SELECT acquire_lock('leased', lease => $lease, owner => 'w')");
	is($b->error, '', 'a lease is shared on purpose');
	$a->query("SELECT revoke_lease($lease)");
}

# The owner waits on both connections: the second joins the first.
$token = $s->query(q{SELECT acquire_lock('job')});
foreach my $c ([ $a, '1 h' ], [ $b, '1 min' ])
{
	$c->[0]->async("SELECT acquire_lock('job', ttl => '$c->[1]', owner => 'w')");
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters WHERE pid = ' . $c->[0]->pid, '1');
}
$s->query("SELECT release_lock('job', $token)");
is($a->wait, $b->wait, 'both get one token');
is($a->error, '', 'the first without a notice');
like($b->error, $notice, 'the second with one');
$s->query(q{SELECT force_release_lock('job')});

# --- what has become of a lock ---

my $lost = sub {
	my ($how, $expected, $then) = @_;
	my $t = $a->query(q{SET ROLE worker \; SELECT acquire_lock('lost', ttl => '1 h')});

	$how->($t);
	$then->() if $then;
	$a->query("SELECT await_lock('lost', $t)");
	like($a->error, qr/ERROR:  LE001: token $t neither holds lock "lost" nor waits for it any more\nDETAIL:  $expected/, "LE001: $expected");
	$a->query("BEGIN; SELECT fence_lock('lost', $t)");
	like($a->error, qr/ERROR:  LE001: lock "lost" is not held by token $t\nDETAIL:  $expected/, 'the same for a fence');
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

# Of several one that the caller may know.
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
like($a->error, qr/DETAIL:  force_resign\(\) ended it $ago\. Nobody holds it now\.\n/, 'and how it has ended');
$token = $b->query(q{SELECT acquire_lock('bound', ttl => NULL)});
$b->quit;
wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks WHERE name = 'bound'}, '0');
$a->query("SELECT await_lock('bound', $token)");
like($a->error, qr/DETAIL:  The connection that it was bound to ended $ago\. Nobody holds it now\.\n/, 'LE001: a connection that has ended');
{
	my $lease = $a->query('SELECT grant_lease()');
	$token = $a->query("SELECT acquire_lock('leased', lease => $lease)");
	$a->query("SELECT revoke_lease($lease)");
	$a->query("SELECT await_lock('leased', $token)");
	like($a->error, qr/DETAIL:  Its lease was revoked $ago\. Nobody holds it now\.\n/, 'LE001: a lease that was revoked');
	$a->query("SELECT acquire_lock('leased', lease => $lease)");
	like($a->error, qr/ERROR:  LE001: lease $lease does not exist, or has ended\nDETAIL:  It was revoked $ago\.\n/, 'and of the lease');
}
$a->query(q{SELECT await_lock('never', 4711)});
like($a->error, qr/DETAIL:  Nothing is known about it: it ended long ago, or was never granted\. Nobody holds it now\./, 'LE001: a token that nobody knows');

# --- those who wait ---

$token = $s->query(q{SELECT acquire_lock('slow')});
$a->async(q{SELECT acquire_lock('slow')});
my $apid = $a->pid;
log_has(qr/LOG:  process $apid still waiting for lock "slow" after \d{1,5}\.\d{3} ms\n/, 'log_lock_waits: a wait');
my $own = $s->query(q{SELECT current_setting('server_version_num')::int >= 170000}) eq 't';
is($s->query("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = $apid"), $own ? 'Extension|LockElectionLock' : 'Extension|Extension', 'what it waits for');
is($s->query(q{SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'}), $own ? 'LockElectionLauncher' : 'Extension', 'and the launcher');
# it dozes before it sleeps: one look says little
my $looks = 0;
ok( wait_until(
		sub {
			my $is_so = $s->query(q{SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'lock_election manager'}) eq ($own ? 'LockElectionManager' : 'Extension');
			$looks = $is_so ? $looks + 1 : 0;
			return $looks == 20;
		}),
	'and an idle manager, all the time');
$s->query("SELECT release_lock('slow', $token)");
$a->wait;
log_has(qr/LOG:  process $apid no longer waits for lock "slow" after \d{1,5}\.\d{3} ms\n/, 'log_lock_waits: its end');
log_has(qr/LOG:  lock_election manager started\n.*CONTEXT:  lock_election manager postgres\n/, q{lines of a manager name its database});

$_->quit foreach $s, $a;
$node->stop;
done_testing();
