-- Arguments that the functions for locks accept and reject, and their results in one session. Tokens differ from run to
-- run, so the output never contains them.
\set VERBOSITY default
\set SHOW_CONTEXT never
SET timezone = 'UTC';

-- Returns "state: message | detail | hint: hint" of the error that a statement raises, or the statement's value.
CREATE FUNCTION outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
	detail text;
	hint text;
BEGIN
	EXECUTE statement INTO result;
	RETURN coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	-- raise an error if a message is invalid in the database's encoding
	PERFORM convert_from(convert_to(SQLERRM || detail, 'UTF8'), 'UTF8');
	RETURN SQLSTATE || ': ' || SQLERRM || coalesce(' | ' || nullif(detail, ''), '') || coalesce(' | hint: ' || nullif(hint, ''), '');
END $$;

CREATE FUNCTION wait_until_lost(name text, token bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 6000 LOOP
		IF NOT is_held(name, token) THEN
			RETURN true;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN false;
END $$;

-- --- names ---

SELECT f, a, outcome(format(f, a))
FROM unnest(ARRAY['acquire_lock(%s)', 'try_acquire_lock(%s)', 'renew_lock(%s, 1)', 'release_lock(%s)',
	'is_held(%s, 1)', 'force_release_lock(%s)']) AS g,
	unnest(ARRAY['NULL', '''''', 'repeat(''n'', 256)', 'repeat(''é'', 128)']) AS a,
	LATERAL (SELECT 'SELECT ' || g) AS s(f)
ORDER BY f COLLATE "C", a COLLATE "C";

-- the longest names, in one-byte and two-byte characters; names may contain spaces, quotes and line ends
SELECT octet_length(n) AS bytes, acquire_lock(n) IS NOT NULL AS acquired
FROM unnest(ARRAY[repeat('n', 255), repeat('é', 127) || 'n', ' ', E'a\n"b''\\', 'A', 'a']) AS n;
SELECT octet_length(name) AS bytes, name FROM lock_election.locks ORDER BY name COLLATE "C";
SELECT release_lock(name) FROM lock_election.locks;
SELECT count(*) FROM lock_election.locks;

-- --- ttl ---

SELECT a, outcome(format('SELECT acquire_lock(''ttl'', ttl => %L)', a))
FROM unnest(ARRAY['0', '99.999 ms', '-1 s', '-100 ms', '24 days 00:00:00.000001', '25 days', '1 month', '-1 month',
	'178000000 years', '-178000000 years', '2147483647 days', '-2147483648 days', '2562047788:00:54.775807',
	'178000000 years 2147483647 days 2562047788:00:54.775807']) AS a;
SELECT a, outcome(format('SELECT try_acquire_lock(''ttl'', %L)', a)) FROM unnest(ARRAY['0', '25 days', '178000000 years']) AS a;
SELECT a, outcome(format('SELECT renew_lock(''ttl'', 1, %L)', a)) FROM unnest(ARRAY['0', '-1 s', '25 days', '178000000 years']) AS a;
SELECT outcome('SELECT acquire_lock(''ttl'', ttl => ''infinity'')') ~ '^22' AS infinite_is_refused;

-- the shortest and the longest ttl, and intervals whose fields partly cancel each other
SELECT a, acquire_lock('ttl' || a, ttl => a::interval) IS NOT NULL AS acquired, release_lock('ttl' || a)
FROM unnest(ARRAY['100 ms', '24 days', '576 hours', '1 month -6 days', '-1 day 25 hours']) AS a;

-- --- wait, hold_for, mode, owner, lease, token ---

SELECT acquire_lock('taken') AS taken \gset
SET client_min_messages = warning;
SELECT a, outcome(format('SELECT acquire_lock(''taken'', wait => %L)', a))
FROM unnest(ARRAY['-1 us', '-1 s', '-1 month', '178000000 years', '-178000000 years', '0', '1 us', '1 ms', '1 day -24 hours']) AS a;
RESET client_min_messages;
-- the longest wait, and one that is too long
SELECT a, outcome(format('SELECT acquire_lock(''free'', wait => %L) > 0', a))
FROM unnest(ARRAY['2562047788:00:54.775807', '2562047788:00:54.775806']) AS a;
SELECT release_lock('free');
SELECT a, outcome(format('SELECT release_lock(''taken'', 1, hold_for => %L)', a))
FROM unnest(ARRAY['-1 us', '-1 month', '25 days', '178000000 years', '0', '24 days']) AS a;

SELECT a, outcome(format('SELECT acquire_lock(''mode'', mode => %L)', a))
FROM unnest(ARRAY[NULL, '', 'Exclusive', 'exclusive ', 'permit', 'shared' || chr(10), 'x' || repeat('é', 40), repeat('é', 40)]) AS a;
SELECT outcome('SELECT try_acquire_lock(''mode'', mode => ''none'')');

SELECT a, outcome(format('SELECT acquire_lock(''owner'', owner => %s)', a))
FROM unnest(ARRAY['''''', 'repeat(''o'', 256)', 'repeat(''é'', 128)']) AS a;
SELECT acquire_lock('owner', owner => repeat('o', 255)) IS NOT NULL AS acquired;
SELECT octet_length(owner) FROM lock_election.locks WHERE name = 'owner';
SELECT release_lock('owner');

SELECT a, outcome(format('SELECT acquire_lock(''lease'', lease => %s)', a))
FROM unnest(ARRAY['0', '-1', '1', '9223372036854775807', '-9223372036854775808']) AS a;
SELECT outcome('SELECT try_acquire_lock(''lease'', lease => 1)');

SELECT f, a, outcome(format(f, a))
FROM unnest(ARRAY['SELECT renew_lock(''taken'', %s)', 'SELECT release_lock(''taken'', %s, NULL, NULL)',
	'SELECT is_held(''taken'', %s)']) AS f,
	unnest(ARRAY['NULL', '0', '-1', '1', '9223372036854775807', '-9223372036854775808']) AS a
ORDER BY f COLLATE "C", a COLLATE "C";
-- with a NULL token, nothing is released, not even the hold of this connection
SELECT release_lock('taken', NULL), release_lock('taken', token => NULL, hold_for => '1 h', all_holds => true),
	release_locks('{taken}', NULL);
BEGIN;
SELECT release_lock('taken', NULL), release_locks('{taken}', NULL);
COMMIT;
SELECT outcome('SELECT release_lock(NULL)'), outcome('SELECT release_lock(NULL, NULL)'), outcome('SELECT release_locks(NULL, NULL)');
-- the token of a different name
SELECT is_held('other', :taken), renew_lock('other', :taken), release_lock('other', :taken);
SELECT is_held('taken', :taken), release_lock('taken', :taken);
SELECT count(*) FROM lock_election.locks;

-- --- named parameters ---

SELECT acquire_lock(name => 'p', ttl => '1 min', wait => '0', mode => 'shared', owner => 'o', lease => NULL) AS t \gset
SELECT kind, name, slot, mode, owner, role = current_user::regrole AS role, token = :t AS token, lease, holds,
	acquired_at <= clock_timestamp() AS acquired, time_left BETWEEN '50 s' AND '1 min' AS time_left, waiters,
	pid = pg_backend_pid() AS pid, fenced_by
FROM lock_election.locks;
SELECT renew_lock(name => 'p', token => :t, ttl => '1 h') BETWEEN '59 min' AND '1 h' AS renewed;
SELECT is_held(name => 'p', token => :t);
SELECT try_acquire_lock(name => 'p', ttl => '1 min', mode => 'shared', owner => 'p', lease => NULL) IS NOT NULL AS shared;
SELECT release_lock(name => 'p', token => :t, hold_for => NULL, all_holds => false);
SELECT force_release_lock(name => 'p');
SELECT force_release_lock('p');

-- --- release and renewal ---

SELECT acquire_lock('r') AS t \gset
SELECT release_lock('r', :t + 1);
SELECT release_lock('R', :t);
SELECT is_held('r', :t);
SELECT release_lock('r', :t);
SELECT release_lock('r', :t);
SELECT release_lock('r');
SELECT is_held('r', :t), renew_lock('r', :t);
SELECT acquire_lock('r') AS t2 \gset
SELECT :t2 > :t AS later_token_is_greater, release_lock('r', :t) AS by_old_token, is_held('r', :t2);
SELECT release_lock('r');

SELECT acquire_lock('r', ttl => '100 ms') AS t \gset
SELECT wait_until_lost('r', :t);
SELECT renew_lock('r', :t), is_held('r', :t);
SELECT release_lock('r', :t);
SELECT release_lock('r');
SELECT force_release_lock('r');

-- a renewal may shorten the TTL; a later renewal without a TTL uses the shorter one
SELECT acquire_lock('r', ttl => '1 h') AS t \gset
SELECT renew_lock('r', :t, '10 s') BETWEEN '9 s' AND '10 s' AS shorter;
SELECT renew_lock('r', :t) BETWEEN '9 s' AND '10 s' AS kept;
SELECT release_lock('r');

-- { C edition: locks that are bound to the connection
-- a lock that is bound to the connection ends with it
SELECT acquire_lock('b', ttl => NULL) AS t \gset
SELECT time_left FROM lock_election.locks;
SELECT renew_lock('b', :t);
SELECT outcome(format('SELECT renew_lock(''b'', %s, ''1 s'')', :t));
\c -
SELECT acquire_lock('b', wait => '30 s') IS NOT NULL AS gone;
SELECT release_lock('b');
-- }

-- --- holds of a named owner ---

SELECT acquire_lock('h', ttl => '1 h', owner => 'o') AS t \gset
SELECT acquire_lock('h', ttl => '1 s', owner => 'o') = :t AS same_token;
SELECT try_acquire_lock('h', ttl => '1 s', owner => 'o') = :t AS same_token;
SELECT holds, time_left > '59 min' AS ttl_not_shorter FROM lock_election.locks;
SELECT acquire_lock('h', ttl => '2 h', owner => 'o') = :t AS same_token;
SELECT holds, time_left > '119 min' AS ttl_longer FROM lock_election.locks;
SELECT try_acquire_lock('h', owner => 'O') IS NULL AS other_owner, try_acquire_lock('h') IS NULL AS no_owner;
-- an exclusive holder that acquires the lock in mode shared gets one more hold, and stays exclusive
SELECT acquire_lock('h', mode => 'shared', owner => 'o') = :t AS same_token;
SELECT mode, holds FROM lock_election.locks;
SELECT release_lock('h', :t);
SELECT release_lock('h');
SELECT holds FROM lock_election.locks;
SELECT release_lock('h', :t, all_holds => true);
SELECT release_lock('h', :t, all_holds => true);
SELECT count(*) FROM lock_election.locks;
-- a lock with a ttl cannot become bound to the connection, and a bound lock cannot get a ttl
SELECT acquire_lock('h', owner => 'o') IS NOT NULL AS acquired;
-- { C edition: locks that are bound to the connection
SELECT outcome('SELECT acquire_lock(''h'', ttl => NULL, owner => ''o'')');
-- }
SELECT release_lock('h');
-- { C edition: locks that are bound to the connection
SELECT acquire_lock('h', ttl => NULL, owner => 'o') IS NOT NULL AS acquired;
SELECT outcome('SELECT acquire_lock(''h'', owner => ''o'')');
SELECT release_lock('h');
-- }

-- --- shared and exclusive ---

SELECT acquire_lock('s', mode => 'shared') AS s1 \gset
SELECT acquire_lock('s', mode => 'shared') AS s2 \gset
SELECT acquire_lock('s', mode => 'shared', owner => 'o') AS s3 \gset
SELECT :s1 < :s2 AND :s2 < :s3 AS tokens_in_order, count(*), array_agg(slot ORDER BY slot) FROM lock_election.locks;
SELECT try_acquire_lock('s') IS NULL AS writer_refused;
-- an upgrade from shared to exclusive fails at once, even with an unlimited wait
SELECT outcome('SELECT acquire_lock(''s'', owner => ''o'')');
SELECT release_lock('s'), release_lock('s', :s1);
SELECT try_acquire_lock('s') IS NULL AS writer_refused;
SELECT release_lock('s', :s2);
SELECT try_acquire_lock('s') IS NOT NULL AS writer;
SELECT try_acquire_lock('s', mode => 'shared') IS NULL AS reader_refused;
SELECT force_release_lock('s');

-- --- arrays of names and tokens, and values ---

SELECT acquire_locks('{}');
SELECT acquire_locks(array_fill('x'::text, ARRAY[1001]));
SELECT * FROM try_acquire_each(array_fill('x'::text, ARRAY[1001]));
SELECT acquire_locks('{{a},{b}}');
SELECT acquire_locks('{a,NULL}');
SELECT acquire_locks(ARRAY['a', '']);
SELECT acquire_locks(ARRAY['a', repeat('n', 256)]);
SELECT acquire_locks('{a,b,a}');
SELECT acquire_locks('{b,a,a,b}');
SELECT * FROM try_acquire_each('{}');
SELECT release_locks(names, acquire_locks(names)) FROM (SELECT array_agg('n' || i) FROM generate_series(1, 1000) AS i) AS s(names);
SELECT * FROM release_each('{a,b}', '{1}');
SELECT * FROM release_each('{a}', '{1,2}');
-- numbers that cannot be tokens do not match this connection's holds
SELECT count(token) FROM try_acquire_each('{a,b,c}');
SELECT * FROM release_each('{a,b,c}', '{0,-1,NULL}');
SELECT release_lock('a'), release_lock('b'), release_lock('c');
SELECT compare_and_set('k', 0, repeat('x', 4097));

-- --- errors for a repeated owner, and for the token of a place ---

SELECT acquire_lock('g1', owner => 'o') IS NOT NULL AS acquired;
SELECT acquire_locks('{g1,g2}', owner => 'o');
SELECT token AS place FROM enqueue_lock('g1', '1 h') \gset
SELECT regexp_replace(outcome(format('SELECT renew_lock(''g1'', %s)', :place)), '[0-9]{12,}', 'TOKEN');
SELECT release_lock('g1', :place), release_lock('g1');
SELECT campaign('e1', 'me', '1 h') AS term \gset
SELECT term AS place FROM enqueue_candidate('e1', 'you', '1 h') \gset
SELECT regexp_replace(outcome(format('SELECT renew_leadership(''e1'', %s)', :place)), '[0-9]{12,}', 'TERM');
SELECT resign('e1', :place), resign('e1', :term);
SELECT force_release_role(NULL);
SELECT force_release_role('-');

-- --- hold_for ---

SELECT acquire_lock('job', owner => 'o') AS t \gset
SELECT release_lock('job', :t, hold_for => '1 h');
SELECT is_held('job', :t);
SELECT try_acquire_lock('job') IS NULL AS refused, try_acquire_lock('job', owner => 'o') IS NULL AS same_owner,
	try_acquire_lock('job', mode => 'shared') IS NULL AS shared;
SELECT acquire_lock('job', wait => '20 ms') IS NULL AS refused;
SELECT name, mode, holds, closed_until > now() + interval '59 min' AS closed FROM lock_election.locks;
SELECT force_release_lock('job');
SELECT force_release_lock('job');
SELECT count(*) FROM lock_election.locks;
-- hold_for counts from the time of the acquire, and the name opens in time
SELECT acquire_lock('job2') AS t \gset
SELECT acquired_at FROM lock_election.locks \gset
SELECT release_lock('job2', :t, hold_for => '200 ms');
SELECT acquire_lock('job2', wait => '1 min') AS t \gset
SELECT :t > 0 AS acquired;
SELECT acquired_at - :'acquired_at' > '199 ms' AS not_before FROM lock_election.locks;
SELECT release_lock('job2', :t, hold_for => '0');
SELECT try_acquire_lock('job2') IS NOT NULL AS acquired;
SELECT release_lock('job2');

-- { C edition: read-only transactions; tables that only the manager writes
-- --- READ ONLY transactions ---

BEGIN READ ONLY;
SELECT acquire_lock('ro') AS t \gset
SELECT is_held('ro', :t), renew_lock('ro', :t) IS NOT NULL AS renewed;
SELECT release_lock('ro');
COMMIT;
BEGIN READ ONLY;
SELECT try_acquire_lock('ro', mode => 'shared') IS NOT NULL AS acquired;
SELECT force_release_lock('ro');
COMMIT;
SET default_transaction_read_only = on;
SELECT acquire_lock('ro') AS t \gset
SELECT release_lock('ro', :t);
RESET default_transaction_read_only;
SELECT count(*) FROM lock_election.locks;

-- --- only the manager may write the tables ---

INSERT INTO _lock_election.slot SELECT (s).* FROM (SELECT NULL::_lock_election.slot AS s) AS q;
UPDATE _lock_election.slot SET token = 1;
DELETE FROM _lock_election.slot;
TRUNCATE _lock_election.slot;
INSERT INTO _lock_election.meta VALUES (0, 0, now(), 0, 0);
UPDATE _lock_election.meta SET incarnation = 1;
DELETE FROM _lock_election.meta;
TRUNCATE _lock_election.meta;
TRUNCATE _lock_election.slot, _lock_election.meta;
COPY _lock_election.meta FROM stdin;
1	2	2025-01-01	3	4
\.
MERGE INTO _lock_election.meta USING (SELECT 1) AS one ON true WHEN MATCHED THEN DELETE;
SET session_replication_role = replica;
DELETE FROM _lock_election.slot;
UPDATE _lock_election.meta SET incarnation = 1;
RESET session_replication_role;
SELECT count(*) FROM _lock_election.meta;
-- }

-- --- the next revision ---

SELECT advance_revision(NULL);
SELECT advance_revision(0);
SELECT advance_revision(-1);
SELECT advance_revision(9007199254740992);
SELECT advance_revision(8725724278030337);
SELECT advance_revision(1) AS next \gset
SELECT advance_revision(:next) = :next AS unchanged, advance_revision(:next + 100) = :next + 100 AS raised,
	advance_revision(:next) = :next + 100 AS never_lower, acquire_lock('advanced') >= :next + 100 AS token;
-- { C edition: read-only transactions
BEGIN READ ONLY;
SELECT advance_revision(:next + 1000) = :next + 1000 AS raised;
ROLLBACK;
SELECT advance_revision(1) >= :next + 1000 AS not_undone, release_lock('advanced') AS released;
-- }
SELECT release_lock('advanced') IS NOT NULL AS released;

-- --- other roles ---

CREATE ROLE regress_le_holder;
CREATE ROLE regress_le_other;
CREATE ROLE regress_le_member IN ROLE regress_le_holder;
CREATE ROLE regress_le_stats IN ROLE pg_read_all_stats;
CREATE ROLE regress_le_signal IN ROLE pg_signal_backend;

SET ROLE regress_le_holder;
SELECT acquire_lock('x', ttl => '1 h', owner => 'secret') AS t \gset
SELECT owner, token = :t AS token, pid IS NOT NULL AS pid FROM lock_election.locks;
SET ROLE regress_le_other;
SELECT kind, name, slot, mode, owner, role, token, lease, holds, acquired_at IS NOT NULL AS acquired_at,
	time_left > '59 min' AS time_left, waiters, pid FROM lock_election.locks;
-- { C edition: the manager's views
SELECT count(*) FROM lock_election.waiters;
SELECT pid IS NOT NULL AS pid FROM lock_election.manager;
SELECT grants > 0 AS grants FROM lock_election.stat;
SELECT lock_election.stat_reset();
-- }
SELECT advance_revision(1);
SELECT count(*) FROM _lock_election.slot;
SELECT count(*) FROM _lock_election.meta;
SET ROLE regress_le_holder;
SELECT campaign('theirs', 'me', '1 h') AS term \gset
SET ROLE regress_le_other;
-- a role may only check the token of another role; the same owner in another role is a different owner
SELECT is_held('x', :t);
SELECT outcome(format('SELECT release_lock(''x'', %s)', :t));
SELECT outcome('SELECT release_lock(''x'')');
SELECT outcome(format('SELECT renew_lock(''x'', %s)', :t));
SELECT outcome(format('SELECT renew_lock(''x'', %s, ''1 s'')', :t));
SELECT outcome('SELECT force_release_lock(''x'')');
SELECT outcome('SELECT evict_lock(''x'')');
SELECT outcome('SELECT force_release_role(''regress_le_holder'')');
SELECT outcome(format('SELECT resign(''theirs'', %s)', :term));
SELECT outcome('SELECT force_resign(''theirs'')');
SELECT outcome('SELECT evict_leader(''theirs'')');
SELECT try_acquire_lock('x', owner => 'secret') IS NULL AS refused;
SELECT force_release_lock('nobody holds this'), evict_lock('nobody holds this'), evict_leader('nobody leads this');
BEGIN;
SELECT release_lock('x', :t);
ROLLBACK;
RESET ROLE;
SELECT evict_leader('theirs'), evict_leader('theirs');
SELECT candidate, evicted FROM lock_election.elections;
SET ROLE regress_le_holder;
SELECT renew_leadership('theirs', :term), is_leader('theirs', :term), proclaim('theirs', :term, 'still me');
RESET ROLE;
SELECT force_resign('theirs');
SET ROLE regress_le_stats;
SELECT outcome('SELECT evict_lock(''x'')');
SELECT owner, token = :t AS token, pid IS NOT NULL AS pid FROM lock_election.locks;
SELECT outcome('SELECT force_release_lock(''x'')');
SET ROLE regress_le_member;
SELECT owner, token = :t AS token, pid IS NOT NULL AS pid FROM lock_election.locks;
SELECT outcome(format('SELECT release_lock(''x'', %s)', :t));
SELECT evict_lock('x');
SELECT force_release_lock('x');
RESET ROLE;
SELECT is_held('x', :t);

SET ROLE regress_le_holder;
SELECT acquire_lock('x') AS t \gset
SET ROLE regress_le_signal;
SELECT evict_lock('x');
SELECT force_release_lock('x');
SET ROLE regress_le_holder;
SELECT is_held('x', :t), acquire_lock('x', mode => 'shared') IS NOT NULL AS acquired;
SET ROLE regress_le_other;
SELECT acquire_lock('x', mode => 'shared') IS NOT NULL AS acquired;
-- of two holders, only the holder that the caller may evict or end is evicted or ended
SELECT evict_lock('x'), evict_lock('x');
SELECT role, evicted FROM lock_election.locks ORDER BY 2;
SELECT force_release_lock('x');
SELECT role FROM lock_election.locks;
RESET ROLE;
SELECT force_release_lock('x');

-- all holders that the caller may evict are evicted, or none of them
SET ROLE regress_le_holder;
SELECT acquire_lock('y', mode => 'shared') AS t \gset
RESET ROLE;
-- { C edition: locks that are bound to the connection
SELECT acquire_lock('y', mode => 'shared', ttl => NULL) AS bound \gset
SELECT replace(replace(outcome('SELECT evict_lock(''y'')'), :'bound', 'TOKEN'), pg_backend_pid()::text, 'PID');
SELECT name, evicted FROM lock_election.locks;
SET ROLE regress_le_member;
SELECT evict_lock('y');
SET ROLE regress_le_holder;
SELECT renew_lock('y', :t);
RESET ROLE;
SELECT token = :t AS first, evicted FROM lock_election.locks ORDER BY 1;
SELECT force_release_lock('y');
-- }
SELECT force_release_lock('y') IS NOT NULL AS forced;

DROP ROLE regress_le_member, regress_le_holder, regress_le_other, regress_le_stats, regress_le_signal;
SELECT count(*) FROM lock_election.locks;
