-- --- tables: what is stored ---------------------------------------------------------------------------------------------
--
-- Times are those of the server's wall clock.  A hold has its own ttl and expires_at, or is on a lease; a place
-- is always on a lease.  Columns that several tables have:
--
--     kind       1 lock, 2 election
--     life       life of the server in which the deadline was last set, see "lives"
--     changed    id of the transaction that inserted the row, evicted or ended it; lease_sync() finds news by it
--     told_call  number of the lease_sync() call that has reported the row as a result; 0 = none

CREATE TABLE IF NOT EXISTS _lock_election.edition (version pg_catalog.int4 NOT NULL);
INSERT INTO _lock_election.edition SELECT 0 WHERE NOT EXISTS (SELECT FROM _lock_election.edition);
UPDATE _lock_election.edition SET version = pg_catalog.current_setting('_lock_election.installing')::pg_catalog.int4
	WHERE version OPERATOR(pg_catalog.<) pg_catalog.current_setting('_lock_election.installing')::pg_catalog.int4;

CREATE SEQUENCE IF NOT EXISTS _lock_election.token AS pg_catalog.int8;

-- Settings, which lock_election.configure() changes, in one row.  A limit of 0 per role or lock means unlimited.
CREATE TABLE IF NOT EXISTS _lock_election.config (
	one pg_catalog.bool PRIMARY KEY DEFAULT true CHECK (one),
	channel_key pg_catalog.text NOT NULL DEFAULT pg_catalog.gen_random_uuid()::pg_catalog.text,
	notify pg_catalog.text NOT NULL DEFAULT 'all',
	max_ttl pg_catalog.interval NOT NULL DEFAULT '24 days',
	max_hold_for pg_catalog.interval NOT NULL DEFAULT '1 day',
	history_retention pg_catalog.interval NOT NULL DEFAULT '7 days',
	max_locks_per_role pg_catalog.int4 NOT NULL DEFAULT 0,
	max_waiters_per_lock pg_catalog.int4 NOT NULL DEFAULT 1000,
	max_leases_per_role pg_catalog.int4 NOT NULL DEFAULT 0,
	max_keys_per_role pg_catalog.int8 NOT NULL DEFAULT 268435456,
	max_history_per_role pg_catalog.int8 NOT NULL DEFAULT 268435456,
	-- number added to tokens after a move from the C edition, whose tokens were ahead of the clock by this number
	tokens_ahead pg_catalog.int8 NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO _lock_election.config DEFAULT VALUES ON CONFLICT DO NOTHING;

-- The current life of the server, in one row; the table is empty after a crash or a promotion.  born: xmin of the
-- row itself; differs from xmin in a restored dump.  database: oid of the database in which the row was written;
-- differs from the current one in a copy by CREATE DATABASE .. TEMPLATE.  limited: true if
-- config.max_locks_per_role is set, so that requests are counted.
CREATE UNLOGGED TABLE IF NOT EXISTS _lock_election.life (
	one pg_catalog.bool PRIMARY KEY DEFAULT true CHECK (one),
	life pg_catalog.int8 NOT NULL,
	database pg_catalog.oid NOT NULL,
	limited pg_catalog.bool NOT NULL DEFAULT false,
	born pg_catalog.xid
);
-- All lives in which a lease that is still live may have been renewed last.  Lives that began over 60 days ago are
-- deleted.
CREATE TABLE IF NOT EXISTS _lock_election.lives (
	life pg_catalog.int8 PRIMARY KEY,
	started pg_catalog.timestamptz NOT NULL
);

-- Leases.  named: true if grant_lease() has granted the lease; otherwise it belongs to a place, or to several
-- names that were acquired together with a ttl.  A renewal writes only this row.  granted_in: life in which the
-- lease was granted.  call: number of the newest call of lease_sync() that renewed the lease; 0 = none.
CREATE TABLE IF NOT EXISTS _lock_election.lease (
	id pg_catalog.int8 PRIMARY KEY,
	ttl pg_catalog.interval NOT NULL,
	expires_at pg_catalog.timestamptz NOT NULL,
	life pg_catalog.int8 NOT NULL,
	granted_in pg_catalog.int8 NOT NULL,
	call pg_catalog.int8 NOT NULL DEFAULT 0,
	role pg_catalog.oid NOT NULL,
	named pg_catalog.bool NOT NULL,
	owner pg_catalog.text
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The number of the newest call of lease_sync() that made requests, one row per lease.  An older call that arrives
-- later has no effect.
CREATE TABLE IF NOT EXISTS _lock_election.asked (
	lease pg_catalog.int8 PRIMARY KEY,
	call pg_catalog.int8 NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Holds, one row per slot.  An exclusive lock and a leader have slot 0, so that the primary key rejects a second
-- holder.  A row with slot -1 and no mode closes the name until closed_until.  acquired_in: transaction in which
-- the client acquired the hold; 0 = it was granted to a place.  ended: how the hold ended, if the row only
-- exists because a fence has locked it; otherwise NULL.
CREATE TABLE IF NOT EXISTS _lock_election.hold (
	kind pg_catalog.int2 NOT NULL,
	slot pg_catalog.int4 NOT NULL,
	token pg_catalog.int8 NOT NULL DEFAULT pg_catalog.nextval('_lock_election.token'),
	lease pg_catalog.int8,
	life pg_catalog.int8,
	changed pg_catalog.int8 NOT NULL,
	acquired_in pg_catalog.int8 NOT NULL DEFAULT 0,
	told_call pg_catalog.int8 NOT NULL DEFAULT 0,
	expires_at pg_catalog.timestamptz,
	since pg_catalog.timestamptz NOT NULL,
	closed_until pg_catalog.timestamptz,
	ttl pg_catalog.interval,
	role pg_catalog.oid NOT NULL,
	holds pg_catalog.int4 NOT NULL DEFAULT 1,
	permits pg_catalog.int4 NOT NULL DEFAULT 0,
	pid pg_catalog.int4 NOT NULL,
	evicted pg_catalog.bool NOT NULL DEFAULT false,
	mode pg_catalog.text,
	name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	owner pg_catalog.text,
	value pg_catalog.text,
	members pg_catalog.text[],
	ended pg_catalog.text,
	application pg_catalog.text,
	client pg_catalog.inet,
	PRIMARY KEY (kind, name, slot)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Queue places, in the order of their tokens.  A place without a named lease has its own lease, so that a client
-- that keeps its place alive writes only that lease's row, and does not block the transaction that grants the
-- place.  ttl: ttl of the hold that the place becomes; NULL on a named lease.  of_lease: true if the grant is
-- announced on the lease's channel.
CREATE TABLE IF NOT EXISTS _lock_election.place (
	kind pg_catalog.int2 NOT NULL,
	token pg_catalog.int8 NOT NULL,
	lease pg_catalog.int8 NOT NULL,
	changed pg_catalog.int8 NOT NULL,
	told_call pg_catalog.int8 NOT NULL DEFAULT 0,
	since pg_catalog.timestamptz NOT NULL,
	ttl pg_catalog.interval,
	role pg_catalog.oid NOT NULL,
	permits pg_catalog.int4 NOT NULL DEFAULT 0,
	pid pg_catalog.int4 NOT NULL,
	of_lease pg_catalog.bool NOT NULL,
	mode pg_catalog.text NOT NULL,
	name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	owner pg_catalog.text,
	value pg_catalog.text,
	members pg_catalog.text[],
	application pg_catalog.text,
	client pg_catalog.inet,
	PRIMARY KEY (kind, name, token)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Losses: ends of holds and places on named leases that their clients did not request, the newest 16 per lease.
-- A row whose token is the number of the lease records how the lease itself ended.
CREATE TABLE IF NOT EXISTS _lock_election.loss (
	lease pg_catalog.int8 NOT NULL,
	token pg_catalog.int8 NOT NULL,
	changed pg_catalog.int8 NOT NULL,
	reason pg_catalog.text NOT NULL,
	PRIMARY KEY (lease, token)
);

-- Changes of elections, one row per change.
CREATE TABLE IF NOT EXISTS _lock_election.history (
	change pg_catalog.int8 NOT NULL,
	term pg_catalog.int8 NOT NULL,
	elected_at pg_catalog.timestamptz NOT NULL,
	changed_at pg_catalog.timestamptz NOT NULL,
	ended_at pg_catalog.timestamptz,
	role pg_catalog.oid NOT NULL,
	how pg_catalog.text NOT NULL,
	candidate pg_catalog.text NOT NULL,
	election pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	PRIMARY KEY (election, change)
);

-- Fences.  Only the transaction that sets a fence reads its row.  The row is deleted some time after that
-- transaction has ended.
CREATE TABLE IF NOT EXISTS _lock_election.fence (
	kind pg_catalog.int2 NOT NULL,
	transaction pg_catalog.int8 NOT NULL,
	token pg_catalog.int8 NOT NULL,
	pid pg_catalog.int4 NOT NULL,
	name pg_catalog.text COLLATE pg_catalog."C" NOT NULL
);

-- Keys of compare_and_set(), one row per key.
CREATE TABLE IF NOT EXISTS _lock_election.versioned (
	version pg_catalog.int8 NOT NULL,
	role pg_catalog.name NOT NULL,
	key pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
	value pg_catalog.text
) WITH (fillfactor = 50);

-- Check first whether an index exists, because even then CREATE INDEX IF NOT EXISTS would wait for all writers, and
-- block later ones.
DO $$
BEGIN
	IF pg_catalog.to_regclass('_lock_election.hold_lease') IS NULL THEN CREATE INDEX hold_lease ON _lock_election.hold (lease) WHERE lease IS NOT NULL; END IF;
	IF pg_catalog.to_regclass('_lock_election.hold_evicted') IS NULL THEN CREATE INDEX hold_evicted ON _lock_election.hold (lease) WHERE evicted; END IF;
	IF pg_catalog.to_regclass('_lock_election.place_lease') IS NULL THEN CREATE INDEX place_lease ON _lock_election.place (lease); END IF;
	IF pg_catalog.to_regclass('_lock_election.history_age') IS NULL THEN CREATE INDEX history_age ON _lock_election.history (changed_at); END IF;
	IF pg_catalog.to_regclass('_lock_election.history_role') IS NULL THEN CREATE INDEX history_role ON _lock_election.history (role); END IF;
	IF pg_catalog.to_regclass('_lock_election.versioned_role') IS NULL THEN CREATE INDEX versioned_role ON _lock_election.versioned (role); END IF;
	IF pg_catalog.to_regclass('_lock_election.fence_transaction') IS NULL THEN CREATE INDEX fence_transaction ON _lock_election.fence (transaction); END IF;
END $$;
