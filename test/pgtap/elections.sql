-- The contract of leader election; the signatures and the columns of the view are in api.sql.
-- Promises: -
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off

BEGIN;
SELECT no_plan();

-- --- arguments ---

SELECT throws_ok($$SELECT campaign(NULL, 'me')$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT campaign('', 'me')$$, '22023', 'election must not be empty');
SELECT throws_ok($$SELECT campaign(repeat('x', 256), 'me')$$, '22023', 'election is too long: 256 bytes');
SELECT throws_ok($$SELECT campaign('a', NULL)$$, '22023', 'candidate must not be null');
SELECT throws_ok($$SELECT campaign('a', '')$$, '22023', 'candidate must not be empty');
SELECT throws_ok($$SELECT campaign('a', repeat('x', 4097))$$, '22023', 'candidate is too long: 4097 bytes');
SELECT throws_ok($$SELECT campaign('a', repeat('ä', 2049))$$, '22023', 'candidate is too long: 4098 bytes');
SELECT throws_ok($$SELECT campaign('a', 'me', '99 ms')$$, '22023', 'ttl is out of range: 00:00:00.099');
SELECT throws_ok($$SELECT campaign('a', 'me', '25 days')$$, '22023', 'ttl is out of range: 25 days');
SELECT throws_ok($$SELECT campaign('a', 'me', wait => '-1 s')$$, '22023', 'wait is out of range: -00:00:01');
SELECT throws_ok($$SELECT campaign('a', 'me', owner => '')$$, '22023', 'owner must not be empty');
SELECT throws_ok($$SELECT campaign('a', 'me', owner => repeat('x', 256))$$, '22023', 'owner is too long: 256 bytes');
SELECT throws_ok($$SELECT campaign('a', 'me', lease => 0)$$, 'LE001', 'lease 0 does not exist, or has ended');
SELECT throws_ok($$SELECT campaign('a', 'me', lease => 1)$$, 'LE001', 'lease 1 does not exist, or has ended');
SELECT throws_ok($$SELECT enqueue_candidate(NULL, 'me')$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT enqueue_candidate('a', NULL)$$, '22023', 'candidate must not be null');
SELECT throws_ok($$SELECT enqueue_candidate('a', '')$$, '22023', 'candidate must not be empty');
SELECT throws_ok($$SELECT enqueue_candidate('a', repeat('x', 4097))$$, '22023', 'candidate is too long: 4097 bytes');
SELECT throws_ok($$SELECT enqueue_candidate('a', 'me', '0')$$, '22023', 'ttl is out of range: 00:00:00');
SELECT throws_ok($$SELECT enqueue_candidate('a', 'me', lease => 1)$$, 'LE001', 'lease 1 does not exist, or has ended');
SELECT throws_ok($$SELECT await_leadership(NULL, 1)$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT await_leadership('a', NULL)$$, '22023', 'term must not be null');
SELECT throws_ok($$SELECT await_leadership('a', 1, '-1 s')$$, '22023', 'wait is out of range: -00:00:01');
SELECT throws_ok($$SELECT await_leadership('a', 1)$$, 'LE001', 'term 1 neither holds election "a" nor waits for it any more');
SELECT throws_ok($$SELECT proclaim(NULL, 1, 'me')$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT proclaim('a', NULL, 'me')$$, '22023', 'term must not be null');
SELECT throws_ok($$SELECT proclaim('a', 1, NULL)$$, '22023', 'candidate must not be null');
SELECT throws_ok($$SELECT proclaim('a', 1, '')$$, '22023', 'candidate must not be empty');
SELECT throws_ok($$SELECT proclaim('a', 1, repeat('x', 4097))$$, '22023', 'candidate is too long: 4097 bytes');
SELECT throws_ok($$SELECT renew_leadership('', 1)$$, '22023', 'election must not be empty');
SELECT throws_ok($$SELECT renew_leadership('a', NULL)$$, '22023', 'term must not be null');
SELECT throws_ok($$SELECT renew_leadership('a', 1, '25 days')$$, '22023', 'ttl is out of range: 25 days');
SELECT throws_ok($$SELECT resign(NULL, 1)$$, '22023', 'election must not be null');
SELECT is(resign('a', NULL), false, 'resign() with a null term returns false');
SELECT throws_ok($$SELECT resign(NULL, NULL)$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT is_leader(NULL, 1)$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT is_leader('a', NULL)$$, '22023', 'term must not be null');
SELECT throws_ok($$SELECT fence_leader(NULL, 1)$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT fence_leader('a', NULL)$$, '22023', 'term must not be null');
SELECT throws_ok($$SELECT fence_leader('a', 1)$$, 'LE001', 'election "a" is not held by term 1');
SELECT throws_ok($$SELECT force_resign(NULL)$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT evict_leader(NULL)$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT evict_lock(NULL)$$, '22023', 'name must not be null');
SELECT throws_ok($$SELECT current_leader(NULL)$$, '22023', 'election must not be null');
SELECT throws_ok($$SELECT current_leader('')$$, '22023', 'election must not be empty');

-- --- results without a leader ---

SELECT is_empty($$SELECT * FROM current_leader('a')$$, 'current_leader() returns no row');
SELECT is_empty($$SELECT * FROM lock_election.elections$$, 'the view elections has no row');
SELECT is(proclaim('a', 1, 'me'), false, 'proclaim() returns false without a leader');
SELECT is(resign('a', 1), false, 'resign() returns false without a leader');
SELECT is(is_leader('a', 1), false, 'is_leader() returns false without a leader');
SELECT is(is_leader('a', -1), false, 'is_leader() returns false for a negative term');
SELECT is(renew_leadership('a', 1), NULL, 'renew_leadership() returns null without a leader');
SELECT is(force_resign('a'), 0::bigint, 'force_resign() returns 0 without a leader');
SELECT is(evict_leader('a'), 0::bigint, 'evict_leader() returns 0 without a leader');

-- --- a leader ---

CREATE TEMP TABLE t AS SELECT campaign('a', 'node 1', '1 min', owner => 'me') AS term, acquire_lock('a', '1 min', owner => 'me') AS token;
SELECT cmp_ok(term, '<>', token, 'a lock of the same name is another object') FROM t;
SELECT is(is_held('a', term) OR is_leader('a', token) OR release_lock('a', term) OR resign('a', token) OR proclaim('a', token, 'no'), false,
	'a token is not a term of the election, and vice versa') FROM t;
SELECT is(is_leader('a', term) AND is_held('a', token), true, 'both the term and the lock are held') FROM t;
SELECT is((candidate, c.term, elected_at BETWEEN now() AND clock_timestamp(), valid_for BETWEEN '59 s' AND '60 s')::text, ('node 1', t.term, true, true)::text, 'current_leader() returns candidate, term and times')
FROM current_leader('a') c, t;
SELECT is(renew_leadership('a', term), '1 min', 'renew_leadership() returns the TTL') FROM t;
SELECT is(renew_leadership('a', term, '2 min'), '2 min', 'renew_leadership() sets another TTL') FROM t;
SELECT is(campaign('a', 'node 1, again', '1 min', owner => 'me'), term, 'a second campaign by the same owner returns the same term') FROM t;
SELECT is(candidate, 'node 1, again', 'a second campaign by the same owner proclaims its value') FROM current_leader('a');
SELECT is(proclaim('a', term, 'node 1, proclaimed'), true, 'proclaim() returns true for the current term') FROM t;
SELECT is(candidate, 'node 1, proclaimed', 'the proclaimed value is visible') FROM current_leader('a');
SELECT is(proclaim('a', term - 1, 'a past one'), false, 'proclaim() returns false for a past term') FROM t;
SELECT is(candidate, 'node 1, proclaimed', 'proclaim() for a past term changes nothing') FROM current_leader('a');
SELECT is(proclaim('a', term, repeat('ä', 2048)), true, 'a value of 4096 bytes is accepted') FROM t;
SELECT is(candidate, repeat('ä', 2048), 'a value of 4096 bytes is stored') FROM current_leader('a');
SELECT is(campaign('a', 'node 2', wait => '0', owner => 'other'), NULL, 'another owner is not elected');
SELECT is(candidate, repeat('ä', 2048), 'the leader is unchanged') FROM current_leader('a');
SELECT lives_ok(format($$SELECT fence_leader('a', %s)$$, term), 'fence_leader() succeeds for the current term') FROM t;

-- --- candidates ---

CREATE TEMP TABLE c AS SELECT * FROM enqueue_candidate('a', repeat('b', 4096), '1 min');
SELECT is((elected, queue_position)::text, '(f,1)', 'enqueue_candidate() returns a place') FROM c;
SELECT is(channel, 'le_' || left(encode(sha256(convert_to('election a', 'UTF8')), 'hex'), 32), 'enqueue_candidate() returns the channel of the election') FROM c;
SELECT is(await_leadership('a', term), false, 'await_leadership() returns false while the place waits') FROM c;
SELECT is(is_leader('a', term), false, 'a waiting candidate does not lead') FROM c;
SELECT is(proclaim('a', term, 'too early'), false, 'a waiting candidate cannot proclaim') FROM c;
SELECT throws_ok(format($$SELECT renew_leadership('a', %s)$$, term), '55000', format('term %s is still in the queue of "a"', term), 'a waiting candidate cannot renew') FROM c;
SELECT throws_ok(format($$SELECT fence_leader('a', %s)$$, term), '55000', NULL, 'a waiting candidate cannot fence') FROM c;
SELECT is((election, e.term, owner, role, waiting, pid)::text, ('a', t.term, 'me', current_user, 1, pg_backend_pid())::text, 'the view elections shows leader, owner, role and number of candidates')
FROM lock_election.elections e, t;
-- { C edition: the view tells the fences
SELECT is(fenced_by, ARRAY[pg_backend_pid()], 'the view elections shows the fence') FROM lock_election.elections;
-- }
SELECT is((SELECT kind || ' ' || queue_position FROM lock_election.waiters), 'election 1', 'the view waiters shows the candidate');
SELECT is((elected, queue_position)::text, '(t,0)', 'enqueue_candidate() is elected immediately in a free election') FROM enqueue_candidate('b', 'node 3');

-- --- bound to the connection ---

-- { C edition: bound to the connection
SELECT is(campaign('bound', 'node 1', NULL) > 0, true, 'a campaign with ttl => NULL is elected');
SELECT is(valid_for, NULL, 'valid_for is null with ttl => NULL') FROM current_leader('bound');
SELECT is(renew_leadership('bound', term), '24 days', 'renew_leadership() returns the maximum with ttl => NULL') FROM current_leader('bound');
SELECT throws_ok($$SELECT campaign('bound', 'node 1', '1 min')$$, '22023', 'election "bound" has another kind of lease');
-- }

-- --- other roles ---

CREATE ROLE le_other;
GRANT USAGE ON SCHEMA public TO le_other;
GRANT SELECT ON t, c TO le_other;
SET ROLE le_other;
SELECT is(c.term, t.term, 'every role sees the leader') FROM current_leader('a') c, t;
SELECT is((e.candidate IS NOT NULL, e.term = t.term, e.elected_at IS NOT NULL, e.valid_for IS NOT NULL, e.owner, e.pid, e.fenced_by)::text, '(t,t,t,t,,,{})',
	'every role sees the leader in the view, but not owner and connection') FROM lock_election.elections e, t WHERE election = 'a';
SELECT is(token, NULL, 'the view locks hides the token from another role') FROM lock_election.locks WHERE kind = 'election' AND name = 'a';
SELECT is(is_leader('a', term), true, 'every role can call is_leader()') FROM t;
SELECT throws_ok(format($$SELECT %s$$, call), '42501', NULL, 'another role cannot call ' || call)
FROM t, LATERAL (VALUES (format($$proclaim('a', %s, 'mine')$$, term)), (format($$renew_leadership('a', %s)$$, term)), (format($$resign('a', %s)$$, term)),
	($$force_resign('a')$$), ($$evict_leader('a')$$)) AS calls (call);
SELECT throws_ok(format($$SELECT await_leadership('a', %s)$$, term), '42501', format('election "a" is held by another role'), 'another role cannot wait for the place') FROM c;
SELECT throws_ok(format($$SELECT resign('a', %s)$$, term), '42501', NULL, 'another role cannot release the place') FROM c;
SELECT is(campaign('a', 'me, too', wait => '0', owner => 'me'), NULL, 'the same owner name of another role is another owner');
RESET ROLE;
SELECT is(candidate, repeat('ä', 2048), 'the calls of the other role have changed nothing') FROM current_leader('a');

-- --- guards ---

CREATE TEMP TABLE guarded (v int);
CREATE TRIGGER g BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION fence_guard('a', 'election');
SELECT lives_ok('INSERT INTO guarded VALUES (1)', 'the guard of an election accepts a fence of its leader');
DROP TRIGGER g ON guarded;
CREATE TRIGGER g BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION fence_guard('a', 'lock');
SELECT throws_ok('INSERT INTO guarded VALUES (1)', '55000', 'cannot write to table "guarded": this transaction has not fenced lock "a"', 'the guard of a lock rejects the fence of an election');
DROP TRIGGER g ON guarded;
CREATE TRIGGER g BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION fence_guard('b', 'election');
SELECT throws_ok('INSERT INTO guarded VALUES (1)', '55000', 'cannot write to table "guarded": this transaction has not fenced election "b"', 'the guard of another election rejects the fence');
DROP TRIGGER g ON guarded;
CREATE TRIGGER g BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION fence_guard('a', 'elections');
SELECT throws_ok('INSERT INTO guarded VALUES (1)', '22023', NULL, 'fence_guard() rejects an unknown kind');

-- --- the end of a term ---

SELECT is(resign('a', term), true, 'resign() returns true') FROM t;
SELECT is(resign('a', term), false, 'a second resign() returns false') FROM t;
-- { C edition: at the end of the transaction
SELECT is(is_leader('a', term), true, 'the term ends only at the end of the transaction') FROM t;
SELECT is(campaign('a', 'back again', owner => 'me'), term, 'a campaign in the same transaction undoes the resign') FROM t;
SELECT is(resign('a', term), true, 'the term can be resigned again') FROM t;
-- }
SELECT is(resign('a', term), true, 'a waiting candidate can be released') FROM c;

COMMIT;

BEGIN;
SELECT is_empty($$SELECT * FROM current_leader('a')$$, 'the election has no leader after the commit');
SELECT is(is_leader('a', term) OR proclaim('a', term, 'late') OR resign('a', term), false, 'the resigned term is past') FROM t;
SELECT throws_ok(format($$SELECT await_leadership('a', %s)$$, term), 'LE001', NULL, 'the released place is past') FROM c;
SELECT is(is_held('a', token), true, 'the lock of the same name is still held') FROM t;
SELECT is(bool_and(force_resign(election) = 1), true, 'force_resign() ends the other terms') FROM lock_election.elections;
SELECT is(force_release_lock('a'), 1::bigint, 'force_release_lock() ends the lock');
DROP OWNED BY le_other;
DROP ROLE le_other;
SELECT * FROM finish();
COMMIT;
