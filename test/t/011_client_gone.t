# Locks and waits of a disappeared client: it was killed, its host is silent, or the next user of a pooled connection
# has replaced it.
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

# A client that does not read for longer than the server tolerates a silent host. It uses its own database; the end of
# this test reads its result.
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
	like($next->wait, qr/^\d+$/, 'killed client: the next waiter is granted its lock immediately');
	is($watch->query("SELECT owner || ' ' || connected FROM lock_election.locks WHERE name = 'ttl'"),
		'worker false', 'a lock with a TTL stays');
	is($watch->query("SELECT try_acquire_lock('ttl')"), '', 'another session is not granted the lock with a TTL');
	is($watch->query("SELECT try_acquire_lock('ttl', owner => 'worker') IS NOT NULL"), 't',
		'the named owner is granted the lock with a TTL on another connection');
	is($watch->query("SELECT release_lock('ttl', token, all_holds => true) FROM lock_election.locks WHERE name = 'ttl'"), 't', 'the lock with a TTL is released with its token');
	is($next->query("SELECT release_lock('killed')"), 't', 'release');
	nothing_left($node);

	# A client that is killed while it waits, and is granted the lock before its backend notices.
	my $dead = session($node);
	$holder = session($node);
	$holder->query("SELECT acquire_lock('crossing')");
	$dead->async("SELECT acquire_lock('crossing', ttl => '1 h')");
	waiting($dead);
	$dead->kill('KILL');
	$holder->query("SELECT release_lock('crossing')");
	like($watch->query("SELECT acquire_lock('crossing', wait => '20 s')"), qr/^\d+$/, 'a killed client does not keep the lock');
	$watch->query("SELECT release_lock('crossing')");
	nothing_left($node);

	# A client that is killed in an open transaction which has acquired one lock and released another.
	my $busy = session($node);
	$busy->query("SELECT acquire_lock('pending', ttl => '1 h')");
	$busy->query("BEGIN; SELECT acquire_lock('undone', ttl => '1 h'); SELECT release_lock('pending')");
	$next->async("SELECT acquire_lock('undone')");
	waiting($next);
	$busy->kill('KILL');
	like($next->wait, qr/^\d+$/, 'killed client: the acquire of its open transaction is undone');
	is($watch->query("SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks"), 'pending,undone',
		'killed client: the release of its open transaction is undone');
	is($watch->query("SELECT sum(force_release_lock(name)) FROM lock_election.locks"), '2', 'release');
	nothing_left($node);

	# A connection that an administrator terminates.
	$busy = session($node);
	$busy->query("SELECT acquire_lock('killed', ttl => NULL)");
	$next->async("SELECT acquire_lock('killed', ttl => NULL)");
	waiting($next);
	$watch->query('SELECT pg_terminate_backend(' . $busy->pid . ')');
	like($next->wait, qr/^\d+$/, 'terminated connection: the next waiter is granted its lock immediately');
	$next->quit;
	nothing_left($node, 'a connection that is closed releases its locks');
}

# --- the next user of a pooled connection ---

{
	my ($pooled, $next) = map { session($node) } 1 .. 2;
	my $token = $pooled->query("SELECT acquire_lock('first', ttl => '1 h')");

	# A second worker uses the connection, and the pool has not cleaned up in between.
	is($pooled->query("SELECT try_acquire_lock('first')"), '',
		'a second worker on the same connection is not granted the lock');
	is($pooled->query("SELECT acquire_lock('first', wait => '0')"), '',
		"a second worker with wait => '0' is not granted the lock");
	is($pooled->error, '', 'a second worker that does not wait gets no notice');
	is($pooled->query("SELECT acquire_lock('first', wait => '500 ms')"), '',
		'a second worker that waits is not granted the lock');
	like($pooled->error, qr/NOTICE:  00000: lock "first" is already held by this connection/, 'a notice explains that this connection already holds the lock');
	is($pooled->query("BEGIN; SELECT try_acquire_lock('first'); COMMIT"), '',
		'a second worker in a transaction is not granted the lock');
	is($pooled->query("SELECT try_acquire_lock('first', mode => 'shared')"), '',
		'a second worker in mode shared is not granted the lock');
	$pooled->async("SELECT acquire_lock('first')");
	waiting($pooled);
	is($watch->query("SELECT pid = $pooled->{pid} AND blocked_by = ARRAY[$pooled->{pid}] FROM lock_election.waiters"), 't', 'view waiters shows that the connection waits for itself');
	is($watch->query("SELECT release_lock('first', $token)"), 't', 'the lock is released from another connection');
	like($pooled->wait, qr/^\d+$/, 'the second worker is granted the lock after the release');
	is($pooled->query("SELECT release_lock('first')"), 't', 'release');
	nothing_left($node);

	# The connection is cleaned up with DISCARD ALL.
	$token = $pooled->query("SELECT acquire_lock('first', ttl => '1 h')");
	$pooled->query("SELECT acquire_lock('bound', ttl => NULL)");
	$pooled->query("SELECT acquire_lock('named', ttl => NULL, owner => 'worker')");
	$next->async("SELECT acquire_lock('bound', ttl => NULL)");
	waiting($next);
	is($pooled->query('DISCARD ALL'), '', 'DISCARD ALL');
	is($watch->query("SELECT try_acquire_lock('named') IS NOT NULL"), 't',
		'DISCARD ALL releases the locks bound to the connection');
	like($next->wait, qr/^\d+$/, 'the next waiter is granted the bound lock immediately after DISCARD ALL');
	is($watch->query("SELECT is_held('first', $token)"), 't', 'a lock with a TTL stays after DISCARD ALL');
	is($pooled->query("SELECT try_acquire_lock('first')"), '',
		'the connection cannot acquire its lock with a TTL again after DISCARD ALL');
	is($pooled->query("SELECT release_lock('first')"), 'f',
		'the connection cannot release its lock without the token after DISCARD ALL');
	is($pooled->query("BEGIN; SELECT release_lock('first'); COMMIT"), 'f',
		'the connection cannot release its lock without the token in a transaction either');
	is($pooled->query("SELECT release_lock('first', $token)"), 't',
		'the connection releases its lock with the token after DISCARD ALL');
	is($pooled->query('DISCARD ALL; DISCARD ALL'), '', 'DISCARD ALL with nothing to release');
	is($pooled->query("SELECT acquire_lock('again', ttl => NULL) IS NOT NULL"), 't',
		'the connection still works after DISCARD ALL');
	$pooled->query('DISCARD TEMP; DISCARD PLANS; RESET ALL');
	is($watch->query("SELECT try_acquire_lock('again')"), '', 'other DISCARD commands and RESET ALL release no locks');
	is($watch->query("SELECT release_lock('named')"), 't', 'release');
	$_->quit foreach $pooled, $next;
	nothing_left($node);
}

# --- settings of the socket ---

# Keep-alive idle, interval and count, and the user timeout, as the socket has them.
my $show = q{SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN
	('tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count', 'tcp_user_timeout')};
my $probing = '3 4 2 0';

# Returns the number of seconds until the kernel probes this idle connection, which is identified by both ports. The
# kernel shows hundredths of a second.
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
		ok(wait_until(sub { $s->query($show) eq $before }), "the socket settings are restored after $how") or diag($s->query($show));
	};

	isnt($before, $probing, 'no probes are set at first');
	$owner->query("SELECT acquire_lock('probes', '1 h')");
	is($s->query("SELECT acquire_lock('probes', wait => '1500 ms')"), '', 'a wait of 1.5 s times out');
	is($s->query($show), $before, 'the socket settings are restored after a wait');
	$s->query(q{SET statement_timeout = '1500 ms'});
	$s->query("SELECT acquire_lock('probes')");
	like($s->error, qr/57014/, 'a wait is cancelled by statement_timeout');
	$s->query('RESET statement_timeout');
	is($s->query($show), $before, 'the socket settings are restored after a cancelled wait');
	$s->query("SELECT acquire_lock('ttl')");
	is($s->query($show), $before, 'a lock with a TTL sets no probes');

	like($s->query("SELECT acquire_lock('b1', NULL), current_setting('tcp_user_timeout')"), qr/^\d+\|10000$/, 'tcp_user_timeout is set while a bound lock is granted');
	is($s->query($show), $probing, 'only the probes stay set after the grant of a bound lock');
	like($s->query("SELECT acquire_lock('ttl2'), current_setting('tcp_user_timeout')"), qr/^\d+\|0$/, 'the grant of a lock with a TTL does not set tcp_user_timeout');
	is($s->query("SELECT release_lock('b2'), current_setting('tcp_user_timeout')"), 'f|0',
		'a release does not set tcp_user_timeout');
	$s->query("SELECT acquire_lock('b2', NULL)");
	$s->query("SELECT release_lock('b1')");
	is($s->query($show), $probing, 'probes stay set while the connection holds one bound lock');
	$s->query("SELECT release_lock('b2')");
	is($s->query($show), $before, 'the socket settings are restored after the last bound lock is released');
	$s->query("SELECT acquire_locks('{b1,b2}', NULL), enqueue_lock('b3', NULL)");
	is($s->query($show), $probing, 'several bound locks and a bound place set probes');
	$s->query("BEGIN; SELECT release_locks('{b1,b2}', token) FROM lock_election.locks WHERE name = 'b1'; SELECT release_lock('b3'); COMMIT");
	$comes_back->('a commit');
	$s->query("BEGIN; SELECT acquire_lock('b1', NULL); ROLLBACK");
	$comes_back->('a rollback');
	$s->query("SELECT acquire_lock('b1', NULL)");
	$s->query('DISCARD ALL');
	is($s->query($show), $before, 'the socket settings are restored after DISCARD ALL');

	# A pooled connection may be idle for a long time after DISCARD ALL, so no later statement would restore the
	# settings.
	my $port = $s->query('SELECT inet_client_port()');
	my $next_probe = sub { return seconds_to_probe($node->port, $port) };
	$s->query("SELECT acquire_lock('b1', NULL)");
	cmp_ok($next_probe->(), '<=', 4, 'the idle connection is probed while it holds a bound lock');
	$s->query('DISCARD ALL');
	cmp_ok($next_probe->(), '>', 4, 'the idle connection is no longer probed after DISCARD ALL');

	# Settings that the user has set are kept.
	my $dba = session($node, connstr => "host=127.0.0.1 options='-c tcp_keepalives_idle=60 -c tcp_user_timeout=70000'");
	$before = $dba->query($show);
	like($before, qr/ 60 .* 70000$/, 'the connection has its own socket settings');
	like($dba->query("SELECT acquire_lock('b1', NULL), current_setting('tcp_user_timeout')"), qr/^\d+\|70000$/, q{the user's own tcp_user_timeout is kept for a grant});
	is($dba->query($show), $before, q{the user's own keep-alive settings are kept for a bound lock});
	$dba->query("SELECT acquire_lock('probes', wait => '1500 ms')");
	is($dba->query($show), $before, q{the user's own keep-alive settings are kept after a wait});
	$dba->quit;

	# Each setting by itself: any one of the keep-alive settings keeps the extension from changing all of them. The
	# timeout and the keep-alive settings do not affect each other.
	foreach my $case ([ 'tcp_keepalives_idle=60', 0 ], [ 'tcp_keepalives_interval=7', 0 ], [ 'tcp_keepalives_count=5', 0 ], [ 'tcp_user_timeout=70000', 1 ])
	{
		my ($set, $probed) = @$case;

		$dba = session($node, connstr => "host=127.0.0.1 options='-c $set'");
		$before = $dba->query($show);
		my $timeout = $probed ? 70000 : 10000;
		like($dba->query("SELECT acquire_lock('b $set', NULL), current_setting('tcp_user_timeout')"), qr/^\d+\|$timeout$/, "$set: tcp_user_timeout for a grant");
		is($dba->query($show), $probed ? '3 4 2 70000' : $before, "$set: settings while a bound lock is held");
		$dba->query("SELECT release_lock('b $set')");
		is($dba->query($show), $before, "$set: settings after the release");
		$dba->quit;
	}
	$s->quit;
	$watch->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$owner->quit;
}

# --- a silent host ---

SKIP:
{
	skip 'no private network namespace', 1 unless can_silence();
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
	like($holder->query("SELECT acquire_lock('holding', ttl => NULL)"), qr/^\d+$/,
		'a client on a remote host holds a bound lock');

	# The sessions must have waited for more than a second, because only then do backends watch their sockets.
	my $since = q{SELECT min(clock_timestamp() - waiting_since) > '1500 ms' FROM lock_election.waiters};
	ok(wait_until(sub { $watch->query($since) eq 't' }), 'three sessions wait');
	$start = time;
	silence_host($_) foreach @host;

	# The reply is sent to a host that is already silent.
	is($owner->query("SELECT release_lock('granted')"), 't', 'the lock is granted to a client on a silent host');
	is($watch->query("SELECT count(*) FROM lock_election.locks WHERE name = 'granted'"), '1',
		'the client on the silent host holds the lock');

	foreach my $gone ([ $waiter, 'a wait' ], [ $holder, 'a lock bound to the connection' ], [ $granted, 'a lock granted after it fell silent' ])
	{
		# 10 s, plus the delay of a busy machine
		ok(wait_until(sub { !alive($gone->[0]) }), "silent host: $gone->[1] ends");
		note(sprintf('after %.1f s', time - $start));
	}
	ok(!$next->ready, 'the next waiter waits only for the holder');
	is($owner->query("SELECT release_lock('waiting')"), 't', 'the owner releases the lock');
	like($next->wait, qr/^\d+$/, 'the next waiter is granted the lock');
	is($watch->query("SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks"), 'waiting',
		'the locks of the silent hosts are released');
	$watch->query('SELECT force_release_lock(name) FROM lock_election.locks');
	nothing_left($node, 'no entry of the silent hosts is left over');
	$_->kill foreach $waiter, $holder, $granted;
}

# --- DISCARD ALL in a transaction ---

# DISCARD ALL cannot run in a transaction. But PostgreSQL's own check does not notice that evaluating the parameters of
# an earlier Bind in the same pipeline has already used locks.
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
	is($watch->query(q{SELECT string_agg(name, ' ') FROM lock_election.locks WHERE name <> 'slow reader'}), 'held',
		'the lock functions before the failed DISCARD ALL are undone');
	$binds->query('DISCARD ALL');
	$binds->wait('Z');
	is($binds->error, '', 'DISCARD ALL succeeds in the next transaction');
}
$binds->quit;
$watch->query(q{SELECT force_release_lock('held'); DROP DOMAIN done; DROP FUNCTION does});
nothing_left($node, 'no entry is left over after DISCARD ALL');

# --- a slow reader ---

wait_until(sub { time - $not_reading_since > 14 });
is(length $slow_reader->wait('Z'), 30000 * 1001 - 1, 'a client that holds a bound lock and does not read for a long time gets its result');
$slow_reader->query(q{SELECT release_lock('slow reader')});
is($slow_reader->wait('Z'), 't', 'the slow reader still holds its bound lock');
$slow_reader->quit;
nothing_left($node, 'no entry of the slow reader is left over', dbname => 'slow');

$node->stop;
done_testing();
