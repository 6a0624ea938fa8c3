-- The API contract: signatures, properties, privileges, comments; and objects of a caller do not change the behaviour
-- of the functions and views.
-- Promises: -
\set ON_ERROR_STOP on
\pset format unaligned
\pset tuples_only on
\pset pager off

BEGIN;
SELECT no_plan();

CREATE TEMP VIEW ours AS
SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'lock_election' AND d.deptype = 'e'
-- The objects of the portable edition, identified by the role that has installed it.
UNION ALL SELECT 'pg_proc'::regclass, p.oid FROM pg_proc p WHERE p.pronamespace IN ('public'::regnamespace, 'lock_election'::regnamespace) AND p.proowner = 
	(SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = '_lock_election') AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'lock_election');
CREATE TEMP VIEW our_functions AS
SELECT p.* FROM pg_proc p JOIN ours o ON o.classid = 'pg_proc'::regclass AND o.objid = p.oid;

-- --- settings ---

-- { C edition: settings
SELECT results_eq(
	$$SELECT replace(name, 'lock_election.', '') COLLATE "default", concat_ws(' ', boot_val, unit, min_val, max_val, enumvals::text), context FROM pg_settings
	  WHERE name LIKE 'lock_election.%' AND context <> 'internal' ORDER BY name COLLATE "C"$$,
	$$VALUES
	('advisory_on_standby', 'off', 'user'),
	('durable_release', 'off', 'user'),
	('expiry_grace', '0 ms 0 86400000', 'sighup'),
	('fence_timeout', '60000 ms 0 2147483647', 'sighup'),
	('history_retention', '10080 min 0 2147483647', 'sighup'),
	('max_databases', '4 1 1024', 'postmaster'),
	('max_history_per_role', '256 MB 0 1048576', 'sighup'),
	('max_hold_for', '86400000 ms 0 2073600000', 'sighup'),
	('max_keys_per_role', '256 MB 0 1048576', 'sighup'),
	('max_leases_per_role', '10000 0 2147483647', 'sighup'),
	('max_locks_per_role', '100000 0 2147483647', 'sighup'),
	('max_memory', '512 MB 8 1048576', 'sighup'),
	('max_memory_per_role', '128 MB 0 1048576', 'sighup'),
	('max_ttl', '2073600000 ms 100 2073600000', 'sighup'),
	('max_waiters_per_lock', '1000 0 2147483647', 'sighup'),
	('min_batch_interval', '0 ms 0 500', 'sighup'),
	('min_durability', 'off {off,local,remote}', 'sighup'),
	('notify', 'all {waiters,elections,all,none}', 'sighup')$$, 'the settings, their defaults and their bounds');
SELECT is((SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE name LIKE 'lock_election.%' AND context = 'internal'),
	'lock_election.release lock_election.version', 'read-only settings show the versions');
SELECT throws_ok('SET lock_election.notified = 1', '42602', NULL, 'unknown settings are rejected');
-- }

-- --- signatures ---

SELECT results_eq(
	$$SELECT proname::text COLLATE "default", pg_get_function_arguments(oid), pg_get_function_result(oid) FROM our_functions
	  WHERE pronamespace = 'public'::regnamespace ORDER BY 1, 2$$,
	$$VALUES
	('acquire_lock', 'name text, ttl interval DEFAULT ''00:00:30''::interval, wait interval DEFAULT NULL::interval, mode text DEFAULT ''exclusive''::text, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint', 'bigint'),
	('acquire_locks', 'names text[], ttl interval DEFAULT ''00:00:30''::interval, wait interval DEFAULT NULL::interval, mode text DEFAULT ''exclusive''::text, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint', 'bigint'),
	('acquire_permit', 'name text, permits integer, ttl interval DEFAULT ''00:00:30''::interval, wait interval DEFAULT NULL::interval, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint', 'bigint'),
	('advance_revision', 'min bigint', 'bigint'),
	('advisory_acquire', 'name text, wait interval DEFAULT NULL::interval, shared boolean DEFAULT false, scope text DEFAULT ''session''::text', 'boolean'),
	('advisory_release', 'name text, shared boolean DEFAULT false', 'boolean'),
	('await_leadership', 'election text, term bigint, wait interval DEFAULT ''00:00:00''::interval', 'boolean'),
	('await_lock', 'name text, token bigint, wait interval DEFAULT ''00:00:00''::interval', 'boolean'),
	('await_locks', 'names text[], token bigint, wait interval DEFAULT ''00:00:00''::interval', 'boolean'),
	('campaign', 'election text, candidate text, ttl interval DEFAULT ''00:00:15''::interval, wait interval DEFAULT NULL::interval, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint', 'bigint'),
	('compare_and_set', 'key text, expected_version bigint, value text', 'bigint'),
	('current_leader', 'election text, OUT candidate text, OUT term bigint, OUT elected_at timestamp with time zone, OUT expires_at timestamp with time zone, OUT valid_for interval', 'SETOF record'),
	('election_history', 'election text, after bigint DEFAULT 0, OUT change bigint, OUT how text, OUT candidate text, OUT term bigint, OUT elected_at timestamp with time zone, OUT changed_at timestamp with time zone, OUT ended_at timestamp with time zone', 'SETOF record'),
	('enqueue_candidate', 'election text, candidate text, ttl interval DEFAULT ''00:00:15''::interval, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint, OUT term bigint, OUT elected boolean, OUT queue_position bigint, OUT channel text', 'record'),
	('enqueue_each', 'names text[], ttl interval DEFAULT ''00:00:30''::interval, mode text DEFAULT ''exclusive''::text, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint', 'TABLE(name text, token bigint, granted boolean, queue_position bigint, channel text)'),
	('enqueue_lock', 'name text, ttl interval DEFAULT ''00:00:30''::interval, mode text DEFAULT ''exclusive''::text, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint, OUT token bigint, OUT granted boolean, OUT queue_position bigint, OUT channel text', 'record'),
	('enqueue_locks', 'names text[], ttl interval DEFAULT ''00:00:30''::interval, mode text DEFAULT ''exclusive''::text, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint, OUT token bigint, OUT granted boolean, OUT queue_position bigint, OUT channel text', 'record'),
	('enqueue_permit', 'name text, permits integer, ttl interval DEFAULT ''00:00:30''::interval, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint, OUT token bigint, OUT granted boolean, OUT queue_position bigint, OUT channel text', 'record'),
	('evict_leader', 'election text', 'bigint'),
	('evict_lock', 'name text', 'bigint'),
	('fence_guard', '', 'trigger'),
	('fence_leader', 'election text, term bigint', 'void'),
	('fence_lock', 'name text, token bigint', 'void'),
	('force_release_lock', 'name text', 'bigint'),
	('force_release_role', 'role regrole', 'bigint'),
	('force_resign', 'election text', 'bigint'),
	('grant_lease', 'ttl interval DEFAULT ''00:01:00''::interval, owner text DEFAULT NULL::text, wait interval DEFAULT NULL::interval', 'bigint'),
	('is_held', 'name text, token bigint', 'boolean'),
	('is_leader', 'election text, term bigint', 'boolean'),
	('keep_alive', 'lease bigint', 'interval'),
	('lease_holds', 'lease bigint', 'TABLE(kind text, name text, token bigint, granted boolean, queue_position bigint, channel text, owner text)'),
	('lease_sync', 'lease bigint, call bigint, seen_incarnation bigint DEFAULT NULL::bigint, seen_news bigint DEFAULT NULL::bigint, items text[] DEFAULT NULL::text[], wait interval DEFAULT ''00:00:01''::interval', 'TABLE(item integer, event text, kind text, name text, token bigint, queue_position bigint, owner text, reason text, sqlstate text, message text, detail text, hint text, validity interval, incarnation bigint, news bigint, complete boolean, channel text)'),
	('lease_time_to_live', 'lease bigint', 'interval'),
	('observe_election', 'election text', 'text'),
	('proclaim', 'election text, term bigint, candidate text', 'boolean'),
	('read_versioned', 'key text, OUT value text, OUT version bigint', 'record'),
	('release_each', 'names text[], tokens bigint[]', 'TABLE(name text, released boolean)'),
	('release_lock', 'name text', 'boolean'),
	('release_lock', 'name text, token bigint, hold_for interval DEFAULT NULL::interval, all_holds boolean DEFAULT false', 'boolean'),
	('release_locks', 'names text[], token bigint', 'boolean'),
	('renew_leadership', 'election text, term bigint, ttl interval DEFAULT NULL::interval', 'interval'),
	('renew_lock', 'name text, token bigint, ttl interval DEFAULT NULL::interval', 'interval'),
	('resign', 'election text, term bigint', 'boolean'),
	('revoke_lease', 'lease bigint', 'boolean'),
	('set_permits', 'name text, permits integer', 'integer'),
	('try_acquire_each', 'names text[], ttl interval DEFAULT ''00:00:30''::interval, mode text DEFAULT ''exclusive''::text, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint', 'TABLE(name text, token bigint)'),
	('try_acquire_lock', 'name text, ttl interval DEFAULT ''00:00:30''::interval, mode text DEFAULT ''exclusive''::text, owner text DEFAULT NULL::text, lease bigint DEFAULT NULL::bigint', 'bigint'),
	('version_guard', '', 'trigger')$$,
	'the functions: names, types and defaults of their arguments, and return types');
SELECT is(provolatile, 'v'::"char", proname || ' is volatile') FROM our_functions WHERE prorettype <> 'trigger'::regtype AND proname <> 'role_oid' ORDER BY proname;
SELECT is(proparallel, 'u'::"char", proname || ' is parallel unsafe') FROM our_functions WHERE proname <> 'role_oid' ORDER BY proname;
-- { C edition: functions in C, with the rights of the caller
SELECT is(prosecdef, false, proname || ' is not SECURITY DEFINER') FROM our_functions ORDER BY proname;
SELECT is(proisstrict, false, proname || ' is not STRICT: it handles null arguments itself') FROM our_functions WHERE proname <> 'role_oid' ORDER BY proname;
SELECT is(l.lanname, 'c'::name, proname || ' is written in C, so no search_path affects it')
FROM our_functions p JOIN pg_language l ON l.oid = p.prolang ORDER BY proname;
-- }

-- --- comments ---

SELECT isnt(obj_description(oid, 'pg_proc'), NULL, proname || ' has a comment') FROM our_functions
WHERE prorettype <> 'trigger'::regtype ORDER BY proname;
SELECT isnt(obj_description(c.oid, 'pg_class'), NULL, 'view ' || relname || ' has a comment') FROM pg_class c
WHERE relnamespace = 'lock_election'::regnamespace AND relkind = 'v' ORDER BY relname;

-- --- privileges ---

SELECT results_eq(
	$$SELECT proname::text COLLATE "default" FROM our_functions WHERE has_function_privilege('public', oid, 'EXECUTE')
	  AND proname NOT IN ('counters', 'histograms', 'manager_info', 'reap') ORDER BY 1$$, -- of one edition alone
	$$VALUES ('acquire_lock'), ('acquire_locks'), ('acquire_permit'), ('advisory_acquire'), ('advisory_release'), ('await_leadership'), ('await_lock'), ('await_locks'), ('campaign'),
	('compare_and_set'), ('current_leader'), ('election_history'), ('enqueue_candidate'), ('enqueue_each'), ('enqueue_lock'), ('enqueue_locks'), ('enqueue_permit'), ('evict_leader'), ('evict_lock'), ('fence_guard'), ('fence_leader'), ('fence_lock'),
	('force_release_lock'), ('force_release_role'), ('force_resign'), ('grant_lease'), ('health'), ('is_held'), ('is_leader'), ('keep_alive'), ('lease_holds'), ('lease_sync'), ('lease_time_to_live'), ('look'), ('look_leases'),
	('observe_election'), ('proclaim'), ('read_versioned'), ('release_each'), ('release_lock'), ('release_lock'), ('release_locks'), ('renew_leadership'), ('renew_lock'), ('resign'),
	('revoke_lease'), ('set_permits'), ('try_acquire_each'), ('try_acquire_lock'), ('version_guard')$$,
	'functions that PUBLIC can execute: these and no others');
SELECT results_eq(
	$$SELECT relname::text COLLATE "default" FROM pg_class WHERE relnamespace IN ('lock_election'::regnamespace, '_lock_election'::regnamespace) AND relkind IN ('r', 'v', 'S', 'm', 'f', 'p')
	  AND has_table_privilege('public', oid, 'SELECT') AND relname NOT IN ('histogram', 'manager', 'stat') ORDER BY 1$$,
	$$VALUES ('elections'), ('leases'), ('locks'), ('waiters')$$, 'relations that PUBLIC can read: these and no others');
SELECT is_empty(
	$$SELECT relname FROM pg_class WHERE relnamespace IN ('lock_election'::regnamespace, '_lock_election'::regnamespace) AND relkind IN ('r', 'v', 'S', 'm', 'f', 'p')
	  AND has_table_privilege('public', oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')$$,
	'PUBLIC cannot write any relation');
SELECT is(has_schema_privilege('public', 'lock_election', 'USAGE'), true, 'PUBLIC can use the schema lock_election');
SELECT is(has_schema_privilege('public', 'lock_election', 'CREATE'), false, 'PUBLIC cannot create objects in the schema lock_election');
SELECT is(has_schema_privilege('public', '_lock_election', 'USAGE, CREATE'), false, 'PUBLIC cannot use the schema of the tables');

-- --- membership ---

-- { C edition: what belongs to an extension; tables without a TOAST table, with comments for each column
SELECT is_empty(
	$$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace IN ('lock_election'::regnamespace, '_lock_election'::regnamespace) AND relkind IN ('r', 'v', 'S', 'm', 'f', 'p')
	  AND NOT EXISTS (SELECT FROM ours o WHERE o.classid = 'pg_class'::regclass AND o.objid = c.oid)$$,
	'every relation belongs to the extension');
SELECT is_empty(
	$$SELECT p.oid::regprocedure FROM pg_proc p WHERE (pronamespace = 'lock_election'::regnamespace OR probin LIKE '%lock_election%')
	  AND NOT EXISTS (SELECT FROM ours o WHERE o.classid = 'pg_proc'::regclass AND o.objid = p.oid)$$,
	'every function belongs to the extension');
SELECT results_eq($$SELECT objid::regnamespace::text COLLATE "default" FROM ours WHERE classid = 'pg_namespace'::regclass ORDER BY 1$$,
	$$VALUES ('_lock_election'), ('lock_election')$$, 'both schemas belong to the extension');
SELECT is_empty($$SELECT FROM pg_class WHERE relnamespace = 'lock_election'::regnamespace AND relkind IN ('r', 'S', 'm', 'f', 'p')$$,
	'the schema lock_election contains only views, so that psql completes only their names');
SELECT is_empty($$SELECT FROM pg_class WHERE relnamespace IN ('lock_election'::regnamespace, '_lock_election'::regnamespace) AND relkind = 'r' AND reltoastrelid <> 0$$,
	'no table has a TOAST table');
SELECT is_empty(
	$$SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum >= 0 AND NOT a.attisdropped
	  WHERE c.relnamespace IN ('lock_election'::regnamespace, '_lock_election'::regnamespace) AND c.relkind IN ('r', 'v') AND col_description(c.oid, a.attnum) IS NULL
	  UNION ALL
	  SELECT c.relname, NULL FROM pg_class c
	  WHERE c.relnamespace IN ('lock_election'::regnamespace, '_lock_election'::regnamespace) AND c.relkind IN ('r', 'v') AND obj_description(c.oid, 'pg_class') IS NULL$$,
	'every table, view and column has a comment');
-- }
SELECT isnt(obj_description(n.oid, 'pg_namespace'), NULL, 'a comment exists for schema ' || n.nspname) FROM pg_namespace n WHERE n.nspname IN ('lock_election', '_lock_election');
-- { C edition: the extension
SELECT is(extrelocatable, false, 'the extension cannot be relocated') FROM pg_extension WHERE extname = 'lock_election';
SELECT is(superuser AND NOT trusted, true, 'only a superuser can create the extension') FROM pg_available_extension_versions WHERE name = 'lock_election';
-- }

-- --- views ---

CREATE TEMP VIEW columns_of AS
SELECT c.relname::text COLLATE "default" AS view, string_agg(a.attname::text COLLATE "default" || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum) AS columns
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = 'lock_election'::regnamespace AND c.relkind = 'v' GROUP BY 1;

SELECT results_eq($$SELECT view, columns FROM columns_of WHERE view NOT IN ('histogram', 'manager', 'stat') ORDER BY 1$$, $$VALUES
	('elections', 'election text, candidate text, term bigint, owner text, role regrole, elected_at timestamp with time zone, expires_at timestamp with time zone, valid_for interval, waiting bigint, pid integer, application_name text, client_addr inet, connected boolean, evicted boolean, fenced_by integer[], replayed_at timestamp with time zone'),
	('leases', 'lease bigint, owner text, role regrole, ttl interval, expires_at timestamp with time zone, time_left interval, locks bigint, waiting bigint'),
	('locks', 'kind text, name text, slot integer, mode text, owner text, role regrole, token bigint, lease bigint, holds integer, acquired_at timestamp with time zone, expires_at timestamp with time zone, time_left interval, closed_until timestamp with time zone, waiters bigint, pid integer, application_name text, client_addr inet, connected boolean, evicted boolean, fenced_by integer[], replayed_at timestamp with time zone'),
	('waiters', 'kind text, name text, queue_position bigint, mode text, owner text, role regrole, token bigint, lease bigint, waiting_since timestamp with time zone, pid integer, application_name text, client_addr inet, connected boolean, blocked_by integer[], closed_until timestamp with time zone')$$,
	'the views and their columns');
-- { C edition: views of the manager
SELECT results_eq($$SELECT view, columns FROM columns_of WHERE view IN ('histogram', 'manager', 'stat') ORDER BY 1$$, $$VALUES
	('histogram', 'name text, le double precision, count bigint, sum double precision'),
	('manager', 'pid integer, database name, started timestamp with time zone, incarnation bigint, revision bigint, locks bigint, held bigint, waiting bigint, oldest_wait timestamp with time zone, memory bigint, slot_bytes bigint, lease_bytes bigint, queue_bytes bigint'),
	('stat', 'acquires bigint, renewals bigint, releases bigint, checks bigint, forced bigint, awaits bigint, grants bigint, waits bigint, handoffs bigint, leader_changes bigint, expiries bigint, timeouts bigint, undone bigint, batches bigint, failed_batches bigint, key_violations bigint, transaction_ids bigint, rows_written bigint, flushes bigint, stalls bigint, hints_sent bigint, hints_dropped bigint, write_time double precision, stats_reset timestamp with time zone')$$,
	'the views of the manager and their columns');
-- }
COMMIT;

-- --- a hostile search_path ---

-- An ordinary role creates functions, operators and tables that shadow those of PostgreSQL, which the views use.
CREATE ROLE mallory;
CREATE SCHEMA trap AUTHORIZATION mallory;
SELECT acquire_lock('trap', owner => 'victim') > 0 AS acquired \gset
SET ROLE mallory;
CREATE TABLE trap.called (what text);
CREATE FUNCTION trap.sprung(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trap: %', $1; END $$;
CREATE FUNCTION trap.current_database() RETURNS name LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung('current_database'); END $$;
CREATE FUNCTION trap.array_agg_step(int[], int) RETURNS int[] LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung('array_agg'); END $$;
CREATE AGGREGATE trap.array_agg(int) (SFUNC = trap.array_agg_step, STYPE = int[]);
CREATE FUNCTION trap.equal(name, name) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung('name = name'); END $$;
CREATE FUNCTION trap.equal(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung('text = text'); END $$;
CREATE FUNCTION trap.equal(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung('bigint = bigint'); END $$;
CREATE FUNCTION trap.equal(bigint, integer) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung('bigint = integer'); END $$;
CREATE OPERATOR trap.= (LEFTARG = name, RIGHTARG = name, FUNCTION = trap.equal);
CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.equal);
CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.equal);
CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = trap.equal);
CREATE OPERATOR trap.> (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = trap.equal);
CREATE OPERATOR trap.<< (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = trap.equal);
CREATE TABLE trap.pg_locks (fake int);
CREATE TABLE trap.pg_database (fake int);
CREATE TABLE trap.slot (fake int);
CREATE TABLE trap.meta (fake int);
CREATE DOMAIN trap.int8 AS text;
CREATE DOMAIN trap.regrole AS text;
CREATE FUNCTION trap.look() RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
RESET ROLE;

-- The superuser calls functions and reads views with that search_path.
SET search_path = trap, pg_temp, pg_catalog, public;
CREATE TEMP TABLE slot (fake int);
CREATE TEMP TABLE pg_locks (fake int);
SELECT public.acquire_lock('trap2', ttl => '1 min', owner => 'me') AS token \gset
SELECT public.renew_lock('trap2', :token) IS NULL AS renewed \gset
SELECT public.is_held('trap2', :token) AS held \gset
SELECT public.release_lock('trap2', :token) AS released \gset
SELECT string_agg(name || '|' || owner || '|' || fenced_by::text, ',') AS locks FROM lock_election.locks \gset
SELECT public.campaign('trap', 'me', ttl => '1 min') AS term \gset
SELECT string_agg(election || '|' || candidate || '|' || fenced_by::text, ',') AS elections FROM lock_election.elections \gset
SELECT candidate AS leader FROM public.current_leader('trap') \gset
SELECT public.resign('trap', :term) AS resigned \gset
SELECT count(*) AS waiters FROM lock_election.waiters \gset
-- { C edition: views of the manager
SELECT count(*) AS managers FROM lock_election.manager \gset
SELECT count(*) AS stats FROM lock_election.stat \gset
-- }
SELECT public.force_release_lock('trap') AS forced \gset
RESET search_path;

BEGIN;
SELECT is(:'acquired'::text, 't', 'a lock is acquired before the traps are set');
SELECT is(:'renewed'::text, 'f', 'renew_lock() works with a hostile search_path');
SELECT is(:'held'::text, 't', 'is_held() works with a hostile search_path');
SELECT is(:'released'::text, 't', 'release_lock() works with a hostile search_path');
SELECT is(:'locks'::text, 'trap|victim|{}', 'the view locks works with a hostile search_path');
SELECT is(:'elections'::text, 'trap|me|{}', 'the view elections works with a hostile search_path');
SELECT is(:'leader'::text, 'me', 'current_leader() works with a hostile search_path');
SELECT is(:'resigned'::text, 't', 'resign() works with a hostile search_path');
SELECT is(:'waiters'::text, '0', 'the view waiters works with a hostile search_path');
-- { C edition: views of the manager
SELECT is(:'managers'::text, '1', 'the view manager works with a hostile search_path');
SELECT is(:'stats'::text, '1', 'the view stat works with a hostile search_path');
-- }
SELECT is(:'forced'::text, '1', 'force_release_lock() works with a hostile search_path');

-- The extension cannot be created again, so nobody can take over the schema lock_election.
-- { C edition: the extension
SELECT throws_ok('CREATE EXTENSION lock_election', '42710', NULL, 'the extension cannot be created twice');
-- }
SELECT * FROM finish();
ROLLBACK;
