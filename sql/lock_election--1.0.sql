-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION lock_election" to load this file. \quit

DO $$
DECLARE
	library pg_catalog.text := pg_catalog.current_setting('lock_election.version', true);
BEGIN
	IF library IS NULL THEN
		RAISE WARNING 'lock_election is not in shared_preload_libraries'
			USING HINT = 'Add this line to postgresql.conf and restart the server: shared_preload_libraries = ''lock_election''';
	ELSIF pg_catalog.string_to_array(library, '.')::pg_catalog.int4[]
		OPERATOR(pg_catalog.<) '{1,0}'::pg_catalog.int4[] THEN
		RAISE EXCEPTION 'the server still runs version % of the lock_election library, and this script is of version 1.0', library
			USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Restart the server, then try again.';
	END IF;
END
$$;

-- The tables have a separate schema, so that psql completes "lock_election." only
-- to views.
-- pg_dump reads two of the tables, even if it is run by the owner of the database,
-- who is not a superuser.
CREATE SCHEMA lock_election;
GRANT USAGE ON SCHEMA lock_election TO PUBLIC;
CREATE SCHEMA _lock_election;
GRANT USAGE ON SCHEMA _lock_election TO pg_database_owner;

-- --- tables: the durable state, written only by the manager ---

CREATE FUNCTION lock_election.refuse_write() RETURNS pg_catalog.trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'le_refuse_write';
REVOKE ALL ON FUNCTION lock_election.refuse_write() FROM PUBLIC;

-- One row per slot of a lock.  The manager finds a row by its location, without a
-- search.  The key makes PostgreSQL check that no slot has two holders.  A row that
-- has been idle for a while is reused for the next lock, whatever its name.
-- Durations are in microseconds.
-- mode: 0 = idle.
-- ttl: -1 = the hold ends with its session.
-- time_left: time left of the holder's own lease, at the end of the life in which
-- the row was written; < 0 = ended, but still fenced.
-- life: the run of the manager that wrote the row; its number is the recorded time
-- of all earlier runs, in milliseconds.
-- expires_at: the deadline when the row was written (renewals do not write it);
-- infinity = ends with its session; NULL = idle, or on a lease, whose row has the
-- deadline.
-- uncommitted: holds of transactions that were open when the row was written,
-- each as session, xact and subxact (8, 4 and 4 bytes).
-- acquirer: process, address and application that acquired it, for information.
-- The texts are added as PLAIN so that there is no TOAST table.
CREATE TABLE _lock_election.slot (
	token bigint NOT NULL,
	acquired_at pg_catalog.timestamptz NOT NULL,
	ttl bigint NOT NULL,
	time_left bigint NOT NULL,
	lease bigint NOT NULL,
	session bigint NOT NULL,
	role pg_catalog.oid NOT NULL,
	slot integer NOT NULL,
	holds integer NOT NULL,
	permits integer NOT NULL,
	life integer NOT NULL DEFAULT 0,
	kind smallint NOT NULL,
	mode smallint NOT NULL,
	expires_at pg_catalog.timestamptz,
	closed_until pg_catalog.timestamptz
) USING heap WITH (fillfactor = 50, vacuum_truncate = off);
ALTER TABLE _lock_election.slot
	ADD COLUMN name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	ADD COLUMN owner pg_catalog.text COLLATE pg_catalog."C",
	ADD COLUMN value pg_catalog.text COLLATE pg_catalog."C",
	ADD COLUMN uncommitted pg_catalog.bytea,
	ADD COLUMN acquirer pg_catalog.text COLLATE pg_catalog."C",
	ADD COLUMN evicted boolean NOT NULL DEFAULT false,
	ALTER COLUMN name SET STORAGE PLAIN,
	ALTER COLUMN owner SET STORAGE PLAIN,
	ALTER COLUMN value SET STORAGE PLAIN,
	ALTER COLUMN uncommitted SET STORAGE PLAIN,
	ALTER COLUMN acquirer SET STORAGE PLAIN,
	ADD CONSTRAINT slot_key UNIQUE (kind, name, slot);

-- One row per named lease.
CREATE TABLE _lock_election.lease (
	id bigint NOT NULL CONSTRAINT lease_key PRIMARY KEY,
	ttl bigint NOT NULL,
	time_left bigint NOT NULL,
	expires_at pg_catalog.timestamptz NOT NULL,
	role pg_catalog.oid NOT NULL,
	life integer NOT NULL DEFAULT 0
) USING heap WITH (fillfactor = 50, vacuum_truncate = off);
ALTER TABLE _lock_election.lease
	ADD COLUMN owner pg_catalog.text COLLATE pg_catalog."C",
	ALTER COLUMN owner SET STORAGE PLAIN;

-- One row per queue place, until it is granted or ends.
CREATE TABLE _lock_election.queue (
	token bigint NOT NULL,
	entered_at pg_catalog.timestamptz NOT NULL,
	ttl bigint NOT NULL,
	time_left bigint NOT NULL,
	lease bigint NOT NULL,
	session bigint NOT NULL,
	role pg_catalog.oid NOT NULL,
	permits integer NOT NULL,
	holds integer NOT NULL,
	life integer NOT NULL DEFAULT 0,
	member smallint NOT NULL, -- position of this name among several, from 1; 0 = one name
	kind smallint NOT NULL,
	mode smallint NOT NULL
) USING heap WITH (vacuum_truncate = off);
ALTER TABLE _lock_election.queue
	ADD COLUMN name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	ADD COLUMN owner pg_catalog.text COLLATE pg_catalog."C",
	ADD COLUMN value pg_catalog.text COLLATE pg_catalog."C",
	ADD COLUMN uncommitted pg_catalog.bytea,
	ADD COLUMN acquirer pg_catalog.text COLLATE pg_catalog."C",
	ALTER COLUMN name SET STORAGE PLAIN,
	ALTER COLUMN owner SET STORAGE PLAIN,
	ALTER COLUMN value SET STORAGE PLAIN,
	ALTER COLUMN uncommitted SET STORAGE PLAIN,
	ALTER COLUMN acquirer SET STORAGE PLAIN,
	ADD CONSTRAINT queue_key UNIQUE (token, member);

-- One row per change of an election, never changed, and deleted when it is old.
-- how: 1 elected, 2 proclaimed; ends of a term: 3 resigned, 4 expired,
-- 5 revoked, 6 forced, 7 undone, 8 disconnected, 9 evicted.
CREATE TABLE _lock_election.history (
	change bigint NOT NULL,
	term bigint NOT NULL,
	elected_at pg_catalog.timestamptz NOT NULL,
	at pg_catalog.timestamptz NOT NULL,
	role pg_catalog.oid NOT NULL,
	how smallint NOT NULL
) USING heap WITH (vacuum_truncate = off);
ALTER TABLE _lock_election.history
	ADD COLUMN election pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	ADD COLUMN candidate pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	ALTER COLUMN election SET STORAGE PLAIN,
	ALTER COLUMN candidate SET STORAGE PLAIN;
CREATE UNIQUE INDEX history_key ON _lock_election.history (election, change);

CREATE TABLE _lock_election.meta (
	database pg_catalog.oid NOT NULL,
	incarnation bigint NOT NULL,
	taken_at pg_catalog.timestamptz NOT NULL,
	timeline bigint NOT NULL,
	boot bigint NOT NULL,
	life bigint NOT NULL,
	uptime bigint NOT NULL
) USING heap WITH (vacuum_truncate = off);
ALTER TABLE _lock_election.meta
	ADD COLUMN lives pg_catalog.bytea NOT NULL,
	ALTER COLUMN lives SET STORAGE PLAIN;

-- pg_dump includes the incarnation, so that tokens continue to grow after a
-- restore.
CREATE TABLE _lock_election.incarnation_floor (incarnation bigint NOT NULL) USING heap;
CREATE FUNCTION lock_election.floor_written() RETURNS pg_catalog.trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'le_floor_written';
REVOKE ALL ON FUNCTION lock_election.floor_written() FROM PUBLIC;
CREATE TRIGGER floor_written AFTER INSERT OR UPDATE ON _lock_election.incarnation_floor
	FOR EACH STATEMENT EXECUTE FUNCTION lock_election.floor_written();
ALTER TABLE _lock_election.incarnation_floor ENABLE ALWAYS TRIGGER floor_written;
SELECT pg_catalog.pg_extension_config_dump('_lock_election.incarnation_floor', '');

REVOKE ALL ON _lock_election.slot, _lock_election.lease, _lock_election.queue, _lock_election.history, _lock_election.meta,
	_lock_election.incarnation_floor FROM PUBLIC;

-- Two triggers per table, because the apply worker of a subscription fires only
-- row triggers.
CREATE TRIGGER refuse_write BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON _lock_election.slot
	FOR EACH STATEMENT EXECUTE FUNCTION lock_election.refuse_write();
CREATE TRIGGER refuse_row BEFORE INSERT OR UPDATE OR DELETE ON _lock_election.slot
	FOR EACH ROW EXECUTE FUNCTION lock_election.refuse_write();
CREATE TRIGGER refuse_write BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON _lock_election.meta
	FOR EACH STATEMENT EXECUTE FUNCTION lock_election.refuse_write();
CREATE TRIGGER refuse_row BEFORE INSERT OR UPDATE OR DELETE ON _lock_election.meta
	FOR EACH ROW EXECUTE FUNCTION lock_election.refuse_write();
CREATE TRIGGER refuse_write BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON _lock_election.lease
	FOR EACH STATEMENT EXECUTE FUNCTION lock_election.refuse_write();
CREATE TRIGGER refuse_row BEFORE INSERT OR UPDATE OR DELETE ON _lock_election.lease
	FOR EACH ROW EXECUTE FUNCTION lock_election.refuse_write();
CREATE TRIGGER refuse_write BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON _lock_election.queue
	FOR EACH STATEMENT EXECUTE FUNCTION lock_election.refuse_write();
CREATE TRIGGER refuse_row BEFORE INSERT OR UPDATE OR DELETE ON _lock_election.queue
	FOR EACH ROW EXECUTE FUNCTION lock_election.refuse_write();
CREATE TRIGGER refuse_write BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON _lock_election.history
	FOR EACH STATEMENT EXECUTE FUNCTION lock_election.refuse_write();
CREATE TRIGGER refuse_row BEFORE INSERT OR UPDATE OR DELETE ON _lock_election.history
	FOR EACH ROW EXECUTE FUNCTION lock_election.refuse_write();
ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_write;
ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_row;
ALTER TABLE _lock_election.queue ENABLE ALWAYS TRIGGER refuse_write;
ALTER TABLE _lock_election.queue ENABLE ALWAYS TRIGGER refuse_row;

-- A publication FOR ALL TABLES includes these tables.  Without a replica identity,
-- a subscriber could apply neither their updates nor any later changes.  With all
-- columns as the identity, a subscriber searches the whole table for each change.
ALTER TABLE _lock_election.slot REPLICA IDENTITY USING INDEX slot_key;
ALTER TABLE _lock_election.history REPLICA IDENTITY USING INDEX history_key;
ALTER TABLE _lock_election.lease REPLICA IDENTITY USING INDEX lease_key;
ALTER TABLE _lock_election.queue REPLICA IDENTITY USING INDEX queue_key;
ALTER TABLE _lock_election.meta REPLICA IDENTITY FULL;
ALTER TABLE _lock_election.incarnation_floor REPLICA IDENTITY FULL;

ALTER TABLE _lock_election.lease ENABLE ALWAYS TRIGGER refuse_write;
ALTER TABLE _lock_election.lease ENABLE ALWAYS TRIGGER refuse_row;
ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write;
ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row;
ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_write;
ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_row;

-- --- locks ---

CREATE FUNCTION @extschema@.acquire_lock(
	name pg_catalog.text,
	ttl interval DEFAULT '30 s',
	wait interval DEFAULT NULL,
	mode pg_catalog.text DEFAULT 'exclusive',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_acquire_lock';
COMMENT ON FUNCTION @extschema@.acquire_lock(pg_catalog.text, interval, interval, pg_catalog.text, pg_catalog.text,
	bigint) IS
'Acquires a lock. Returns its token, or NULL if the lock was not granted within "wait" (NULL: no limit, ''0'': do not wait). The lock is held until its release, or expires "ttl" after the last renewal. With ttl => NULL it ends with this connection, with "lease" it ends with the lease. If the same owner (or, without an owner, the same lease) acquires the lock again, it gets the same token. A rollback undoes the acquire. Errors: 55P03 if lock_timeout expires; LE001 if the request ended while it waited; 53400 if the limit lock_election.max_waiters_per_lock or max_locks_per_role is reached.';

CREATE FUNCTION @extschema@.try_acquire_lock(
	name pg_catalog.text,
	ttl interval DEFAULT '30 s',
	mode pg_catalog.text DEFAULT 'exclusive',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_try_acquire_lock';
COMMENT ON FUNCTION @extschema@.try_acquire_lock(pg_catalog.text, interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Acquires a lock without waiting, like acquire_lock with wait => ''0''. Returns the token, or NULL if others hold the lock or wait for it.';

CREATE FUNCTION @extschema@.acquire_locks(
	names pg_catalog.text[],
	ttl interval DEFAULT '30 s',
	wait interval DEFAULT NULL,
	mode pg_catalog.text DEFAULT 'exclusive',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_acquire_locks';
COMMENT ON FUNCTION @extschema@.acquire_locks(pg_catalog.text[], interval, interval, pg_catalog.text,
	pg_catalog.text, bigint) IS
'Acquires several locks, all or none; otherwise works like acquire_lock. Returns one token for all of them, or NULL if they were not granted within "wait". The request enters all queues at the same moment, and no later request overtakes it, so it causes no deadlock, whatever the order of names. Renewing one lock renews all. At most 1000 names. Errors: 22023 also for a repeated name, or if the owner already holds only some of the names; otherwise as acquire_lock.';

CREATE FUNCTION @extschema@.release_locks(names pg_catalog.text[], token bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_release_locks';
COMMENT ON FUNCTION @extschema@.release_locks(pg_catalog.text[], bigint) IS
'Releases, like release_lock, those of the given locks that the token holds. Returns whether the token held all of them.';

CREATE FUNCTION @extschema@.try_acquire_each(
	names pg_catalog.text[],
	ttl interval DEFAULT '30 s',
	mode pg_catalog.text DEFAULT 'exclusive',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL)
RETURNS TABLE (name pg_catalog.text, token bigint) LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100
AS 'MODULE_PATHNAME', 'le_try_acquire_each';
COMMENT ON FUNCTION @extschema@.try_acquire_each(pg_catalog.text[], interval, pg_catalog.text, pg_catalog.text,
	bigint) IS
'Calls try_acquire_lock for each of the names, in one request. Returns one row per name, in the given order, with its token, or NULL if the lock was not granted. Each lock has its own TTL; on a "lease", one keep_alive renews all. At most 1000 names. After an error, no lock is acquired. A rollback undoes all acquires. Errors: 22023 also for a repeated name; otherwise as acquire_lock.';

CREATE FUNCTION @extschema@.release_each(names pg_catalog.text[], tokens bigint[])
RETURNS TABLE (name pg_catalog.text, released boolean) LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100
AS 'MODULE_PATHNAME', 'le_release_each';
COMMENT ON FUNCTION @extschema@.release_each(pg_catalog.text[], bigint[]) IS
'Calls release_lock for each of the names, with the token at the same position in "tokens", in one request. Returns one row per name, in the given order: true if the lock was released, or false if that token does not hold it or is NULL. At most 1000 names. The releases take effect as with release_lock; SELECT * FROM release_each(...) also counts as a statement of its own. Errors: 22023 also for a repeated name, or more or fewer tokens than names; 42501 for another role''s lock, and then no lock is released; otherwise as release_lock.';

CREATE FUNCTION @extschema@.renew_lock(name pg_catalog.text, token bigint, ttl interval DEFAULT NULL)
RETURNS interval LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_renew_lock';
COMMENT ON FUNCTION @extschema@.renew_lock(pg_catalog.text, bigint, interval) IS
'Restarts the TTL of a lock, with another length if "ttl" is given. Returns the time for which the lock is valid, counted from when the call was sent: the TTL; less if the lock would end earlier after a server crash (shortly after a restart, and while the tables cannot be written); 24 days for a lock that is bound to its connection. Returns NULL if the lock is lost or evicted. A replaced primary can return NULL while the new one still has the lock. Errors: 55000 for a token that is still queued.';

CREATE FUNCTION @extschema@.release_lock(name pg_catalog.text)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_release_lock';
COMMENT ON FUNCTION @extschema@.release_lock(pg_catalog.text) IS
'Releases the lock of this name that this connection acquired last. Returns true, or false if the connection holds no such lock. The release takes effect like a release by token. With a connection pool, release by token.';

CREATE FUNCTION @extschema@.release_lock(
	name pg_catalog.text,
	token bigint,
	hold_for interval DEFAULT NULL,
	all_holds boolean DEFAULT false)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_release_lock';
COMMENT ON FUNCTION @extschema@.release_lock(pg_catalog.text, bigint, interval, boolean) IS
'Releases a lock. Returns true, or false if this token does not hold the lock or is NULL.
- The release takes effect immediately if this call is a statement of its own, outside of transaction blocks and pipelines; otherwise at commit.
- A server crash within the next moments may bring the lock back until its TTL ends, unless the call waits for a flush. The call waits if the TTL exceeds 5 minutes, with "hold_for", with setting lock_election.durable_release, and with a synchronous standby.
- "hold_for", at most lock_election.max_hold_for, keeps the name closed for this time after the acquire. A closed name counts as a lock of the role.
- "all_holds" releases all holds of a named owner instead of one.
Errors: 53400 if open transactions have too many releases, see max_locks_per_transaction.';

CREATE FUNCTION @extschema@.is_held(name pg_catalog.text, token bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_is_held';
COMMENT ON FUNCTION @extschema@.is_held(pg_catalog.text, bigint) IS
'Returns whether this token holds the lock now. Only the result true waits for synchronous standbys, as synchronous_commit requires. A replaced primary can return false while the new one still has the lock.';

CREATE FUNCTION @extschema@.evict_lock(name pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_evict_lock';
COMMENT ON FUNCTION @extschema@.evict_lock(pg_catalog.text) IS
'Evicts the holders of a lock: none of them can be renewed any more. Returns the number of newly evicted holders.
- An evicted holder may continue to work, and keeps the lock, until it releases it or until "expires_at" in view locks.
- renew_lock returns NULL for an evicted holder, and await_lock raises LE001.
- keep_alive renews the lease of an evicted holder, but returns at most the time that is left to this holder.
- lease_holds does not list an evicted holder. New requests of an evicted holder wait like others.
- If one acquire_locks call with a TTL acquired several names, all are evicted, but only one is counted.
- An eviction survives crashes, like the lock.
Requires membership in the holder''s role or in pg_signal_backend. Each eviction is logged.
Errors: 55000 if a holder is bound to its connection. Then no holder is evicted; terminate the connection instead.';

CREATE FUNCTION @extschema@.force_release_lock(name pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_force_release_lock';
COMMENT ON FUNCTION @extschema@.force_release_lock(pg_catalog.text) IS
'Ends the holders of a lock immediately. Returns the number of ended holders. Until they notice, they may work at the same time as the next holder; use evict_lock if the next holder must wait until they stop. The call also opens a name that "hold_for" has closed. Requires membership in the holder''s role or in pg_signal_backend. The release is logged.';

CREATE FUNCTION @extschema@.force_release_role(role pg_catalog.regrole)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_force_release_role';
COMMENT ON FUNCTION @extschema@.force_release_role(pg_catalog.regrole) IS
'Ends all holds, waits, leases, leaderships and candidacies of a role in this database, and opens the names that it has closed. Returns the number of ended items.
- A lock that a transaction has fenced stays taken until the fence ends.
- To pass a dropped role, use its number from the views.
- First revoke the role''s right to connect.
Requires membership in the role or in pg_signal_backend. The call is logged.
Errors: 22023 if the argument is not a role.';

-- Not granted to PUBLIC: a call cannot be undone, and the numbers are finite.
CREATE FUNCTION @extschema@.advance_revision(min bigint)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_advance_revision';
COMMENT ON FUNCTION @extschema@.advance_revision(bigint) IS
'Raises the tokens of this database: every later request gets a token of at least "min". Queued requests keep their tokens. Returns the lowest token that the next request can get: "min", or more if this database had already passed "min". The change takes effect immediately, is durable when the function returns, and cannot be undone, not even by a rollback. Only superusers, and roles to which they grant EXECUTE, may call the function.
Use it if the database may have forgotten tokens, for example after a base backup was restored in place, or after pg_resetwal. The page on failover and restore lists all cases.';
REVOKE ALL ON FUNCTION @extschema@.advance_revision(bigint) FROM PUBLIC;

-- --- queue ---

CREATE FUNCTION @extschema@.enqueue_lock(
	name pg_catalog.text,
	ttl interval DEFAULT '30 s',
	mode pg_catalog.text DEFAULT 'exclusive',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL,
	OUT token bigint,
	OUT granted boolean,
	OUT queue_position bigint,
	OUT channel pg_catalog.text)
RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_enqueue_lock';
COMMENT ON FUNCTION @extschema@.enqueue_lock(pg_catalog.text, interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Enters the queue of a lock and returns immediately. Returns the token, whether the lock is already granted, the position in the queue (from 1) if it is not, and the channel on which the grant is announced (use LISTEN).
- The queue place expires "ttl" after this call or the last await_lock. With "lease" it lasts as long as the lease, and with ttl => NULL as long as this connection. After the grant, the lock lasts like a lock of acquire_lock.
- A rollback undoes the call.
- Every call takes a new place. But a repeated request (of the same owner, if it names one) on a named lease returns the same token, so that you can repeat a call whose reply was lost.
Errors: 53400 if the limit lock_election.max_waiters_per_lock or max_locks_per_role is reached; LE001 if the lease does not exist.';

CREATE FUNCTION @extschema@.enqueue_permit(
	name pg_catalog.text,
	permits integer,
	ttl interval DEFAULT '30 s',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL,
	OUT token bigint,
	OUT granted boolean,
	OUT queue_position bigint,
	OUT channel pg_catalog.text)
RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_enqueue_permit';
COMMENT ON FUNCTION @extschema@.enqueue_permit(pg_catalog.text, integer, interval, pg_catalog.text, bigint) IS
'Enters the queue for one of "permits" permits; otherwise works like enqueue_lock. Every call takes a new place, even on a named lease. Errors: 22023 also if the name is in use with another number of permits; otherwise as enqueue_lock.';

CREATE FUNCTION @extschema@.enqueue_locks(
	names pg_catalog.text[],
	ttl interval DEFAULT '30 s',
	mode pg_catalog.text DEFAULT 'exclusive',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL,
	OUT token bigint,
	OUT granted boolean,
	OUT queue_position bigint,
	OUT channel pg_catalog.text)
RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_enqueue_locks';
COMMENT ON FUNCTION @extschema@.enqueue_locks(pg_catalog.text[], interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Enters the queues of several locks under one token, like enqueue_lock for one lock. The locks are granted together when the request is first in every queue. No later request overtakes it, so a free lock may stay idle until then. "queue_position" is the position in the longest queue. The grant is announced once, on the "channel" of the first name. The token is for await_locks and release_locks. At most 1000 names. Errors: 22023 also for an empty array or a repeated name; otherwise as enqueue_lock.';

CREATE FUNCTION @extschema@.enqueue_each(
	names pg_catalog.text[],
	ttl interval DEFAULT '30 s',
	mode pg_catalog.text DEFAULT 'exclusive',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL)
RETURNS TABLE (name pg_catalog.text, token bigint, granted boolean, queue_position bigint, channel pg_catalog.text)
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100
AS 'MODULE_PATHNAME', 'le_enqueue_each';
COMMENT ON FUNCTION @extschema@.enqueue_each(pg_catalog.text[], interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Calls enqueue_lock for each of the names, in one request. Returns one queue place per name, in the given order. Each place has its own token for await_lock and release_lock. At most 1000 names. After an error, no place is taken. Errors: 22023 also for a repeated name; otherwise as enqueue_lock.';

CREATE FUNCTION @extschema@.await_lock(name pg_catalog.text, token bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_await_lock';
COMMENT ON FUNCTION @extschema@.await_lock(pg_catalog.text, bigint, interval) IS
'Returns whether this token of enqueue_lock is granted, after waiting for at most "wait" (NULL: no limit). Each call restarts the TTL of the queue place, or of the lock once it is granted. To leave the queue, call release_lock. Errors: LE001 if the token is neither held nor queued any more, or was evicted; 55P03 if lock_timeout expires.';

CREATE FUNCTION @extschema@.await_locks(names pg_catalog.text[], token bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_await_locks';
COMMENT ON FUNCTION @extschema@.await_locks(pg_catalog.text[], bigint, interval) IS
'Returns whether all of these locks are granted to this token of enqueue_locks, like await_lock for one lock. Errors: LE001 if one of the locks is neither held nor queued any more; otherwise as await_lock.';

-- --- fences ---

CREATE FUNCTION @extschema@.fence_lock(name pg_catalog.text, token bigint)
RETURNS pg_catalog.void LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_fence_lock';
COMMENT ON FUNCTION @extschema@.fence_lock(pg_catalog.text, bigint) IS
'Fences a lock: from this call to the end of the (sub)transaction, no other holder is granted the lock, whatever ends the current hold. Later writes of the transaction take effect before the next grant, or not at all. After the holder''s lease has ended, lock_election.fence_timeout limits the fence. Errors: LE001 if the token does not hold the lock; 53400 if open transactions have too many fences, see max_locks_per_transaction.';

CREATE FUNCTION @extschema@.fence_guard()
RETURNS pg_catalog.trigger LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_fence_guard';
COMMENT ON FUNCTION @extschema@.fence_guard() IS
'Rejects writes to a table by transactions that have not fenced a lock, or the leadership of an election. Use it in a trigger BEFORE INSERT, UPDATE, DELETE or TRUNCATE. The trigger''s argument is the name of the lock; for an election, the arguments are its name and ''election''. Errors: 55000 if the transaction has not fenced the lock or leader; 39P01 if the function was not called by a BEFORE trigger.';

-- --- permits ---

CREATE FUNCTION @extschema@.acquire_permit(
	name pg_catalog.text,
	permits integer,
	ttl interval DEFAULT '30 s',
	wait interval DEFAULT NULL,
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_acquire_permit';
COMMENT ON FUNCTION @extschema@.acquire_permit(pg_catalog.text, integer, interval, interval, pg_catalog.text, bigint) IS
'Acquires one of "permits" permits of this name; otherwise works like acquire_lock. Returns its token, or NULL if no permit was granted within "wait". All simultaneous users of the name must pass the same number of permits. A permit is renewed and released like a lock. Errors: 22023 also if the name is in use with another number of permits; otherwise as acquire_lock.';

CREATE FUNCTION @extschema@.set_permits(name pg_catalog.text, permits integer)
RETURNS integer LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_set_permits';
COMMENT ON FUNCTION @extschema@.set_permits(pg_catalog.text, integer) IS
'Changes the number of permits of a name that is in use. Returns the old number, or NULL if the name is not in use. A higher number grants permits to waiters immediately. A lower number takes effect as permits are released. Requires membership in the roles of all holders, or in pg_signal_backend. Errors: 40001 if other roles kept acquiring the name during the check.';

-- --- leases ---

CREATE FUNCTION @extschema@.grant_lease(
	ttl interval DEFAULT '60 s',
	owner pg_catalog.text DEFAULT NULL,
	wait interval DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_grant_lease';
COMMENT ON FUNCTION @extschema@.grant_lease(interval, pg_catalog.text, interval) IS
'Grants a lease and returns its number. Any number of locks and permits can be acquired on the lease (argument "lease"); they end with the lease. "wait" is for client libraries: the maximum time to wait until the lease is durable (NULL: no limit). Until then, lease_sync returns no validity. Errors: 53400 if the limit lock_election.max_leases_per_role is reached.';

CREATE FUNCTION @extschema@.keep_alive(lease bigint)
RETURNS interval LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_keep_alive';
COMMENT ON FUNCTION @extschema@.keep_alive(bigint) IS
'Restarts the TTL of a lease and of everything on it except evicted holders. Returns the time for which the lease is valid (see renew_lock), or NULL if the lease has ended. If a holder on the lease was evicted, the result is at most the time left to this holder.';

CREATE FUNCTION @extschema@.lease_sync(
	lease bigint,
	call bigint,
	seen_incarnation bigint DEFAULT NULL,
	seen_news bigint DEFAULT NULL,
	items pg_catalog.text[] DEFAULT NULL,
	wait interval DEFAULT '1 s')
RETURNS TABLE (
	item integer,
	event pg_catalog.text,
	kind pg_catalog.text,
	name pg_catalog.text,
	token bigint,
	queue_position bigint,
	owner pg_catalog.text,
	reason pg_catalog.text,
	sqlstate pg_catalog.text,
	message pg_catalog.text,
	detail pg_catalog.text,
	hint pg_catalog.text,
	validity interval,
	incarnation bigint,
	news bigint,
	complete boolean,
	channel pg_catalog.text)
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 3
AS 'MODULE_PATHNAME', 'le_lease_sync';
COMMENT ON FUNCTION @extschema@.lease_sync(bigint, bigint, bigint, bigint, pg_catalog.text[], interval) IS
'For client libraries: renews the lease, then carries out the releases among "items", then the other requests. Returns the result of each item, and all changes on the lease since the news that the client has seen. The reference page lease_sync has the details. Errors: 22023 for arguments that cannot be read; 25001 in a transaction block; 42501 for another role''s lease; any error that prevents the renewal of the lease. The error of a single item is returned as a row.';

CREATE FUNCTION @extschema@.revoke_lease(lease bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_revoke_lease';
COMMENT ON FUNCTION @extschema@.revoke_lease(bigint) IS
'Immediately ends the lease and everything on it, even in a transaction that rolls back. Returns true, or false if the lease had already ended.';

CREATE FUNCTION @extschema@.lease_time_to_live(lease bigint)
RETURNS interval LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_lease_time_to_live';
COMMENT ON FUNCTION @extschema@.lease_time_to_live(bigint) IS
'Returns the time that the lease has left, or NULL if it has ended.';

CREATE FUNCTION @extschema@.lease_holds(lease bigint)
RETURNS TABLE (kind pg_catalog.text, name pg_catalog.text, token bigint, granted boolean, queue_position bigint,
	channel pg_catalog.text, owner pg_catalog.text)
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100
AS 'MODULE_PATHNAME', 'le_lease_holds';
COMMENT ON FUNCTION @extschema@.lease_holds(bigint) IS
'Lists everything on a lease, with one row per name.
- "kind": lock (permits included) or election.
- "queue_position": 0 for a holder; for a queue place or candidacy, its position from 1.
- "token": the same for all names of one acquire_locks or enqueue_locks.
- "channel": where a grant to a place is announced; for several names, that of the first name.
- "owner": NULL if no owner was named.
The rows are as durable as the result of is_held. Each row was true at some moment during the call. Evicted holders are not listed, nor are locks and places that another connection may still roll back.
Errors: LE001 if the lease does not exist or has ended; 40001 if too many entries on the lease ended while it was read.';

-- --- optimistic versions ---

-- Data of the callers, one row per key, dumped and replicated like any table.
-- The role is stored as a name, because an OID may mean a different role after a
-- restore, and as an OID, which is not dumped, so that a new role with the name of
-- a dropped role does not get its keys.  The functions never remove a row, so that
-- no version is used twice.
CREATE FUNCTION lock_election.role_oid(role pg_catalog.name) RETURNS pg_catalog.oid
LANGUAGE C IMMUTABLE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_role_oid';
REVOKE ALL ON FUNCTION lock_election.role_oid(pg_catalog.name) FROM PUBLIC;
COMMENT ON FUNCTION lock_election.role_oid(pg_catalog.name) IS
'Returns the OID of a role, or 0 if there is none. Used by table versioned. The function is declared immutable so that a generated column can store the OID of the role that had this name when the row was written.';

CREATE TABLE _lock_election.versioned (
	version bigint NOT NULL,
	role pg_catalog.name NOT NULL,
	role_oid pg_catalog.oid GENERATED ALWAYS AS (lock_election.role_oid(role)) STORED
) USING heap WITH (fillfactor = 50);
ALTER TABLE _lock_election.versioned
	ADD COLUMN key pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	ADD COLUMN value pg_catalog.text COLLATE pg_catalog."C",
	ALTER COLUMN key SET STORAGE PLAIN,
	ALTER COLUMN value SET STORAGE PLAIN,
	ADD PRIMARY KEY (key);
CREATE INDEX versioned_role ON _lock_election.versioned (role_oid);
REVOKE ALL ON _lock_election.versioned FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('_lock_election.versioned', '');

GRANT SELECT ON _lock_election.versioned, _lock_election.incarnation_floor TO pg_database_owner;
COMMENT ON TABLE _lock_election.versioned IS
'The keys of compare_and_set() and read_versioned(). A key belongs to the role with this name, as long as it is the role that had the name when the row was written (role_oid). After a restore that ran before the role was created, run: UPDATE _lock_election.versioned SET role = role. Can be read by superusers and, for pg_dump, by the owner of the database.';

CREATE FUNCTION @extschema@.compare_and_set(key pg_catalog.text, expected_version bigint, value pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_compare_and_set';
COMMENT ON FUNCTION @extschema@.compare_and_set(pg_catalog.text, bigint, pg_catalog.text) IS
'Sets the value of a key if its version is still the expected one. Returns the new version, which is one higher, or NULL if the version differs.
- The expected version of a new key is 0.
- A value has up to 4096 bytes.
- The write is part of this transaction and follows its isolation level. The call waits for another transaction that is setting the key.
- A key is never removed. Set its value to NULL instead.
- A key belongs to the role that created it. Setting it requires membership in this role or in pg_write_all_data.
Errors: 53400 if a key grows beyond lock_election.max_keys_per_role; 40001 for a concurrent change under REPEATABLE READ or SERIALIZABLE; 25006 if the transaction or the server is read-only.';

CREATE FUNCTION @extschema@.read_versioned(key pg_catalog.text, OUT value pg_catalog.text, OUT version bigint)
RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_read_versioned';
COMMENT ON FUNCTION @extschema@.read_versioned(pg_catalog.text) IS
'Returns the value of a key and its version. If the key does not exist, the value is NULL and the version is 0. Requires membership in the role that created the key or in pg_read_all_data.';

CREATE FUNCTION @extschema@.version_guard()
RETURNS pg_catalog.trigger LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_version_guard';
COMMENT ON FUNCTION @extschema@.version_guard() IS
'Adds optimistic locking to a table. Use it in a trigger BEFORE UPDATE FOR EACH ROW. The trigger''s argument is the name of a smallint, integer or bigint column (default: version). An UPDATE must supply the current version of the row, and the trigger then increments it. Errors: 40001 if the UPDATE supplies another version; 22003, 22004, 39P01, 42703, 42804 or 428C9 if the trigger or its column does not fit.';

-- --- advisory locks ---

CREATE FUNCTION @extschema@.advisory_acquire(
	name pg_catalog.text,
	wait interval DEFAULT NULL,
	shared boolean DEFAULT false,
	scope pg_catalog.text DEFAULT 'session')
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_advisory_acquire';
COMMENT ON FUNCTION @extschema@.advisory_acquire(pg_catalog.text, interval, boolean, pg_catalog.text) IS
'Acquires an advisory lock of PostgreSQL by name. Returns true, or false if the lock was not granted within "wait".
- "wait": NULL or more than 24 days means no limit, ''0'' means do not wait.
- scope ''session'': the lock is held until it was released as often as it was acquired, or until the connection ends, independently of transactions.
- scope ''transaction'': the lock is held to the end of the (sub)transaction.
- The names have other keys than those of pg_advisory_lock. Two names with the same hash exclude each other.
Errors: 25006 on a standby (see lock_election.advisory_on_standby); 55P03 if lock_timeout expires; 40P01 for a deadlock; 53200 if there is no room for the lock, see max_locks_per_transaction.';

CREATE FUNCTION @extschema@.advisory_release(name pg_catalog.text, shared boolean DEFAULT false)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_advisory_release';
COMMENT ON FUNCTION @extschema@.advisory_release(pg_catalog.text, boolean) IS
'Immediately releases one acquisition of an advisory lock of scope ''session''. Returns true, or false with a WARNING if this connection does not hold the lock in this mode. pg_advisory_unlock_all and DISCARD ALL also release the lock.';

-- --- elections ---

CREATE FUNCTION @extschema@.campaign(
	election pg_catalog.text,
	candidate pg_catalog.text,
	ttl interval DEFAULT '15 s',
	wait interval DEFAULT NULL,
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_campaign';
COMMENT ON FUNCTION @extschema@.campaign(pg_catalog.text, pg_catalog.text, interval, interval, pg_catalog.text,
	bigint) IS
'Waits to be elected, like acquire_lock for a lock. Returns the term, or NULL if the candidate was not elected within "wait". Candidates are elected in order of arrival. "candidate" is the candidate''s public text, of 1 to 4096 bytes. If the leader (the same owner or, without an owner, the same lease) campaigns again, the call acts as a proclaim and returns the same term. A rollback undoes the campaign, but not the proclaim. Errors: as acquire_lock.';

CREATE FUNCTION @extschema@.enqueue_candidate(
	election pg_catalog.text,
	candidate pg_catalog.text,
	ttl interval DEFAULT '15 s',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL,
	OUT term bigint,
	OUT elected boolean,
	OUT queue_position bigint,
	OUT channel pg_catalog.text)
RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_enqueue_candidate';
COMMENT ON FUNCTION @extschema@.enqueue_candidate(pg_catalog.text, pg_catalog.text, interval, pg_catalog.text,
	bigint) IS
'Becomes a candidate and returns immediately, like enqueue_lock. Returns the term, whether the candidate is already elected, the position in the queue (from 1) if it is not, and the channel on which the election is announced. Every call adds a new candidacy, even if the caller already leads. Errors: as enqueue_lock.';

CREATE FUNCTION @extschema@.await_leadership(election pg_catalog.text, term bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_await_leadership';
COMMENT ON FUNCTION @extschema@.await_leadership(pg_catalog.text, bigint, interval) IS
'Returns whether this term of enqueue_candidate is elected, like await_lock for a lock. To withdraw, call "resign". Errors: LE001 if the term is neither leader nor candidate any more; 55P03 if lock_timeout expires.';

CREATE FUNCTION @extschema@.proclaim(election pg_catalog.text, term bigint, candidate pg_catalog.text)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_proclaim';
COMMENT ON FUNCTION @extschema@.proclaim(pg_catalog.text, bigint, pg_catalog.text) IS
'Changes the leader''s public text without a new election. Returns true, or false if this term does not lead. The change takes effect immediately, is durable when the function returns, and survives a rollback.';

CREATE FUNCTION @extschema@.renew_leadership(election pg_catalog.text, term bigint, ttl interval DEFAULT NULL)
RETURNS interval LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_renew_leadership';
COMMENT ON FUNCTION @extschema@.renew_leadership(pg_catalog.text, bigint, interval) IS
'Restarts the TTL of the leader, with another length if "ttl" is given. Returns the time for which the term is valid (see renew_lock), or NULL if the term is lost. Errors: 55000 for a term that is still queued.';

CREATE FUNCTION @extschema@.resign(election pg_catalog.text, term bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_resign';
COMMENT ON FUNCTION @extschema@.resign(pg_catalog.text, bigint) IS
'Ends a leadership or a candidacy. Returns true, or false if this term is neither leader nor candidate, or is NULL. The call takes effect and waits like release_lock. A server crash may likewise bring the term back: the leader then leads until its TTL ends, or the candidate may still be elected.';

CREATE FUNCTION @extschema@.current_leader(
	election pg_catalog.text,
	OUT candidate pg_catalog.text,
	OUT term bigint,
	OUT elected_at pg_catalog.timestamptz,
	OUT expires_at pg_catalog.timestamptz,
	OUT valid_for interval)
RETURNS SETOF pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'le_current_leader';
COMMENT ON FUNCTION @extschema@.current_leader(pg_catalog.text) IS
'Returns the leader of an election, or no row if there is none. Every role may call the function.
- After a server crash, the returned leader still leads, unless its term is bound to its connection.
- "expires_at": when the term ends without a renewal; infinity if it is bound to a connection.
- "valid_for": the time until "expires_at"; NULL if the term is bound to a connection, and on a standby.
- A standby returns the replayed leader; "expires_at" then ignores renewals since the election or the last proclaim, and is NULL for a term on a named lease.';

CREATE FUNCTION @extschema@.is_leader(election pg_catalog.text, term bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_is_leader';
COMMENT ON FUNCTION @extschema@.is_leader(pg_catalog.text, bigint) IS
'Returns whether this term leads now, like is_held for a lock.';

CREATE FUNCTION @extschema@.fence_leader(election pg_catalog.text, term bigint)
RETURNS pg_catalog.void LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_fence_leader';
COMMENT ON FUNCTION @extschema@.fence_leader(pg_catalog.text, bigint) IS
'Fences the term of a leader, like fence_lock for locks. Errors: LE001 if the term does not lead; 53400 as fence_lock.';

CREATE FUNCTION @extschema@.evict_leader(election pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_evict_leader';
COMMENT ON FUNCTION @extschema@.evict_leader(pg_catalog.text) IS
'Evicts the leader of an election, like evict_lock for locks. Returns 1, or 0 if there is no leader or if it was evicted before. An evicted leader may lead and proclaim until it resigns or until "expires_at" in view elections. Requires membership in the leader''s role or in pg_signal_backend. The eviction is logged. Errors: 55000 if the term is bound to a connection; terminate the connection instead.';

CREATE FUNCTION @extschema@.force_resign(election pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_force_resign';
COMMENT ON FUNCTION @extschema@.force_resign(pg_catalog.text) IS
'Ends the leadership of an election immediately. Returns 1, or 0 if there was no leader. Until the former leader notices, two may lead at the same time; use evict_leader if the next leader must wait until the former one stops. Requires membership in the leader''s role or in pg_signal_backend. The call is logged.';

-- --- observers of elections ---

CREATE FUNCTION @extschema@.observe_election(election pg_catalog.text)
RETURNS pg_catalog.text LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_observe_election';
COMMENT ON FUNCTION @extschema@.observe_election(pg_catalog.text) IS
'Returns the channel to LISTEN on, which is always the same for an election. A notification is sent for every new leader, every proclaim and every end of a term. The payload is JSON with the fields "event" (a value of "how" in election_history), "term", "change", and "previous" (the number of the previous change; "0": unknown). A client that has not seen the previous change should call election_history().';

CREATE FUNCTION @extschema@.election_history(
	election pg_catalog.text,
	after bigint DEFAULT 0,
	OUT change bigint,
	OUT how pg_catalog.text,
	OUT candidate pg_catalog.text,
	OUT term bigint,
	OUT elected_at pg_catalog.timestamptz,
	OUT changed_at pg_catalog.timestamptz,
	OUT ended_at pg_catalog.timestamptz)
RETURNS SETOF pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_election_history';
COMMENT ON FUNCTION @extschema@.election_history(pg_catalog.text, bigint) IS
'Returns every change of an election after the change numbered "after", in order and without gaps. A change is the start of a term (elected), a new candidate text (proclaimed), or the end of a term (resigned, expired, revoked with its lease, forced, evicted, undone with its transaction, disconnected). Every role may call the function, also on a standby, where it returns what has been replayed. Changes are kept for lock_election.history_retention.';

-- --- views ---

CREATE FUNCTION lock_election.look(
	OUT kind pg_catalog.text, OUT name pg_catalog.text, OUT slot integer, OUT mode pg_catalog.text,
	OUT owner pg_catalog.text,
	OUT value pg_catalog.text, OUT role pg_catalog.oid, OUT token bigint, OUT lease bigint,
	OUT holds integer, OUT since pg_catalog.timestamptz, OUT expires_at pg_catalog.timestamptz, OUT time_left interval,
	OUT waiters bigint, OUT closed_until pg_catalog.timestamptz, OUT queue_position bigint, OUT pid integer,
	OUT term bigint,
	OUT application_name pg_catalog.text, OUT client_addr pg_catalog.inet, OUT connected boolean, OUT evicted boolean)
RETURNS SETOF pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_look_sql';
COMMENT ON FUNCTION lock_election.look() IS
'Returns every holder (queue_position 0), every waiter, and every name that is closed (no mode). Used by the views locks, elections and waiters.';

CREATE VIEW lock_election.locks AS
WITH f AS MATERIALIZED (
	SELECT (f.classid::pg_catalog.int8 OPERATOR(pg_catalog.<<) 32)
		OPERATOR(pg_catalog.|) f.objid::pg_catalog.int8 AS token,
		pg_catalog.array_agg(f.pid) AS pids
	FROM pg_catalog.pg_locks f JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) f.database
	WHERE f.locktype OPERATOR(pg_catalog.=) 'userlock' AND f.granted
		AND d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
	GROUP BY 1)
SELECT l.kind, l.name, l.slot, l.mode, l.owner, l.role::pg_catalog.regrole AS role,
	l.token, l.lease, l.holds, l.since AS acquired_at, l.expires_at, l.time_left, l.closed_until, l.waiters,
	l.pid, l.application_name, l.client_addr, l.connected, l.evicted,
	COALESCE(f.pids, '{}'::pg_catalog.int4[]) AS fenced_by,
	CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_xact_replay_timestamp() END AS replayed_at
FROM lock_election.look() l LEFT JOIN f ON f.token OPERATOR(pg_catalog.=) l.token
WHERE l.queue_position OPERATOR(pg_catalog.=) 0;
CREATE VIEW lock_election.elections AS
WITH f AS MATERIALIZED (
	SELECT (f.classid::pg_catalog.int8 OPERATOR(pg_catalog.<<) 32)
		OPERATOR(pg_catalog.|) f.objid::pg_catalog.int8 AS token,
		pg_catalog.array_agg(f.pid) AS pids
	FROM pg_catalog.pg_locks f JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) f.database
	WHERE f.locktype OPERATOR(pg_catalog.=) 'userlock' AND f.granted
		AND d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
	GROUP BY 1)
SELECT l.name AS election, l.value AS candidate, l.term, l.owner, l.role::pg_catalog.regrole AS role,
	l.since AS elected_at, l.expires_at, l.time_left AS valid_for, l.waiters AS waiting,
	l.pid, l.application_name, l.client_addr, l.connected, l.evicted,
	COALESCE(f.pids, '{}'::pg_catalog.int4[]) AS fenced_by,
	CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_xact_replay_timestamp() END AS replayed_at
FROM lock_election.look() l LEFT JOIN f ON f.token OPERATOR(pg_catalog.=) l.token
WHERE l.term IS NOT NULL;
CREATE VIEW lock_election.waiters AS
WITH l AS MATERIALIZED (SELECT * FROM lock_election.look()),
h AS MATERIALIZED (
	SELECT l.kind, l.name, pg_catalog.array_agg(DISTINCT l.pid) AS pids
	FROM l WHERE l.queue_position OPERATOR(pg_catalog.=) 0 AND l.connected
	GROUP BY l.kind, l.name)
SELECT w.kind, w.name, w.queue_position, w.mode, w.owner, w.role::pg_catalog.regrole AS role,
	w.token, w.lease, w.since AS waiting_since, w.pid, w.application_name, w.client_addr, w.connected,
	CASE WHEN w.closed_until IS NOT NULL THEN '{0}'::pg_catalog.int4[] ELSE '{}'::pg_catalog.int4[] END
		OPERATOR(pg_catalog.||) COALESCE(h.pids, pg_catalog.array_remove(ARRAY[CASE
			WHEN w.queue_position OPERATOR(pg_catalog.>) 1 THEN
				pg_catalog.first_value(CASE WHEN w.connected THEN w.pid END)
					OVER (PARTITION BY w.kind, w.name ORDER BY w.queue_position) END], NULL)) AS blocked_by,
	w.closed_until
FROM l w LEFT JOIN h ON h.kind OPERATOR(pg_catalog.=) w.kind AND h.name OPERATOR(pg_catalog.=) w.name
WHERE w.queue_position OPERATOR(pg_catalog.>) 0
ORDER BY w.kind, w.name, w.queue_position;
CREATE FUNCTION lock_election.look_leases(
	OUT lease bigint, OUT owner pg_catalog.text, OUT role pg_catalog.oid, OUT ttl interval,
	OUT expires_at pg_catalog.timestamptz,
	OUT time_left interval)
RETURNS SETOF pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_look_leases_sql';
COMMENT ON FUNCTION lock_election.look_leases() IS
'Returns every named lease. Used by view leases.';

CREATE VIEW lock_election.leases AS
WITH n AS MATERIALIZED (
	SELECT l.lease, pg_catalog.count(*) FILTER (WHERE l.queue_position OPERATOR(pg_catalog.=) 0) AS holds,
		pg_catalog.count(*) FILTER (WHERE l.queue_position OPERATOR(pg_catalog.>) 0) AS waits
	FROM lock_election.look() l WHERE l.lease IS NOT NULL
	GROUP BY l.lease)
SELECT l.lease, l.owner, l.role::pg_catalog.regrole AS role, l.ttl, l.expires_at, l.time_left,
	CASE WHEN l.lease IS NOT NULL THEN COALESCE(n.holds, 0) END AS locks,
	CASE WHEN l.lease IS NOT NULL THEN COALESCE(n.waits, 0) END AS waiting
FROM lock_election.look_leases() l LEFT JOIN n ON n.lease OPERATOR(pg_catalog.=) l.lease;
CREATE FUNCTION lock_election.manager_info(
	OUT pid integer, OUT started pg_catalog.timestamptz, OUT incarnation bigint,
	OUT revision bigint, OUT locks bigint, OUT held bigint, OUT waiting bigint, OUT oldest_wait pg_catalog.timestamptz,
	OUT memory bigint,
	OUT slot_bytes bigint, OUT lease_bytes bigint, OUT queue_bytes bigint)
RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_manager_info';
COMMENT ON FUNCTION lock_election.manager_info() IS
'Returns the running manager of this database. Used by view manager.';

CREATE VIEW lock_election.manager AS
SELECT m.pid, pg_catalog.current_database() AS database, m.started, m.incarnation,
	m.revision, m.locks, m.held, m.waiting, m.oldest_wait, m.memory, m.slot_bytes, m.lease_bytes, m.queue_bytes
FROM lock_election.manager_info() m
WHERE m.pid IS NOT NULL;
CREATE FUNCTION lock_election.health(
	OUT ok boolean, OUT problem pg_catalog.text, OUT role pg_catalog.text, OUT manager boolean, OUT loading boolean,
	OUT request_wait interval, OUT standby_confirms boolean, OUT standby_wait interval,
	OUT incarnation bigint, OUT library_version pg_catalog.text, OUT sql_version pg_catalog.text,
	OUT replayed_at pg_catalog.timestamptz,
	OUT cannot_write_since pg_catalog.timestamptz,
	OUT blocked_by pg_catalog.int4)
RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_health';
COMMENT ON FUNCTION lock_election.health() IS
'Returns the state of lock_election on this server, for load balancers, probes and monitors. The function never waits, even on a standby, and while the manager loads or is stopped. Every role may call it.
- "ok": true if no known problem prevents clients from getting locks here.
- "problem": the first such problem, or NULL.
- "role": primary or standby.
- "manager": whether a manager serves this database.
- "loading": whether the manager is reading its tables. Meanwhile requests wait.
- "request_wait": the longest time for which a call has now been waiting for the manager to take its request. Large requests that wait for their turn do not count.
- "standby_confirms": whether as many synchronous standbys are connected as synchronous_standby_names requires, and "standby_wait" is less than 2 s. NULL: no synchronous standby is defined.
- "standby_wait": the longest time for which a call of this database has now been waiting for confirmation by the standbys, even if the call has given up. Waits for replay (synchronous_commit = remote_apply) count only if the caller of this function also waits for replay.
- "incarnation": as in view manager.
- "library_version": version of the server''s library. NULL: it is not preloaded.
- "sql_version": version of the extension in this database.
- "replayed_at": on a standby, when the last replayed transaction was committed.
- "cannot_write_since": since when the manager cannot write its tables because they are locked, the disk is full, no transaction ID is left, or another error occurs. Meanwhile locks are renewed and shown, but changes that cannot be written do not happen. NULL: no failure is known.
- "blocked_by": the process that has locked the tables, or waits to lock them, if one was seen.';

CREATE FUNCTION lock_election.counters(
	OUT acquires bigint, OUT renewals bigint, OUT releases bigint, OUT checks bigint,
	OUT forced bigint, OUT awaits bigint, OUT grants bigint, OUT waits bigint, OUT handoffs bigint,
	OUT leader_changes bigint, OUT expiries bigint, OUT timeouts bigint, OUT undone bigint, OUT batches bigint,
	OUT failed_batches bigint, OUT key_violations bigint, OUT transaction_ids bigint, OUT rows_written bigint,
	OUT flushes bigint, OUT stalls bigint, OUT hints_sent bigint, OUT hints_dropped bigint,
	OUT write_time double precision, OUT stats_reset pg_catalog.timestamptz)
RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_stat';
COMMENT ON FUNCTION lock_election.counters() IS
'Returns what the manager of this database has done since stats_reset. Used by view stat.';

CREATE VIEW lock_election.stat AS
SELECT * FROM lock_election.counters();
CREATE FUNCTION lock_election.histograms(
	OUT name pg_catalog.text, OUT le double precision, OUT count bigint, OUT sum double precision)
RETURNS SETOF pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 76
AS 'MODULE_PATHNAME', 'le_histogram';
COMMENT ON FUNCTION lock_election.histograms() IS
'Returns the durations of the waits, holds and terms that have ended since stats_reset. Used by view histogram.';

CREATE VIEW lock_election.histogram AS
SELECT * FROM lock_election.histograms();
CREATE FUNCTION lock_election.stat_reset()
RETURNS pg_catalog.void LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_stat_reset';
COMMENT ON FUNCTION lock_election.stat_reset() IS
'Sets the counters of views stat and histogram to zero. Only superusers, and roles to which they grant EXECUTE, may call it.';
REVOKE ALL ON FUNCTION lock_election.stat_reset() FROM PUBLIC;

GRANT SELECT ON lock_election.locks, lock_election.elections, lock_election.waiters, lock_election.leases, lock_election.manager,
	lock_election.stat, lock_election.histogram TO PUBLIC;

-- --- views and columns ---

COMMENT ON VIEW lock_election.locks IS
'Every held lock, every leader, and every closed name. Owner, token, lease, connection and client are shown only to members of the role or of pg_read_all_stats. On a standby, a row shows its last written state; renewals write nothing.';
COMMENT ON COLUMN lock_election.locks.kind IS
'lock or election. Locks and elections have separate names.';
COMMENT ON COLUMN lock_election.locks.name IS
'Name of the lock or election.';
COMMENT ON COLUMN lock_election.locks.slot IS
'Number of the slot in the lock, from 0. NULL: there is no holder, the name is closed.';
COMMENT ON COLUMN lock_election.locks.mode IS
'exclusive, shared or permit. NULL: there is no holder.';
COMMENT ON COLUMN lock_election.locks.owner IS
'The named owner. NULL: none (the connection is the owner), or you may not see it.';
COMMENT ON COLUMN lock_election.locks.role IS
'Role of the holder. For a closed name, the role that closed it.';
COMMENT ON COLUMN lock_election.locks.token IS
'Token of the holder, or term of the leader.';
COMMENT ON COLUMN lock_election.locks.lease IS
'Number of the named lease that the hold or request is on. NULL: none.';
COMMENT ON COLUMN lock_election.locks.holds IS
'Acquires that are still to be released.';
COMMENT ON COLUMN lock_election.locks.acquired_at IS
'Time of the grant.';
COMMENT ON COLUMN lock_election.locks.expires_at IS
'Time when the holder''s lease ends if it is not renewed. infinity: the lock ends with its connection. On a standby, NULL for a lock on a named lease.';
COMMENT ON COLUMN lock_election.locks.time_left IS
'Time from now until expires_at. NULL on a standby, and if the holder is bound to its connection.';
COMMENT ON COLUMN lock_election.locks.closed_until IS
'No request is granted the name before this time, because of hold_for or lock_election.expiry_grace. force_release_lock() opens the name. NULL: the name is open.';
COMMENT ON COLUMN lock_election.locks.waiters IS
'Requests that wait for the lock. NULL on a standby.';
COMMENT ON COLUMN lock_election.locks.pid IS
'Process ID of the connection that acquired the lock or term. The ID is kept after the connection ends, so another process may have it: see connected.';
COMMENT ON COLUMN lock_election.locks.application_name IS
'application_name of that connection at the time of the request.';
COMMENT ON COLUMN lock_election.locks.client_addr IS
'Client address of that connection. NULL: a local connection.';
COMMENT ON COLUMN lock_election.locks.connected IS
'Whether that connection is still open. NULL: not known, as on a standby.';
COMMENT ON COLUMN lock_election.locks.evicted IS
'Whether the holder was evicted, and ends at expires_at or before. NULL: there is no holder.';
COMMENT ON COLUMN lock_election.locks.fenced_by IS
'Processes whose transactions have fenced the lock. The lock is granted to no other holder before these transactions end.';
COMMENT ON COLUMN lock_election.locks.replayed_at IS
'On a standby, the commit time of the last replayed transaction. An old time: the standby is behind, or the primary is idle. NULL on a primary.';

COMMENT ON VIEW lock_election.elections IS
'Every election that has a leader. Owner, connection and fenced_by are shown only to members of the leader''s role or of pg_read_all_stats.';
COMMENT ON COLUMN lock_election.elections.election IS
'Name of the election.';
COMMENT ON COLUMN lock_election.elections.candidate IS
'Public text of the leader.';
COMMENT ON COLUMN lock_election.elections.term IS
'Term of the leader.';
COMMENT ON COLUMN lock_election.elections.owner IS
'The named owner. NULL: none (the connection is the owner), or you may not see it.';
COMMENT ON COLUMN lock_election.elections.role IS
'Role of the leader.';
COMMENT ON COLUMN lock_election.elections.elected_at IS
'Time when the term began.';
COMMENT ON COLUMN lock_election.elections.expires_at IS
'Time when the term ends if it is not renewed. infinity: the term ends with its connection. On a standby, the time as of the last write, and NULL for a term on a named lease.';
COMMENT ON COLUMN lock_election.elections.valid_for IS
'Time from now until expires_at. NULL on a standby, and if the holder is bound to its connection.';
COMMENT ON COLUMN lock_election.elections.waiting IS
'Candidates in the queue. NULL on a standby.';
COMMENT ON COLUMN lock_election.elections.pid IS
'Process ID of the connection that acquired the lock or term. The ID is kept after the connection ends, so another process may have it: see connected.';
COMMENT ON COLUMN lock_election.elections.application_name IS
'application_name of that connection at the time of the request.';
COMMENT ON COLUMN lock_election.elections.client_addr IS
'Client address of that connection. NULL: a local connection.';
COMMENT ON COLUMN lock_election.elections.connected IS
'Whether that connection is still open. NULL: not known, as on a standby.';
COMMENT ON COLUMN lock_election.elections.evicted IS
'Whether the leader was evicted: its term ends at expires_at or before.';
COMMENT ON COLUMN lock_election.elections.fenced_by IS
'Processes whose transactions have fenced the term. No other candidate is elected before these transactions end.';
COMMENT ON COLUMN lock_election.elections.replayed_at IS
'On a standby, the commit time of the last replayed transaction. An old time: the standby is behind, or the primary is idle. NULL on a primary.';

COMMENT ON VIEW lock_election.waiters IS
'Every request that waits, in the order of the grants: blocked calls and queue places. Owner, token, lease, connection and client are shown only to members of the role or of pg_read_all_stats. Empty on a standby.';
COMMENT ON COLUMN lock_election.waiters.kind IS
'lock or election.';
COMMENT ON COLUMN lock_election.waiters.name IS
'Name of the lock or election that the request waits for.';
COMMENT ON COLUMN lock_election.waiters.queue_position IS
'Position in the queue, from 1. The first request is granted next.';
COMMENT ON COLUMN lock_election.waiters.mode IS
'exclusive, shared or permit.';
COMMENT ON COLUMN lock_election.waiters.owner IS
'The named owner. NULL: none (the connection is the owner), or you may not see it.';
COMMENT ON COLUMN lock_election.waiters.role IS
'Role of the waiter.';
COMMENT ON COLUMN lock_election.waiters.token IS
'Token that the request will have when it is granted.';
COMMENT ON COLUMN lock_election.waiters.lease IS
'Number of the named lease that the hold or request is on. NULL: none.';
COMMENT ON COLUMN lock_election.waiters.waiting_since IS
'Time when the request entered the queue.';
COMMENT ON COLUMN lock_election.waiters.pid IS
'Process ID of the connection that made the request. The ID is kept after the connection ends, so another process may have it: see connected.';
COMMENT ON COLUMN lock_election.waiters.application_name IS
'application_name of that connection at the time of the request.';
COMMENT ON COLUMN lock_election.waiters.client_addr IS
'Client address of that connection. NULL: a local connection.';
COMMENT ON COLUMN lock_election.waiters.connected IS
'Whether that connection is still open. NULL: not known, as on a standby.';
COMMENT ON COLUMN lock_election.waiters.blocked_by IS
'Connected processes that hold the lock and that you may see; without a holder, the process of the first request in the queue. 0: the name is closed, see closed_until.';
COMMENT ON COLUMN lock_election.waiters.closed_until IS
'No request is granted the name before this time. NULL: the name is open.';

COMMENT ON VIEW lock_election.leases IS
'Every named lease. Number and owner are shown only to members of the lease''s role or of pg_read_all_stats. Empty on a standby.';
COMMENT ON COLUMN lock_election.leases.lease IS
'Number of the lease.';
COMMENT ON COLUMN lock_election.leases.owner IS
'The named owner. NULL: none, or you may not see it.';
COMMENT ON COLUMN lock_election.leases.role IS
'Role that the lease belongs to.';
COMMENT ON COLUMN lock_election.leases.ttl IS
'Time for which the lease lasts after each keep_alive().';
COMMENT ON COLUMN lock_election.leases.expires_at IS
'Time when the lease ends if it is not renewed.';
COMMENT ON COLUMN lock_election.leases.time_left IS
'Time from now until expires_at.';
COMMENT ON COLUMN lock_election.leases.locks IS
'Locks and leaderships on the lease.';
COMMENT ON COLUMN lock_election.leases.waiting IS
'Queue places and waiting calls on the lease.';

COMMENT ON VIEW lock_election.manager IS
'The process that owns the locks of this database. No row: the manager does not run.';
COMMENT ON COLUMN lock_election.manager.pid IS
'Process ID of the manager, as in pg_stat_activity.';
COMMENT ON COLUMN lock_election.manager.database IS
'Name of this database.';
COMMENT ON COLUMN lock_election.manager.started IS
'Time when the manager started.';
COMMENT ON COLUMN lock_election.manager.incarnation IS
'Upper part of the tokens that the manager gives out. Each start has a new incarnation.';
COMMENT ON COLUMN lock_election.manager.revision IS
'The next token.';
COMMENT ON COLUMN lock_election.manager.locks IS
'Names that the manager knows: held, waited for, closed, or just released.';
COMMENT ON COLUMN lock_election.manager.held IS
'Number of held locks, permits and leaderships; cheaper to read than view locks.';
COMMENT ON COLUMN lock_election.manager.waiting IS
'Number of queued requests and candidates; cheaper to read than view waiters.';
COMMENT ON COLUMN lock_election.manager.oldest_wait IS
'Time when the oldest waiting request for a lock or permit (not a candidate) entered its queue. NULL: none.';
COMMENT ON COLUMN lock_election.manager.memory IS
'Memory that the manager''s state takes, in bytes.';
COMMENT ON COLUMN lock_election.manager.slot_bytes IS
'Size of table slot on disk, in bytes, some seconds ago. The manager reads the tables when it starts.';
COMMENT ON COLUMN lock_election.manager.lease_bytes IS
'Size of table lease on disk, in bytes, some seconds ago.';
COMMENT ON COLUMN lock_election.manager.queue_bytes IS
'Size of table queue on disk, in bytes, some seconds ago.';

COMMENT ON VIEW lock_election.stat IS
'Counters of the manager of this database, since stats_reset.';
COMMENT ON COLUMN lock_election.stat.acquires IS
'Requests to acquire, to enqueue and to campaign.';
COMMENT ON COLUMN lock_election.stat.renewals IS
'Calls of renew_lock and renew_leadership.';
COMMENT ON COLUMN lock_election.stat.releases IS
'Releases and resignations. All releases of one commit count as one.';
COMMENT ON COLUMN lock_election.stat.checks IS
'Calls of is_held and is_leader, fences, and checks that are part of other calls.';
COMMENT ON COLUMN lock_election.stat.forced IS
'Calls of force_release_lock and force_resign.';
COMMENT ON COLUMN lock_election.stat.awaits IS
'Calls of await_lock, await_locks and await_leadership.';
COMMENT ON COLUMN lock_election.stat.grants IS
'Grants of locks, permits and leaderships, including further holds.';
COMMENT ON COLUMN lock_election.stat.waits IS
'Requests that had to enter a queue.';
COMMENT ON COLUMN lock_election.stat.handoffs IS
'Grants to requests that had waited.';
COMMENT ON COLUMN lock_election.stat.leader_changes IS
'Terms that have begun. The election of a leader that led before also counts.';
COMMENT ON COLUMN lock_election.stat.expiries IS
'Holds and queue places that ended because their lease expired.';
COMMENT ON COLUMN lock_election.stat.timeouts IS
'Waits that timed out.';
COMMENT ON COLUMN lock_election.stat.undone IS
'Holds that a rollback has undone.';
COMMENT ON COLUMN lock_election.stat.batches IS
'Batches that had something to write.';
COMMENT ON COLUMN lock_election.stat.failed_batches IS
'Batches that could not be written and were applied again one request at a time. The server log has the reason. Reloads of a table after VACUUM FULL, CLUSTER or SET TABLESPACE do not count: no request fails.';
COMMENT ON COLUMN lock_election.stat.key_violations IS
'Failed batches that the unique key of a table rejected, because another program has written to the table.';
COMMENT ON COLUMN lock_election.stat.transaction_ids IS
'Transaction IDs that the manager has used.';
COMMENT ON COLUMN lock_election.stat.rows_written IS
'Rows that the manager has written.';
COMMENT ON COLUMN lock_election.stat.flushes IS
'Batches that were flushed to disk.';
COMMENT ON COLUMN lock_election.stat.stalls IS
'Pauses of more than a second in which the manager did not run. Each pause extended all leases by its length.';
COMMENT ON COLUMN lock_election.stat.hints_sent IS
'Sent notifications.';
COMMENT ON COLUMN lock_election.stat.hints_dropped IS
'Notifications dropped because a queue was full.';
COMMENT ON COLUMN lock_election.stat.write_time IS
'Time spent on writing and committing, in milliseconds.';
COMMENT ON COLUMN lock_election.stat.stats_reset IS
'Time of the last call of "stat_reset", or of the start of the counters.';

COMMENT ON VIEW lock_election.histogram IS
'Durations of the waits, holds and terms that have ended since stats_reset of view stat, as cumulative buckets in the Prometheus format.';
COMMENT ON COLUMN lock_election.histogram.name IS
'wait: time from the queueing of a request for a lock or permit to its grant. fruitless_wait: time from the queueing to a time-out, cancel or other end. hold: time from the grant of a lock or permit to its end; for a fenced holder, to the end of its lease. term: the same for a leader. Each name of acquire_locks() counts.';
COMMENT ON COLUMN lock_election.histogram.le IS
'Upper bound of the bucket, in seconds. The last bound is Infinity.';
COMMENT ON COLUMN lock_election.histogram.count IS
'Durations up to this bound, including those of smaller buckets.';
COMMENT ON COLUMN lock_election.histogram.sum IS
'Sum of all durations of this name, in seconds, the same in each row of the name.';

COMMENT ON TABLE _lock_election.slot IS
'The durable record of holders, one row for each slot of a lock. Written only by the manager; read view locks instead.';
COMMENT ON COLUMN _lock_election.slot.token IS
'Token of the holder. 0: the slot is free.';
COMMENT ON COLUMN _lock_election.slot.acquired_at IS
'Time of the grant.';
COMMENT ON COLUMN _lock_election.slot.time_left IS
'Microseconds left at the end of the life in which the row was written. Negative: the lease has ended, but the hold is still fenced.';
COMMENT ON COLUMN _lock_election.slot.life IS
'Number of the life in which the row was written, see meta.life. The recorded time of all later lives is subtracted from the time that is left.';
COMMENT ON COLUMN _lock_election.slot.slot IS
'Number of the slot in the lock, from 0.';
COMMENT ON COLUMN _lock_election.slot.expires_at IS
'Time when the lease ends, as of this write.';
COMMENT ON COLUMN _lock_election.slot.closed_until IS
'No request is granted the name before this time.';
COMMENT ON COLUMN _lock_election.slot.ttl IS
'TTL in microseconds. -1: as long as its connection.';
COMMENT ON COLUMN _lock_election.slot.lease IS
'Number of the lease. 0: the row has a lease of its own.';
COMMENT ON COLUMN _lock_election.slot.session IS
'Connection that acquired the lock. 0: it has ended.';
COMMENT ON COLUMN _lock_election.slot.role IS
'Role of the holder. For a free slot, the role that closed the name.';
COMMENT ON COLUMN _lock_election.slot.permits IS
'Number of permits of the name. 0: not a permit.';
COMMENT ON COLUMN _lock_election.slot.holds IS
'Acquires that are still to be released.';
COMMENT ON COLUMN _lock_election.slot.kind IS
'1 lock, 2 election.';
COMMENT ON COLUMN _lock_election.slot.mode IS
'0 free, 1 exclusive, 2 shared, 3 permit.';
COMMENT ON COLUMN _lock_election.slot.name IS
'Name of the lock or election.';
COMMENT ON COLUMN _lock_election.slot.owner IS
'The named owner.';
COMMENT ON COLUMN _lock_election.slot.value IS
'Public text of the candidate.';
COMMENT ON COLUMN _lock_election.slot.uncommitted IS
'Holds of transactions that were open when the row was written.';
COMMENT ON COLUMN _lock_election.slot.acquirer IS
'Process, address and application of the connection, for information.';
COMMENT ON COLUMN _lock_election.slot.evicted IS
'Whether evict_lock() or evict_leader() has evicted the holder. An evicted holder is not renewed, and has a time of its own even on a named lease.';

COMMENT ON TABLE _lock_election.queue IS
'The durable record of queue places, one row for each place until it is granted or ends. Written only by the manager; read view waiters instead.';
COMMENT ON COLUMN _lock_election.queue.token IS
'Token that the request will have when it is granted.';
COMMENT ON COLUMN _lock_election.queue.entered_at IS
'Time when the request entered the queue.';
COMMENT ON COLUMN _lock_election.queue.member IS
'For a request for several names, the position of this name, from 1. Otherwise 0.';
COMMENT ON COLUMN _lock_election.queue.ttl IS
'TTL in microseconds. -1: as long as its connection.';
COMMENT ON COLUMN _lock_election.queue.time_left IS
'Microseconds left at the end of the life in which the row was written.';
COMMENT ON COLUMN _lock_election.queue.life IS
'Number of the life in which the row was written, see meta.life. The recorded time of all later lives is subtracted from the time that is left.';
COMMENT ON COLUMN _lock_election.queue.lease IS
'Number of the lease. 0: the row has a lease of its own.';
COMMENT ON COLUMN _lock_election.queue.session IS
'Connection that made the request. 0: it has ended.';
COMMENT ON COLUMN _lock_election.queue.role IS
'Role of the waiter.';
COMMENT ON COLUMN _lock_election.queue.permits IS
'Number of permits of the name. 0: not a permit.';
COMMENT ON COLUMN _lock_election.queue.holds IS
'Acquires that are still to be released.';
COMMENT ON COLUMN _lock_election.queue.kind IS
'1 lock, 2 election.';
COMMENT ON COLUMN _lock_election.queue.mode IS
'1 exclusive, 2 shared, 3 permit.';
COMMENT ON COLUMN _lock_election.queue.name IS
'Name of the lock or election.';
COMMENT ON COLUMN _lock_election.queue.owner IS
'The named owner.';
COMMENT ON COLUMN _lock_election.queue.value IS
'Public text of the candidate.';
COMMENT ON COLUMN _lock_election.queue.uncommitted IS
'Holds of transactions that were open when the row was written.';
COMMENT ON COLUMN _lock_election.queue.acquirer IS
'Process, address and application of the connection, for information.';

COMMENT ON TABLE _lock_election.lease IS
'The durable record of leases: the named leases, and one lease for each acquire_locks(). Written only by the manager; read view leases instead.';
COMMENT ON COLUMN _lock_election.lease.id IS
'Number of the lease.';
COMMENT ON COLUMN _lock_election.lease.ttl IS
'TTL in microseconds.';
COMMENT ON COLUMN _lock_election.lease.time_left IS
'Microseconds left at the end of the life in which the row was written.';
COMMENT ON COLUMN _lock_election.lease.life IS
'Number of the life in which the row was written, see meta.life. The recorded time of all later lives is subtracted from the time that is left.';
COMMENT ON COLUMN _lock_election.lease.expires_at IS
'Time when the lease ends, as of this write.';
COMMENT ON COLUMN _lock_election.lease.role IS
'Role that the lease belongs to.';
COMMENT ON COLUMN _lock_election.lease.owner IS
'The named owner.';

COMMENT ON TABLE _lock_election.history IS
'Changes of elections, kept for lock_election.history_retention. Read election_history() instead.';
COMMENT ON COLUMN _lock_election.history.change IS
'Number of the change.';
COMMENT ON COLUMN _lock_election.history.term IS
'Term that the change belongs to.';
COMMENT ON COLUMN _lock_election.history.elected_at IS
'Time when the term began.';
COMMENT ON COLUMN _lock_election.history.at IS
'Time of the change.';
COMMENT ON COLUMN _lock_election.history.role IS
'Role of the leader. The row counts against the role''s lock_election.max_history_per_role.';
COMMENT ON COLUMN _lock_election.history.how IS
'1 elected, 2 proclaimed. Ends of a term: 3 resigned, 4 expired, 5 revoked, 6 forced, 7 undone, 8 disconnected, 9 evicted.';
COMMENT ON COLUMN _lock_election.history.election IS
'Name of the election.';
COMMENT ON COLUMN _lock_election.history.candidate IS
'Public text of the leader.';

COMMENT ON TABLE _lock_election.meta IS
'One row with what the next manager has to know.';
COMMENT ON COLUMN _lock_election.meta.database IS
'OID of the database in which the locks were held. In a copy of the database, this is another OID than its own.';
COMMENT ON COLUMN _lock_election.meta.incarnation IS
'The newest incarnation.';
COMMENT ON COLUMN _lock_election.meta.taken_at IS
'Time when the incarnation was taken.';
COMMENT ON COLUMN _lock_election.meta.timeline IS
'Timeline of the server at that time.';
COMMENT ON COLUMN _lock_election.meta.boot IS
'Identifier of the shared memory of the last manager: the time when it was created.';
COMMENT ON COLUMN _lock_election.meta.life IS
'Number of the newest life, which is the run of one manager: the milliseconds recorded of all lives before it.';
COMMENT ON COLUMN _lock_election.meta.uptime IS
'Milliseconds recorded of the newest life.';
COMMENT ON COLUMN _lock_election.meta.lives IS
'Numbers of the newest lives, four bytes each.';

COMMENT ON TABLE _lock_election.incarnation_floor IS
'The incarnation that pg_dump carries, so that tokens continue to rise after a restore.';
COMMENT ON COLUMN _lock_election.incarnation_floor.incarnation IS
'The newest incarnation of the dumped database.';

COMMENT ON COLUMN _lock_election.versioned.version IS
'Version of the key: 1 at first, one higher with each write.';
COMMENT ON COLUMN _lock_election.versioned.role IS
'Name of the role that the key belongs to.';
COMMENT ON COLUMN _lock_election.versioned.role_oid IS
'OID of the role that had this name when the row was written. 0: there was no such role.';
COMMENT ON COLUMN _lock_election.versioned.key IS
'The key.';
COMMENT ON COLUMN _lock_election.versioned.value IS
'Value of the key.';

COMMENT ON SCHEMA lock_election IS
'Views of lock_election. The functions are in the schema that CREATE EXTENSION was given, the tables in _lock_election.';
COMMENT ON SCHEMA _lock_election IS
'Tables of lock_election, written only by its manager. The views are in lock_election.';
