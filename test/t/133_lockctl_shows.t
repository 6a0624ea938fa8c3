# The exact output of lockctl: doctor, top, watch and the tables, of an imitated server. Tables replace the views of the
# extension and of the catalog, so that one statement sets each state.
# Promises: -
# Needs: lockctl, tmux
use strict;
use warnings;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', extension => 0,
	conf => "shared_preload_libraries = ''\nfsync = on\nsynchronous_commit = local\ntimezone = UTC\nautovacuum = off\njit = off\n");
ctl_node($node);
my ($rc, $out, $err);

# The planner has no statistics about the tables, so that they are read in the same order each time. The column
# "looks" says in which reads ("looks") a row is visible. top and watch read once per interval, and each read advances
# the clock by four seconds.
$node->safe_psql('postgres', <<'SQL');
CREATE SCHEMA fake;
CREATE SCHEMA lock_election;
-- by which lockctl finds the schema of the functions, in the catalog itself
CREATE SCHEMA _lock_election;
CREATE FUNCTION fake.lease_holds() RETURNS void LANGUAGE sql AS '';
SET search_path = fake, pg_catalog;
CREATE TABLE setting (name text PRIMARY KEY, value text);
CREATE FUNCTION current_setting(wanted text) RETURNS text LANGUAGE sql AS $$ SELECT value FROM fake.setting WHERE name = wanted $$;
CREATE FUNCTION current_setting(wanted text, missing_ok bool) RETURNS text LANGUAGE sql AS $$ SELECT fake.current_setting(wanted) $$;
CREATE FUNCTION pg_is_in_recovery() RETURNS bool LANGUAGE sql AS $$ SELECT fake.current_setting('standby')::bool $$;

CREATE SEQUENCE looks;
CREATE TABLE looked (pid int);
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
	IF fake.current_setting('ticks by') IS NULL THEN
		RETURN pg_catalog.clock_timestamp() + fake.current_setting('ahead')::interval;
	END IF;
	RETURN timestamptz '2026-01-01 12:00' + (SELECT last_value FROM fake.looks) * interval '4 s';
END $$;
CREATE FUNCTION now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT fake.clock_timestamp() $$;
CREATE FUNCTION look(by text) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
	IF fake.current_setting('ticks by') = by THEN
		INSERT INTO fake.looked VALUES (pg_backend_pid());
		RETURN NEXT nextval('fake.looks');
	ELSE
		RETURN QUERY SELECT last_value FROM fake.looks;
	END IF;
END $$;

CREATE TABLE pg_extension (extname name, extversion text, extnamespace oid);
CREATE TABLE pg_available_extensions (name name, default_version text);
CREATE TABLE pg_settings (name text, setting text);
CREATE TABLE pg_proc (proname name, pronamespace oid, oid oid, pronargs int);
CREATE TABLE pg_stat_activity (backend_type text);
CREATE TABLE pg_stat_replication (state text, sync_state text);
CREATE TABLE health (ok bool, problem text, request_wait interval, standby_wait interval, blocked_by int);
CREATE FUNCTION lock_election.health() RETURNS SETOF fake.health LANGUAGE sql AS $$ SELECT * FROM fake.health $$;

CREATE TABLE manager (pid int, started timestamptz, memory bigint, held bigint, waiting bigint, oldest interval);
CREATE VIEW lock_election.manager AS
	SELECT pid, started, memory, held, waiting, fake.clock_timestamp() - oldest AS oldest_wait FROM fake.manager;
CREATE TABLE hidden_manager (LIKE manager);
CREATE TABLE stat (key_violations bigint, failed_batches bigint, stalls bigint);
CREATE TABLE counter (looks int8range, grants bigint, expiries bigint);
CREATE VIEW lock_election.stat AS
	SELECT s.*, c.grants, 8 * n AS releases, 12 * n AS renewals, 16 * n AS waits, 20 * n AS handoffs, c.expiries,
		28 * n AS batches, 3200 * n AS transaction_ids
	FROM fake.look('stat') n, fake.stat s, fake.counter c WHERE c.looks @> n;
CREATE TABLE locks (looks int8range DEFAULT '[,]', kind text DEFAULT 'lock', name text, slot int DEFAULT 0,
	mode text DEFAULT 'exclusive', owner text, role text DEFAULT 'somebody', token bigint, pid int, connected bool,
	age interval, time_left interval, closed interval, waiters int DEFAULT 0, evicted bool DEFAULT false);
CREATE VIEW lock_election.locks AS
	SELECT kind, name, slot, mode, owner, role, token, pid, connected, fake.clock_timestamp() - age AS acquired_at, time_left,
		fake.clock_timestamp() + closed AS closed_until, waiters, evicted
	FROM fake.look('locks') n, fake.locks WHERE looks @> n;
CREATE TABLE waiters (kind text DEFAULT 'lock', name text, mode text DEFAULT 'exclusive', owner text, age interval,
	queue_position int, pid int, connected bool, blocked_by bigint[]);
CREATE VIEW lock_election.waiters AS
	SELECT kind, name, mode, owner, fake.clock_timestamp() - age AS waiting_since, queue_position, pid, connected, blocked_by FROM fake.waiters;
CREATE TABLE elections (election text, candidate text, owner text, term bigint, age interval, valid_for interval, waiting int, evicted bool DEFAULT false);
CREATE VIEW lock_election.elections AS
	SELECT election, candidate, owner, term, fake.clock_timestamp() - age AS elected_at, valid_for, waiting, evicted FROM fake.elections;

-- Sets the state of a healthy server.
CREATE FUNCTION well() RETURNS void LANGUAGE sql AS $$
	TRUNCATE fake.setting, fake.looked, fake.pg_extension, fake.pg_available_extensions, fake.pg_settings, fake.pg_proc,
		fake.pg_stat_activity, fake.pg_stat_replication, fake.health, fake.manager, fake.stat, fake.counter, fake.locks,
		fake.waiters, fake.elections;
	ALTER SEQUENCE fake.looks RESTART;
	INSERT INTO fake.setting VALUES ('standby', 'f'), ('ahead', '0'), ('max_worker_processes', '8'),
		('lock_election.max_databases', '4'), ('lock_election.version', '1.1'), ('lock_election.notify', 'all');
	INSERT INTO fake.pg_extension VALUES ('other', '9', 11), ('lock_election', '1.1', 'lock_election'::regnamespace);
	INSERT INTO fake.pg_available_extensions VALUES ('other', '8'), ('lock_election', '1.1');
	INSERT INTO fake.pg_settings VALUES ('max_connections', '7'), ('shared_preload_libraries', 'lock_election');
	INSERT INTO fake.pg_proc SELECT f, n FROM unnest('{acquire_lock,enqueue_lock,enqueue_lock,enqueue_locks,enqueue_permit}'::name[]) f,
		unnest('{lock_election,fake}'::regnamespace[]) n;
	INSERT INTO fake.pg_stat_activity SELECT unnest(ARRAY['client backend', 'checkpointer', 'lock_election manager', 'other worker',
		'logical replication launcher', 'autovacuum launcher', 'autovacuum worker', 'background writer', 'walwriter', 'walsender',
		'walreceiver', 'startup', 'archiver', 'logger']);
	INSERT INTO fake.health VALUES (true, NULL, '0', '0', NULL);
	INSERT INTO fake.manager VALUES (4711, '2026-01-01 11:00:00.9', 1048576, 15, 3, '100 s');
	INSERT INTO fake.stat VALUES (0, 0, 0);
	INSERT INTO fake.counter VALUES ('[1,3)', 0, 0);
$$;
ALTER DATABASE postgres SET search_path = fake, pg_catalog;
ALTER DATABASE postgres SET lock_election.max_memory = '1MB';
SELECT well();
SQL

# Sets the state of a healthy server, with these changes.
sub state
{
	my $sql = join ';', 'SELECT well()', @_;

	utf8::encode($sql);
	return $node->safe_psql('postgres', $sql);
}

my ($version) = slurp_file('META.json') =~ /"version": "([\d.]+)"/;
my $server_version = one('SHOW server_version');
my ($host, $port, $user) = ($node->host, $node->port, (getpwuid $>)[0]);
my %well = (
	connection => qq{ok     connection   database "postgres" on $host, port $port, as $user},
	server => "ok     server       version $server_version, a primary",
	preload => 'ok     preload      shared_preload_libraries has lock_election',
	extension => 'ok     extension    version 1.1',
	client => "ok     client       lockctl $version",
	health => 'ok     health       locks are granted here',
	manager => 'ok     manager      process 4711 since 2026-01-01 11:00:00+00, 1024 kB',
	workers => 'ok     workers      3 of 8 worker processes are used',
	rights => "ok     rights       $user may call what a lock needs",
	waits => 'ok     waits        nobody has waited for a lock for more than 30 s',
	counters => 'ok     counters     no failed batch, no stall since the counters were reset',
	settings => 'ok     settings     fsync on, synchronous_commit local, notify all',
	replication => 'ok     replication  0 standbys, 0 synchronous',
	clock => "ok     clock        differs by N ms from the server's");
my @checks = qw(connection server preload extension client health manager workers rights waits counters settings replication clock);

# Checks all lines of doctor: those of a healthy server, except where %other has another text; undef: no such line.
sub doctor_says
{
	my ($code, $name, %other) = @_;
	my %said = (%well, %other);
	my %env = map { /^[A-Z]+$/ ? ($_ => delete $said{$_}) : () } keys %said;

	($rc, $out, $err) = ctl({ env => \%env }, 'doctor');
	$out =~ s/differs by -?\d+ ms/differs by N ms/;
	return is("$rc\n$out$err", join("\n", $code, (grep { defined } @said{@checks}), ''), $name);
}

sub line { my ($result, $check, $text, $advice) = @_; return sprintf('%-6s %-12s %s', $result, $check, $text) . ($advice ? "\n" . ' ' x 20 . "-> $advice" : ''); }

subtest 'doctor' => sub {
	doctor_says(0, 'a healthy server');

	# --- library and extension
	my %nothing_more = map { $_ => undef } qw(health manager workers rights waits counters);
	state(q{DELETE FROM setting WHERE name ~ 'max_databases'});
	doctor_says(1, 'the library is not loaded', %nothing_more,
		preload => line('WRONG', 'preload', 'lock_election is in shared_preload_libraries, but was not loaded', 'restart the server'));
	my $preload = q{ALTER SYSTEM SET shared_preload_libraries = 'lock_election' (after the existing entries), and restart the server};
	foreach my $list ('', 'other')
	{
		state(q{DELETE FROM setting WHERE name ~ 'max_databases'}, "UPDATE pg_settings SET setting = '$list'");
		doctor_says(1, "not among the libraries: '$list'", %nothing_more,
			preload => line('WRONG', 'preload', 'lock_election is not in shared_preload_libraries' . ($list && ": $list"), $preload));
	}
	state(q{DELETE FROM pg_extension WHERE extversion = '1.1'});
	doctor_says(1, 'the extension is not created', %nothing_more,
		extension => line('WRONG', 'extension', 'not installed in database "postgres"', 'CREATE EXTENSION lock_election, as a superuser; or lockctl install for the portable edition'));
	state(q{DELETE FROM pg_extension WHERE extversion = '1.1'}, q{DELETE FROM pg_available_extensions WHERE name = 'lock_election'});
	doctor_says(1, 'the server has no files of the extension', %nothing_more,
		extension => line('WRONG', 'extension', 'the server does not have its files',
			q{install the package postgresql-NN-lock-election on the server's machine; or lockctl install for the portable edition}));
	foreach my $case (
		# created, files, library
		[ '1.1', '1.2', '1.1', 'the server has the files of 1.2, and still runs the library of 1.1', 'restart the server; then call lockctl doctor again' ],
		[ '1.10', '1.9', '1.9', 'the server has the files of 1.9, which are older', q{install the newer package on the server's machine, and restart the server} ],
		[ '1.9', '1.10', '1.10', 'the server has the files of 1.10', 'ALTER EXTENSION lock_election UPDATE' ],
		[ '1.9', '1.10', undef, 'the server has the files of 1.10', 'ALTER EXTENSION lock_election UPDATE' ],
		[ '1.1', undef, '1.2' ], [ '1.1', undef, undef ])
	{
		my ($created, $files, $library, $text, $advice) = @$case;

		state("UPDATE pg_extension SET extversion = '$created' WHERE extversion = '1.1'",
			defined $files ? "UPDATE pg_available_extensions SET default_version = '$files' WHERE name = 'lock_election'" : 'DELETE FROM pg_available_extensions',
			defined $library ? "UPDATE setting SET value = '$library' WHERE name = 'lock_election.version'" : q{DELETE FROM setting WHERE name = 'lock_election.version'});
		doctor_says(0, 'created, files, library: ' . join(', ', map { $_ // 'none' } @$case[ 0 .. 2 ]),
			extension => $text ? line('note', 'extension', "version $created; $text", $advice) : line('ok', 'extension', "version $created"));
	}
	state(q{DELETE FROM pg_proc WHERE proname = 'enqueue_permit' AND pronamespace = 'lock_election'::regnamespace});
	doctor_says(1, 'a function is missing',
		client => line('WRONG', 'client', "the extension is too old for lockctl $version: permits and several locks do not work",
			'sudo make install, restart the server, and ALTER EXTENSION lock_election UPDATE'));

	# --- processes
	state(q{TRUNCATE manager});
	doctor_says(1, 'no manager',
		manager => line('WRONG', 'manager', 'none runs for database "postgres"; 3 of 8 worker processes are used',
			q{ALTER SYSTEM SET max_worker_processes = 16 or lock_election.max_databases higher, and restart; then look at the server's log}));
	state(q{UPDATE setting SET value = '4' WHERE name ~ 'worker'});
	doctor_says(0, 'one worker process is unused', workers => line('ok', 'workers',
		'3 of 4 worker processes are used'));
	state(q{UPDATE setting SET value = '3' WHERE name ~ 'worker'});
	doctor_says(0, 'no worker process is unused',
		workers => line('note', 'workers', '3 of 3 worker processes are used: none is left for one more database',
			'ALTER SYSTEM SET max_worker_processes = 16, and restart the server'));
	state(q{UPDATE health SET ok = false, problem = 'it hangs', request_wait = '7 s', standby_wait = '8 s'});
	doctor_says(1, 'nothing is granted',
		health => line('WRONG', 'health', 'it hangs (a request has waited for 00:00:07, a standby for 00:00:08)',
			q{look at the lines below, and at the server's log}));
	state(q{UPDATE health SET ok = false, problem = 'process 42 has locked the tables', request_wait = '0', standby_wait = '0', blocked_by = 42});
	doctor_says(1, 'the tables are locked',
		health => line('WRONG', 'health', 'process 42 has locked the tables', 'end the transaction of that process: SELECT pg_terminate_backend(42)'));
	state(q{ALTER FUNCTION lock_election.health() RENAME TO hidden});
	($rc, $out) = ctl('doctor');
	my $cannot_tell = line('note', 'health', 'the extension cannot report it: ERROR:  function lock_election.health() does not exist; ');
	like("$rc $out", qr/^0 .*^\Q$cannot_tell\E.*\n {20}-> ALTER EXTENSION lock_election UPDATE$/ms,
		'health() does not exist');
	one('ALTER FUNCTION lock_election.hidden() RENAME TO health');

	# --- waits, leaders and counters
	my $wait = q{INSERT INTO waiters (name, kind, age) VALUES ('a job', 'lock', '35 s'), ('b', 'lock', '32 s'), ('a place', 'permit', '1 h')};
	state(q{INSERT INTO waiters (name, age) VALUES ('a job', '25 s')}, q{INSERT INTO waiters (name, kind, age) VALUES ('a place', 'permit', '1 h')});
	doctor_says(0, 'a short wait and a place');
	my $by_hand = 'look at lock_election.waiters and lock_election.locks; evict_lock() evicts a holder';
	foreach my $case (
		[ [], q{'a job', which nobody holds}, $by_hand ],
		[ [ q{INSERT INTO locks (name, age, pid, connected) VALUES ('a job', '10 s', 12, false), ('a job', '20 s', 13, true), ('b', '30 s', 14, false)} ],
			q{'a job', held by role somebody since T, process 13, connected}, q{if it hangs: lockctl release --force 'a job'} ],
		[ [ q{INSERT INTO locks (name, age, connected) VALUES ('a job', '20 s', false)} ], q{'a job', held by role somebody since T, process unknown, not connected}, q{if it hangs: lockctl release --force 'a job'} ],
		[ [ q{UPDATE waiters SET name = E'x\'' WHERE name = 'a job'}, q{INSERT INTO locks (name, age) VALUES (E'x\'', '20 s')} ],
			'(see lock_election.waiters), held by role somebody since T, process unknown, which only members of its role and of pg_read_all_stats may know', $by_hand ])
	{
		my ($sql, $text, $advice) = @$case;

		state($wait, @$sql);
		($rc, $out) = ctl('doctor');
		my ($said) = $out =~ /^(.* waits .*\n.*-> .*)$/m;
		$said =~ s/since 2\S+ \S+,/since T,/;
		like($said, qr/^\Q${ \line('note', 'waits', 'somebody has waited ') }\E00:0[01]:\d\d for lock \Q$text\E\n {20}-> \Q$advice\E$/, "a long wait: $text");
		is($rc, 0, "exit code of a long wait: $text");
	}
	my $leader = q{INSERT INTO locks (kind, name, connected, time_left) VALUES ('election', 'e', %s, '3599.9 s')};
	my $candidate = q{INSERT INTO waiters (kind, name, age) VALUES ('election', '%s', '%s s')};
	foreach my $case ([ 'true', 'e', 35 ], [ 'NULL', 'e', 35 ], [ 'false', 'other', 35 ], [ 'false', 'e', 25 ])
	{
		my ($connected, $election, $age) = @$case;

		state(sprintf($leader, $connected), sprintf($candidate, $election, $age));
		doctor_says(0, "a candidate has waited for $election for $age s, a leader is connected: $connected");
	}
	state(sprintf($leader, 'false'), sprintf($candidate, 'e', 35));
	(undef, $out) = ctl('doctor');
	like($out, qr/^note   leaders      candidates wait for 'e', whose leader is not connected, for another 00:59:59\n {20}-> if it no longer runs: lockctl release --force --now --election NAME$/m, 'candidates wait for a leader that is not connected');
	foreach my $case (
		[ 1, 'WRONG', 'UPDATE manager SET memory = 1048577', 'the locks take 1024 kB, more than lock_election.max_memory: no more locks are granted', 'ALTER SYSTEM SET lock_election.max_memory higher, and pg_reload_conf()' ],
		[ 1, 'WRONG', 'UPDATE stat SET key_violations = 1', 'a second holder was rejected 1 times: another program has written to the tables', q{look at the server's log, which has the tokens} ],
		[ 0, 'note', 'UPDATE stat SET failed_batches = 2', '2 batches could not be written', q{look at the server's log} ],
		[ 0, 'note', 'UPDATE stat SET stalls = 3', 'the manager did not run for more than a second, 3 times', q{look at the server's log, and at its disk and processors} ])
	{
		my ($code, $result, $sql, $text, $advice) = @$case;

		state($sql);
		doctor_says($code, $text, counters => line($result, 'counters', $text, $advice));
	}
	state('UPDATE stat SET key_violations = 1, stalls = 1', q{UPDATE health SET ok = false});
	is(ctl('doctor'), 1, 'two problems and a note');

	# --- settings and clocks
	state();
	doctor_says(0, 'synchronous_commit is off', PGOPTIONS => '-c synchronous_commit=off',
		settings => line('note', 'settings', 'synchronous_commit is off: a crash can lose the newest locks', q{ALTER SYSTEM SET lock_election.min_durability = 'local'}));
	foreach my $value ('none', 'elections')
	{
		my $told = line('note', 'settings', "lock_election.notify is $value: waiters poll instead of being notified", q{ALTER SYSTEM SET lock_election.notify = 'all'});

		state("UPDATE setting SET value = '$value' WHERE name ~ 'notify'");
		doctor_says(0, "notify is $value", settings => "$told\n" . line('ok', 'settings', "fsync on, synchronous_commit local, notify $value"));
	}
	state(q{DELETE FROM setting WHERE name ~ 'notify'});
	doctor_says(0, 'lock_election.notify does not exist', settings => line('ok', 'settings', 'fsync on, synchronous_commit local, notify unknown'));
	foreach my $case ([ '3 s', undef ], [ '-3 s', undef ], [ '60 s', '60' ], [ '-60 s', '-60' ])
	{
		my ($ahead, $differs) = @$case;

		state("UPDATE setting SET value = '$ahead' WHERE name = 'ahead'");
		$out = (ctl('doctor'))[1];
		if ($differs)
		{
			my ($seconds) = $out =~ /^note   clock        the server's clock differs by (\S+) s from this machine's; no lock depends on it, but times mislead\n +-> timedatectl set-ntp true, on both machines\n\z/m;
			is(sprintf('%.0f', ($seconds // 0) / 10), sprintf('%.0f', $differs / 10), "a clock that differs by $ahead");
		}
		else { like($out, qr/^ok     clock        differs by -?[234]\d\d\d ms from the server's\n\z/m, "a clock that differs by $ahead"); }
	}

	# --- standbys
	my $streams = q{INSERT INTO pg_stat_replication VALUES ('streaming', 'async'), ('streaming', 'async'), ('catchup', 'async')};
	state($streams);
	doctor_says(0, 'no standby is synchronous', replication => line('note', 'replication', '2 standbys, none is synchronous: a failover can lose the newest locks', q{ALTER SYSTEM SET synchronous_standby_names = '*', and pg_reload_conf()}));
	state(q{UPDATE setting SET value = 't' WHERE name = 'standby'}, q{TRUNCATE manager}, 'UPDATE stat SET stalls = 1',
		q{UPDATE health SET ok = false, problem = 'a standby', request_wait = '0', standby_wait = '0'});
	doctor_says(0, 'doctor on a standby',
		server => "ok     server       version $server_version, a standby",
		health => line('ok', 'health', 'a standby'),
		manager => line('ok', 'manager', 'none on a standby: locks are taken on the primary'),
		rights => undef, waits => undef, counters => undef,
		replication => line('note', 'replication', 'this is a standby: it shows locks, and grants none', 'connect with target_session_attrs=primary'));
	$node->append_conf('postgresql.conf', "synchronous_standby_names = '*'\nfsync = off\n");
	$node->reload;
	wait_for_sql($node, q{SELECT pg_catalog.current_setting('fsync') = 'off' AND pg_catalog.current_setting('synchronous_standby_names') = '*'});
	my $fsync = line('WRONG', 'settings', 'fsync is off: a crash can lose locks, and all other data', 'ALTER SYSTEM SET fsync = on');
	state($streams);
	doctor_says(1, 'fsync is off, and no synchronous standby is connected', settings => $fsync,
		replication => line('WRONG', 'replication', 'synchronous_standby_names is set, but no standby is connected: nothing is granted',
			'start the standby, or ALTER SYSTEM RESET synchronous_standby_names'));
	foreach my $kind ('sync', 'quorum')
	{
		state($streams, "UPDATE pg_stat_replication SET sync_state = '$kind' WHERE state = 'catchup'");
		doctor_says(1, "one standby is $kind", settings => $fsync, replication => line('ok', 'replication', '2 standbys, 1 synchronous'));
	}

	# --- other formats
	state(q{UPDATE pg_settings SET setting = 'a "b", c' WHERE name ~ 'preload'}, q{DELETE FROM setting WHERE name ~ 'max_databases'});
	($rc, $out) = ctl('-o', 'csv', 'doctor');
	my $csv = qq{check,result,text,advice\n"connection","ok","database ""postgres"" on $host, port $port, as $user",""\n"server","ok","version $server_version, a primary",""\n"preload","WRONG","lock_election is not in shared_preload_libraries: a ""b"", c","$preload"\n};
	is(substr($out, 0, length $csv), $csv, 'doctor as CSV');
	($rc, $out) = ctl('-o', 'json', 'doctor');
	my $json = qq([{"check":"connection","result":"ok","text":"database \\"postgres\\" on $host, port $port, as $user","advice":""},\n {"check":"server","result":"ok","text":"version $server_version, a primary","advice":""},\n );
	is(substr($out, 0, length $json), $json, 'doctor as JSON');
	like($out, qr/,\n \{"check":"clock",[^\n]*\}\]\n\z/, 'doctor as JSON: the last line');
	is(ctl('doctor', 'x'), 64, 'doctor with an argument');
};

# top reads once before its first line. At the third read, the manager has been restarted and some counters start at
# zero.
my @counters = (
	q{UPDATE counter SET looks = '[1,3)', grants = 0, expiries = 0}, q{INSERT INTO setting VALUES ('ticks by', 'stat')},
	q{TRUNCATE counter}, q{INSERT INTO counter SELECT int8range(n, n + 1), CASE n WHEN 4 THEN 100 ELSE 4 * n END, 24 * n
	  FROM generate_series(1, 5000) n}, 'UPDATE counter SET expiries = 7 WHERE looks @> 3::bigint');
my @rates = map { [ split ' ' ] } '1.0 2.0 3.0 4.0 5.0 6.0 7.0 800.0', '1.0 2.0 3.0 4.0 5.0 0.0 7.0 800.0', '22.0 2.0 3.0 4.0 5.0 22.2 7.0 800.0';
my @titles = qw(grants releases renewals waits handoffs expiries batches xids);

subtest 'top, as lines' => sub {
	my @top = ('top', '--interval', '100ms', '--count');

	state(@counters);
	is((ctl('-o', 'csv', @top, 3))[1], join("\n", join(',', qw(locks waiters oldest), @titles), (map { join(',', 15, 3, '100.0', @$_) } @rates), ''), 'top as CSV');
	state(@counters);
	my @objects = map { my $of = $_; '{"locks":15,"waiters":3,"oldest":100.0,' . join(',', map { qq("$titles[$_]":$of->[$_]) } 0 .. 7) . '}' } @rates;
	is((ctl('-o', 'json', @top, 3))[1], join("\n", @objects, ''), 'top as JSON');
	state(@counters);
	my $head = join(' ', map { sprintf '%9s', $_ } qw(locks waiters oldest), @titles);
	my @lines = split /^/, (ctl(@top, 21))[1];
	is(join('', @lines[ 0 .. 3 ]), join("\n", $head, (map { join ' ', map { sprintf '%9s', $_ } 15, 3, '100.0', @$_ } @rates), ''), 'top as a table');
	is(join(' ', grep { $lines[$_] eq "$head\n" } 0 .. $#lines), '0 21', 'a head before each 20 lines');
	is(scalar @lines, 23, 'as many lines as --count');
	is(one('SELECT count(*), count(DISTINCT pid) FROM looked'), '22|1', 'one read before the first line and one for each line, in one session');

	state(@counters, 'TRUNCATE manager');
	($rc, $out, $err) = ctl(@top, 1);
	is("$rc $out$err", "69 lockctl: no manager runs for this database; see lockctl doctor\n", 'top without a manager');
	state(@counters);
	my $c = start_ctl('top', '--interval', '100ms');
	ok(wait_until(sub { $c->out =~ /\n.*\n/ }), 'top prints a line');
	one('ALTER VIEW lock_election.manager RENAME TO hidden');
	ok(wait_until(sub { $c->err =~ /^lockctl: ERROR:  relation "lock_election.manager" does not exist; LINE 1: /m }), 'top prints an error of the server') or diag($c->err);
	one('ALTER VIEW lock_election.hidden RENAME TO manager');
	my $lines = () = $c->out =~ /\n/g;
	ok(wait_until(sub { $lines < (() = $c->out =~ /\n/g) }), 'top continues after an error');
	one(q{SELECT pg_terminate_backend(pid) FROM fake.looked GROUP BY pid});
	$lines = () = $c->out =~ /\n/g;
	ok(wait_until(sub { $lines + 1 < (() = $c->out =~ /\n/g) }), 'top continues after its session was terminated');
	is(one('SELECT count(DISTINCT pid) FROM looked'), 2, 'top has opened a second session');
	my $ours = 'FROM pg_catalog.pg_stat_activity WHERE pid IN (SELECT pid FROM fake.looked)';
	my $goes_on = sub {
		my ($name) = @_;
		my $lines = () = $c->out =~ /\n/g;

		return ok(wait_until(sub { $lines + 1 < (() = $c->out =~ /\n/g) }), $name);
	};
	my $blocks = session($node);
	$blocks->query($_) foreach 'BEGIN', 'LOCK TABLE fake.manager';
	ok(wait_until(sub { $c->err =~ /^lockctl: no answer from the server$/m }), 'top reports a server that does not reply') or diag($c->err);
	$blocks->query('ROLLBACK');
	$goes_on->('top continues when the server replies');
	is(one("SELECT count(*) $ours AND application_name = 'lockctl top'"), 1, 'the application_name of top');
	$node->stop('immediate');
	ok(wait_until(sub { $c->err =~ /^lockctl: connection to server .*failed: .*; .*Is the server running.*$/m }), 'top reports a stopped server') or diag($c->err);
	$node->start;
	$goes_on->('top continues when the server is started');
	$c->kill('TERM');
	is($c->wait . $c->signal, '14315', 'SIGTERM ends top');
};

# --- top on a terminal: each key leads to one look ---

my ($tmux) = grep { -x } map { "$_/tmux" } split /:/, $ENV{PATH};
my $socket = PostgreSQL::Test::Utils::tempdir_short() . '/s';

END
{
	my $status = $?;
	system "$tmux -S $socket kill-server 2>/dev/null" if defined $tmux;
	$? = $status;
}

sub tmux { return system($tmux, '-u', '-S', $socket, '-f', '/dev/null', @_) == 0; }

sub screen
{
	my $screen = qx{$tmux -u -S $socket capture-pane -p 2>/dev/null};

	utf8::decode($screen);
	return $screen =~ s/^\d\d:\d\d:\d\d /HH:MM:SS /r =~ s/ +$//gmr =~ s/\n+\z//r;
}

sub open_top
{
	my ($width, $height, @with) = @_;
	local %ENV = (%ENV, ctl_env(), TERM => 'screen', SHELL => '/bin/sh');

	return ok(tmux('new-session', '-d', '-x', $width, '-y', $height, "@with $lockctl top --interval 1h"), "${width}x$height");
}

# The columns of each lock, by name. Durations as seconds, and as top shows them.
my @spans = ([ 0.5, '0.5s' ], [ 99.9, '99.9s' ], [ 100, '1m40s' ], [ 161.7, '2m41s' ], [ 5999, '99m59s' ], [ 6000, '1h40m' ], [ 359999, '99h59m' ], [ 360000, '4d' ]);
my @held = map { { name => sprintf('lock %02d', $_), mode => $_ % 3 ? 'exclusive' : 'shared', owner => "owner $_", age => $spans[ $_ * 3 % 8 ], left => $spans[ 7 - $_ % 8 ], waiters => $_ % 4 } } 1 .. 15;
$held[0]{name} = 'lock 01' . 'x' x 40;
$held[1]{name} = "lock 02 \x{e9}" . "\x{65e5}" x 30;
$held[2]{owner} = 'owner 3' . 'y' x 60;
@{ $held[3] }{qw(mode age owner)} = ('closed', undef, '');

sub in_order
{
	my ($by, $up) = @_;
	my $compare = sub {
		my ($x, $y) = map { ref $_->{$by} ? $_->{$by}[0] : $_->{$by} } @_;
		my $order = !defined $x ? 1 : !defined $y ? -1 : $by eq 'name' ? $x cmp $y : $x <=> $y;

		return $order if $order == 0 || !defined $x || !defined $y;
		return $up ? $order : -$order;
	};
	return sort { $compare->($a, $b) || $a->{name} cmp $b->{name} } @held;
}

# Cuts a text to a number of columns. The wide letters used here take two columns, all others one.
sub cut
{
	my ($text, $columns) = @_;
	my ($cut, $used) = ('', 0);

	foreach my $c (split //, $text)
	{
		$used += ord($c) > 0x3000 ? 2 : 1;
		last if $used > $columns;
		$cut .= $c;
	}
	return $cut;
}

# Formats name, mode and owner in the given widths (the first two keep one column free), and three columns of nine.
sub row
{
	my ($columns, @field) = @_;
	my $text = '';

	foreach my $i (0 .. 2)
	{
		my $cell = cut($field[$i], $columns->[$i] - ($i < 2));
		my $wide = () = $cell =~ /[\x{3000}-\x{ffff}]/g;
		$text .= $cell . ' ' x ($columns->[$i] - $wide - length $cell);
	}
	return ($text . sprintf('%9s%9s%9s', @field[ 3 .. 5 ])) =~ s/ +$//r;
}

# Waits until the whole screen has this content.
sub shows
{
	my ($title, $name, $columns, $rates, $status, @rows) = @_;
	my $width = 27 + $columns->[0] + $columns->[1] + $columns->[2];
	my $head = cut("HH:MM:SS  locks 15  waiters 3  oldest 1m40s  manager 4711, 1024 kB  postgres\@$host", $width);
	my @heads = ({ locks => [qw(LOCK MODE OWNER AGE LEFT WAITERS)], waiters => [ qw(LOCK MODE OWNER WAITS), '', 'PLACE' ], elections => [qw(ELECTION LEADER OWNER LEADS LEFT WAITING)] }->{$title});
	my $wanted = join "\n", $head, $rates, $status, map { row($columns, @$_) } @heads, @rows;
	my $got;

	$wanted =~ s/\n+\z//;
	return 1 if wait_until(sub { ($got = screen()) eq $wanted }) && pass($name);
	utf8::encode($_) foreach $wanted, $got;
	return is($got, $wanted, $name);
}

sub lock_rows { return map { [ $_->{name}, $_->{mode}, $_->{owner}, $_->{age} ? $_->{age}[1] : '', $_->{left}[1], $_->{waiters} ] } @_; }

my @state = (@counters, 'UPDATE counter SET grants = 4 * lower(looks), expiries = 24 * lower(looks)',
	(map { my ($age, $mode) = ($_->{age} ? "'$_->{age}[0] s'" : 'NULL', $_->{mode} eq 'closed' ? 'NULL' : "'$_->{mode}'");
			qq{INSERT INTO locks (name, mode, owner, age, time_left, closed, waiters) VALUES ('$_->{name}', $mode, '$_->{owner}', $age,
			} . ($mode eq 'NULL' ? "NULL, '$_->{left}[0] s'" : "'$_->{left}[0] s', NULL") . ", $_->{waiters})" } reverse @held),
	q{INSERT INTO locks (kind, name) VALUES ('permit', 'lock 00')},
	q{INSERT INTO waiters (name, owner, age, queue_position) VALUES ('lock 07', 'me', '5 s', 1), ('lock 08', 'you', '7 s', 2), ('lock 09', 'she', '6 s', 1)},
	q{INSERT INTO elections VALUES ('boss', 'the leader', 'me', 5, '200 s', '9 s', 2), ('chief', 'she', 'her', 6, '300 s', '8 s', 0)});

subtest 'top on a terminal' => sub {
	plan skip_all => 'tmux is not installed' unless defined $tmux;
	plan skip_all => 'no terminals here' unless -w '/dev/ptmx';
	my ($keys, $page, $columns) = (0, 6, [ 21, 10, 22 ]);
	my $rates = '';
	my $help = '   q quit  l w e views  s sort  r reverse';
	# Sends a key, and waits for the locks in an order, from the row with this index.
	my $locks = sub {
		my ($key, $by, $from, $up, $what) = @_;
		my $order = { name => 'name', age => 'age', left => 'time left', waiters => 'count' }->{$by};
		my $reversed = ($by eq 'name') != $up ? ' (reversed)' : '';
		my @rows = lock_rows(in_order($by, $up));

		tmux('send-keys', $key) && $keys++ if $key ne '';
		shows('locks', "$key: by $order$reversed, from $from", $columns, $rates, "locks by $order$reversed, 15 in all$help", grep { defined } @rows[ $from .. $from + $page - 1 ])
		  or die 'not shown';
		$rates = 'per second: grants 1.0  releases 2.0  renewals 3.0  waits 4.0  handoffs 5.0';
	};
	my $others = sub {
		my ($key, $view, @rows) = @_;

		tmux('send-keys', $key) && $keys++;
		shows($view, "$key: $view", $columns, $rates, "$view by count, " . @rows . " in all$help", @rows) or die 'not shown';
	};
	my @waiters = map { [ "lock $_->[0]", 'exclusive', $_->[1], $_->[2], '', $_->[3] ] } [ '08', 'you', '7.0s', 2 ], [ '07', 'me', '5.0s', 1 ], [ '09', 'she', '6.0s', 1 ];
	my @leaders = ([ 'boss', 'the leade', 'me', '3m20s', '9.0s', 2 ], [ 'chief', 'she', 'her', '5m00s', '8.0s', 0 ]);

	state(@state);
	open_top(80, 10);
	$locks->('', 'waiters', 0, 0);
	$locks->(@$_) foreach [ 'n', 'name', 0, 1 ], [ 'r', 'name', 0, 0 ], [ 'a', 'age', 0, 1 ], [ 'r', 'age', 0, 0 ], [ 't', 'left', 0, 0 ],
	  [ 'c', 'waiters', 0, 0 ], [ 's', 'name', 0, 1 ], [ 's', 'age', 0, 0 ], [ 's', 'left', 0, 0 ], [ 's', 'waiters', 0, 0 ];
	$locks->($_->[0], 'name', $_->[1], 1) foreach [ n => 0 ], [ Down => 1 ], [ NPage => 7 ], [ Up => 6 ], [ PPage => 0 ], [ NPage => 6 ], [ NPage => 12 ],
	  [ NPage => 14 ], [ Down => 14 ], [ PPage => 8 ], [ Home => 0 ], [ Up => 0 ], [ End => 9 ], [ PPage => 3 ], [ PPage => 0 ], [ Down => 1 ];
	$locks->('c', 'waiters', 0, 0);
	$locks->('Down', 'waiters', 1, 0);
	$others->('w', 'waiters', @waiters);
	$others->('e', 'elections', @leaders);
	$locks->('l', 'waiters', 0, 0);
	$others->('Tab', 'waiters', @waiters);
	$others->('Tab', 'elections', @leaders);
	$locks->('Tab', 'waiters', 0, 0);
	cmp_ok(one('SELECT count(*) FROM looked'), '<=', $keys + 1, 'each key leads to at most one read');

	one('INSERT INTO hidden_manager SELECT * FROM manager; TRUNCATE manager');
	tmux('send-keys', 'x');
	shows('locks', 'no manager', $columns, $rates, 'no manager runs for this database; see lockctl doctor', (lock_rows(in_order('waiters', 0)))[ 0 .. 5 ]);
	one('INSERT INTO manager SELECT * FROM hidden_manager');
	tmux('send-keys', 'Q');
	ok(wait_until(sub { !tmux('has-session') }), 'Q quits');

	# A width that the rates fill to the last column; and a greater width with wider columns.
	foreach my $case ([ 89, [ 24, 10, 28 ], '  expiries 6.0' ], [ 120, [ 37, 18, 38 ], '  expiries 6.0  batches 7.0  xids 800' ])
	{
		state(@state);
		open_top($case->[0], 10);
		($columns, $rates) = ($case->[1], '');
		$locks->('', 'waiters', 0, 0);
		$rates .= $case->[2];
		$locks->('n', 'name', 0, 1);
		tmux('send-keys', 'q');
		ok(wait_until(sub { !tmux('has-session') }), 'q quits');
	}

	# bytes that are not letters in the encoding of the terminal
	state(@counters, "INSERT INTO locks (name, owner) VALUES ('\x{e9}xy\x{e9}', '\x{e9}!')");
	open_top(80, 10, 'PGCLIENTENCODING=LATIN1');
	ok(wait_until(sub { screen() =~ /^[?]xy[?] +exclusive +[?]!/m }), 'top replaces bytes that are invalid in the encoding of the terminal') or diag(screen());
	tmux('send-keys', 'q');
	ok(wait_until(sub { !tmux('has-session') }), 'q quits');
};

subtest 'tables' => sub {
	my $long = 'owner 3' . 'y' x 60;
	my $x = 'x' x 40;
	my $wide = '日' x 30;
	my @locks = (
		q{DELETE FROM locks WHERE name > 'lock 04'}, q{UPDATE locks SET token = 12345, pid = 7, connected = true, evicted = true WHERE name ~ '03'},
		q{UPDATE locks SET evicted = NULL WHERE name ~ '04'}, q{UPDATE elections SET evicted = true WHERE election = 'boss'});

	state(@state, @locks);
	is((ctl('locks', 'lock 03'))[1], <<"TABLE", 'locks: one name');
kind  name     mode    owner @{[ ' ' x 62 ]} token  acquired_at             time_left  waiters  pid  connected  evicted
lock  lock 03  shared  $long  12345  2026-01-01 11:58:24+00  01:39:59         3    7  t          t
TABLE
	is((ctl('-v', 'locks', 'lock 03'))[1], <<"TABLE", 'locks -v: all columns');
kind  name     slot  mode    owner @{[ ' ' x 62 ]} role      token  pid  connected  acquired_at               time_left  closed_until  waiters  evicted
lock  lock 03     0  shared  $long  somebody  12345    7  t          2026-01-01 11:58:24.1+00  01:39:59                       3  t
TABLE
	my $in_name = ' ' x 63;
	my $in_owner = ' ' x 60;
	is((ctl('locks'))[1], <<"TABLE", 'locks: letters that take two columns');
kind    name   $in_name mode       owner   $in_owner token  acquired_at             time_left   waiters  pid  connected  evicted
lock    lock 01$x@{[ ' ' x 22 ]}  exclusive  owner 1 $in_owner        2026-01-01 11:57:22+00  99:59:59          1                  f
lock    lock 02 é$wide  exclusive  owner 2 $in_owner        2025-12-28 08:00:05+00  01:40:00          2                  f
lock    lock 03$in_name shared     $long  12345  2026-01-01 11:58:24+00  01:39:59          3    7  t          t
lock    lock 04$in_name closed             $in_owner                                00:02:41.7        0                  
permit  lock 00$in_name exclusive          $in_owner                                                  0                  f
TABLE
	is((ctl('waiters'))[1], <<'TABLE', 'waiters');
kind  name     position  mode       owner  waiting_since           pid  connected  blocked_by
lock  lock 07         1  exclusive  me     2026-01-01 11:59:59+00                  
lock  lock 08         2  exclusive  you    2026-01-01 11:59:57+00                  
lock  lock 09         1  exclusive  she    2026-01-01 11:59:58+00                  
TABLE
	# Bytes that are not letters in the encoding of the terminal take one column each.
	one(q{UPDATE waiters SET name = 'éxyé', owner = 'é' WHERE name = 'lock 07'});
	my $in_utf8 = (ctl('waiters'))[1];
	like($in_utf8, qr/^lock  éxyé    /m, 'waiters: letters of two bytes');
	is((ctl({ env => { PGCLIENTENCODING => 'LATIN1' } }, 'waiters'))[1], $in_utf8 =~ s/é/\xe9/gr, 'waiters: letters in another encoding than that of the terminal');
	is((ctl('elections'))[1], <<'TABLE', 'elections');
election  candidate   term  elected_at              valid_for  waiting  evicted
boss      the leader     5  2026-01-01 11:56:44+00  00:00:09         2  t
chief     she            6  2026-01-01 11:55:04+00  00:00:08         0  f
TABLE
	# The message and the exit code for errors of the server. As CSV, the error comes after the header.
	one(q{CREATE FUNCTION fails(code text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'it fails' USING ERRCODE = code, HINT = 'no'; END $$});
	one('ALTER VIEW lock_election.waiters RENAME TO hidden');
	foreach my $case ([ LE001 => 4 ], [ '22023' => 64 ], [ '23505' => 69 ], [ '42501' => 69 ])
	{
		one("CREATE VIEW lock_election.waiters AS SELECT kind, name, mode, fails('$case->[0]') AS owner, now() AS waiting_since, 0 AS queue_position, 0 AS pid, true AS connected, "
			  . '0 AS blocked_by FROM waiters');
		foreach my $format ('table', 'json', 'csv')
		{
			($rc, $out, $err) = ctl('-o', $format, 'waiters');
			is("$rc $err", "$case->[1] lockctl: it fails; hint: no\n", "an error $case->[0], -o $format");
		}
		one('DROP VIEW lock_election.waiters');
	}
	foreach my $format ('table', 'json', 'csv')
	{
		($rc, $out, $err) = ctl('-o', $format, 'waiters');
		is("$rc $out$err", qq{69 lockctl: relation "lock_election.waiters" does not exist\n}, "no view, -o $format");
	}
	one('ALTER VIEW lock_election.hidden RENAME TO waiters');
	my @status = ([qw(name value)], [ pid => 4711 ], [ started => '2026-01-01T11:00:00.9+00:00' ], [ memory => 1048576 ], [ held => 15 ],
		[ waiting => 3 ], [ oldest_wait => '2026-01-01T11:58:24+00:00' ], (map { [ $_ => 0 ] } qw(key_violations failed_batches stalls)),
		[ grants => 4 ], [ releases => 8 ], [ renewals => 12 ], [ waits => 16 ], [ handoffs => 20 ], [ expiries => 24 ], [ batches => 28 ], [ transaction_ids => 3200 ]);
	is((ctl('status'))[1], join('', map { sprintf("%-15s  %s\n", @$_) } @status), 'status');
	one('TRUNCATE manager');
	($rc, $out, $err) = ctl('status');
	is("$rc $out$err", qq{69 lockctl: no manager runs for database "postgres"; see lockctl doctor\n}, 'status without a manager');
};

subtest 'watch' => sub {
	my @watch = ('watch', '--interval', '10ms', '--count', 4);

	state(q{INSERT INTO setting VALUES ('ticks by', 'locks')},
		q{INSERT INTO locks (looks, kind, name, slot, owner, token, age, waiters) VALUES ('[2,3)', 'lock', 'b', 0, 'me', 7, '8 s', 0),
			('[1,3)', 'lock', 'a, "b"', 0, NULL, 5, '4 s', 1), ('[3,9)', 'lock', 'c', 0, 'me', 8, '8 s', 0), ('[1,9)', 'permit', 'p', 2, 'me', 3, '4 s', 0),
			('[2,9)', 'permit', 'p', 10, 'you', 4, '4 s', 2),
			('[1,3)', 'permit', 'q', 2, 'me', 11, '4 s', 0), ('[1,9)', 'permit', 'q', 10, 'you', 12, '4 s', 0), ('[1,9)', 'election', 'e', 0, 'me', 1, '4 s', 0)});
	# The time of the acquire, on a clock that advances.
	one(q{CREATE OR REPLACE VIEW lock_election.locks AS SELECT kind, name, slot, mode, owner, role, token, pid, connected,
		timestamptz '2026-01-01' + CASE WHEN n = 4 AND name = 'c' THEN 2 * age ELSE age END AS acquired_at, time_left, NULL::timestamptz AS closed_until,
		CASE WHEN n = 4 THEN waiters + 1 ELSE waiters END AS waiters, evicted FROM fake.look('locks') n, fake.locks WHERE looks @> n});
	my @events = (
		[ held => 'election', 'e', 'me', 0 ], [ held => 'lock', 'a, "b"', '', 1 ], [ held => 'permit', 'p', 'me', 0 ],
		[ held => 'permit', 'q', 'me', 0 ], [ held => 'permit', 'q', 'you', 0 ],
		[ granted => 'lock', 'b', 'me', 0, 1 ], [ granted => 'permit', 'p', 'you', 2, 1 ],
		[ ended => 'lock', 'a, "b"', '', 1, 2 ], [ ended => 'lock', 'b', 'me', 0, 2 ], [ granted => 'lock', 'c', 'me', 0, 2 ], [ ended => 'permit', 'q', 'me', 0, 2 ],
		[ waiters => 'election', 'e', 'me', 1, 3 ], [ granted => 'lock', 'c', 'me', 1, 3 ], [ waiters => 'permit', 'p', 'me', 1, 3 ], [ waiters => 'permit', 'p', 'you', 3, 3 ],
		[ waiters => 'permit', 'q', 'you', 1, 3 ]);
	my @at = map { "2026-01-01 12:00:$_.000+00" } qw(04 04 08 12);
	my $said = join '', map { my ($event, $kind, $name, $owner, $waiters, $look) = @$_;
		sprintf("%s  %-8s %-8s %s  %s%s waiting\n", $at[ $look // 0 ], $event, $kind, $name, $owner && "$owner  ", $waiters) } @events;
	my ($rc, $out) = ctl(@watch);
	is("$rc $out", "0 $said", 'watch prints a line for each change');
	one('ALTER SEQUENCE looks RESTART');
	$said = join '', "event,at,kind,name,owner,waiters\n", map { my ($event, $kind, $name, $owner, $waiters, $look) = @$_;
		join(',', $event, $at[ $look // 0 ], $kind, $name =~ /"/ ? '"a, ""b"""' : $name, $owner, $waiters) . "\n" } @events;
	is((ctl('-o', 'csv', @watch))[1], $said, 'watch as CSV');
	one('ALTER SEQUENCE looks RESTART');
	my @json = split /^/, (ctl('-o', 'json', @watch))[1];
	is(scalar @json, @events, 'watch as JSON: number of events');
	like($json[5], qr/^\{"event":"granted","at":"\Q$at[1]\E","lock":\{"kind":"lock","name":"b",.*"waiters":0,"evicted":false\}\}$/, 'watch as JSON: an event');
	one('ALTER SEQUENCE looks RESTART');
	is((ctl(@watch, 'c'))[1] =~ s/.*  (granted)/$1/gr, "granted  lock     c  me  0 waiting\ngranted  lock     c  me  1 waiting\n", 'watch with a name');
	is(ctl('watch', 'c', 'd'), 64, 'watch with two names');
};

$node->stop;
done_testing();
