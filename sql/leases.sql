-- Arguments that the functions for leases and permits accept and reject, and their results in one session. Numbers of
-- leases and tokens differ from run to run, so the output never contains them.
\set VERBOSITY default
\set SHOW_CONTEXT never
SET timezone = 'UTC';

-- Returns "state: message | detail | hint: hint" of the error that a statement raises, or its value. Masks the lease.
CREATE FUNCTION outcome_of(statement text, lease bigint DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
	detail text;
	hint text;
BEGIN
	EXECUTE statement INTO result;
	RETURN coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	IF SQLSTATE = '42883' THEN -- raised by PostgreSQL, with texts that differ between versions
		detail := NULL;
		hint := NULL;
	END IF;
	detail := regexp_replace(detail, '^It .* \d+\.\d s ago.*', ''); -- differs from run to run
	RETURN SQLSTATE || ': ' || coalesce(replace(SQLERRM, lease::text, '<lease>'), SQLERRM) || coalesce(' | ' || nullif(detail, ''), '') || coalesce(' | hint: ' || nullif(hint, ''), '');
END $$;

-- --- a lease: arguments ---

SELECT a, outcome_of(format('SELECT grant_lease(%s)', a))
FROM unnest(ARRAY['NULL', '''0''', '''99.999 ms''', '''-1 s''', '''24 days 00:00:00.000001''', '''-178000000 years''']) AS a;
SELECT a, outcome_of(format('SELECT grant_lease(owner => %s)', a))
FROM unnest(ARRAY['''''', 'repeat(''o'', 256)']) AS a;
SELECT f, a, outcome_of(format('SELECT %s(%s)', f, a))
FROM unnest(ARRAY['keep_alive', 'revoke_lease', 'lease_time_to_live', 'lease_holds']) AS f,
	unnest(ARRAY['NULL', '0', '-1', '1', '9223372036854775807', '-9223372036854775808']) AS a
ORDER BY f COLLATE "C", a COLLATE "C";

-- an unknown lease: all functions that take a lease raise the same error
SELECT f, a, outcome_of(format('SELECT ' || f, a))
FROM unnest(ARRAY['acquire_lock(''x'', lease => %s)', 'try_acquire_lock(''x'', lease => %s)',
	'acquire_permit(''x'', 1, lease => %s)']) AS f,
	unnest(ARRAY['0', '-1', '1', '9223372036854775807', '-9223372036854775808']) AS a
ORDER BY f COLLATE "C", a COLLATE "C";
-- the token of a lock is not the number of a lease
SELECT acquire_lock('x') AS t \gset
SELECT keep_alive(:t), revoke_lease(:t), lease_time_to_live(:t);
SELECT outcome_of(format('SELECT acquire_lock(''y'', lease => %s)', :t), :t);
SELECT release_lock('x', :t);
SELECT count(*) FROM lock_election.locks;

-- --- a lease: its life ---

SELECT grant_lease() AS l \gset
SELECT lease = :l AS lease, owner, role = current_user::regrole AS role, ttl, time_left BETWEEN '50 s' AND '1 min' AS time_left,
	locks, waiting FROM lock_election.leases;
SELECT keep_alive(:l), lease_time_to_live(:l) BETWEEN '50 s' AND '1 min' AS time_left;
SELECT revoke_lease(:l);
SELECT revoke_lease(:l), keep_alive(:l), lease_time_to_live(:l);
SELECT outcome_of(format('SELECT acquire_lock(''x'', lease => %s)', :l), :l);
SELECT outcome_of(format('SELECT lease_holds(%s)', :l), :l);
SELECT count(*) FROM lock_election.leases;
SELECT grant_lease(ttl => '24 days', owner => repeat('o', 255)) AS l \gset
SELECT ttl, octet_length(owner) FROM lock_election.leases;
SELECT keep_alive(lease => :l), revoke_lease(lease => :l), lease_time_to_live(lease => :l);
SELECT revoke_lease(grant_lease('100 ms')) IS NOT NULL AS shortest;

-- { C edition: leases are granted and revoked at once
-- a rollback does not undo a grant or a revocation of a lease
BEGIN;
SELECT grant_lease('1 h') AS l \gset
SELECT grant_lease('1 h') AS l2 \gset
SELECT revoke_lease(:l2);
ROLLBACK;
SELECT keep_alive(:l), keep_alive(:l2);
SELECT revoke_lease(:l);
-- }
SELECT grant_lease('1 h') AS l \gset

-- --- locks on a lease ---

SELECT acquire_lock('x', ttl => '1 s', lease => :l) AS t \gset
SELECT acquire_lock('y', ttl => NULL, mode => 'shared', owner => 'o', lease => :l) AS t2 \gset
SELECT name, mode, owner, lease = :l AS lease, holds, time_left > '59 min' AS time_left FROM lock_election.locks ORDER BY name;
SELECT locks FROM lock_election.leases WHERE lease = :l;
-- a repeated acquire on the same lease returns the same token, and adds no hold
SELECT acquire_lock('x', lease => :l) = :t AS same, try_acquire_lock('x', mode => 'shared', lease => :l) = :t AS same;
SELECT acquire_lock('y', mode => 'shared', owner => 'o', lease => :l) = :t2 AS same;
SELECT name, holds FROM lock_election.locks ORDER BY name;
SELECT outcome_of(format('SELECT acquire_lock(''y'', owner => ''o'', lease => %s)', :l));
-- acquires on the same lease re-enter a lock only if they also have the same owner
SELECT try_acquire_lock('y', lease => :l) IS NULL AS without_owner, try_acquire_lock('x', owner => 'o', lease => :l) IS NULL AS with_owner;
SELECT outcome_of('SELECT acquire_lock(''y'', mode => ''shared'', owner => ''o'')');
SELECT try_acquire_lock('x') IS NULL AS without_lease;
-- renew_lock renews the lease of the lock; a lock on a lease has no ttl, so none can be passed
SELECT renew_lock('x', :t);
SELECT outcome_of(format('SELECT renew_lock(''x'', %s, ''1 h'')', :t));
-- { C edition: a release takes effect at the end of its statement
SELECT is_held('x', :t), release_lock('x', :t), is_held('x', :t), is_held('y', :t2);
-- }
SELECT release_lock('x', :t) IS NOT NULL AS released;
SELECT release_lock('y', :t2, all_holds => true);
SELECT count(*) FROM lock_election.locks;
SELECT revoke_lease(:l);

-- --- permits: arguments ---

SELECT f, a, outcome_of(format('SELECT ' || f, a))
FROM unnest(ARRAY['acquire_permit(''p'', %s)', 'set_permits(''p'', %s)']) AS f,
	unnest(ARRAY['NULL', '0', '-1', '-2147483648', '2147483648']) AS a
ORDER BY f COLLATE "C", a COLLATE "C";
SELECT f, a, outcome_of(format('SELECT ' || f, a))
FROM unnest(ARRAY['acquire_permit(%s, 1)', 'set_permits(%s, 1)']) AS f,
	unnest(ARRAY['NULL', '''''', 'repeat(''n'', 256)']) AS a
ORDER BY f COLLATE "C", a COLLATE "C";
SELECT a, outcome_of(format('SELECT acquire_permit(''p'', 1, %s)', a))
FROM unnest(ARRAY['ttl => ''0''', 'ttl => ''25 days''', 'wait => ''-1 s''', 'owner => ''''']) AS a;

-- --- permits ---

SELECT set_permits('p', 3) AS not_in_use;
SELECT acquire_permit(name => 'p', permits => 2, ttl => '1 min', wait => '0', owner => NULL, lease => NULL) AS p \gset
SELECT acquire_permit('p', 2, owner => 'o') AS p2 \gset
SELECT mode, owner, holds FROM lock_election.locks ORDER BY token;
-- each permit counts, even if a named owner already has one
SELECT acquire_permit('p', 2, wait => '0', owner => 'o') AS full;
-- a name has either a lock or permits, and all users must pass the same number of permits
SELECT outcome_of('SELECT acquire_permit(''p'', 3)'), outcome_of('SELECT acquire_permit(''p'', 1, wait => ''0'')');
SELECT outcome_of('SELECT acquire_lock(''p'')'), outcome_of('SELECT try_acquire_lock(''p'', mode => ''shared'')');
SELECT acquire_lock('q') AS q \gset
SELECT outcome_of('SELECT acquire_permit(''q'', 1)'), outcome_of('SELECT set_permits(''q'', 1)');
SELECT release_lock('q');
SELECT acquire_permit('q', 2147483647) AS q \gset
SELECT set_permits('q', 1), release_lock('q');
-- permits are renewed and released like locks
SELECT renew_lock('p', :p), renew_lock('p', :p, '2 min'), is_held('p', :p);
-- { C edition: a release takes effect at the end of its statement; permits that are bound to the connection
SELECT release_lock('p', :p), release_lock('p', :p), is_held('p', :p), is_held('p', :p2);
SELECT acquire_permit('p', 2, ttl => NULL) AS p \gset
SELECT set_permits('p', 5), set_permits('p', 1);
SELECT outcome_of('SELECT acquire_permit(''p'', 5)');
SELECT acquire_permit('p', 1, wait => '0') AS fewer;
SELECT release_lock('p'), acquire_permit('p', 1, wait => '0') AS still_held;
SELECT force_release_lock('p');
SELECT outcome_of('SELECT acquire_permit(''p'', 7) IS NOT NULL') AS unused, release_lock('p');
-- }
SELECT force_release_lock('p') IS NOT NULL AS forced;

-- on a lease, each acquire of a permit gets another permit
SELECT grant_lease() AS l \gset
SELECT acquire_permit('p', 2, lease => :l) AS p \gset
SELECT acquire_permit('p', 2, lease => :l) <> :p AS another;
SELECT locks FROM lock_election.leases WHERE lease = :l;
SELECT outcome_of(format('SELECT renew_lock(''p'', %s, ''1 s'')', :p));
SELECT revoke_lease(:l);
SELECT count(*) FROM lock_election.locks;

-- a rollback undoes the acquire of a permit
BEGIN;
SELECT acquire_permit('p', 2) AS p \gset
SAVEPOINT s;
SELECT acquire_permit('p', 2) <> :p AS another;
ROLLBACK TO s;
SELECT count(*) FROM lock_election.locks;
ROLLBACK;
SELECT count(*) FROM lock_election.locks;
-- { C edition: read-only transactions; tables that only the manager writes
BEGIN READ ONLY;
SELECT grant_lease() AS l \gset
SELECT acquire_permit('p', 2, lease => :l) IS NOT NULL AS acquired, set_permits('p', 3);
SELECT keep_alive(:l), revoke_lease(:l);
COMMIT;

-- --- only the manager may write the table ---

INSERT INTO _lock_election.lease VALUES (1, 1, 1, 'infinity', 10);
UPDATE _lock_election.lease SET ttl = 1;
DELETE FROM _lock_election.lease;
TRUNCATE _lock_election.lease;
-- }

-- --- other roles ---

CREATE ROLE regress_le_holder;
CREATE ROLE regress_le_other;
CREATE ROLE regress_le_member IN ROLE regress_le_holder;
CREATE ROLE regress_le_both IN ROLE regress_le_holder, regress_le_other;
CREATE ROLE regress_le_stats IN ROLE pg_read_all_stats;
CREATE ROLE regress_le_signal IN ROLE pg_signal_backend;

SET ROLE regress_le_holder;
SELECT grant_lease('1 h', owner => 'secret') AS l \gset
SELECT acquire_permit('p', 2, lease => :l) AS p \gset
SET ROLE regress_le_other;
SELECT f, outcome_of(format('SELECT ' || f, :l), :l)
FROM unnest(ARRAY['keep_alive(%s)', 'revoke_lease(%s)', 'lease_time_to_live(%s)', 'lease_holds(%s)', 'acquire_lock(''x'', lease => %s)',
	'try_acquire_lock(''x'', lease => %s)', 'acquire_permit(''p'', 2, lease => %s)']) AS f
ORDER BY f COLLATE "C";
SELECT outcome_of(format('SELECT release_lock(''p'', %s)', :p)), outcome_of(format('SELECT renew_lock(''p'', %s)', :p));
SELECT lease, owner, role, ttl FROM lock_election.leases;
SELECT count(*) FROM _lock_election.lease;
SELECT outcome_of('SELECT set_permits(''p'', 3)');
SELECT acquire_permit('p', 2) IS NOT NULL AS acquired;
SET ROLE regress_le_stats;
SELECT lease = :l AS lease, owner, role, locks FROM lock_election.leases;
-- a member of only one of the holders' roles may not change the permits
SET ROLE regress_le_member;
SELECT outcome_of('SELECT set_permits(''p'', 3)');
SET ROLE regress_le_both;
SELECT set_permits('p', 3);
SET ROLE regress_le_signal;
SELECT set_permits('p', 4);
RESET ROLE;
SELECT set_permits('p', 5);
SELECT force_release_lock('p');
SET ROLE regress_le_holder;
SELECT revoke_lease(:l);
RESET ROLE;
DROP ROLE regress_le_member, regress_le_both, regress_le_holder, regress_le_other, regress_le_stats, regress_le_signal;
SELECT (SELECT count(*) FROM lock_election.locks) AS locks, (SELECT count(*) FROM lock_election.waiters) AS waiters;
DROP FUNCTION outcome_of;
