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

-- The tables have a schema of their own, so that psql completes "lock_election."
-- to the views.
-- pg_dump reads two of them, also when the owner of the database runs it, who is
-- no superuser.
CREATE SCHEMA lock_election;
GRANT USAGE ON SCHEMA lock_election TO PUBLIC;
CREATE SCHEMA _lock_election;
GRANT USAGE ON SCHEMA _lock_election TO pg_database_owner;

-- --- tables: the durable record, written only by the manager ---

CREATE FUNCTION lock_election.refuse_write() RETURNS pg_catalog.trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'le_refuse_write';
REVOKE ALL ON FUNCTION lock_election.refuse_write() FROM PUBLIC;

-- One row per slot of a lock, found by its location, never searched.  With the key,
-- PostgreSQL itself checks that no slot has two holders.  The next lock takes
-- over a row that has been idle for a while, whatever the name.
-- Durations are in microseconds.
-- mode: 0 = idle.
-- ttl: -1 = as long as the session.
-- time_left: of a lease of its own, at the end of the life in which the row was
-- written; < 0 = ended, but still fenced.
-- life: the run of a manager; its number is the recorded time of all earlier
-- runs, in milliseconds.
-- expires_at: the deadline when the row was written, because a renewal writes
-- nothing; infinity = as long as the session; NULL = idle, or on a lease, whose
-- row has the deadline.
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
	member smallint NOT NULL, -- of several names: position of this name, from 1; else 0
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

-- A publication FOR ALL TABLES includes these tables.  Without a replica
-- identity, neither their updates nor anything after them could be applied; with
-- all columns as the identity, each change searches the whole table on a
-- subscriber.
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
'Acquires a lock and returns its token, or NULL if it was not granted within "wait" (NULL: no limit, ''0'': do not wait). The lock is held until it is released or "ttl" has passed since the last renewal; with ttl => NULL until this connection ends; with "lease" until that ends. The same "owner", or without one the same lease, acquires again and gets the same token. A rollback undoes it. Errors: 55P03 lock_timeout, LE001 ended while it waited, 53400 a limit of lock_election.max_waiters_per_lock or max_locks_per_role.';

CREATE FUNCTION @extschema@.try_acquire_lock(
	name pg_catalog.text,
	ttl interval DEFAULT '30 s',
	mode pg_catalog.text DEFAULT 'exclusive',
	owner pg_catalog.text DEFAULT NULL,
	lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_try_acquire_lock';
COMMENT ON FUNCTION @extschema@.try_acquire_lock(pg_catalog.text, interval, pg_catalog.text, pg_catalog.text, bigint) IS
'acquire_lock with wait => ''0'': returns the token, or NULL if somebody else holds the lock or is earlier in the queue.';

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
'Acquires several locks, all or none, as acquire_lock does one. Returns one token for all of them, or NULL if they were not granted within "wait". Enters all queues at one moment, and nobody overtakes it in any: no deadlock, whatever the order of the names. They share one TTL: renewing one renews all. At most 1000 names. Errors: 22023 bad argument, a name twice, or one that the same owner holds already; else as acquire_lock.';

CREATE FUNCTION @extschema@.release_locks(names pg_catalog.text[], token bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_release_locks';
COMMENT ON FUNCTION @extschema@.release_locks(pg_catalog.text[], bigint) IS
'Releases those of these locks that the token holds, as release_lock does one. Returns true if it held all of them; false for a NULL token.';

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
'try_acquire_lock for each of these names, in one request. Returns a row per name, in the order given, with a token of its own, or NULL if it was not granted. Each lock has its own TTL; on a "lease" one keep_alive renews all. At most 1000 names. An error of one name, or of all together, acquires nothing. A rollback undoes it. Errors: 22023 bad argument, or a name twice; else as acquire_lock.';

CREATE FUNCTION @extschema@.release_each(names pg_catalog.text[], tokens bigint[])
RETURNS TABLE (name pg_catalog.text, released boolean) LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100
AS 'MODULE_PATHNAME', 'le_release_each';
COMMENT ON FUNCTION @extschema@.release_each(pg_catalog.text[], bigint[]) IS
'release_lock for each of these names with the token at the same place in "tokens", in one request. Returns a row per name, in the order given: true, or false if that token does not hold it or is NULL. At most 1000 names. Takes effect as release_lock does, also at once as SELECT * FROM release_each(...). Errors: 22023 bad argument, a name twice, or not as many tokens as names; 42501 another role''s lock, and then none is released; else as release_lock.';

CREATE FUNCTION @extschema@.renew_lock(name pg_catalog.text, token bigint, ttl interval DEFAULT NULL)
RETURNS interval LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_renew_lock';
COMMENT ON FUNCTION @extschema@.renew_lock(pg_catalog.text, bigint, interval) IS
'Starts the lock''s TTL again, with another length if "ttl" is given, and returns for how long the lock is valid, counted from when the call was sent: the TTL, or less while a crash of the server would leave less, as shortly after a restart and while nothing can be written. NULL if the lock is lost or evicted; a primary that was cut off and replaced can return it, too, while the new one still has the lock. 24 days if the lock is bound to its connection. Errors: 55000 a token that is still queued.';

CREATE FUNCTION @extschema@.release_lock(name pg_catalog.text)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_release_lock';
COMMENT ON FUNCTION @extschema@.release_lock(pg_catalog.text) IS
'Releases the lock of this name that this connection acquired last. Returns true, or false if it holds none. In a pool the connection is soon another worker''s: release by the token there. Takes effect as with a token.';

CREATE FUNCTION @extschema@.release_lock(
	name pg_catalog.text,
	token bigint,
	hold_for interval DEFAULT NULL,
	all_holds boolean DEFAULT false)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_release_lock';
COMMENT ON FUNCTION @extschema@.release_lock(pg_catalog.text, bigint, interval, boolean) IS
'Releases a lock. Returns true, or false if this token does not hold it or is NULL. Takes effect at once if this call is a statement of its own outside of a transaction block and of a pipeline, otherwise at commit. A crash of the server within the next moments may bring the lock back until its TTL ends, unless the call waits for a flush: if the TTL exceeds 5 minutes, with "hold_for", with setting lock_election.durable_release, and with a synchronous standby. "hold_for": the name stays closed until that long after the lock was acquired; at most lock_election.max_hold_for. A closed name counts for the role as a lock. "all_holds": all holds of a named owner, not only one. Errors: 53400 too many releases in open transactions, see max_locks_per_transaction.';

CREATE FUNCTION @extschema@.is_held(name pg_catalog.text, token bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_is_held';
COMMENT ON FUNCTION @extschema@.is_held(pg_catalog.text, bigint) IS
'Whether this token holds the lock now. With synchronous standbys true is confirmed by them, as synchronous_commit asks for; false is not: a primary that was cut off and replaced does not know what the new one has.';

CREATE FUNCTION @extschema@.evict_lock(name pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_evict_lock';
COMMENT ON FUNCTION @extschema@.evict_lock(pg_catalog.text) IS
'Lets nobody renew the holders of a lock any more, and returns how many this call has evicted. An evicted holder holds until it releases the lock, or until the time up to which it may work in any case ("expires_at" in view locks), so the next holder never works beside it. renew_lock returns NULL for it and await_lock raises LE001; keep_alive renews its lease but returns no more than the time that is left to it; lease_holds leaves it out; a new request of it waits like any other. Several names of one acquire_locks with a ttl are all evicted, though only one is counted. An eviction outlives crashes, as the lock does. For members of the holder''s role and of pg_signal_backend; logged. Errors: 55000 a holder is bound to its connection, which has to be ended instead; then nobody is evicted.';

CREATE FUNCTION @extschema@.force_release_lock(name pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_force_release_lock';
COMMENT ON FUNCTION @extschema@.force_release_lock(pg_catalog.text) IS
'Ends the holders of a lock at once and returns how many there were. They may work on until they notice, beside the next one; evict_lock waits for them. Opens a name that "hold_for" of release_lock has closed. For members of the holder''s role and of pg_signal_backend; logged.';

CREATE FUNCTION @extschema@.force_release_role(role pg_catalog.regrole)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_force_release_role';
COMMENT ON FUNCTION @extschema@.force_release_role(pg_catalog.regrole) IS
'Ends all that a role has in this database: holders, places and other waits, leases, leaderships and candidacies, and opens the names that it has closed; returns how many there were. Pass a role that was dropped by its number, as the views show it. What a fence keeps ends with that. First take away the role''s right to connect. For members of the role and of pg_signal_backend; logged. Errors: 22023 no role.';

-- Not for everyone: it cannot be undone, and the numbers are finite.
CREATE FUNCTION @extschema@.advance_revision(min bigint)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_advance_revision';
COMMENT ON FUNCTION @extschema@.advance_revision(bigint) IS
'Makes the token of every later request at least "min" (queued requests keep theirs), and returns the lowest that the next one can be: "min", or more if this database was there already; then nothing is changed. Durable when it returns, also with synchronous_commit = off; takes effect at once, a rollback does not undo it, and it cannot be taken back. For a database that may have forgotten tokens: extension dropped and created within a minute, a volume rolled back together with its clock, a base backup restored in place, pg_resetwal. For superusers, and roles that they grant it to.';
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
'Enters the queue of a lock and returns at once: the token, whether it is granted already, else the position in the queue (from 1), and the channel on which the grant is announced (LISTEN). The place lasts for "ttl" from now and from each await_lock, or as long as "lease", or with ttl NULL this connection. From the grant on the lock lasts for "ttl". A rollback undoes it. Every call takes a place of its own; but on a named lease the same request (of the same owner, if it names one) returns the same token, so that it can be sent again when its result was lost. Errors: 53400 a limit of lock_election.max_waiters_per_lock or max_locks_per_role, LE001 no such lease.';

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
'As enqueue_lock, for one of "permits" permits; every call takes a place of its own, also on a named lease. Errors: 22023 also for another number of permits while the name is in use; else as enqueue_lock.';

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
'As enqueue_lock, for several locks: one token, granted when it is first in all queues; nobody overtakes it in any, so a free lock may stay idle for it. "queue_position" is the one in the longest queue; the grant is announced once, on "channel", that of the first name. For await_locks and release_locks. At most 1000 names. Errors: 22023 also for no names, or a name twice; else as enqueue_lock.';

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
'enqueue_lock for each of these names, in one request. Returns a place per name, in the order given, each with a token of its own for await_lock and release_lock. At most 1000 names. An error of one name, or of all together, takes no place. Errors: 22023 bad argument, or a name twice; else as enqueue_lock.';

CREATE FUNCTION @extschema@.await_lock(name pg_catalog.text, token bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_await_lock';
COMMENT ON FUNCTION @extschema@.await_lock(pg_catalog.text, bigint, interval) IS
'Whether this token of enqueue_lock is granted, after waiting for at most "wait" (NULL: no limit). Each call starts the TTL of the place, or of the lock, again. To leave the queue call release_lock. Errors: LE001 neither held nor queued any more, or evicted, 55P03 lock_timeout.';

CREATE FUNCTION @extschema@.await_locks(names pg_catalog.text[], token bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_await_locks';
COMMENT ON FUNCTION @extschema@.await_locks(pg_catalog.text[], bigint, interval) IS
'As await_lock, for a token of enqueue_locks: whether all of these locks are granted. Errors: LE001 one of them neither held nor queued any more; else as await_lock.';

-- --- fences ---

CREATE FUNCTION @extschema@.fence_lock(name pg_catalog.text, token bigint)
RETURNS pg_catalog.void LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_fence_lock';
COMMENT ON FUNCTION @extschema@.fence_lock(pg_catalog.text, bigint) IS
'From here to the end of the (sub)transaction nobody else is granted this lock, whatever ends it. What the transaction writes after this is written by the holder, or not at all. lock_election.fence_timeout bounds it. Errors: LE001 the token does not hold the lock (any more), 53400 too many fences in open transactions, see max_locks_per_transaction.';

CREATE FUNCTION @extschema@.fence_guard()
RETURNS pg_catalog.trigger LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_fence_guard';
COMMENT ON FUNCTION @extschema@.fence_guard() IS
'A trigger BEFORE INSERT, UPDATE, DELETE or TRUNCATE on a table of yours, with the name of a lock as its argument, or with the name of an election and ''election'': only a transaction that has fenced this lock, or its leader, may write. Errors: 55000 it has not, 39P01 not a BEFORE trigger.';

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
'Acquires one of "permits" permits of this name, as acquire_lock does a lock, and returns its token, or NULL if none was granted within "wait". All users of the name at a time pass the same number. Renewed and released like a lock. Errors: 22023 bad argument, or another number in use; 55P03, LE001, 53400 as acquire_lock.';

CREATE FUNCTION @extschema@.set_permits(name pg_catalog.text, permits integer)
RETURNS integer LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_set_permits';
COMMENT ON FUNCTION @extschema@.set_permits(pg_catalog.text, integer) IS
'Changes the number of permits of a name that is in use, and returns the old one; NULL if the name is not in use. More permits let waiters in at once, fewer take effect as permits are released. For members of all holders'' roles and of pg_signal_backend. Errors: 40001 others have come to hold it again and again meanwhile.';

-- --- leases ---

CREATE FUNCTION @extschema@.grant_lease(
	ttl interval DEFAULT '60 s',
	owner pg_catalog.text DEFAULT NULL,
	wait interval DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_grant_lease';
COMMENT ON FUNCTION @extschema@.grant_lease(interval, pg_catalog.text, interval) IS
'Grants a lease and returns its number. Any number of locks and permits can hang on it (argument "lease"); they end with it. "wait" is for client libraries: the call waits that long until the lease is durable (NULL: no limit); until it is, lease_sync returns no validity. Errors: 53400 the limit of lock_election.max_leases_per_role.';

CREATE FUNCTION @extschema@.keep_alive(lease bigint)
RETURNS interval LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_keep_alive';
COMMENT ON FUNCTION @extschema@.keep_alive(bigint) IS
'Starts the lease''s TTL again, for all that hangs on it but what is evicted, and returns for how long the lease is valid, counted from when the call was sent: as renew_lock, and no more than is left to what is evicted. NULL if the lease has ended.';

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
'For client libraries: all that the client of a lease does with the server, in one call. Renews the lease, makes the releases, then the requests among "items", and returns the result of each, and all changes of what hangs on the lease since the news that the client has seen. The reference page lease_sync describes items, rows and rules. Takes effect at once, also if the transaction fails. Errors: 22023 arguments that cannot be read, 25001 in a transaction block, 42501 another role''s lease, and what keeps the lease from being renewed; an error of one item is a row.';

CREATE FUNCTION @extschema@.revoke_lease(lease bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_revoke_lease';
COMMENT ON FUNCTION @extschema@.revoke_lease(bigint) IS
'Ends the lease and all that hangs on it, at once, also in a transaction that rolls back; false if it had ended.';

CREATE FUNCTION @extschema@.lease_time_to_live(lease bigint)
RETURNS interval LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_lease_time_to_live';
COMMENT ON FUNCTION @extschema@.lease_time_to_live(bigint) IS
'The time that the lease has left; NULL if it has ended.';

CREATE FUNCTION @extschema@.lease_holds(lease bigint)
RETURNS TABLE (kind pg_catalog.text, name pg_catalog.text, token bigint, granted boolean, queue_position bigint,
	channel pg_catalog.text, owner pg_catalog.text)
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100
AS 'MODULE_PATHNAME', 'le_lease_holds';
COMMENT ON FUNCTION @extschema@.lease_holds(bigint) IS
'All that hangs on the lease, a row per name: held locks, permits and elections (kind: lock, election), with "queue_position" 0, and queue places and candidacies, with the position from 1. Names of one acquire_locks or enqueue_locks have the same token. A grant to a place is announced on "channel" (of several names, that of the first). owner: NULL if none was named. As durable as the result of is_held; each row was true at some moment during the call. Not shown: what the transaction of another connection may still roll back, and what is evicted. Errors: LE001 no such lease, or it has ended, 40001 too much has ended while it was read.';

-- --- optimistic versions ---

-- Data of the callers, one row per key, dumped and replicated like any table.
-- The role is stored as a name because an OID means another role elsewhere, and
-- as an OID, which is not dumped, so that a new role with the name of a dropped
-- one does not get its keys.  The functions never remove a row, so that no
-- version is used twice.
CREATE FUNCTION lock_election.role_oid(role pg_catalog.name) RETURNS pg_catalog.oid
LANGUAGE C IMMUTABLE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_role_oid';
REVOKE ALL ON FUNCTION lock_election.role_oid(pg_catalog.name) FROM PUBLIC;
COMMENT ON FUNCTION lock_election.role_oid(pg_catalog.name) IS
'The OID of a role; 0 if there is none. Under table versioned; immutable so that a column can be generated by it, which is what the role was called when the row was written.';

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
'The keys of compare_and_set() and read_versioned(), and whose they are: of the role of that name, as long as it is the one that had it (role_oid). After a restore that ran before its role was created: UPDATE _lock_election.versioned SET role = role. To be read by superusers and, for pg_dump, by the owner of the database.';

CREATE FUNCTION @extschema@.compare_and_set(key pg_catalog.text, expected_version bigint, value pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_compare_and_set';
COMMENT ON FUNCTION @extschema@.compare_and_set(pg_catalog.text, bigint, pg_catalog.text) IS
'Sets the value of a key, of up to 4096 bytes, if its version is still the expected one (0: no such key yet), and returns the new version, which is one higher; NULL if the version differs. A row of this transaction, at its isolation level: the call waits for another transaction that is setting the key. A key is never removed: set it to NULL. It belongs to the role that created it; members of that and of pg_write_all_data may set it. lock_election.max_keys_per_role bounds name, value and 150 bytes of each of a role''s keys, but not older row versions. Errors: 53400 a key that grows beyond that limit, 40001 a concurrent change under REPEATABLE READ or SERIALIZABLE, 25006 read only.';

CREATE FUNCTION @extschema@.read_versioned(key pg_catalog.text, OUT value pg_catalog.text, OUT version bigint)
RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_read_versioned';
COMMENT ON FUNCTION @extschema@.read_versioned(pg_catalog.text) IS
'The value of a key and its version; version 0 if there is no such key. For members of the role that created it and of pg_read_all_data.';

CREATE FUNCTION @extschema@.version_guard()
RETURNS pg_catalog.trigger LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_version_guard';
COMMENT ON FUNCTION @extschema@.version_guard() IS
'A trigger BEFORE UPDATE FOR EACH ROW on a table of yours, with the name of a smallint, integer or bigint column as its argument (default: version): the new row must carry the row''s present version, and gets the next one. Errors: 40001 it carries another, 39P01 not such a trigger, 42703 no such column, 42804 another type, 428C9 a generated column, 22004 a version is null, 22003 no higher version.';

-- --- advisory locks ---

CREATE FUNCTION @extschema@.advisory_acquire(
	name pg_catalog.text,
	wait interval DEFAULT NULL,
	shared boolean DEFAULT false,
	scope pg_catalog.text DEFAULT 'session')
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_advisory_acquire';
COMMENT ON FUNCTION @extschema@.advisory_acquire(pg_catalog.text, interval, boolean, pg_catalog.text) IS
'Acquires an advisory lock of PostgreSQL by name. Returns true, or false if it was not granted within "wait" (NULL: no limit, ''0'': do not wait; to the millisecond, over 24 days: no limit). scope ''session'': until advisory_release, as often as acquired, or the end of the connection, whatever becomes of the transaction; ''transaction'': to the end of the (sub)transaction. The names have keys apart from those of pg_advisory_lock; two names that hash alike exclude each other. Errors: 25006 a standby (see lock_election.advisory_on_standby), 55P03 lock_timeout, 40P01 deadlock, 53200 see max_locks_per_transaction.';

CREATE FUNCTION @extschema@.advisory_release(name pg_catalog.text, shared boolean DEFAULT false)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_advisory_release';
COMMENT ON FUNCTION @extschema@.advisory_release(pg_catalog.text, boolean) IS
'Releases an advisory lock of scope ''session'', at once, once. Returns true, or false, with a WARNING as from pg_advisory_unlock, if this connection does not hold it in this mode. pg_advisory_unlock_all and DISCARD ALL release it as well.';

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
'Waits to be elected, as acquire_lock does for a lock, and returns the term, or NULL if it was not elected within "wait". Candidates are elected in order of arrival. "candidate" is the text that everybody sees, of 1 to 4096 bytes. The same named owner or lease again while it leads: a proclaim, and the same term. A rollback undoes the campaign, but not what was proclaimed. Errors: as acquire_lock.';

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
'Becomes a candidate and returns at once, as enqueue_lock does: the term, whether it is elected already, else the position in the queue (from 1), and the channel on which its election is announced. Every call is a candidacy of its own, also of the leader. Errors: as enqueue_lock.';

CREATE FUNCTION @extschema@.await_leadership(election pg_catalog.text, term bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_await_leadership';
COMMENT ON FUNCTION @extschema@.await_leadership(pg_catalog.text, bigint, interval) IS
'Like await_lock: whether this term of enqueue_candidate is elected. To withdraw call resign. Errors: LE001 neither leader nor candidate any more, 55P03 lock_timeout.';

CREATE FUNCTION @extschema@.proclaim(election pg_catalog.text, term bigint, candidate pg_catalog.text)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_proclaim';
COMMENT ON FUNCTION @extschema@.proclaim(pg_catalog.text, bigint, pg_catalog.text) IS
'Changes the text that everybody sees of the leader, without a new election. Returns true, or false if this term does not lead (any more). Durable when it returns; takes effect at once, and a rollback does not undo it.';

CREATE FUNCTION @extschema@.renew_leadership(election pg_catalog.text, term bigint, ttl interval DEFAULT NULL)
RETURNS interval LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_renew_leadership';
COMMENT ON FUNCTION @extschema@.renew_leadership(pg_catalog.text, bigint, interval) IS
'Starts the TTL of the leader again, with another length if "ttl" is given, and returns for how long the term is valid, or NULL if it is lost, as renew_lock does. Errors: 55000 a term that is still queued.';

CREATE FUNCTION @extschema@.resign(election pg_catalog.text, term bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_resign';
COMMENT ON FUNCTION @extschema@.resign(pg_catalog.text, bigint) IS
'Ends a leadership, or a candidacy. Returns true, or false if this term, or NULL, is neither. Takes effect, waits and may come back after a crash as release_lock: then the leader leads until its TTL ends, and the candidate is elected if its turn comes.';

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
'The leader of an election, for everybody; no row if there is none. A leader that was returned does not vanish in a crash (unless its term is bound to its connection). "expires_at": when the term ends if nobody renews it, infinity if it is bound to a connection. "valid_for": how long that is from now; NULL if the term is bound to a connection, and on a standby. On a standby the leader is the one that has been replayed, and "expires_at" ignores renewals since the election or the last proclaim (NULL: the term hangs on a named lease).';

CREATE FUNCTION @extschema@.is_leader(election pg_catalog.text, term bigint)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_is_leader';
COMMENT ON FUNCTION @extschema@.is_leader(pg_catalog.text, bigint) IS
'Whether this term leads now, as is_held for a lock.';

CREATE FUNCTION @extschema@.fence_leader(election pg_catalog.text, term bigint)
RETURNS pg_catalog.void LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_fence_leader';
COMMENT ON FUNCTION @extschema@.fence_leader(pg_catalog.text, bigint) IS
'As fence_lock, for the term of a leader. Errors: LE001 the term does not lead (any more), 53400 as fence_lock.';

CREATE FUNCTION @extschema@.evict_leader(election pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_evict_leader';
COMMENT ON FUNCTION @extschema@.evict_leader(pg_catalog.text) IS
'Lets nobody renew the leader of an election any more, and returns 1, or 0 if there is none, or it was evicted before. As evict_lock: it leads until it resigns, or until the time up to which it may act as leader in any case, and may proclaim meanwhile. For members of the leader''s role and of pg_signal_backend; logged. Errors: 55000 the term is bound to a connection, which has to be ended instead.';

CREATE FUNCTION @extschema@.force_resign(election pg_catalog.text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_force_resign';
COMMENT ON FUNCTION @extschema@.force_resign(pg_catalog.text) IS
'Ends the leadership of an election at once and returns 1, or 0 if there was no leader. It may act as leader until it notices, beside the next one; evict_leader waits for it. For members of the leader''s role and of pg_signal_backend; logged.';

-- --- observers of elections ---

CREATE FUNCTION @extschema@.observe_election(election pg_catalog.text)
RETURNS pg_catalog.text LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_observe_election';
COMMENT ON FUNCTION @extschema@.observe_election(pg_catalog.text) IS
'The channel to LISTEN on, always the same for an election: a notification for every new leader, proclaim and end of a term. The payload is JSON: event (as "how" of election_history), term, change, and previous, the change before of this election ("0": unknown). A client that has not seen that one reads election_history().';

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
'Every change of an election after this one, in order and without gaps: a term begins (elected), its candidate text changes (proclaimed), or it ends (resigned, expired, revoked with its lease, forced, evicted, undone with its transaction, disconnected). For everybody, also on a standby: what has been replayed. Kept for lock_election.history_retention.';

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
'Every holder (queue_position 0) and waiter, and every name that is closed (no mode); under the views locks, elections and waiters.';

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
'Every named lease; under the view leases.';

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
'The running manager of this database; under the view manager.';

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
'The state of lock_election on this server, for load balancers, probes and monitors. Asks no other process and never waits: also on a standby, and while the manager loads or is stopped. For everybody. ok: nothing is known to keep a client from getting a lock here. problem: the first thing that does. role: primary or standby. manager: one serves this database. loading: it reads its tables; requests wait for that. "request_wait": the longest time that a call has now been waiting for the manager to take its request, without calls that wait for their turn because they are much work, or whose caller has given up. "standby_confirms": as many synchronous standbys as synchronous_standby_names asks for are connected, and no call has been waiting for them for 2 s, or has given up a wait that they have not confirmed since; NULL: none is defined. "standby_wait": for how long they have now left a call of this database unconfirmed, including one that has given up; their replay (synchronous_commit = remote_apply) counts only where the caller waits for it. incarnation: as in view manager. "library_version", "sql_version": of the library that the server runs (NULL: it is not preloaded), and of the extension in this database. "replayed_at": on a standby, when the last replayed transaction was committed. "cannot_write_since": since when the manager cannot write its tables, because they are locked, the disk is full, no transaction id is left, or of another error: locks are renewed and shown, but none is granted, released or expires; NULL: it can, or has not needed to since. "blocked_by": the process that has locked the tables, or waits to; NULL: none was seen.';

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
'What the manager of this database has done since stats_reset; under the view stat.';

CREATE VIEW lock_election.stat AS
SELECT * FROM lock_election.counters();
CREATE FUNCTION lock_election.histograms(
	OUT name pg_catalog.text, OUT le double precision, OUT count bigint, OUT sum double precision)
RETURNS SETOF pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 76
AS 'MODULE_PATHNAME', 'le_histogram';
COMMENT ON FUNCTION lock_election.histograms() IS
'How long waits, holds and terms have taken that ended since stats_reset; under the view histogram.';

CREATE VIEW lock_election.histogram AS
SELECT * FROM lock_election.histograms();
CREATE FUNCTION lock_election.stat_reset()
RETURNS pg_catalog.void LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'le_stat_reset';
COMMENT ON FUNCTION lock_election.stat_reset() IS
'Sets the counters of views stat and histogram to zero. For superusers, and roles that they grant it to.';
REVOKE ALL ON FUNCTION lock_election.stat_reset() FROM PUBLIC;

GRANT SELECT ON lock_election.locks, lock_election.elections, lock_election.waiters, lock_election.leases, lock_election.manager,
	lock_election.stat, lock_election.histogram TO PUBLIC;

-- --- views and columns ---

COMMENT ON VIEW lock_election.locks IS
'Every held lock and every leader, and every name that is closed. Owner, token, lease, connection and client are shown to members of the role and of pg_read_all_stats. On a standby as of when the row was written, which a renewal does not do.';
COMMENT ON COLUMN lock_election.locks.kind IS
'lock or election: two spaces of names.';
COMMENT ON COLUMN lock_election.locks.name IS
'Of the lock, or election.';
COMMENT ON COLUMN lock_election.locks.slot IS
'Number of the slot in its lock, from 0. NULL: nobody holds it, it is closed.';
COMMENT ON COLUMN lock_election.locks.mode IS
'exclusive, shared or permit. NULL: nobody holds it.';
COMMENT ON COLUMN lock_election.locks.owner IS
'The named owner; NULL: the connection, or not for you.';
COMMENT ON COLUMN lock_election.locks.role IS
'The role that holds it; of a closed name, the role that left it so.';
COMMENT ON COLUMN lock_election.locks.token IS
'The holder''s token, or term.';
COMMENT ON COLUMN lock_election.locks.lease IS
'The named lease that it hangs on; NULL: none.';
COMMENT ON COLUMN lock_election.locks.holds IS
'How often it was acquired and is still to be released.';
COMMENT ON COLUMN lock_election.locks.acquired_at IS
'When it was granted.';
COMMENT ON COLUMN lock_election.locks.expires_at IS
'When its lease ends if nobody renews it; infinity: with its connection; on a standby NULL if it hangs on a named lease.';
COMMENT ON COLUMN lock_election.locks.time_left IS
'The same as a duration. NULL: as long as its connection, and on a standby.';
COMMENT ON COLUMN lock_election.locks.closed_until IS
'Nobody is granted the name before, because of hold_for or lock_election.expiry_grace; force_release_lock() opens it. NULL: it is open.';
COMMENT ON COLUMN lock_election.locks.waiters IS
'How many requests wait for the lock. NULL on a standby.';
COMMENT ON COLUMN lock_election.locks.pid IS
'Process of the connection that acquired it; kept when that has ended, so that another process may have the number by now: see connected.';
COMMENT ON COLUMN lock_election.locks.application_name IS
'application_name of that connection at that moment.';
COMMENT ON COLUMN lock_election.locks.client_addr IS
'Address of its client; NULL: a local connection.';
COMMENT ON COLUMN lock_election.locks.connected IS
'Whether that connection is still open. NULL: not known, as on a standby.';
COMMENT ON COLUMN lock_election.locks.evicted IS
'Whether evict_lock() or evict_leader() has evicted it: it ends at expires_at, or before. NULL: nobody holds it.';
COMMENT ON COLUMN lock_election.locks.fenced_by IS
'Processes whose transactions have fenced it: it cannot be handed on before they end.';
COMMENT ON COLUMN lock_election.locks.replayed_at IS
'On a standby: when the last transaction that it has replayed was committed. An old moment means that the standby is behind, or that the primary has had nothing to commit. NULL on a primary.';

COMMENT ON VIEW lock_election.elections IS
'Every election that has a leader. Owner, connection and fenced_by are shown to members of its role and of pg_read_all_stats.';
COMMENT ON COLUMN lock_election.elections.election IS
'Its name.';
COMMENT ON COLUMN lock_election.elections.candidate IS
'The leader''s text.';
COMMENT ON COLUMN lock_election.elections.term IS
'Its term.';
COMMENT ON COLUMN lock_election.elections.owner IS
'The named owner; NULL: the connection, or not for you.';
COMMENT ON COLUMN lock_election.elections.role IS
'The leader''s role.';
COMMENT ON COLUMN lock_election.elections.elected_at IS
'When the term began.';
COMMENT ON COLUMN lock_election.elections.expires_at IS
'When the term ends if nobody renews it; infinity: with its connection; on a standby as of the last write, and NULL on a named lease.';
COMMENT ON COLUMN lock_election.elections.valid_for IS
'The same as a duration. NULL: as long as its connection, and on a standby.';
COMMENT ON COLUMN lock_election.elections.waiting IS
'How many candidates come after it. NULL on a standby.';
COMMENT ON COLUMN lock_election.elections.pid IS
'Process of the connection that acquired it; kept when that has ended, so that another process may have the number by now: see connected.';
COMMENT ON COLUMN lock_election.elections.application_name IS
'application_name of that connection at that moment.';
COMMENT ON COLUMN lock_election.elections.client_addr IS
'Address of its client; NULL: a local connection.';
COMMENT ON COLUMN lock_election.elections.connected IS
'Whether that connection is still open. NULL: not known, as on a standby.';
COMMENT ON COLUMN lock_election.elections.evicted IS
'Whether evict_leader() has evicted the leader: the term ends at expires_at, or before.';
COMMENT ON COLUMN lock_election.elections.fenced_by IS
'Processes whose transactions have fenced it: nobody else is elected before they end.';
COMMENT ON COLUMN lock_election.elections.replayed_at IS
'On a standby: when the last transaction that it has replayed was committed. An old moment means that the standby is behind, or that the primary has had nothing to commit. NULL on a primary.';

COMMENT ON VIEW lock_election.waiters IS
'Every request that waits, in the order of the grants: blocked calls and queue places. Owner, token, lease, connection and client are shown to members of its role and of pg_read_all_stats. Empty on a standby.';
COMMENT ON COLUMN lock_election.waiters.kind IS
'lock or election.';
COMMENT ON COLUMN lock_election.waiters.name IS
'What it waits for.';
COMMENT ON COLUMN lock_election.waiters.queue_position IS
'From 1; the first is granted next.';
COMMENT ON COLUMN lock_election.waiters.mode IS
'exclusive, shared or permit.';
COMMENT ON COLUMN lock_election.waiters.owner IS
'The named owner; NULL: the connection, or not for you.';
COMMENT ON COLUMN lock_election.waiters.role IS
'The role that waits.';
COMMENT ON COLUMN lock_election.waiters.token IS
'The token that it will have.';
COMMENT ON COLUMN lock_election.waiters.lease IS
'The named lease that it hangs on; NULL: none.';
COMMENT ON COLUMN lock_election.waiters.waiting_since IS
'When it entered the queue.';
COMMENT ON COLUMN lock_election.waiters.pid IS
'Process of the connection that asked for it; kept when that has ended, so that another process may have the number by now: see connected.';
COMMENT ON COLUMN lock_election.waiters.application_name IS
'application_name of that connection at that moment.';
COMMENT ON COLUMN lock_election.waiters.client_addr IS
'Address of its client; NULL: a local connection.';
COMMENT ON COLUMN lock_election.waiters.connected IS
'Whether that connection is still open. NULL: not known, as on a standby.';
COMMENT ON COLUMN lock_election.waiters.blocked_by IS
'Processes that hold the lock, or, where nobody does, the one that is first in the queue, as far as they are connected and you may see them; 0: the name is closed, see closed_until.';
COMMENT ON COLUMN lock_election.waiters.closed_until IS
'Nobody is granted the name before; NULL: it is open.';

COMMENT ON VIEW lock_election.leases IS
'Every named lease. Its number and owner are shown to members of its role and of pg_read_all_stats. Empty on a standby.';
COMMENT ON COLUMN lock_election.leases.lease IS
'Its number.';
COMMENT ON COLUMN lock_election.leases.owner IS
'The named owner; NULL: none, or not for you.';
COMMENT ON COLUMN lock_election.leases.role IS
'The role that it belongs to.';
COMMENT ON COLUMN lock_election.leases.ttl IS
'How long it lasts after each keep_alive().';
COMMENT ON COLUMN lock_election.leases.expires_at IS
'When it ends if nobody keeps it alive.';
COMMENT ON COLUMN lock_election.leases.time_left IS
'The same as a duration.';
COMMENT ON COLUMN lock_election.leases.locks IS
'How many locks and leaderships hang on it.';
COMMENT ON COLUMN lock_election.leases.waiting IS
'How many queue places and waits hang on it.';

COMMENT ON VIEW lock_election.manager IS
'The process that owns the locks of this database. No row: it does not run.';
COMMENT ON COLUMN lock_election.manager.pid IS
'The process, as in pg_stat_activity.';
COMMENT ON COLUMN lock_election.manager.database IS
'This database.';
COMMENT ON COLUMN lock_election.manager.started IS
'When it started.';
COMMENT ON COLUMN lock_election.manager.incarnation IS
'Upper part of the tokens that it gives out; a new one at each start.';
COMMENT ON COLUMN lock_election.manager.revision IS
'The next token.';
COMMENT ON COLUMN lock_election.manager.locks IS
'Names that it knows: held, waited for, closed, or just released.';
COMMENT ON COLUMN lock_election.manager.held IS
'How many locks, permits and leaderships are held: rows of view locks that have a holder, without reading them.';
COMMENT ON COLUMN lock_election.manager.waiting IS
'How many requests are queued, candidates of elections included: rows of view waiters, without reading them.';
COMMENT ON COLUMN lock_election.manager.oldest_wait IS
'When the oldest of all requests that wait for a lock or permit entered its queue; candidates of elections do not count. NULL: nobody waits.';
COMMENT ON COLUMN lock_election.manager.memory IS
'Bytes of its state.';
COMMENT ON COLUMN lock_election.manager.slot_bytes IS
'Size of table slot on disk, in bytes, as of a few seconds ago. The manager reads the tables when it starts.';
COMMENT ON COLUMN lock_election.manager.lease_bytes IS
'Size of table lease on disk, in bytes, as of a few seconds ago.';
COMMENT ON COLUMN lock_election.manager.queue_bytes IS
'Size of table queue on disk, in bytes, as of a few seconds ago.';

COMMENT ON VIEW lock_election.stat IS
'What the manager of this database has done since stats_reset.';
COMMENT ON COLUMN lock_election.stat.acquires IS
'Requests to acquire, to enqueue and to campaign.';
COMMENT ON COLUMN lock_election.stat.renewals IS
'Calls of renew_lock and renew_leadership.';
COMMENT ON COLUMN lock_election.stat.releases IS
'Releases and resignations; those of a commit count as one.';
COMMENT ON COLUMN lock_election.stat.checks IS
'Calls of is_held and is_leader, fences, and looks of other calls.';
COMMENT ON COLUMN lock_election.stat.forced IS
'Calls of force_release_lock and force_resign.';
COMMENT ON COLUMN lock_election.stat.awaits IS
'Calls of await_lock, await_locks and await_leadership.';
COMMENT ON COLUMN lock_election.stat.grants IS
'Locks, permits and leaderships granted, further holds included.';
COMMENT ON COLUMN lock_election.stat.waits IS
'Requests that had to enter a queue.';
COMMENT ON COLUMN lock_election.stat.handoffs IS
'Grants to a request that had waited.';
COMMENT ON COLUMN lock_election.stat.leader_changes IS
'Terms that have begun: elections of a leader, also of one that led before.';
COMMENT ON COLUMN lock_election.stat.expiries IS
'Holds and places that ended because their lease did.';
COMMENT ON COLUMN lock_election.stat.timeouts IS
'Waits that ran out.';
COMMENT ON COLUMN lock_election.stat.undone IS
'Holds that were undone by a rollback.';
COMMENT ON COLUMN lock_election.stat.batches IS
'Batches that had something to write.';
COMMENT ON COLUMN lock_election.stat.failed_batches IS
'Batches that could not be written, and were applied again one by one; the server log says why. Not those that met a table with a new file (VACUUM FULL, CLUSTER, SET TABLESPACE): the manager loads it again, and no request fails.';
COMMENT ON COLUMN lock_election.stat.key_violations IS
'Failed batches that the unique key of a table has refused: somebody has written into the table.';
COMMENT ON COLUMN lock_election.stat.transaction_ids IS
'Transaction ids that it has used.';
COMMENT ON COLUMN lock_election.stat.rows_written IS
'Rows that it has written.';
COMMENT ON COLUMN lock_election.stat.flushes IS
'Batches that were flushed to disk.';
COMMENT ON COLUMN lock_election.stat.stalls IS
'Times that the manager did not run for more than a second; leases went on by as long.';
COMMENT ON COLUMN lock_election.stat.hints_sent IS
'Notifications that were sent.';
COMMENT ON COLUMN lock_election.stat.hints_dropped IS
'Notifications that were dropped, because a queue was full.';
COMMENT ON COLUMN lock_election.stat.write_time IS
'Milliseconds spent in writing and committing.';
COMMENT ON COLUMN lock_election.stat.stats_reset IS
'Since when it counts: its start, or lock_election.stat_reset().';

COMMENT ON VIEW lock_election.histogram IS
'How long waits, holds and terms have taken that ended since stats_reset of view stat: cumulative buckets, as Prometheus has them. What still lasts is not in it: see oldest_wait of view manager.';
COMMENT ON COLUMN lock_election.histogram.name IS
'wait: of a request in a queue for a lock or permit, until it was granted. fruitless_wait: the same, until its wait ran out, it was cancelled, or ended otherwise. hold: of a lock or permit, from its grant to its release, expiry or other end; of a holder that was fenced, to the end of its lease. term: of a leader, the same. Of acquire_locks() each name counts.';
COMMENT ON COLUMN lock_election.histogram.le IS
'Upper bound of the bucket, in seconds; the last one is Infinity.';
COMMENT ON COLUMN lock_election.histogram.count IS
'How many took at most that long; those of smaller buckets included.';
COMMENT ON COLUMN lock_election.histogram.sum IS
'Seconds of all of this name together; the same in each of its rows.';

COMMENT ON TABLE _lock_election.slot IS
'The durable record of holders, one row for each slot of a lock. Written by the manager alone; read view locks instead.';
COMMENT ON COLUMN _lock_election.slot.token IS
'The holder''s token; 0: free.';
COMMENT ON COLUMN _lock_election.slot.acquired_at IS
'When it was granted.';
COMMENT ON COLUMN _lock_election.slot.time_left IS
'Microseconds left at the end of the life in which the row was written; negative: ended, but still fenced.';
COMMENT ON COLUMN _lock_election.slot.life IS
'The life in which the row was written, see meta.life: what was recorded of the lives after it is taken off its time.';
COMMENT ON COLUMN _lock_election.slot.slot IS
'Number of the place in the lock, from 0.';
COMMENT ON COLUMN _lock_election.slot.expires_at IS
'When the lease ends, as of this write.';
COMMENT ON COLUMN _lock_election.slot.closed_until IS
'Nobody is granted the name before.';
COMMENT ON COLUMN _lock_election.slot.ttl IS
'Microseconds; -1: as long as its connection.';
COMMENT ON COLUMN _lock_election.slot.lease IS
'The lease that it hangs on; 0: one of its own.';
COMMENT ON COLUMN _lock_election.slot.session IS
'The connection that acquired it; 0: gone.';
COMMENT ON COLUMN _lock_election.slot.role IS
'Its role; of a free slot, the role that left it closed.';
COMMENT ON COLUMN _lock_election.slot.permits IS
'How many may hold it at once; 0: no permits.';
COMMENT ON COLUMN _lock_election.slot.holds IS
'How often it was acquired.';
COMMENT ON COLUMN _lock_election.slot.kind IS
'1 lock, 2 election.';
COMMENT ON COLUMN _lock_election.slot.mode IS
'0 free, 1 exclusive, 2 shared, 3 permit.';
COMMENT ON COLUMN _lock_election.slot.name IS
'Of the lock or election.';
COMMENT ON COLUMN _lock_election.slot.owner IS
'The named owner.';
COMMENT ON COLUMN _lock_election.slot.value IS
'The candidates text.';
COMMENT ON COLUMN _lock_election.slot.uncommitted IS
'Holds of transactions that were open when the row was written.';
COMMENT ON COLUMN _lock_election.slot.acquirer IS
'Process, address and application that acquired it, for people who look.';
COMMENT ON COLUMN _lock_election.slot.evicted IS
'Whether evict_lock() has evicted it: renewed no more, and with a time of its own, also on a named lease.';

COMMENT ON TABLE _lock_election.queue IS
'The durable record of queue places, one row for each until it is granted or ends. Written by the manager alone; read view waiters instead.';
COMMENT ON COLUMN _lock_election.queue.token IS
'The token that it will have.';
COMMENT ON COLUMN _lock_election.queue.entered_at IS
'When it entered the queue.';
COMMENT ON COLUMN _lock_election.queue.member IS
'Of several names: which one, from 1; else 0.';
COMMENT ON COLUMN _lock_election.queue.ttl IS
'Microseconds; -1: as long as its connection.';
COMMENT ON COLUMN _lock_election.queue.time_left IS
'Microseconds left at the end of the life in which the row was written.';
COMMENT ON COLUMN _lock_election.queue.life IS
'The life in which the row was written, see meta.life: what was recorded of the lives after it is taken off its time.';
COMMENT ON COLUMN _lock_election.queue.lease IS
'The lease that it hangs on; 0: one of its own.';
COMMENT ON COLUMN _lock_election.queue.session IS
'The connection that acquired it; 0: gone.';
COMMENT ON COLUMN _lock_election.queue.role IS
'Its role; of a free slot, the role that left it closed.';
COMMENT ON COLUMN _lock_election.queue.permits IS
'How many may hold it at once; 0: no permits.';
COMMENT ON COLUMN _lock_election.queue.holds IS
'How often it was acquired.';
COMMENT ON COLUMN _lock_election.queue.kind IS
'1 lock, 2 election.';
COMMENT ON COLUMN _lock_election.queue.mode IS
'0 free, 1 exclusive, 2 shared, 3 permit.';
COMMENT ON COLUMN _lock_election.queue.name IS
'Of the lock or election.';
COMMENT ON COLUMN _lock_election.queue.owner IS
'The named owner.';
COMMENT ON COLUMN _lock_election.queue.value IS
'The candidates text.';
COMMENT ON COLUMN _lock_election.queue.uncommitted IS
'Holds of transactions that were open when the row was written.';
COMMENT ON COLUMN _lock_election.queue.acquirer IS
'Process, address and application that acquired it, for people who look.';

COMMENT ON TABLE _lock_election.lease IS
'The durable record of leases: the named ones, and one for each acquire_locks(). Written by the manager alone; read view leases instead.';
COMMENT ON COLUMN _lock_election.lease.id IS
'Its number.';
COMMENT ON COLUMN _lock_election.lease.ttl IS
'Microseconds.';
COMMENT ON COLUMN _lock_election.lease.time_left IS
'Microseconds left at the end of the life in which the row was written.';
COMMENT ON COLUMN _lock_election.lease.life IS
'The life in which the row was written, see meta.life: what was recorded of the lives after it is taken off its time.';
COMMENT ON COLUMN _lock_election.lease.expires_at IS
'When it ends, as of this write.';
COMMENT ON COLUMN _lock_election.lease.role IS
'Its role.';
COMMENT ON COLUMN _lock_election.lease.owner IS
'The named owner.';

COMMENT ON TABLE _lock_election.history IS
'Changes of elections; read election_history() instead. Kept for lock_election.history_retention.';
COMMENT ON COLUMN _lock_election.history.change IS
'Its number.';
COMMENT ON COLUMN _lock_election.history.term IS
'The term.';
COMMENT ON COLUMN _lock_election.history.elected_at IS
'When the term began.';
COMMENT ON COLUMN _lock_election.history.at IS
'When it happened.';
COMMENT ON COLUMN _lock_election.history.role IS
'The leader''s role, whose lock_election.max_history_per_role it counts for.';
COMMENT ON COLUMN _lock_election.history.how IS
'1 elected, 2 proclaimed; the term has ended: 3 resigned, 4 expired, 5 revoked, 6 forced, 7 undone, 8 disconnected.';
COMMENT ON COLUMN _lock_election.history.election IS
'Its name.';
COMMENT ON COLUMN _lock_election.history.candidate IS
'The leader''s text.';

COMMENT ON TABLE _lock_election.meta IS
'One row: what the next manager has to know.';
COMMENT ON COLUMN _lock_election.meta.database IS
'The database that the locks were held in: another one in a copy.';
COMMENT ON COLUMN _lock_election.meta.incarnation IS
'The newest one.';
COMMENT ON COLUMN _lock_election.meta.taken_at IS
'When it was taken.';
COMMENT ON COLUMN _lock_election.meta.timeline IS
'The servers at that moment.';
COMMENT ON COLUMN _lock_election.meta.boot IS
'The life of the server at that moment.';
COMMENT ON COLUMN _lock_election.meta.life IS
'The number of the newest life, the run of one manager: the milliseconds recorded of all lives before it.';
COMMENT ON COLUMN _lock_election.meta.uptime IS
'The milliseconds recorded of the newest life.';
COMMENT ON COLUMN _lock_election.meta.lives IS
'The numbers of the newest lives, four bytes each.';

COMMENT ON TABLE _lock_election.incarnation_floor IS
'What pg_dump carries, so that tokens go on upwards after a restore.';
COMMENT ON COLUMN _lock_election.incarnation_floor.incarnation IS
'The newest one of the dumped database.';

COMMENT ON COLUMN _lock_election.versioned.version IS
'Counts up from 1 with each write.';
COMMENT ON COLUMN _lock_election.versioned.role IS
'Name of the role that the key belongs to.';
COMMENT ON COLUMN _lock_election.versioned.role_oid IS
'The role that had this name when the row was written; 0: there was none.';
COMMENT ON COLUMN _lock_election.versioned.key IS
'The key.';
COMMENT ON COLUMN _lock_election.versioned.value IS
'Its value.';

COMMENT ON SCHEMA lock_election IS
'Views of lock_election. The functions are in the schema that CREATE EXTENSION was given, the tables in _lock_election.';
COMMENT ON SCHEMA _lock_election IS
'Tables of lock_election, written by its manager alone. The views are in lock_election.';
