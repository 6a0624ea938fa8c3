# Locks and waits of a client that has gone: killed, on a silent host, or replaced by the next user of a pooled
# connection.
# Promises: G
use strict;
use warnings;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', start => 0, conf => "listen_addresses = '*'\n");
$node->append_conf('pg_hba.conf', 'host all all 10.99.0.0/24 trust');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION lock_election');

my $watch = session($node);

# A client that does not read for longer than a silent host is borne. In a database of its own; the end of this test reads.
$node->safe_psql('postgres', 'CREATE DATABASE slow');
$node->safe_psql('slow', 'CREATE EXTENSION lock_election');
my $slow_reader = LeWire->new($node, dbname => 'slow', tcp => 1, receive_buffer => 4096);
$slow_reader->query(q{SELECT acquire_lock('slow reader', NULL)});
$slow_reader->wait('Z');
$slow_reader->query(q{SELECT repeat('x', 1000) FROM generate_series(1, 30000)});
my $not_reading_since = time;

sub alive
{
	my ($session) = @_;
	return $watch->query('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $session->pid) ne '0';
}

# --- killed ---

{
	my ($holder, $next) = map { session($node) } 1 .. 2;

	$holder->query("SELECT acquire_lock('killed', ttl => NULL)");
	$holder->query("SELECT acquire_lock('ttl', ttl => '1 h', owner => 'worker')");
	$next->async("SELECT acquire_lock('killed')");
	waiting($next);
	$holder->kill('KILL');
	like($next->wait, qr/^\d+$/, 'killed client: the next waiter gets its lock at once');
	is($watch->query("SELECT owner || ' ' || connected FROM lock_election.locks WHERE name = 'ttl'"),
		'worker false', 'a lock with a TTL stays');
	is($watch->query("SELECT try_acquire_lock('ttl')"), '', 'and nobody else gets it');
	is($watch->query("SELECT try_acquire_lock('ttl', owner => 'worker') IS NOT NULL"), 't', 'but its owner, from another connection');
	is($watch->query("SELECT release_lock('ttl', token, all_holds => true) FROM lock_election.locks WHERE name = 'ttl'"), 't', 'which releases it');
	is($next->query("SELECT release_lock('killed')"), 't', 'release');
	nothing_left($node);

	# killed while it waited, and granted before anybody has looked
	my $dead = session($node);
	$holder = session($node);
	$holder->query("SELECT acquire_lock('crossing')");
	$dead->async("SELECT acquire_lock('crossing', ttl => '1 h')");
	waiting($dead);
	$dead->kill('KILL');
	$holder->query("SELECT release_lock('crossing')");
	like($watch->query("SELECT acquire_lock('crossing', wait => '20 s')"), qr/^\d+$/, 'a dead client is granted nothing');
	$watch->query("SELECT release_lock('crossing')");
	nothing_left($node);

	# in an open transaction that holds, and has something to release
	my $busy = session($node);
	$busy->query("SELECT acquire_lock('pending', ttl => '1 h')");
	$busy->query("BEGIN; SELECT acquire_lock('undone', ttl => '1 h'); SELECT release_lock('pending')");
	$next->async("SELECT acquire_lock('undone')");
	waiting($next);
	$busy->kill('KILL');
	like($next->wait, qr/^\d+$/, 'killed client: what its open transaction acquired is undone');
	is($watch->query("SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks"), 'pending,undone', 'its release as well');
	is($watch->query("SELECT sum(force_release_lock(name)) FROM lock_election.locks"), '2', 'release');
	nothing_left($node);

	# one that is ended by an administrator
	$busy = session($node);
	$busy->query("SELECT acquire_lock('killed', ttl => NULL)");
	$next->async("SELECT acquire_lock('killed', ttl => NULL)");
	waiting($next);
	$watch->query('SELECT pg_terminate_backend(' . $busy->pid . ')');
	like($next->wait, qr/^\d+$/, 'terminated connection: the next waiter gets its lock at once');
	$next->quit;
	nothing_left($node, 'a connection that is closed releases its locks');
}

# --- the next user of a pooled connection ---

{
	my ($pooled, $next) = map { session($node) } 1 .. 2;
	my $token = $pooled->query("SELECT acquire_lock('first', ttl => '1 h')");

	# the second worker, without any clean-up by the pool
	is($pooled->query("SELECT try_acquire_lock('first')"), '', 'a second worker is not let in');
	is($pooled->query("SELECT acquire_lock('first', wait => '0')"), '', "nor with wait => '0'");
	is($pooled->error, '', 'which needs no notice');
	is($pooled->query("SELECT acquire_lock('first', wait => '500 ms')"), '', 'a second worker waits');
	like($pooled->error, qr/NOTICE:  00000: lock "first" is already held by this connection/, 'with a notice that says why');
	is($pooled->query("BEGIN; SELECT try_acquire_lock('first'); COMMIT"), '', 'nor in a transaction');
	is($pooled->query("SELECT try_acquire_lock('first', mode => 'shared')"), '', 'nor in mode shared');
	$pooled->async("SELECT acquire_lock('first')");
	waiting($pooled);
	is($watch->query("SELECT pid = $pooled->{pid} AND blocked_by = ARRAY[$pooled->{pid}] FROM lock_election.waiters"), 't', 'the view says so too');
	is($watch->query("SELECT release_lock('first', $token)"), 't', 'released from elsewhere');
	like($pooled->wait, qr/^\d+$/, 'it is let in');
	is($pooled->query("SELECT release_lock('first')"), 't', 'release');
	nothing_left($node);

	# cleaned up by DISCARD ALL
	$token = $pooled->query("SELECT acquire_lock('first', ttl => '1 h')");
	$pooled->query("SELECT acquire_lock('bound', ttl => NULL)");
	$pooled->query("SELECT acquire_lock('named', ttl => NULL, owner => 'worker')");
	$next->async("SELECT acquire_lock('bound', ttl => NULL)");
	waiting($next);
	is($pooled->query('DISCARD ALL'), '', 'DISCARD ALL');
	is($watch->query("SELECT try_acquire_lock('named') IS NOT NULL"), 't', 'releases what was bound to the connection');
	like($next->wait, qr/^\d+$/, 'for the next waiter at once');
	is($watch->query("SELECT is_held('first', $token)"), 't', 'a lock with a TTL stays');
	is($pooled->query("SELECT try_acquire_lock('first')"), '', 'and the connection is not let in any more');
	is($pooled->query("SELECT release_lock('first')"), 'f', 'nor does it release it without the token');
	is($pooled->query("BEGIN; SELECT release_lock('first'); COMMIT"), 'f', 'nor in a transaction');
	is($pooled->query("SELECT release_lock('first', $token)"), 't', 'with the token it does');
	is($pooled->query('DISCARD ALL; DISCARD ALL'), '', 'DISCARD ALL with nothing to release');
	is($pooled->query("SELECT acquire_lock('again', ttl => NULL) IS NOT NULL"), 't', 'the connection goes on');
	$pooled->query('DISCARD TEMP; DISCARD PLANS; RESET ALL');
	is($watch->query("SELECT try_acquire_lock('again')"), '', 'other clean-ups release nothing');
	is($watch->query("SELECT release_lock('named')"), 't', 'release');
	$_->quit foreach $pooled, $next;
	nothing_left($node);
}

# --- the settings of the socket ---

# Keep-alive idle, interval, count, and the user timeout, as the socket has them.
my $show = q{SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN
	('tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count', 'tcp_user_timeout')};
my $probing = '3 4 2 0';

# In how many seconds the server probes a connection that is idle, as the kernel shows it: in hundredths, by both ports.
sub seconds_to_probe
{
	my ($line, $left) = sprintf '\S*:%04X \S*:%04X 01 \S+ 02:(\S+)', @_;

	wait_until(sub { ($left) = slurp_file('/proc/net/tcp') =~ /$line/; return defined $left; }) or die 'the connection is not idle';
	return hex($left) / 100;
}

{
	my $owner = session($node);
	my $s = session($node, connstr => 'host=127.0.0.1');
	my $before = $s->query($show);
	my $comes_back = sub {
		my ($how) = @_;
		ok(wait_until(sub { $s->query($show) eq $before }), "the settings come back after $how") or diag($s->query($show));
	};

	isnt($before, $probing, 'there are no probes before');
	$owner->query("SELECT acquire_lock('probes', '1 h')");
	is($s->query("SELECT acquire_lock('probes', wait => '1500 ms')"), '', 'a wait');
	is($s->query($show), $before, 'the settings come back after it');
	$s->query(q{SET statement_timeout = '1500 ms'});
	$s->query("SELECT acquire_lock('probes')");
	like($s->error, qr/57014/, 'a wait that is cancelled');
	$s->query('RESET statement_timeout');
	is($s->query($show), $before, 'and after that');
	$s->query("SELECT acquire_lock('ttl')");
	is($s->query($show), $before, 'a lock with a TTL needs none');

	like($s->query("SELECT acquire_lock('b1', NULL), current_setting('tcp_user_timeout')"), qr/^\d+\|10000$/, 'the grant of a bound lock has to be acknowledged in time');
	is($s->query($show), $probing, 'after that there are probes only');
	like($s->query("SELECT acquire_lock('ttl2'), current_setting('tcp_user_timeout')"), qr/^\d+\|0$/, 'nor is there more for another lock that is not bound');
	is($s->query("SELECT release_lock('b2'), current_setting('tcp_user_timeout')"), 'f|0', 'or for another call');
	$s->query("SELECT acquire_lock('b2', NULL)");
	$s->query("SELECT release_lock('b1')");
	is($s->query($show), $probing, 'as long as there is one such lock');
	$s->query("SELECT release_lock('b2')");
	is($s->query($show), $before, 'and no longer');
	$s->query("SELECT acquire_locks('{b1,b2}', NULL), enqueue_lock('b3', NULL)");
	is($s->query($show), $probing, 'several, and a place');
	$s->query("BEGIN; SELECT release_locks('{b1,b2}', token) FROM lock_election.locks WHERE name = 'b1'; SELECT release_lock('b3'); COMMIT");
	$comes_back->('a commit');
	$s->query("BEGIN; SELECT acquire_lock('b1', NULL); ROLLBACK");
	$comes_back->('a rollback');
	$s->query("SELECT acquire_lock('b1', NULL)");
	$s->query('DISCARD ALL');
	is($s->query($show), $before, 'and after DISCARD ALL');

	# a pooled connection may be idle for long after it: no statement puts them back
	my $port = $s->query('SELECT inet_client_port()');
	my $next_probe = sub { return seconds_to_probe($node->port, $port) };
	$s->query("SELECT acquire_lock('b1', NULL)");
	cmp_ok($next_probe->(), '<=', 4, 'the connection is probed');
	$s->query('DISCARD ALL');
	cmp_ok($next_probe->(), '>', 4, 'and from DISCARD ALL on it is not');

	# what is set by hand stays
	my $dba = session($node, connstr => "host=127.0.0.1 options='-c tcp_keepalives_idle=60 -c tcp_user_timeout=70000'");
	$before = $dba->query($show);
	like($before, qr/ 60 .* 70000$/, 'settings of their own');
	like($dba->query("SELECT acquire_lock('b1', NULL), current_setting('tcp_user_timeout')"), qr/^\d+\|70000$/, 'the timeout stays');
	is($dba->query($show), $before, 'so do the probes');
	$dba->query("SELECT acquire_lock('probes', wait => '1500 ms')");
	is($dba->query($show), $before, 'also after a wait');
	$dba->quit;

	# each by itself: of the probes any one, and the timeout not for those
	foreach my $case ([ 'tcp_keepalives_idle=60', 0 ], [ 'tcp_keepalives_interval=7', 0 ], [ 'tcp_keepalives_count=5', 0 ], [ 'tcp_user_timeout=70000', 1 ])
	{
		my ($set, $probed) = @$case;

		$dba = session($node, connstr => "host=127.0.0.1 options='-c $set'");
		$before = $dba->query($show);
		my $timeout = $probed ? 70000 : 10000;
		like($dba->query("SELECT acquire_lock('b $set', NULL), current_setting('tcp_user_timeout')"), qr/^\d+\|$timeout$/, "$set: the timeout");
		is($dba->query($show), $probed ? '3 4 2 70000' : $before, "$set: the probes");
		$dba->query("SELECT release_lock('b $set')");
		is($dba->query($show), $before, "$set: afterwards");
		$dba->quit;
	}
	$s->quit;
	$watch->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$owner->quit;
}

# --- a silent host ---

SKIP:
{
	skip 'no network of our own', 1 unless can_silence();
	my @host = map { "10.99.0.$_" } 1 .. 3;
	add_host($_) foreach @host;
	my ($waiter, $holder, $granted) = map { session($node, connstr => "host=$_") } @host;
	my ($owner, $next) = map { session($node) } 1 .. 2;
	my $start;

	$owner->query("SELECT acquire_lock('waiting'), acquire_lock('granted')");
	$waiter->async("SELECT acquire_lock('waiting')");
	waiting($waiter);
	$next->async("SELECT acquire_lock('waiting')");
	waiting($next);
	$granted->async("SELECT acquire_lock('granted', ttl => NULL)");
	waiting($granted);
	like($holder->query("SELECT acquire_lock('holding', ttl => NULL)"), qr/^\d+$/, 'held from a host');

	# They wait for more than a second, so that the backends watch their sockets.
	my $since = q{SELECT min(clock_timestamp() - waiting_since) > '1500 ms' FROM lock_election.waiters};
	ok(wait_until(sub { $watch->query($since) eq 't' }), 'three wait');
	$start = time;
	silence_host($_) foreach @host;

	# its answer is on the way to the silent host when nobody listens any more
	is($owner->query("SELECT release_lock('granted')"), 't', 'granted to a host that is silent already');
	is($watch->query("SELECT count(*) FROM lock_election.locks WHERE name = 'granted'"), '1', 'which holds it');

	foreach my $gone ([ $waiter, 'a wait' ], [ $holder, 'a lock bound to the connection' ], [ $granted, 'a lock granted after it fell silent' ])
	{
		# 10 s, and what a busy machine takes
		ok(wait_until(sub { !alive($gone->[0]) }), "silent host: $gone->[1] ends");
		note(sprintf('after %.1f s', time - $start));
	}
	ok(!$next->ready, 'the next one waits for the holder only');
	is($owner->query("SELECT release_lock('waiting')"), 't', 'release');
	like($next->wait, qr/^\d+$/, 'and is let in');
	is($watch->query("SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks"), 'waiting', 'the locks are free');
	$watch->query('SELECT force_release_lock(name) FROM lock_election.locks');
	nothing_left($node, 'nothing is left behind by silent hosts');
	$_->kill foreach $waiter, $holder, $granted;
}

# --- DISCARD ALL in a transaction ---

# It cannot run in one, says PostgreSQL, which does not take the values of a bound statement for the begin of one.
my $binds = LeWire->new($node);
$watch->query(q{CREATE FUNCTION does(what text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN EXECUTE what; RETURN true; END $$;
	CREATE DOMAIN done AS text CHECK (does(VALUE))});
my $done = $watch->query(q{SELECT 'done'::regtype::oid});

foreach my $does (q{SELECT acquire_lock('acquired', '1 h')}, q{SELECT release_lock(name, token) FROM lock_election.locks WHERE name = 'held'}, q{SELECT fence_lock('held', token) FROM lock_election.locks WHERE name = 'held'},
	q{DO $d$ BEGIN PERFORM acquire_lock('undone', '1 h'); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN END $d$})
{
	$binds->query(q{SELECT acquire_lock('held', '1 h', owner => 'me')});
	$binds->wait('Z');
	$binds->together(
		sub {
			$binds->parse('a', 'SELECT $1', $done);
			$binds->bind('p', 'a', $does);
			$binds->parse('', 'DISCARD ALL');
			$binds->bind('', '');
			$binds->execute('');
			$binds->sync;
		});
	$binds->wait('Z');
	like($binds->error, qr/25001.*DISCARD ALL cannot run in a transaction that has acquired, released or fenced a lock/s, "DISCARD ALL after $does");
	is($watch->query(q{SELECT string_agg(name, ' ') FROM lock_election.locks WHERE name <> 'slow reader'}), 'held', 'which is undone');
	$binds->query('DISCARD ALL');
	$binds->wait('Z');
	is($binds->error, '', 'then it runs');
}
$binds->quit;
$watch->query(q{SELECT force_release_lock('held'); DROP DOMAIN done; DROP FUNCTION does});
nothing_left($node, 'nothing is left of that');

# --- a slow reader ---

wait_until(sub { time - $not_reading_since > 14 });
is(length $slow_reader->wait('Z'), 30000 * 1001 - 1, 'a client that holds a bound lock and does not read for long gets its answer');
$slow_reader->query(q{SELECT release_lock('slow reader')});
is($slow_reader->wait('Z'), 't', 'and has its lock');
$slow_reader->quit;
nothing_left($node, 'nothing is left of it', dbname => 'slow');

$node->stop;
done_testing();
