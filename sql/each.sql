-- try_acquire_each, enqueue_each, release_each: one request, which handles each name independently
\set VERBOSITY terse
\set SHOW_CONTEXT never
\pset null null
-- one row per name, in the order of the argument; a lock that is already held is not granted to another owner
SELECT name, token IS NOT NULL AS granted FROM try_acquire_each('{b,a,c}');
SELECT name, token IS NOT NULL AS granted FROM try_acquire_each('{d,c,b}', owner => 'other');
SELECT name FROM lock_election.locks ORDER BY name;
-- each lock has its own token, and tokens grow in the order of the names
SELECT array_agg(name ORDER BY token) FROM lock_election.locks;
-- shared locks on a lease
SELECT grant_lease('1 min') AS lease \gset
SELECT name, token IS NOT NULL AS granted FROM try_acquire_each('{s1,s2}', mode => 'shared', lease => :lease);
SELECT count(*) FROM lock_election.locks WHERE mode = 'shared' AND lease = :lease;
-- a repeated request on the same lease returns the same tokens
SELECT count(DISTINCT token) FROM (SELECT token FROM try_acquire_each('{s1,s2}', mode => 'shared', lease => :lease)
	UNION ALL SELECT token FROM try_acquire_each('{s2,s1}', mode => 'shared', lease => :lease)) AS t;
SELECT revoke_lease(:lease) IS NOT NULL AS revoked;
-- places
SELECT name, token IS NOT NULL AS token, granted, queue_position,
	channel = 'le_' || left(encode(sha256(convert_to('lock ' || name, 'UTF8')), 'hex'), 32) AS channel
FROM enqueue_each('{a,new,b}', owner => 'waits');
SELECT count(*) FROM lock_election.waiters;
SELECT count(*) FROM enqueue_each('{a,b}');
SELECT name, granted, queue_position FROM enqueue_each('{b,a}');

-- returns true for a released lock, otherwise false; a NULL token releases nothing
CREATE TEMP TABLE t AS SELECT name, token FROM try_acquire_each('{r1,r2,r3}');
SELECT * FROM release_each('{r2,none,r1,r3}', ARRAY[
	(SELECT token FROM t WHERE name = 'r2'), 1, (SELECT token FROM t WHERE name = 'r2'), NULL]);
SELECT name, token = (SELECT token FROM t WHERE t.name = l.name) AS kept FROM lock_election.locks AS l WHERE name LIKE 'r%' ORDER BY name;
SELECT count(*) FILTER (WHERE released) AS released FROM t, LATERAL release_each(ARRAY[t.name], ARRAY[t.token]);
SELECT count(*) FROM lock_election.locks WHERE name LIKE 'r%';
-- { C edition: a release takes effect at the end of its statement, or at the commit; view stat
-- alone in its statement, a release takes effect at once; otherwise at the end of the statement
SELECT token AS t FROM try_acquire_each('{r1}') \gset
SELECT released, is_held(name, :t) FROM release_each('{r1}', ARRAY[:t]);
SELECT is_held('r1', :t);
SELECT token AS t FROM try_acquire_each('{r1}') \gset
SELECT checks AS before FROM lock_election.stat \gset
SELECT * FROM release_each('{r1}', ARRAY[:t]);
SELECT checks - :before AS checks FROM lock_election.stat;
-- in a transaction, a lock that is not held is checked once; a held lock is checked again after its fence
BEGIN;
SELECT checks AS before FROM lock_election.stat \gset
SELECT * FROM release_each('{r1,r2}', '{1,1}');
SELECT checks - :before AS checks FROM lock_election.stat;
SELECT release_lock('r1'), release_lock('r1', 1), release_locks('{r1}', 1);
SELECT checks - :before AS checks FROM lock_election.stat;
COMMIT;
-- }
-- release_each also ends a place
SELECT r.released FROM enqueue_each('{a}', owner => 'leaves') AS e, LATERAL release_each(ARRAY[e.name], ARRAY[e.token]) AS r;
SELECT count(*) FROM lock_election.waiters WHERE owner = 'leaves';
DROP TABLE t;

-- a rollback to a savepoint undoes the acquires since then
BEGIN;
SELECT count(token) FROM try_acquire_each('{t1,t2}');
SAVEPOINT s;
SELECT count(token) FROM try_acquire_each('{t2,t3}');
ROLLBACK TO s;
SELECT name FROM lock_election.locks WHERE name LIKE 't%' ORDER BY name;
COMMIT;
-- { C edition: a release in a transaction takes effect at its commit, and a later acquire can cancel it
BEGIN;
SELECT array_agg(token ORDER BY name) AS t FROM lock_election.locks WHERE name LIKE 't%' \gset
SELECT * FROM release_each('{t1,t2}', :'t');
-- a second release of the same hold returns false
SELECT * FROM release_each('{t1,t2}', :'t');
-- a new acquire adds a hold; the pending release ends only the earlier one
SELECT name, token = ANY (:'t') AS same FROM try_acquire_each('{t1}');
SELECT count(*) FROM lock_election.locks WHERE name LIKE 't%';
-- an acquire by a named owner, or on a lease, is not granted before the commit
SELECT grant_lease('1 min') AS lease \gset
SELECT name, token IS NULL AS refused FROM try_acquire_each('{t2}', owner => 'other');
SELECT name, token IS NULL AS refused FROM try_acquire_each('{t2}', lease => :lease);
SELECT revoke_lease(:lease);
COMMIT;
SELECT name FROM lock_election.locks WHERE name LIKE 't%';
BEGIN;
SELECT * FROM release_each('{t1}', ARRAY[(SELECT token FROM lock_election.locks WHERE name = 't1')]);
ROLLBACK;
SELECT name FROM lock_election.locks WHERE name LIKE 't%';

-- on a lease, a repeated acquire or enqueue cancels the pending release of a holder or a place
SELECT grant_lease('1 min') AS lease \gset
SELECT acquire_lock('k1', owner => 'other') IS NOT NULL AS held;
SELECT token AS place FROM enqueue_each('{k1}', lease => :lease) \gset
SELECT token AS held FROM try_acquire_each('{k2}', lease => :lease) \gset
SELECT token AS also FROM try_acquire_each('{k3}', lease => :lease) \gset
SELECT token AS once FROM try_acquire_each('{k4}', lease => :lease) \gset
BEGIN;
SELECT * FROM release_each('{k1,k2,k3,k4}', ARRAY[:place, :held, :also, :once]);
SELECT token = :place AS same, granted FROM enqueue_each('{k1}', lease => :lease);
SELECT token = :held AS same, granted FROM enqueue_lock('k2', lease => :lease);
SELECT token = :once AS same FROM try_acquire_each('{k4}', lease => :lease);
COMMIT;
SELECT await_lock('k1', :place), is_held('k2', :held), is_held('k3', :also), is_held('k4', :once);
SELECT revoke_lease(:lease);
-- }

-- if the result cannot be sent to the client, nothing is released
SELECT token AS t FROM try_acquire_each(ARRAY[U&'\3042']) \gset
SET client_encoding = 'LATIN1';
SELECT * FROM release_each(ARRAY[U&'\3042'], ARRAY[:t]);
RESET client_encoding;
SELECT is_held(U&'\3042', :t);

-- an empty array of names returns no rows
SELECT * FROM try_acquire_each('{}');
SELECT * FROM enqueue_each('{}', lease => 1);
SELECT * FROM release_each('{}', '{}');
BEGIN;
SELECT * FROM release_each(ARRAY[]::text[], ARRAY[]::bigint[]);
COMMIT;
SELECT * FROM release_each('{}', '{1}');

-- one notice per call for locks that another connection with the same owner has acquired
SELECT count(token) FROM try_acquire_each('{o1,o2}', owner => 'twice');
\c -
SELECT count(token) FROM try_acquire_each('{free,o1,o2}', owner => 'twice');

-- calls that fail, and change nothing
SELECT acquire_permit('permits', 3) IS NOT NULL AS permit;
SELECT * FROM try_acquire_each('{e1,permits,e2}');
SELECT * FROM enqueue_each('{e1,permits,e2}');
SELECT * FROM try_acquire_each('{e1,e2,e1}');
SELECT * FROM try_acquire_each('{e1,NULL}');
SELECT * FROM try_acquire_each('{e1,""}');
SELECT * FROM try_acquire_each(ARRAY['e1', 'e2', repeat('x', 256)]);
SELECT * FROM try_acquire_each('{{e1,e2},{e3,e4}}');
SELECT * FROM try_acquire_each(NULL);
SELECT * FROM try_acquire_each(array(SELECT 'e' || i FROM generate_series(1, 1001) AS i));
SELECT * FROM try_acquire_each('{e1}', mode => 'none');
SELECT * FROM try_acquire_each('{e1}', lease => 1);
SELECT * FROM release_each('{e1}', NULL);
SELECT * FROM release_each('{e1}', '{1,2}');
SELECT * FROM release_each('{e1,e2}', '{{1},{2}}');
SELECT * FROM release_each('{e1,e1}', '{1,2}');
SELECT count(*) FROM lock_election.locks WHERE name LIKE 'e%';

SELECT force_release_role(current_user::regrole) > 0 AS ended;
SELECT count(*) FROM lock_election.locks;
