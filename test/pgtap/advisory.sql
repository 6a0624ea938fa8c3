-- The contract of advisory locks by name, within one connection.
-- Promises: -
\set ON_ERROR_STOP on
\pset format unaligned
\pset tuples_only on
\pset pager off
SET client_min_messages = error;

CREATE VIEW held AS SELECT mode, classid::bigint << 32 | objid::bigint AS key, objsubid FROM pg_locks
WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted;

-- --- ends of locks; first, because DISCARD ALL would also end the state of pgTAP ---

BEGIN;
SELECT advisory_acquire('survives') AND advisory_acquire('ends', scope => 'transaction') AND pg_try_advisory_lock(1) AND pg_try_advisory_lock(1, 1) AS ignored \gset
COMMIT;
SELECT count(*) AS after_commit FROM held \gset
SELECT advisory_acquire('more'), advisory_acquire('more'), advisory_acquire('more', shared => true) \gset ignored_
BEGIN;
SELECT advisory_acquire('x', scope => 'transaction') AS x \gset
SELECT pg_advisory_unlock_all() AS ignored \gset
SELECT count(*) AS after_unlock_all FROM held \gset
COMMIT;
SELECT count(*) AS after_commit2 FROM held \gset
SELECT advisory_acquire('more'), advisory_acquire('more') \gset ignored_
DISCARD ALL;
SELECT count(*) AS after_discard FROM public.held \gset
SELECT advisory_acquire('discarded', '0') AS after_discard2 \gset
BEGIN;
SELECT advisory_acquire('undone', scope => 'transaction') AND advisory_acquire('kept') AS ignored \gset
ROLLBACK;
SELECT count(*) AS after_rollback FROM held \gset
BEGIN READ ONLY;
SELECT advisory_acquire('ro', scope => 'transaction') AND advisory_release('kept') AS read_only \gset
COMMIT;

SELECT pg_advisory_unlock_all() AS ignored \gset
SET client_min_messages = error;
BEGIN;
SELECT no_plan();

-- --- arguments ---

SELECT throws_ok($$SELECT advisory_acquire(NULL)$$, '22023', 'name must not be null');
SELECT throws_ok($$SELECT advisory_acquire('')$$, '22023', 'name must not be empty');
SELECT throws_ok($$SELECT advisory_acquire(repeat('x', 256))$$, '22023', 'name is too long: 256 bytes');
SELECT throws_ok($$SELECT advisory_acquire('a', '-1 s')$$, '22023', 'wait is out of range: -00:00:01');
SELECT throws_ok($$SELECT advisory_acquire('a', scope => 'other')$$, '22023', 'unknown scope "other"');
SELECT throws_ok($$SELECT advisory_acquire('a', scope => '')$$, '22023', 'unknown scope ""');
SELECT throws_ok($$SELECT advisory_acquire('a', scope => NULL)$$, '22023', 'scope must not be null');
SELECT throws_ok($$SELECT advisory_release(NULL)$$, '22023', 'name must not be null');
SELECT throws_ok($$SELECT advisory_release('')$$, '22023', 'name must not be empty');
SELECT is_empty('SELECT * FROM held', 'rejected calls acquire nothing');

-- --- session ---

SELECT is(advisory_release('a'), false, 'a lock that is not held is not released');
SELECT is(advisory_acquire('a'), true, 'a lock is acquired');
-- { C edition: a key space of its own; the portable edition's is that of PostgreSQL's functions
SELECT results_eq('SELECT mode, key, objsubid FROM held', $$VALUES ('ExclusiveLock', hashtextextended('a', 0), 19525::smallint)$$,
	'pg_locks shows the hash of the name, and the key space of the extension');
-- }
SELECT is(advisory_acquire('a', '0'), true, 'the same session acquires the lock again');
SELECT is(advisory_release('a', true), false, 'the lock is not held in the other mode');
SELECT is(advisory_release('a'), true, 'the first of two holds is released');
SELECT is((SELECT count(*) FROM held), 1::bigint, 'the second hold remains');
SELECT is(advisory_release('a'), true, 'the second hold is released');
SELECT is_empty('SELECT * FROM held', 'the lock is free after both releases');
SELECT is(advisory_release('a'), false, 'a free lock is not released');
SELECT is(advisory_acquire('a', shared => true) AND advisory_acquire('a', '1 s'), true, 'one session can hold both modes');
SELECT results_eq('SELECT mode FROM held ORDER BY 1', $$VALUES ('ExclusiveLock'), ('ShareLock')$$, 'both modes are separate locks');
SELECT is(advisory_release('a', shared => true) AND advisory_release('a', shared => NULL), true, 'each mode is released separately');
SELECT is(advisory_acquire(repeat('ä', 127)), true, 'any name is accepted');
-- { C edition: a key space of its own
SELECT is(key, hashtextextended(repeat('ä', 127), 0), 'the key is the hash of the bytes of the name') FROM held;
-- }
SELECT is(advisory_release(repeat('ä', 127)), true, 'the lock with this name is released');

SAVEPOINT s;
SELECT is(advisory_acquire('survives'), true, 'a session-level lock is acquired in a subtransaction');
SELECT is(advisory_acquire('ends', scope => 'transaction'), true, 'a transaction-level lock is acquired in a subtransaction');
ROLLBACK TO s;
SELECT is((SELECT count(*) FROM held), 1::bigint, 'ROLLBACK TO ends only transaction-level locks');
SELECT is(advisory_acquire('both', scope => 'transaction'), true, 'a transaction-level lock is acquired');
SELECT is(advisory_release('both'), false, 'a transaction-level lock cannot be released');
SELECT is(advisory_acquire('both'), true, 'a session-level lock of the same name is acquired');
SELECT is(advisory_release('both'), true, 'the session-level lock can be released');
SELECT is((SELECT count(*) FROM held), 2::bigint, 'the transaction-level lock remains');

-- pg_advisory_lock() with the same bits as the hash.
SELECT is(pg_try_advisory_lock(hashtextextended('both', 0)), true, 'pg_try_advisory_lock() with the same key is another lock');
SELECT is(pg_try_advisory_lock((hashtextextended('both', 0) >> 32)::int, 1), true, 'pg_try_advisory_lock() with two keys is another lock');
SELECT is((SELECT count(*) FROM held), 4::bigint, 'four locks are held');
SELECT is(pg_advisory_unlock(hashtextextended('survives', 0)), false, 'pg_advisory_unlock() does not release a lock of the extension');

-- --- ends of locks: results of the calls at the top ---

SELECT is(:'after_commit'::text, '3', 'a commit ends only transaction-level locks');
SELECT is(:'after_unlock_all'::text, '1', 'pg_advisory_unlock_all() ends all session-level locks');
SELECT is(:'after_commit2'::text, '0', 'the commit ends the transaction-level lock');
SELECT is(:'after_discard'::text, '0', 'DISCARD ALL ends all locks');
SELECT is(:'after_discard2'::text, 't', 'locks can be acquired after DISCARD ALL');
SELECT is(:'after_rollback'::text, '2', 'a rollback ends only transaction-level locks');
SELECT is(:'read_only'::text, 't', 'advisory locks work in a READ ONLY transaction');
SELECT * FROM finish();
ROLLBACK;
