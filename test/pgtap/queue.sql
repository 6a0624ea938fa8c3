-- The contract of places in queues, for clients that do not block a connection.
-- Promises: Q
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off

BEGIN;
SELECT no_plan();

-- --- privileges and settings; the signatures are in api.sql ---

-- { C edition: table queue, settings
SELECT table_privs_are('_lock_election', 'queue', 'public', ARRAY[]::text[]);
SELECT is((SELECT vartype || ' ' || setting || ' ' || context || ' ' || enumvals::text FROM pg_settings WHERE name = 'lock_election.notify'),
	'enum all sighup {waiters,elections,all,none}', 'lock_election.notify and its values');
-- }

-- --- arguments ---

SELECT throws_ok($$SELECT enqueue_lock(NULL)$$, '22023', 'name must not be null');
SELECT throws_ok($$SELECT enqueue_lock('')$$, '22023', 'name must not be empty');
SELECT throws_ok($$SELECT enqueue_lock(repeat('x', 256))$$, '22023', 'name is too long: 256 bytes');
SELECT throws_ok($$SELECT enqueue_lock('a', '99 ms')$$, '22023', 'ttl is out of range: 00:00:00.099');
SELECT throws_ok($$SELECT enqueue_lock('a', '25 days')$$, '22023', 'ttl is out of range: 25 days');
SELECT throws_ok($$SELECT enqueue_lock('a', mode => 'other')$$, '22023', 'unknown mode "other"');
SELECT throws_ok($$SELECT enqueue_lock('a', mode => NULL)$$, '22023', 'mode must not be null');
SELECT throws_ok($$SELECT enqueue_lock('a', owner => '')$$, '22023', 'owner must not be empty');
SELECT throws_ok($$SELECT enqueue_lock('a', lease => 0)$$, 'LE001', 'lease 0 does not exist, or has ended');
SELECT throws_ok($$SELECT enqueue_lock('a', lease => 1)$$, 'LE001', 'lease 1 does not exist, or has ended');
SELECT throws_ok($$SELECT await_lock(NULL, 1)$$, '22023', 'name must not be null');
SELECT throws_ok($$SELECT await_lock('', 1)$$, '22023', 'name must not be empty');
SELECT throws_ok($$SELECT await_lock('a', NULL)$$, '22023', 'token must not be null');
SELECT throws_ok($$SELECT await_lock('a', 1, '-1 s')$$, '22023', 'wait is out of range: -00:00:01');
SELECT throws_ok($$SELECT await_lock('a', 1)$$, 'LE001', 'token 1 neither holds lock "a" nor waits for it any more');
SELECT throws_ok($$SELECT await_lock('a', 0)$$, 'LE001');

-- --- results ---

SELECT is((e.granted, e.queue_position, e.token > 0)::text, '(t,0,t)', 'a free lock is granted')
FROM enqueue_lock('a', '1 min', owner => 'me') e;
SELECT is((e.granted, e.queue_position)::text, '(f,1)', 'a second call gets a place, even for the same owner')
FROM enqueue_lock('a', '1 min', owner => 'me') e;
SELECT is((e.granted, e.queue_position)::text, '(f,2)', 'a third call gets the second place')
FROM enqueue_lock('a', mode => 'shared') e;
SELECT is(e.channel, 'le_' || left(encode(sha256(convert_to('lock a', 'UTF8')), 'hex'), 32), 'the channel is the hash of the name')
FROM enqueue_lock('a') e;
SELECT is(length(e.channel), 35, 'the channel has the same length for any name') FROM enqueue_lock(repeat('Ä"'' ', 51)) e;
SELECT is((SELECT string_agg(queue_position || ' ' || mode, ', ' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'a'),
	'1 exclusive, 2 shared, 3 exclusive', 'the view waiters shows positions and modes');
CREATE TEMP TABLE l AS SELECT queue_position, token FROM lock_election.look() WHERE name = 'a';
SELECT is(await_lock('a', token), queue_position = 0, 'await_lock() at position ' || queue_position) FROM l WHERE queue_position < 2 ORDER BY 1;
SELECT throws_ok(format($$SELECT renew_lock('a', %s)$$, token), '55000', NULL, 'a place cannot be renewed') FROM l WHERE queue_position = 1;
CREATE ROLE le_other;
GRANT USAGE ON SCHEMA public TO le_other;
GRANT SELECT ON l TO le_other;
SET ROLE le_other;
SELECT throws_ok(format($$SELECT await_lock('a', %s)$$, token), '42501', NULL, 'another role cannot wait for the place') FROM l WHERE queue_position = 1;
SELECT throws_ok(format($$SELECT release_lock('a', %s)$$, token), '42501', NULL, 'another role cannot release the place') FROM l WHERE queue_position = 1;
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
