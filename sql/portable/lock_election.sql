-- lock_election, the portable edition: the locks of the extension lock_election in plain SQL and PL/pgSQL,
-- for servers on which no C extension can be installed.
--
--     psql -q -1 -v ON_ERROR_STOP=1 -f lock_election.sql
--
-- Run it as a role that has CREATE on the database and is not the role of the application.
--
-- The functions are created in the schema that the setting _lock_election.schema names.  If that schema does not
-- exist, it is created with USAGE for PUBLIC, or for only the role that the setting _lock_election.grant names:
--
--     psql -q -1 -v ON_ERROR_STOP=1 -c "SET LOCAL _lock_election.schema = 'locks'" -f lock_election.sql
--
-- Without the setting, the functions are created in the first schema of search_path.  Running the file again
-- upgrades an older version in the schema where it is installed; it does nothing if the version is the same,
-- and fails if the installed version is newer.  The file must run in a single transaction, as in migration
-- tools, and uses only:
--
--     PostgreSQL 13 or newer, up to 19, PL/pgSQL, sequences, an UNLOGGED table that a crash and a promotion
--     empty, transaction-level advisory locks, row locks with SKIP LOCKED, ON CONFLICT, NOTIFY.
--
-- No superuser, extension, setting, background worker or cron job is needed.  docs/reference/editions.md
-- lists the differences from the C edition; docs/how-to/managed.md explains the installation on managed
-- services.
--
-- Parts of this file, which sql/portable/assemble joins:
--
--     install    checks the server, the role and any earlier installation
--     tables     what is stored
--     base       small helpers: caller, privileges, errors, arguments
--     lives      crashes and promotions: leases start over once, tokens continue above all earlier ones
--     sections   the critical section of a name
--     ends       how holds, places and leases end
--     queue      how a place is granted
--     requests   acquire and enqueue
--     locks      the functions of locks, permits and places
--     leases     the functions of leases
--     sync       lease_sync(), for client libraries
--     elections  the functions of elections
--     fences     fences, versions, advisory locks
--     operators  evict, force, limits, reap
--     views      views and health()
--     rights     who may call which function
--     comments   copied from the script of the C edition

-- --- install: checks the server, the role and any earlier installation ------------------------------------------------

-- Sets the version of this file for the rest of the transaction.
DO $$
BEGIN
	PERFORM pg_catalog.set_config('_lock_election.installing', '1', true);
END $$;

DO $$
DECLARE
	version pg_catalog.int4 := CASE WHEN pg_catalog.current_setting('_lock_election.installing', true) OPERATOR(pg_catalog.<>) '' THEN pg_catalog.current_setting('_lock_election.installing') END;
	wanted pg_catalog.name := CASE WHEN pg_catalog.current_setting('_lock_election.schema', true) OPERATOR(pg_catalog.<>) '' THEN pg_catalog.current_setting('_lock_election.schema') END;
	grantee pg_catalog.name := CASE WHEN pg_catalog.current_setting('_lock_election.grant', true) OPERATOR(pg_catalog.<>) '' THEN pg_catalog.current_setting('_lock_election.grant') END;
	here pg_catalog.text := COALESCE(wanted::pg_catalog.text, pg_catalog.current_schema());
	found pg_catalog.int4;
	place pg_catalog.text;
	foreign_owner pg_catalog.text;
	theirs pg_catalog.text;
	-- this hint does not propose PGOPTIONS, because connection poolers do not accept it
	how_to_name CONSTANT pg_catalog.text := 'which is made if it is missing: lockctl install --schema locks, the argument of install() in the libraries, or before this file: SET LOCAL _lock_election.schema = ''locks''';
BEGIN
	-- 1. check the server and the transaction
	IF version IS NULL THEN
		RAISE EXCEPTION 'this file has to run in one transaction' USING ERRCODE = '25P01', HINT = 'Type: psql -q -1 -v ON_ERROR_STOP=1 -f lock_election.sql';
	END IF;
	IF pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog.<) 130000
		OR pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog.>) 199999 THEN
		RAISE EXCEPTION 'lock_election needs PostgreSQL 13 or newer, up to 19; this is %', pg_catalog.current_setting('server_version') USING ERRCODE = '0A000';
	END IF;
	IF pg_catalog.pg_is_in_recovery() THEN
		RAISE EXCEPTION 'this server is a standby, where nothing can be installed' USING ERRCODE = '25006',
			HINT = 'Connect to the primary.';
	END IF;
	IF pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool THEN
		RAISE EXCEPTION 'transactions are read-only here, and nothing can be installed' USING ERRCODE = '25006',
			HINT = 'Type: PGOPTIONS=''-c default_transaction_read_only=off'', if the server allows writing at all.';
	END IF;
	IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
		RAISE EXCEPTION 'this file has to run in READ COMMITTED' USING ERRCODE = '0A000',
			HINT = 'Otherwise, two concurrent installations might not see each other.';
	END IF;
	PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lock_election install', 4801));

	-- 2. fail if the C edition is installed, or a schema belongs to another role
	IF EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'lock_election') THEN
		RAISE EXCEPTION 'the extension lock_election is installed in this database' USING ERRCODE = '42710',
			HINT = 'The portable edition is for databases without it.';
	END IF;
	SELECT pg_catalog.pg_get_userbyid(nspowner), nspname INTO foreign_owner, theirs FROM pg_catalog.pg_namespace
		WHERE nspname OPERATOR(pg_catalog.=) ANY ('{lock_election,_lock_election}'::pg_catalog.name[])
			AND pg_catalog.pg_get_userbyid(nspowner) OPERATOR(pg_catalog.<>) current_user LIMIT 1;
	IF foreign_owner IS NOT NULL THEN
		RAISE EXCEPTION 'schema % belongs to role "%"', theirs, foreign_owner USING ERRCODE = '42501',
			HINT = 'Run this file as that role, if it has installed lock_election. If not, drop the schema: its owner could change what is in it.';
	END IF;

	-- 3. handle an installed version, which may be older, the same, or newer; an upgrade keeps its schema
	PERFORM pg_catalog.set_config('_lock_election.new', CASE WHEN pg_catalog.to_regclass('_lock_election.edition') IS NULL THEN 'yes' ELSE 'no' END, true);
	IF pg_catalog.to_regclass('_lock_election.edition') IS NOT NULL THEN
		EXECUTE 'SELECT version FROM _lock_election.edition' INTO found;
		IF found OPERATOR(pg_catalog.>) version THEN
			RAISE EXCEPTION 'version % of the portable edition is installed, and this is version %', found, version USING ERRCODE = '0A000',
				HINT = 'Use the file of the newer release: it works with older clients, too.';
		END IF;
		SELECT n.nspname INTO place FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
			WHERE p.proname OPERATOR(pg_catalog.=) 'lease_sync' AND pg_catalog.pg_get_userbyid(p.proowner) OPERATOR(pg_catalog.=) current_user LIMIT 1;
		here := COALESCE(place, here);
	END IF;
	IF (pg_catalog.to_regnamespace('lock_election') IS NULL OR pg_catalog.to_regnamespace('_lock_election') IS NULL
			OR wanted IS NOT NULL AND place IS NULL AND pg_catalog.to_regnamespace(pg_catalog.quote_ident(wanted)) IS NULL)
		AND NOT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') THEN
		RAISE EXCEPTION 'role "%" may not create schemas in database "%"', current_user, pg_catalog.current_database() USING ERRCODE = '42501',
			HINT = pg_catalog.format('Run this file as the owner of the database, or as its owner type: GRANT CREATE ON DATABASE %I TO %I', pg_catalog.current_database(), current_user);
	END IF;
	IF here IS NULL OR here OPERATOR(pg_catalog.=) ANY ('{lock_election,_lock_election}'::pg_catalog.text[]) OR pg_catalog.starts_with(here, 'pg_') THEN
		RAISE EXCEPTION 'there is no schema for the functions of lock_election' USING ERRCODE = '22023',
			HINT = 'Name one, ' OPERATOR(pg_catalog.||) how_to_name;
	END IF;
	IF wanted IS NOT NULL AND place IS NULL AND pg_catalog.to_regnamespace(pg_catalog.quote_ident(wanted)) IS NULL THEN
		EXECUTE pg_catalog.format('CREATE SCHEMA %I', wanted);
		IF grantee IS NULL THEN EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %I TO PUBLIC', wanted); END IF;
	END IF;
	SELECT r.rolname INTO foreign_owner FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
		WHERE place IS NULL AND n.nspname OPERATOR(pg_catalog.=) here AND NOT r.rolsuper AND r.rolname OPERATOR(pg_catalog.<>) ALL (ARRAY[current_user, 'pg_database_owner'])
			AND r.oid OPERATOR(pg_catalog.<>) (SELECT d.datdba FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
			AND ((SELECT me.rolsuper FROM pg_catalog.pg_roles me WHERE me.rolname OPERATOR(pg_catalog.=) current_user) OR NOT pg_catalog.pg_has_role(current_user, r.oid, 'USAGE'));
	IF foreign_owner IS NOT NULL THEN
		RAISE EXCEPTION 'schema "%" belongs to role "%", which could replace functions in it', here, foreign_owner USING ERRCODE = '42501',
			HINT = 'Name another one, ' OPERATOR(pg_catalog.||) how_to_name;
	END IF;
	IF NOT pg_catalog.has_schema_privilege(here, 'CREATE') THEN
		RAISE EXCEPTION 'role "%" may not create functions in schema "%"', current_user, here USING ERRCODE = '42501',
			HINT = 'Name another one, ' OPERATOR(pg_catalog.||) how_to_name;
	END IF;
	IF grantee IS NOT NULL THEN EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', here, grantee); END IF;

	-- 4. create the schemas of views and tables; step 2 has checked that no other role owns them
	IF pg_catalog.to_regnamespace('lock_election') IS NULL THEN CREATE SCHEMA lock_election; END IF;
	IF pg_catalog.to_regnamespace('_lock_election') IS NULL THEN CREATE SCHEMA _lock_election; END IF;

	-- 5. make unqualified names refer to the schema of the functions, in this transaction
	PERFORM pg_catalog.set_config('search_path', pg_catalog.quote_ident(here), true);
	PERFORM pg_catalog.set_config('client_min_messages', 'warning', true);
END $$;

GRANT USAGE ON SCHEMA lock_election TO PUBLIC;

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

-- --- base: small helpers ------------------------------------------------------------------------------------------------
--
-- Only the public functions call the functions of schema _lock_election.  The public functions are SECURITY
-- DEFINER, with a search_path of only pg_catalog, which also applies to all functions that they call.

-- Returns the caller's role: the role of SET ROLE, or the session's role.  Ignores the owner of a SECURITY DEFINER
-- function that makes the call, because current_user is always the owner of the functions of this file.
CREATE OR REPLACE FUNCTION _lock_election.who() RETURNS pg_catalog.oid LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	me oid := to_regrole(quote_ident(CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END));
BEGIN
	-- the role of SET ROLE was dropped; fail, because a NULL must not be compared with other roles
	IF me IS NULL THEN PERFORM _lock_election.fail('42704', format('role "%s" does not exist any more', current_setting('role'))); END IF;
	RETURN me;
END $$;

-- Returns whether the caller has the privileges of "role", or those of "also", a second role that is sufficient.
CREATE OR REPLACE FUNCTION _lock_election.is_mine(role oid, also text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	me oid := _lock_election.who();
BEGIN
	RETURN role = me OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = me AND r.rolsuper)
		OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = role) AND pg_has_role(me, role, 'USAGE')
		OR also IS NOT NULL AND pg_has_role(me, also, 'USAGE');
END $$;

-- Returns the word for a kind.  Has no SET search_path, so that the planner inlines the function into the calling
-- statement.
CREATE OR REPLACE FUNCTION _lock_election.word(k int2) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN k OPERATOR(pg_catalog.=) 1 THEN 'lock' ELSE 'election' END
$$;

-- Raises an error.
CREATE OR REPLACE FUNCTION _lock_election.fail(code text, message text, detail text DEFAULT '', hint text DEFAULT '') RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF detail = '' AND hint = '' THEN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message; END IF;
	IF hint = '' THEN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail; END IF;
	IF detail = '' THEN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, HINT = hint; END IF;
	RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail, HINT = hint;
END $$;

-- Raises an error unless the caller's role is that which acquired the lock or term, as in the C edition.  A member
-- of that role must use SET ROLE first.
CREATE OR REPLACE FUNCTION _lock_election.check_role(k int2, n text, role oid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF role IS DISTINCT FROM _lock_election.who() THEN
		PERFORM _lock_election.fail('42501', format('%s "%s" is held by another role', _lock_election.word(k), n), '',
			CASE k WHEN 1 THEN 'A lock belongs to the role that acquired it: SET ROLE to that role, or use force_release_lock().'
				ELSE 'An election belongs to the role that acquired it: SET ROLE to that role, or use force_resign().' END);
	END IF;
END $$;

-- Raises an error if no request can be decided here: on a standby, in a read-only transaction, and at isolation
-- levels above READ COMMITTED, where the snapshot may be older than the section of the name.
CREATE OR REPLACE FUNCTION _lock_election.check_transaction() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF pg_is_in_recovery() THEN
		PERFORM _lock_election.fail('25006', 'cannot use the locks of lock_election during recovery', 'The server is a standby.', 'Connect to the primary.');
	END IF;
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM _lock_election.fail('0A000', 'the portable edition of lock_election works in READ COMMITTED only',
			'This transaction is ' || upper(current_setting('transaction_isolation')) || ': it cannot see what others have come to hold since it began.',
			'BEGIN ISOLATION LEVEL READ COMMITTED, or SET default_transaction_isolation = ''read committed''.');
	END IF;
	IF current_setting('transaction_read_only') = 'on' THEN
		PERFORM _lock_election.fail('25006', 'cannot use the locks of lock_election in a read-only transaction', 'The portable edition writes rows.', 'BEGIN READ WRITE.');
	END IF;
END $$;

-- --- arguments: same errors as in the C edition ---

CREATE OR REPLACE FUNCTION _lock_election.check_text(what text, v text, most int4) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF v IS NULL THEN PERFORM _lock_election.fail('22023', what || ' must not be null'); END IF;
	IF v = '' THEN PERFORM _lock_election.fail('22023', what || ' must not be empty', format('It is a text of 1 to %s bytes.', most)); END IF;
	IF octet_length(v) > most THEN
		PERFORM _lock_election.fail('22023', format('%s is too long: %s bytes', what, octet_length(v)), format('It is a text of 1 to %s bytes.', most));
	END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_name(k int2, n text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF octet_length(n) BETWEEN 1 AND 255 THEN RETURN; END IF;
	PERFORM _lock_election.check_text(CASE k WHEN 1 THEN 'name' ELSE 'election' END, n, 255);
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_token(k int2, token int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF token IS NULL THEN PERFORM _lock_election.fail('22023', CASE k WHEN 1 THEN 'token' ELSE 'term' END || ' must not be null'); END IF;
END $$;

-- Returns the interval in hours, minutes and seconds only, so that its length does not depend on the time zone.
CREATE OR REPLACE FUNCTION _lock_election.exact(v interval) RETURNS interval LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN make_interval(secs => date_part('epoch', v));
END $$;

CREATE OR REPLACE FUNCTION _lock_election.out_of_range(what text, v interval, range text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.fail('22023', format('%s is out of range: %s', what, v), 'It is an interval ' || range || '.');
END $$;

-- Raises the error that this interval exceeds the limit, which is shown in the format of a setting.
CREATE OR REPLACE FUNCTION _lock_election.too_long(what text, v interval, most interval) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ms int8 := date_part('epoch', most) * 1000;
BEGIN
	PERFORM _lock_election.fail('53400', format('%s is too long for this server: %s', what, v), '', format('See lock_election.max_%s (%s).', what,
		CASE WHEN ms % 86400000 = 0 THEN ms / 86400000 || 'd' WHEN ms % 3600000 = 0 THEN ms / 3600000 || 'h' WHEN ms % 60000 = 0 THEN ms / 60000 || 'min'
			WHEN ms % 1000 = 0 THEN ms / 1000 || 's' ELSE ms || 'ms' END));
END $$;

CREATE OR REPLACE FUNCTION _lock_election.checked_ttl(ttl interval) RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	most interval;
BEGIN
	IF ttl IS NULL THEN
		PERFORM _lock_election.fail('0A000', 'ttl => NULL needs the C edition of lock_election', 'An SQL function cannot notice the end of a connection.',
			'Pass a ttl, and renew the lock.');
	END IF;
	IF NOT ttl BETWEEN '100 ms' AND '24 days' THEN
		PERFORM _lock_election.out_of_range('ttl', ttl, 'from 100 milliseconds to 24 days');
	END IF;
	IF ttl > '1 hour' THEN
		SELECT max_ttl INTO most FROM _lock_election.config WHERE one;
		IF ttl > most THEN PERFORM _lock_election.too_long('ttl', ttl, most); END IF;
	END IF;
	RETURN make_interval(secs => date_part('epoch', ttl));
END $$;

CREATE OR REPLACE FUNCTION _lock_election.checked_wait(wait interval) RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF wait < '0' OR date_part('epoch', wait) >= 9223372036854.775 AND wait > '106751991 days 04:00:54.775806' THEN
		PERFORM _lock_election.out_of_range('wait', wait, 'of 0 or more, or null to wait without limit');
	END IF;
	RETURN CASE WHEN wait > '1000 days' THEN NULL ELSE wait END;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.checked_hold_for(hold_for interval) RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	most interval;
BEGIN
	IF hold_for IS NULL OR hold_for = '0' THEN RETURN NULL; END IF;
	IF NOT hold_for BETWEEN '0' AND '24 days' THEN PERFORM _lock_election.out_of_range('hold_for', hold_for, 'from 0 to 24 days'); END IF;
	SELECT max_hold_for INTO most FROM _lock_election.config WHERE one;
	IF hold_for > most THEN PERFORM _lock_election.too_long('hold_for', hold_for, most); END IF;
	RETURN _lock_election.exact(hold_for);
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_mode(mode text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF mode IS NULL THEN PERFORM _lock_election.fail('22023', 'mode must not be null'); END IF;
	IF mode NOT IN ('exclusive', 'shared') THEN
		PERFORM _lock_election.fail('22023', format('unknown mode "%s"', CASE WHEN octet_length(mode) > 64 THEN left(mode, 32 - (octet_length(left(mode, 32)) - 64 + abs(octet_length(left(mode, 32)) - 64)) / 2) ELSE mode END), 'A mode is "exclusive" or "shared".');
	END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_permits(permits int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF permits IS NULL THEN PERFORM _lock_election.fail('22023', 'permits must not be null', 'It must be at least 1.'); END IF;
	IF permits NOT BETWEEN 1 AND 2147483647 THEN
		PERFORM _lock_election.fail('22023', 'permits is out of range: ' || permits, 'It must be at least 1.');
	END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_names(names text[], least_names int4) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	twice text;
BEGIN
	IF names IS NULL THEN PERFORM _lock_election.fail('22023', 'names must not be null'); END IF;
	IF array_ndims(names) > 1 THEN PERFORM _lock_election.fail('22023', 'names must have one dimension only'); END IF;
	IF NOT cardinality(names) BETWEEN least_names AND 1000 THEN
		PERFORM _lock_election.fail('22023', format('names is out of range: %s names', cardinality(names)), format('It is an array of %s to 1000 names.', least_names));
	END IF;
	PERFORM _lock_election.check_text(format('names[%s]', i), n, 255) FROM unnest(names) WITH ORDINALITY AS x(n, i);
	SELECT n INTO twice FROM unnest(names) AS x(n) GROUP BY n COLLATE "C", n HAVING count(*) > 1 ORDER BY n COLLATE "C" LIMIT 1;
	IF FOUND THEN PERFORM _lock_election.fail('22023', format('names contains "%s" twice', twice)); END IF;
END $$;

-- --- lives: crashes and promotions --------------------------------------------------------------------------------------
--
-- A crash may lose commits that were not flushed, mostly renewals.  A promotion may lose commits that were not
-- replicated.  Both leave the UNLOGGED table life empty.  The first call that finds it empty begins a life, with
-- these rules:
--
--     1. Tokens continue above all tokens that may have been returned.
--     2. A lease that was last granted or renewed in an earlier life expires no sooner than its ttl after the
--        start of the life that followed (ends()).  So each lease starts over only once, and a series of crashes
--        does not keep it alive.
--     3. The first renewal of a lease in a life is flushed, because if it were lost, the lease would not start
--        over after the next crash.
--
-- A token is a number from a sequence.  Each life sets the sequence to at least 2^12 times the milliseconds
-- since 2025.  That number is below 2^53 for 69 years, and below the tokens that the C edition returns at the
-- same time.  It is above the tokens of a life that was lost in a promotion, if the servers' clocks differ by
-- less than the length of that life.  After a move from the C edition, config.tokens_ahead is added.

-- Begins a life and returns its number, or returns the life that another transaction has begun meanwhile.
-- Returns NULL if another transaction is still beginning a life after "patience".
CREATE OR REPLACE FUNCTION _lock_election.begin_life(patience interval) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	until timestamptz := clock_timestamp() + patience;
	here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
	moment int8 := floor((date_part('epoch', clock_timestamp()) - 1735689600) * 1000)::int8;
	l record;
	number int8;
BEGIN
	-- 1. take a lock, so that only one transaction begins a life
	WHILE NOT pg_try_advisory_xact_lock(hashtextextended('lock_election life', 4801)) LOOP
		IF clock_timestamp() >= until THEN RETURN NULL; END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	SELECT x.life, x.database = here AND x.born = x.xmin AS whole INTO l FROM _lock_election.life x WHERE x.one;
	IF l.whole THEN RETURN l.life; END IF;

	-- 2. if this is a copy of another database, delete the copied rows, whose holders use the other database
	IF l.life IS NOT NULL THEN
		DELETE FROM _lock_election.hold;
		DELETE FROM _lock_election.place;
		DELETE FROM _lock_election.lease;
		DELETE FROM _lock_election.asked;
		-- these rows contain transaction ids of the original database; later transactions may get the same ids here
		DELETE FROM _lock_election.loss;
		DELETE FROM _lock_election.fence;
		DELETE FROM _lock_election.life;
	END IF;

	-- 3. continue tokens and lives above all earlier numbers
	PERFORM setval('_lock_election.token', greatest((SELECT last_value FROM _lock_election.token) + (1 << 22),
		((moment + 1) << 12) + (SELECT c.tokens_ahead FROM _lock_election.config c WHERE c.one)));
	number := greatest((SELECT max(x.life) FROM _lock_election.lives x) + 1, moment);
	DELETE FROM _lock_election.lives x WHERE x.started < clock_timestamp() - interval '60 days';
	INSERT INTO _lock_election.lives VALUES (number, clock_timestamp());
	INSERT INTO _lock_election.life (life, database, limited) SELECT number, here, c.max_locks_per_role > 0 FROM _lock_election.config c WHERE c.one;
	UPDATE _lock_election.life SET born = xmin WHERE one;
	RETURN number;
END $$;

-- Returns the current life, and begins one if necessary.
CREATE OR REPLACE FUNCTION _lock_election.current_life() RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
BEGIN
	SELECT l.life INTO number FROM _lock_election.life l JOIN pg_database d ON d.oid = l.database
		WHERE l.one AND l.born = l.xmin AND d.datname = current_database();
	IF FOUND THEN RETURN number; END IF;
	number := _lock_election.begin_life('2 s');
	IF number IS NULL THEN
		PERFORM _lock_election.fail('57P03', 'the locks of this database are not ready after a crash of the server',
			'Another transaction is preparing them, and has not ended yet.');
	END IF;
	RETURN number;
END $$;

-- Returns the current life for a renewal.  Returns NULL if another transaction is beginning a life and may be idle;
-- then nothing expires, and the renewal does not change the life in its row.
CREATE OR REPLACE FUNCTION _lock_election.life_of_renewal() RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
BEGIN
	SELECT l.life INTO number FROM _lock_election.life l JOIN pg_database d ON d.oid = l.database
		WHERE l.one AND l.born = l.xmin AND d.datname = current_database();
	IF FOUND THEN RETURN number; END IF;
	RETURN _lock_election.begin_life('100 ms');
END $$;

-- Returns the current deadline of a lease or hold whose expires_at was set in of_life.  The deadline is infinite
-- until the current life has begun.  But in a restored dump everything has expired, even before the first call
-- begins a life.
CREATE OR REPLACE FUNCTION _lock_election.ends(expires_at timestamptz, of_life int8, ttl interval) RETURNS timestamptz LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
	restored boolean;
	next timestamptz;
BEGIN
	IF pg_is_in_recovery() THEN RETURN expires_at; END IF;
	SELECT l.life, l.born IS DISTINCT FROM l.xmin INTO number, restored FROM _lock_election.life l WHERE l.one;
	IF restored THEN RETURN '-infinity'; END IF;
	IF number = of_life THEN RETURN expires_at; END IF;
	IF number IS NULL THEN RETURN 'infinity'; END IF;
	SELECT l.started INTO next FROM _lock_election.lives l WHERE l.life > of_life ORDER BY l.life LIMIT 1;
	RETURN greatest(expires_at, next + ttl);
END $$;

-- Returns the time left until a deadline, or NULL if the deadline is infinite.
CREATE OR REPLACE FUNCTION _lock_election.time_left(at timestamptz) RETURNS interval LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN CASE WHEN isfinite(at) THEN at - clock_timestamp() END;
END $$;

-- --- sections: the critical section of a name --------------------------------------------------------------------------
--
-- All code that grants a name runs in the section of the name, which is a transaction-level advisory lock, and
-- sees everything that earlier sections have written.  A section lasts until the caller's COMMIT.  Each wait for
-- a section has a time limit, so that an idle transaction does not block others.  If an attempt cannot enter the
-- section, it is refused, because another transaction is acquiring or releasing the name.  A release continues
-- without the section.  Renewals and is_held() never need a section.

-- Enters the sections of these names, in an order that is the same for all callers.  Returns false if one of the
-- sections cannot be entered within "patience".  PostgreSQL's lock queue serves waiting callers in the order of
-- arrival.
CREATE OR REPLACE FUNCTION _lock_election.enter(k int2, names text[], patience interval) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	limit_ms int4;
	before text;
	section int8;
BEGIN
	IF cardinality(names) = 1 AND pg_try_advisory_xact_lock(hashtextextended(names[1], 4802 + k)) THEN RETURN true; END IF;
	limit_ms := date_part('epoch', patience) * 1000;
	FOR section IN SELECT DISTINCT hashtextextended(n, 4802 + k) FROM unnest(names) AS x(n) ORDER BY 1 LOOP
		CONTINUE WHEN pg_try_advisory_xact_lock(section);
		IF limit_ms <= 0 THEN RETURN false; END IF;
		before := current_setting('lock_timeout');
		BEGIN
			PERFORM set_config('lock_timeout', limit_ms || 'ms', true);
			PERFORM pg_advisory_xact_lock(section);
			PERFORM set_config('lock_timeout', before, true);
		EXCEPTION WHEN lock_not_available THEN
			RETURN false;
		END;
	END LOOP;
	RETURN true;
END $$;

-- --- lines: calls that wait without a place ---
--
-- A place is a row, which other transactions see only after its commit.  A call that waits inside its own
-- statement has no place.  Such calls form a *line*: PostgreSQL's queue for another advisory lock, the *gate* of
-- the name.  Only the first call in the line retries.  When a call becomes the first, it takes a number from the
-- token sequence, its *arrival*, which will be its token.  Places with a lower token are served before the call,
-- and places with a higher token after it, so that tokens rise from grant to grant.  Other transactions read the
-- arrival in pg_locks, where it is the second half of an advisory lock.  Like the section, these locks last
-- until the end of the transaction, or of the subtransaction of a call that gives up.

-- Returns the lower half of a number, for use as an argument of an advisory lock.
CREATE OR REPLACE FUNCTION _lock_election.low(v int8) RETURNS int4 LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN (v & 4294967295) - CASE WHEN v & 2147483648 <> 0 THEN 4294967296 ELSE 0 END;
END $$;

-- Returns whether a call waits in the line of this name.  Must be called in the section of the name.  If it returns
-- false, it has locked the gate, so that no call becomes the first in the line before the section ends.
CREATE OR REPLACE FUNCTION _lock_election.has_line(k int2, n text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN NOT pg_try_advisory_xact_lock_shared(hashtextextended(n, 4808 + k));
END $$;

-- Same as has_line(), but for use outside of the section.  Does not keep the lock, so the result may be outdated at
-- once.
CREATE OR REPLACE FUNCTION _lock_election.sees_line(k int2, n text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	gate int8 := hashtextextended(n, 4808 + k);
BEGIN
	RETURN CASE WHEN pg_try_advisory_lock_shared(gate) THEN NOT pg_advisory_unlock_shared(gate) ELSE true END;
END $$;

-- Returns whether the place with this token is behind the first call in the line of this name, that is, whether the
-- arrival of that call is lower than the token.  A call publishes its arrival twice, and the higher number counts.
-- Returns false if the call has not published an arrival yet: it may still wait in the line of another name, and
-- its arrival will be higher than the tokens of all places that exist now.
CREATE OR REPLACE FUNCTION _lock_election.is_behind_line(k int2, n text, token int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN _lock_election.has_line(k, n)
		AND coalesce((SELECT bool_and((token - l.objid::int8) & 4294967295 < 2147483648) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 2
			AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
			AND l.classid = (hashtextextended(n, 4810 + k) & 4294967295)::oid), false);
END $$;

-- Waits in the lines of these names until the call is the first in all of them, and returns its arrival.
-- Returns NULL if the call is not the first by "until".
CREATE OR REPLACE FUNCTION _lock_election.stand_in_line(k int2, names text[], until timestamptz) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	before text := current_setting('lock_timeout');
	gate int8;
	arrival int8;
BEGIN
	FOR gate IN SELECT DISTINCT hashtextextended(n, 4808 + k) FROM unnest(names) AS x(n) ORDER BY 1 LOOP
		CONTINUE WHEN pg_try_advisory_xact_lock(gate);
		PERFORM set_config('lock_timeout', CASE WHEN until IS NULL THEN 0 ELSE least(greatest(date_part('epoch', until - clock_timestamp()) * 1000, 1), 2147483647) END::int4 || 'ms', true);
		PERFORM pg_advisory_xact_lock(gate);
	END LOOP;
	PERFORM set_config('lock_timeout', before, true);
	-- Places are served before this call until it has published an arrival.  The second arrival, which counts,
	-- is above the tokens of those places.
	FOR turn IN 1 .. 2 LOOP
		arrival := nextval('_lock_election.token');
		PERFORM pg_advisory_xact_lock(_lock_election.low(hashtextextended(n, 4810 + k)), _lock_election.low(arrival)) FROM unnest(names) AS x(n);
	END LOOP;
	RETURN arrival;
EXCEPTION WHEN lock_not_available THEN
	RETURN NULL;
END $$;

-- --- ends: how holds, places and leases end -----------------------------------------------------------------------------
--
-- No process watches the clock.  An expired hold, place or lease is ended by the next call that uses or waits
-- for the name, or by reap().  That call locks the row first.  A renewal locks the row as well, so the call
-- either sees the renewal, or the renewal finds that the row has ended.  A fence locks the row of a hold FOR KEY
-- SHARE, so that the row can be marked as ended, but not deleted.

-- Returns the channel on which grants to a lease's places are announced.  This function and the next ones are in
-- PL/pgSQL, because PL/pgSQL caches their plans.
CREATE OR REPLACE FUNCTION _lock_election.lease_channel(lease int8) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN (SELECT 'le_' || left(encode(sha256(convert_to(c.channel_key || lease, 'UTF8')), 'hex'), 32) FROM _lock_election.config c WHERE c.one);
END $$;
-- Returns the channel of a lock or an election.  Clients compute the same name.
CREATE OR REPLACE FUNCTION _lock_election.channel(k int2, n text) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN 'le_' || left(encode(sha256(convert_to(_lock_election.word(k) || ' ' || n, 'UTF8')), 'hex'), 32);
END $$;

-- Returns whether grants ("waiters") or changes of leaders ("elections") are announced.
CREATE OR REPLACE FUNCTION _lock_election.notifies(what text) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN (SELECT c.notify IN ('all', what) FROM _lock_election.config c WHERE c.one);
END $$;

-- Announces the grant of a place to its client.
CREATE OR REPLACE FUNCTION _lock_election.announce(p _lock_election.place) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF NOT _lock_election.notifies('waiters') THEN RETURN; END IF;
	IF p.of_lease THEN
		PERFORM pg_notify(_lock_election.lease_channel(p.lease), '');
	ELSE
		PERFORM pg_notify(_lock_election.channel(p.kind, coalesce(p.members[1], p.name)), format('{"event":"granted","token":"%s"}', p.token));
	END IF;
END $$;

-- Records a change of an election in its history, and announces it.
CREATE OR REPLACE FUNCTION _lock_election.note(h _lock_election.hold, how text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8 := nextval('_lock_election.token');
	before int8;
BEGIN
	SELECT max(x.change) INTO before FROM _lock_election.history x WHERE x.election = h.name;
	INSERT INTO _lock_election.history (election, change, role, how, candidate, term, elected_at, changed_at, ended_at)
		VALUES (h.name, number, h.role, how, h.value, h.token, h.since, clock_timestamp(), CASE WHEN how NOT IN ('elected', 'proclaimed') THEN clock_timestamp() END);
	IF _lock_election.notifies('elections') THEN
		PERFORM pg_notify(_lock_election.channel(2::int2, h.name),
			format('{"event":"%s","term":"%s","change":"%s","previous":"%s"}', how, h.token, number, coalesce(before, 0)));
	END IF;
END $$;

-- Records the end of a hold or place as news for the client of its named lease.  Keeps the newest 16 ends.
CREATE OR REPLACE FUNCTION _lock_election.lose(of_lease int8, tok int8, how text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	INSERT INTO _lock_election.loss (lease, token, changed, reason)
		SELECT of_lease, tok, pg_current_xact_id()::text::int8, how FROM _lock_election.lease l WHERE l.id = of_lease AND l.named ON CONFLICT DO NOTHING;
	DELETE FROM _lock_election.loss x WHERE x.lease = of_lease AND x.token IN (SELECT y.token FROM _lock_election.loss y
		WHERE y.lease = of_lease ORDER BY y.changed DESC, y.token OFFSET 16);
END $$;

-- Returns whether a lease is live.  Takes no row lock.
CREATE OR REPLACE FUNCTION _lock_election.lease_lives(number int8) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = number
		AND (l.expires_at > clock_timestamp() OR _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp()));
END $$;

-- Returns whether a lease has ended.  If so, also locks the row, so that a concurrent transaction can no longer
-- renew the lease.
CREATE OR REPLACE FUNCTION _lock_election.lease_is_over(number int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	l record;
BEGIN
	SELECT _lock_election.ends(x.expires_at, x.life, x.ttl) AS at INTO l FROM _lock_election.lease x WHERE x.id = number;
	IF NOT FOUND THEN RETURN true; END IF;
	IF l.at > clock_timestamp() THEN RETURN false; END IF;
	PERFORM FROM _lock_election.lease x WHERE x.id = number AND _lock_election.ends(x.expires_at, x.life, x.ttl) <= clock_timestamp() FOR SHARE SKIP LOCKED;
	RETURN FOUND;
END $$;

-- Deletes an unnamed lease that has no holds or places left.  If the lease is being renewed, drop_leases()
-- deletes it later.
CREATE OR REPLACE FUNCTION _lock_election.drop_group(number int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM FROM _lock_election.lease l WHERE l.id = number AND NOT l.named AND NOT EXISTS (SELECT FROM _lock_election.hold h WHERE h.lease = number)
		AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.lease = number) FOR UPDATE SKIP LOCKED;
	IF FOUND THEN DELETE FROM _lock_election.lease l WHERE l.id = number; END IF;
END $$;

-- Returns whether a hold has ended by its own deadline or with its lease, or is a row that only a fence keeps.
CREATE OR REPLACE FUNCTION _lock_election.hold_is_over(h _lock_election.hold) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF h.ended IS NOT NULL THEN RETURN true; END IF;
	IF h.expires_at IS NOT NULL AND _lock_election.ends(h.expires_at, h.life, h.ttl) <= clock_timestamp() THEN RETURN true; END IF;
	RETURN h.lease IS NOT NULL AND _lock_election.lease_is_over(h.lease);
END $$;

-- Ends a hold.  asked: true if the client of the hold requested the end, and so needs no news of it.  Returns false
-- if a concurrent transaction renews or ends the hold, or if only a fence keeps its row.
CREATE OR REPLACE FUNCTION _lock_election.end_hold(h _lock_election.hold, how text, asked boolean) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	expires boolean := how = 'expired' AND h.expires_at IS NOT NULL;
	gone boolean;
BEGIN
	-- 1. delete the row, or mark it as ended if a fence keeps it
	PERFORM FROM _lock_election.hold x WHERE x.kind = h.kind AND x.name = h.name AND x.slot = h.slot AND x.token = h.token
		AND (NOT expires OR x.ended IS NOT NULL OR _lock_election.ends(x.expires_at, x.life, x.ttl) <= clock_timestamp()) FOR UPDATE SKIP LOCKED;
	gone := FOUND;
	IF gone THEN
		DELETE FROM _lock_election.hold x WHERE x.kind = h.kind AND x.name = h.name AND x.slot = h.slot AND x.token = h.token;
	ELSE
		IF h.ended IS NOT NULL THEN RETURN false; END IF;
		PERFORM FROM _lock_election.hold x WHERE x.kind = h.kind AND x.name = h.name AND x.slot = h.slot AND x.token = h.token AND x.ended IS NULL
			AND (NOT expires OR _lock_election.ends(x.expires_at, x.life, x.ttl) <= clock_timestamp()) FOR NO KEY UPDATE SKIP LOCKED;
		IF NOT FOUND THEN RETURN false; END IF;
		UPDATE _lock_election.hold x SET ended = how, changed = pg_current_xact_id()::text::int8
			WHERE x.kind = h.kind AND x.name = h.name AND x.slot = h.slot AND x.token = h.token;
	END IF;

	-- 2. add the end to the history and the news
	IF h.ended IS NULL THEN
		IF h.kind = 2 THEN PERFORM _lock_election.note(h, CASE WHEN how = 'expired' AND h.evicted THEN 'evicted' ELSE how END); END IF;
		IF h.lease IS NOT NULL AND NOT asked THEN PERFORM _lock_election.lose(h.lease, h.token, CASE WHEN how = 'expired' AND h.evicted THEN 'evicted' ELSE how END); END IF;
	END IF;
	IF gone AND h.lease IS NOT NULL THEN PERFORM _lock_election.drop_group(h.lease); END IF;
	RETURN true;
END $$;

-- Returns whether a place has ended.
CREATE OR REPLACE FUNCTION _lock_election.place_is_over(p _lock_election.place) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN _lock_election.lease_is_over(p.lease);
END $$;

-- Notifies the clients of the first places in the queues of these names, so that they settle the names if no other
-- call does.
CREATE OR REPLACE FUNCTION _lock_election.nudge(k int2, names text[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n text;
	p _lock_election.place;
BEGIN
	FOREACH n IN ARRAY names LOOP
		SELECT x.* INTO p FROM _lock_election.place x WHERE x.kind = k AND x.name = n ORDER BY x.token LIMIT 1;
		IF FOUND AND p.of_lease AND _lock_election.notifies('waiters') THEN PERFORM pg_notify(_lock_election.lease_channel(p.lease), ''); END IF;
	END LOOP;
END $$;

-- Ends a place in all of its queues.  Returns false if a concurrent transaction renews or ends the place.
CREATE OR REPLACE FUNCTION _lock_election.end_place(p _lock_election.place, how text, asked boolean) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	names text[] := coalesce(p.members, ARRAY[p.name]);
	locked int8;
BEGIN
	SELECT count(*) INTO locked FROM (SELECT FROM _lock_election.place x WHERE x.kind = p.kind AND x.token = p.token AND x.name = ANY (names)
		FOR UPDATE SKIP LOCKED) y;
	IF locked < cardinality(names) THEN RETURN false; END IF;
	DELETE FROM _lock_election.place x WHERE x.kind = p.kind AND x.token = p.token AND x.name = ANY (names);
	IF NOT asked THEN PERFORM _lock_election.lose(p.lease, p.token, how); END IF;
	PERFORM _lock_election.drop_group(p.lease);
	IF cardinality(names) > 1 THEN PERFORM _lock_election.nudge(p.kind, array_remove(names, p.name)); END IF;
	RETURN true;
END $$;

-- --- queue: how a place is granted --------------------------------------------------------------------------------------
--
-- All functions here run in the section of the name.

-- Ends expired holds, and expired places at the head of the queue.  Returns whether anything has changed.
CREATE OR REPLACE FUNCTION _lock_election.sweep(k int2, n text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
	p _lock_election.place;
	changed boolean := false;
BEGIN
	FOR h IN SELECT x.* FROM _lock_election.hold x WHERE x.kind = k AND x.name = n LOOP
		IF h.mode IS NULL THEN
			PERFORM FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.slot = h.slot AND x.closed_until <= clock_timestamp() FOR UPDATE SKIP LOCKED;
			IF FOUND THEN
				DELETE FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.slot = h.slot;
				changed := true;
			END IF;
		ELSIF _lock_election.hold_is_over(h) AND _lock_election.end_hold(h, coalesce(h.ended, 'expired'), false) THEN
			changed := true;
		END IF;
	END LOOP;
	FOR p IN SELECT x.* FROM _lock_election.place x WHERE x.kind = k AND x.name = n ORDER BY x.token LOOP
		EXIT WHEN NOT _lock_election.place_is_over(p);
		changed := _lock_election.end_place(p, 'expired', false) OR changed;
	END LOOP;
	RETURN changed;
END $$;

-- Returns whether the name is open, and its holders admit another holder in this mode.  Ignores places.
CREATE OR REPLACE FUNCTION _lock_election.admits(k int2, n text, m text, p int4) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	f record;
BEGIN
	SELECT count(*) AS all_holds, count(*) FILTER (WHERE x.mode IS NULL) AS closed, count(*) FILTER (WHERE x.mode = 'exclusive') AS exclusive
		INTO f FROM _lock_election.hold x WHERE x.kind = k AND x.name = n;
	RETURN f.closed = 0 AND CASE m WHEN 'exclusive' THEN f.all_holds = 0 WHEN 'shared' THEN f.exclusive = 0 ELSE f.all_holds < p END;
END $$;

-- Returns a free slot for another holder.
CREATE OR REPLACE FUNCTION _lock_election.free_slot(k int2, n text, m text) RETURNS int4 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN CASE m WHEN 'exclusive' THEN 0
		WHEN 'shared' THEN (SELECT coalesce(max(x.slot), -1) + 1 FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.slot >= 0)
		ELSE (SELECT min(s) FROM generate_series(0, (SELECT count(*)::int4 FROM _lock_election.hold x WHERE x.kind = k AND x.name = n)) AS s
			WHERE NOT EXISTS (SELECT FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.slot = s)) END;
END $$;

-- Returns whether a place can be granted.  A place for several names must be the first in all their queues, and
-- all names must admit it.
CREATE OR REPLACE FUNCTION _lock_election.can_be_granted(p _lock_election.place) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n text;
BEGIN
	IF p.members IS NULL THEN RETURN _lock_election.admits(p.kind, p.name, p.mode, p.permits); END IF;
	IF NOT _lock_election.enter(p.kind, p.members, '0') THEN RETURN false; END IF;
	FOREACH n IN ARRAY p.members LOOP
		IF n <> p.name THEN PERFORM _lock_election.sweep(p.kind, n); END IF;
		IF n <> p.name AND _lock_election.is_behind_line(p.kind, n, p.token)
			OR EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = p.kind AND x.name = n AND x.token < p.token)
			OR NOT EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = p.kind AND x.name = n AND x.token = p.token)
			OR NOT _lock_election.admits(p.kind, n, p.mode, p.permits) THEN
			RETURN false;
		END IF;
	END LOOP;
	RETURN true;
END $$;

-- Turns a place into one or several holds.  Returns false if a concurrent transaction ends its rows.
CREATE OR REPLACE FUNCTION _lock_election.grant_place(p _lock_election.place) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	names text[] := coalesce(p.members, ARRAY[p.name]);
	number int8 := _lock_election.current_life();
	h _lock_election.hold;
	own boolean := p.ttl IS NOT NULL AND p.members IS NULL;
	tries int4 := 0;
BEGIN
	IF (SELECT count(*) FROM (SELECT FROM _lock_election.place x WHERE x.kind = p.kind AND x.token = p.token AND x.name = ANY (names) FOR UPDATE SKIP LOCKED) y)
		< cardinality(names) THEN
		RETURN false;
	END IF;
	-- Calls that check the place after this lock was acquired do not renew it, see place_stays().  The lock conflicts
	-- only with such a check, which is short.
	IF own THEN
		WHILE NOT pg_try_advisory_xact_lock_shared(hashint8extended(p.token, 4806)) LOOP
			tries := tries + 1;
			IF tries > 20 THEN RETURN false; END IF;
			PERFORM pg_sleep(0.001);
		END LOOP;
	END IF;
	DELETE FROM _lock_election.place x WHERE x.kind = p.kind AND x.token = p.token AND x.name = ANY (names);
	INSERT INTO _lock_election.hold (kind, name, slot, token, mode, lease, ttl, expires_at, life, role, owner, value, permits, members, since, changed, pid, application, client)
		SELECT p.kind, n, _lock_election.free_slot(p.kind, n, p.mode), p.token, p.mode, CASE WHEN NOT own THEN p.lease END, p.ttl,
			CASE WHEN own THEN clock_timestamp() + p.ttl END, number,
			p.role, p.owner, p.value, p.permits, p.members, clock_timestamp(), pg_current_xact_id()::text::int8, p.pid, p.application, p.client FROM unnest(names) AS x(n);
	IF own THEN
		PERFORM _lock_election.drop_group(p.lease);
	ELSIF p.ttl IS NOT NULL THEN
		-- for several names, restart the ttl of their lease; if its row is locked, a renewal is restarting it
		PERFORM FROM _lock_election.lease l WHERE l.id = p.lease FOR NO KEY UPDATE SKIP LOCKED;
		IF FOUND THEN UPDATE _lock_election.lease l SET expires_at = clock_timestamp() + l.ttl, life = number WHERE l.id = p.lease; END IF;
	END IF;
	IF p.kind = 2 THEN
		SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = 2 AND x.name = p.name AND x.slot = 0;
		PERFORM _lock_election.note(h, 'elected');
	END IF;
	PERFORM _lock_election.announce(p);
	-- make lease_sync() flush the commit
	PERFORM set_config('_lock_election.granted', 'yes', true);
	RETURN true;
END $$;

-- Grants the readers at the head of the queue, up to the first writer, in one statement, because there may be
-- thousands.  Requires at least two readers, all on named leases that are certainly live; otherwise grants none.
-- Returns the number of grants.
CREATE OR REPLACE FUNCTION _lock_election.grant_readers(k int2, n text) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8 := _lock_election.current_life();
	tokens int8[];
	first_slot int4;
BEGIN
	IF NOT _lock_election.admits(k, n, 'shared', 0) THEN RETURN 0; END IF;
	SELECT array_agg(y.token) INTO tokens FROM (SELECT p.token FROM _lock_election.place p JOIN _lock_election.lease l ON l.id = p.lease
		WHERE p.kind = k AND p.name = n AND p.mode = 'shared' AND p.ttl IS NULL AND p.members IS NULL AND l.life = number AND l.expires_at > clock_timestamp()
			AND p.token < coalesce((SELECT min(w.token) FROM _lock_election.place w LEFT JOIN _lock_election.lease x ON x.id = w.lease WHERE w.kind = k AND w.name = n
				AND NOT coalesce(w.mode = 'shared' AND w.ttl IS NULL AND w.members IS NULL AND x.life = number AND x.expires_at > clock_timestamp(), false)), 9223372036854775807) FOR UPDATE OF p SKIP LOCKED) y;
	IF coalesce(cardinality(tokens), 0) < 2 THEN RETURN 0; END IF;
	first_slot := _lock_election.free_slot(k, n, 'shared');
	INSERT INTO _lock_election.hold (kind, name, slot, token, mode, lease, life, role, owner, value, permits, since, changed, pid, application, client)
		SELECT k, n, first_slot - 1 + row_number() OVER (ORDER BY p.token), p.token, 'shared', p.lease, number, p.role, p.owner, p.value, 0, clock_timestamp(),
			pg_current_xact_id()::text::int8, p.pid, p.application, p.client
		FROM _lock_election.place p WHERE p.kind = k AND p.name = n AND p.token = ANY (tokens);
	IF _lock_election.notifies('waiters') THEN
		PERFORM pg_notify(_lock_election.lease_channel(x.lease), '') FROM (SELECT DISTINCT p.lease FROM _lock_election.place p
			WHERE p.kind = k AND p.name = n AND p.token = ANY (tokens) AND p.of_lease) x;
		PERFORM pg_notify(_lock_election.channel(k, n), format('{"event":"granted","token":"%s"}', p.token)) FROM _lock_election.place p
			WHERE p.kind = k AND p.name = n AND p.token = ANY (tokens) AND NOT p.of_lease;
	END IF;
	DELETE FROM _lock_election.place p WHERE p.kind = k AND p.name = n AND p.token = ANY (tokens);
	PERFORM set_config('_lock_election.granted', 'yes', true);
	RETURN cardinality(tokens);
END $$;

-- Grants places in order, until a place cannot be granted, or is behind the first call in the line.  arrival: the
-- caller's arrival if the caller is that call; otherwise NULL.  Returns whether anything has changed.
CREATE OR REPLACE FUNCTION _lock_election.serve(k int2, n text, arrival int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	p _lock_election.place;
	has_line boolean;
	changed boolean := false;
BEGIN
	SELECT x.* INTO p FROM _lock_election.place x WHERE x.kind = k AND x.name = n ORDER BY x.token LIMIT 1;
	IF NOT FOUND THEN RETURN false; END IF;
	has_line := arrival IS NOT NULL OR _lock_election.has_line(k, n);
	IF p.mode = 'shared' AND NOT has_line THEN changed := _lock_election.grant_readers(k, n) > 0; END IF;
	FOR p IN SELECT x.* FROM _lock_election.place x WHERE x.kind = k AND x.name = n ORDER BY x.token LOOP
		IF _lock_election.place_is_over(p) THEN
			EXIT WHEN NOT _lock_election.end_place(p, 'expired', false);
		ELSE
			EXIT WHEN has_line AND coalesce(p.token > arrival, _lock_election.is_behind_line(k, n, p.token));
			EXIT WHEN NOT _lock_election.can_be_granted(p);
			EXIT WHEN NOT _lock_election.grant_place(p);
		END IF;
		changed := true;
	END LOOP;
	RETURN changed;
END $$;

-- Sweeps and serves these names, before any other use of them.  Returns whether anything has changed.
CREATE OR REPLACE FUNCTION _lock_election.settle(k int2, names text[], arrival int8 DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n text;
	changed boolean := false;
BEGIN
	FOREACH n IN ARRAY names LOOP
		changed := _lock_election.sweep(k, n) OR changed;
		changed := _lock_election.serve(k, n, arrival) OR changed;
	END LOOP;
	RETURN changed;
END $$;

-- Settles names without waiting.  Skips a name whose section is taken; the transaction in that section settles
-- it.
CREATE OR REPLACE FUNCTION _lock_election.look_at(k int2, names text[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n text;
BEGIN
	FOREACH n IN ARRAY names LOOP
		IF pg_try_advisory_xact_lock(hashtextextended(n, 4802 + k)) THEN PERFORM _lock_election.settle(k, ARRAY[n]); END IF;
	END LOOP;
END $$;

-- --- requests: acquire and enqueue --------------------------------------------------------------------------------------
--
-- A request is for one name, or for several names together.  It is granted at once, takes a place in the queue,
-- or is refused.

-- Type of a request with checked arguments.  A request is an attempt, or takes a place if it is not granted.
DO $$
BEGIN
	IF pg_catalog.to_regtype('_lock_election.request') IS NULL THEN
		CREATE TYPE _lock_election.request AS (
			kind pg_catalog.int2, names pg_catalog.text[], mode pg_catalog.text, permits pg_catalog.int4, ttl pg_catalog.interval,
			owner pg_catalog.text, lease pg_catalog.int8, value pg_catalog.text,
			-- place: true = take a place, false = attempt; of_lease: true = announce the grant on the lease's
			-- channel; call: number of the lease_sync() call
			place pg_catalog.bool, of_lease pg_catalog.bool, call pg_catalog.int8, role pg_catalog.oid,
			-- arrival of a call that is the first in the lines; otherwise NULL
			arrival pg_catalog.int8);
	END IF;
END $$;

-- Raises an error if a lease has ended or belongs to another role.  Locks the lease's row, so that it stays
-- until this transaction ends.
CREATE OR REPLACE FUNCTION _lock_election.check_lease(number int8, role oid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	l record;
BEGIN
	SELECT x.role, _lock_election.ends(x.expires_at, x.life, x.ttl) AS at INTO l FROM _lock_election.lease x WHERE x.id = number AND x.named FOR KEY SHARE SKIP LOCKED;
	IF NOT FOUND OR l.at <= clock_timestamp() THEN
		PERFORM _lock_election.fail('LE001', format('lease %s does not exist, or has ended', number));
	END IF;
	IF l.role <> role THEN PERFORM _lock_election.fail('42501', format('lease %s belongs to another role', number)); END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.other_use(n text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.fail('22023', format('"%s" is in use in another way', n), 'A name can be used for a lock or for permits, but not for both at the same time.');
END $$;

-- Raises an error if the history of the role's elections is too long for another request or proclaim.  First checks
-- the size of the whole table, which is cheap, and is an upper bound for every role.
CREATE OR REPLACE FUNCTION _lock_election.check_history(role oid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	most int8 := (SELECT c.max_history_per_role FROM _lock_election.config c WHERE c.one);
BEGIN
	IF most > 0 AND pg_table_size('_lock_election.history') >= most
		AND (SELECT sum(octet_length(x.election) + octet_length(x.candidate) + 150) FROM _lock_election.history x WHERE x.role = $1) >= most THEN
		PERFORM _lock_election.fail('53400', format('the history of the elections of role "%s" is too long in this database', pg_get_userbyid(role)), '',
			format('See lock_election.max_history_per_role (%s).', pg_size_pretty(most)));
	END IF;
END $$;

-- Raises an error if a name is in use in a different way, such as another mode.
CREATE OR REPLACE FUNCTION _lock_election.check_use(r _lock_election.request, n text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	used record;
BEGIN
	SELECT x.mode, x.permits INTO used FROM (
		(SELECT h.mode, h.permits FROM _lock_election.hold h WHERE h.kind = r.kind AND h.name = n AND h.mode IS NOT NULL LIMIT 1)
		UNION ALL (SELECT p.mode, p.permits FROM _lock_election.place p WHERE p.kind = r.kind AND p.name = n LIMIT 1)) x LIMIT 1;
	IF NOT FOUND THEN RETURN; END IF;
	IF (used.mode = 'permit') <> (r.mode = 'permit') THEN
		PERFORM _lock_election.other_use(n);
	END IF;
	IF r.mode = 'permit' AND used.permits <> r.permits THEN
		PERFORM _lock_election.fail('22023', format('"%s" is in use with %s permits, not %s', n, used.permits, r.permits), '',
			'All users of a name must pass the same number; set_permits() changes it while the name is in use.');
	END IF;
END $$;

-- Returns the hold of a name that the request re-enters.  With a named owner, that is a hold of the same owner,
-- preferably on the same lease.  Without a named owner, it is a hold on the same lease, or of the same
-- transaction.
CREATE OR REPLACE FUNCTION _lock_election.own_hold(r _lock_election.request, n text) RETURNS _lock_election.hold LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
BEGIN
	IF r.mode = 'permit' THEN RETURN NULL; END IF;
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = r.kind AND x.name = n AND x.mode IS NOT NULL AND x.ended IS NULL AND NOT x.evicted AND x.role = r.role
		AND CASE WHEN r.owner IS NOT NULL THEN x.owner = r.owner ELSE x.owner IS NULL AND (x.lease = r.lease OR x.acquired_in = pg_current_xact_id()::text::int8) END
		ORDER BY r.lease IS NOT DISTINCT FROM (SELECT l.id FROM _lock_election.lease l WHERE l.id = x.lease AND l.named) DESC, x.token DESC LIMIT 1;
	RETURN h;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.other_lease(k int2, n text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.fail('22023', format('%s "%s" has another kind of lease', _lock_election.word(k), n),
		'It was acquired with a ttl, with a named lease, or with ttl => NULL (for as long as its connection lasts), and cannot change that until it is released.');
END $$;

-- Re-enters a hold.  Counts an additional hold, except on a named lease and for an election.  Never shortens the
-- time left.
CREATE OR REPLACE FUNCTION _lock_election.hold_again(r _lock_election.request, h _lock_election.hold) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF r.mode = 'exclusive' AND h.mode = 'shared' THEN
		PERFORM _lock_election.fail('22023', format('lock "%s" is held in mode shared by the same owner, which now requests mode exclusive', h.name), '',
			'Release it first, or acquire it in mode exclusive from the start.');
	END IF;
	IF r.lease IS DISTINCT FROM (SELECT l.id FROM _lock_election.lease l WHERE l.id = h.lease AND l.named) THEN
		PERFORM _lock_election.other_lease(h.kind, h.name);
	END IF;
	IF r.lease IS NULL THEN
		PERFORM pg_try_advisory_xact_lock_shared(hashint8extended(h.token, 4806));
		UPDATE _lock_election.hold x SET holds = x.holds + CASE x.kind WHEN 1 THEN 1 ELSE 0 END, life = CASE WHEN x.expires_at IS NULL THEN x.life ELSE _lock_election.current_life() END,
			expires_at = CASE WHEN x.expires_at IS NOT NULL THEN greatest(_lock_election.ends(x.expires_at, x.life, x.ttl), clock_timestamp() + r.ttl) END
			WHERE x.kind = h.kind AND x.name = h.name AND x.slot = h.slot AND x.token = h.token AND x.ended IS NULL AND NOT x.evicted;
		-- a transaction outside of the section ended the hold while this update waited
		IF NOT FOUND THEN RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998'; END IF;
		UPDATE _lock_election.lease l SET expires_at = greatest(l.expires_at, clock_timestamp() + r.ttl) WHERE l.id = h.lease AND NOT l.named;
	END IF;
	IF r.kind = 2 AND h.value IS DISTINCT FROM r.value THEN
		UPDATE _lock_election.hold x SET value = r.value WHERE x.kind = 2 AND x.name = h.name AND x.slot = 0;
		h.value := r.value;
		PERFORM _lock_election.note(h, 'proclaimed');
	END IF;
END $$;

-- Raises an error if the request exceeds a limit of the role or of the queue.
CREATE OR REPLACE FUNCTION _lock_election.check_limits(r _lock_election.request, waits boolean) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	c _lock_election.config;
	n text;
BEGIN
	SELECT x.* INTO c FROM _lock_election.config x WHERE x.one;
	IF waits AND c.max_waiters_per_lock > 0 THEN
		FOREACH n IN ARRAY r.names LOOP
			-- the second count excludes abandoned places, which may be behind a live place
			IF (SELECT count(*) FROM _lock_election.place p WHERE p.kind = r.kind AND p.name = n) >= c.max_waiters_per_lock
				AND (SELECT count(*) FROM _lock_election.place p JOIN _lock_election.lease l ON l.id = p.lease WHERE p.kind = r.kind AND p.name = n
					AND _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp()) >= c.max_waiters_per_lock THEN
				PERFORM _lock_election.fail('53400', format('too many requests wait for %s "%s"', _lock_election.word(r.kind), n), '',
					format('See lock_election.max_waiters_per_lock (%s).', c.max_waiters_per_lock));
			END IF;
		END LOOP;
	END IF;
	IF c.max_locks_per_role > 0 AND (SELECT count(*) FROM _lock_election.hold h WHERE h.role = r.role) + (SELECT count(*) FROM _lock_election.place p WHERE p.role = r.role)
		+ cardinality(r.names) > c.max_locks_per_role
		AND (SELECT count(*) FROM _lock_election.hold h WHERE h.role = r.role AND CASE WHEN h.mode IS NULL THEN h.closed_until > clock_timestamp() ELSE NOT _lock_election.may_be_over(h) END)
			+ (SELECT count(*) FROM _lock_election.place p JOIN _lock_election.lease l ON l.id = p.lease WHERE p.role = r.role
				AND _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp())
			+ cardinality(r.names) > c.max_locks_per_role THEN
		PERFORM _lock_election.fail('53400', format('role "%s" has too many locks in this database', pg_get_userbyid(r.role)), '',
			format('See lock_election.max_locks_per_role (%s).', c.max_locks_per_role));
	END IF;
END $$;

-- Decides a request in the sections of its names, after settle().  Returns a NULL token if the request is
-- refused.
CREATE OR REPLACE FUNCTION _lock_election.decide(r _lock_election.request, OUT token int8, OUT granted boolean, OUT queue_position int8) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n text;
	h _lock_election.hold;
	again _lock_election.hold;
	own int4 := 0;
	free boolean := true;
	behind boolean;
	several boolean := cardinality(r.names) > 1;
	number int8 := _lock_election.current_life();
	on_lease int8 := r.lease;
BEGIN
	granted := false;

	-- 1. check whether a name is used in a different way
	FOREACH n IN ARRAY r.names LOOP PERFORM _lock_election.check_use(r, n); END LOOP;

	-- 2. check whether this request repeats an earlier one: for one name, search for a hold first; for several
	--    names, search for a place first
	IF r.place AND r.lease IS NOT NULL AND r.mode <> 'permit' THEN
		IF NOT several THEN
			SELECT x.token, true INTO token, granted FROM _lock_election.hold x WHERE x.kind = r.kind AND x.name = r.names[1] AND x.lease = r.lease AND x.ended IS NULL AND NOT x.evicted
				AND x.owner IS NOT DISTINCT FROM r.owner ORDER BY x.token DESC LIMIT 1;
		END IF;
		IF token IS NULL THEN
			SELECT x.token, false INTO token, granted FROM _lock_election.place x WHERE x.kind = r.kind AND x.name = r.names[1] AND x.lease = r.lease AND x.mode = r.mode
				AND x.owner IS NOT DISTINCT FROM r.owner AND x.value IS NOT DISTINCT FROM r.value
				AND (several AND x.members @> r.names AND r.names @> x.members OR NOT several AND x.members IS NULL) ORDER BY x.token LIMIT 1;
		END IF;
		IF token IS NULL AND several THEN
			SELECT x.token, true INTO token, granted FROM _lock_election.hold x WHERE x.kind = r.kind AND x.name = ANY (r.names) AND x.lease = r.lease AND x.ended IS NULL AND NOT x.evicted
				AND x.owner IS NOT DISTINCT FROM r.owner GROUP BY x.token HAVING count(*) = cardinality(r.names) ORDER BY x.token LIMIT 1;
		END IF;
		IF token IS NOT NULL THEN
			queue_position := CASE WHEN granted THEN 0 ELSE _lock_election.rank(r.kind, r.names, token) END;
			IF granted THEN
				PERFORM _lock_election.hold_again(r, x) FROM _lock_election.hold x WHERE x.kind = r.kind AND x.name = ANY (r.names) AND x.token = decide.token;
			END IF;
			RETURN;
		END IF;
		granted := false;
	END IF;

	-- 3. re-enter a hold
	IF NOT r.place THEN
		FOREACH n IN ARRAY r.names LOOP
			h := _lock_election.own_hold(r, n);
			IF h.token IS NOT NULL THEN
				IF several AND own > 0 AND again.token <> h.token THEN EXIT; END IF;
				own := own + 1;
				again := h;
			END IF;
		END LOOP;
		IF own > 0 THEN
			IF own < cardinality(r.names) THEN
				PERFORM _lock_election.fail('22023', format('lock "%s" is already held by the same owner', again.name),
					'Locks that are acquired together share one token, and this lock already has another.', 'Release it first, or acquire all of them together from the start.');
			END IF;
			FOREACH n IN ARRAY r.names LOOP PERFORM _lock_election.hold_again(r, _lock_election.own_hold(r, n)); END LOOP;
			token := again.token;
			granted := true;
			queue_position := 0;
			RETURN;
		END IF;
	END IF;

	-- 4. check whether the names are free, and no place or call comes before this request
	FOREACH n IN ARRAY r.names LOOP
		behind := EXISTS (SELECT FROM _lock_election.place p WHERE p.kind = r.kind AND p.name = n AND (r.arrival IS NULL OR p.token < r.arrival));
		free := free AND NOT behind AND _lock_election.admits(r.kind, n, r.mode, r.permits) AND (r.arrival IS NOT NULL OR NOT _lock_election.has_line(r.kind, n));
	END LOOP;
	IF NOT free AND NOT r.place THEN RETURN; END IF;

	-- 5. check the limits
	PERFORM _lock_election.check_limits(r, NOT free);

	-- 6. create a hold, or a place
	token := coalesce(r.arrival, nextval('_lock_election.token'));
	granted := free;
	IF on_lease IS NULL AND (several OR NOT free) THEN
		on_lease := token;
		INSERT INTO _lock_election.lease (id, ttl, expires_at, life, granted_in, role, named, owner)
			VALUES (token, r.ttl, clock_timestamp() + r.ttl, number, number, r.role, false, r.owner);
	END IF;
	IF free THEN
		FOREACH n IN ARRAY r.names LOOP
			INSERT INTO _lock_election.hold (kind, name, slot, token, mode, lease, ttl, expires_at, life, role, owner, value, permits, members, since, changed, acquired_in, told_call, pid, application, client)
				VALUES (r.kind, n, _lock_election.free_slot(r.kind, n, r.mode), token, r.mode, on_lease, CASE WHEN r.lease IS NULL THEN r.ttl END,
					CASE WHEN on_lease IS NULL THEN clock_timestamp() + r.ttl END, number, r.role, r.owner, r.value, r.permits,
					CASE WHEN several THEN r.names END, clock_timestamp(), pg_current_xact_id()::text::int8, pg_current_xact_id()::text::int8,
					coalesce(r.call, 0), pg_backend_pid(), current_setting('application_name'), inet_client_addr());
		END LOOP;
		IF r.kind = 2 THEN
			SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = 2 AND x.name = r.names[1] AND x.slot = 0;
			PERFORM _lock_election.note(h, 'elected');
		END IF;
		queue_position := 0;
	ELSE
		INSERT INTO _lock_election.place (kind, name, token, mode, lease, ttl, role, owner, value, permits, members, of_lease, since, changed, told_call, pid, application, client)
			SELECT r.kind, x.n, decide.token, r.mode, on_lease, CASE WHEN r.lease IS NULL THEN r.ttl END, r.role,
				r.owner, r.value, r.permits, CASE WHEN several THEN r.names END, r.of_lease, clock_timestamp(), pg_current_xact_id()::text::int8, coalesce(r.call, 0), pg_backend_pid(),
				current_setting('application_name'), inet_client_addr() FROM unnest(r.names) AS x(n);
		queue_position := _lock_election.rank(r.kind, r.names, token);
	END IF;
END $$;

-- Returns the position of a place in its queue, or in the longest of its queues if it is for several names.  Does
-- not count expired places.  There may be thousands of places, so the query calls no function for a live place.
CREATE OR REPLACE FUNCTION _lock_election.rank(k int2, names text[], tok int8) RETURNS int8 LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT max(r.rank) FROM unnest(names) AS n(name), LATERAL (SELECT count(*) AS rank
		FROM _lock_election.place p JOIN _lock_election.lease l ON l.id = p.lease
		WHERE p.kind = k AND p.name = n.name AND p.token <= tok
			AND (l.expires_at > clock_timestamp() OR _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp())) r
$$;

-- Attempts a request once.  A refused attempt is rolled back, and leaves its sections, because the caller's
-- transaction may become idle or continue to wait.  If the attempt had ended or granted anything, notifies waiters,
-- which then settle the names.
CREATE OR REPLACE FUNCTION _lock_election.attempt(r _lock_election.request, patience interval, OUT token int8, OUT granted boolean, OUT queue_position int8)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	changed boolean := false;
BEGIN
	IF r.lease IS NOT NULL THEN PERFORM _lock_election.check_lease(r.lease, r.role); END IF;
	PERFORM _lock_election.current_life();
	BEGIN
		IF _lock_election.enter(r.kind, r.names, patience) THEN
			changed := _lock_election.settle(r.kind, r.names, r.arrival);
			SELECT d.token, d.granted, d.queue_position INTO token, granted, queue_position FROM _lock_election.decide(r) d;
			IF token IS NOT NULL THEN RETURN; END IF;
		END IF;
		RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998';
	EXCEPTION WHEN SQLSTATE 'LE998' THEN
		token := NULL;
		granted := false;
	END;
	IF changed THEN PERFORM _lock_election.nudge(r.kind, r.names); END IF;
END $$;

-- Returns whether the request seems to re-enter a hold of its owner, its lease or this transaction.
CREATE OR REPLACE FUNCTION _lock_election.looks_held(r _lock_election.request) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN r.mode <> 'permit' AND EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind = r.kind AND h.name = ANY (r.names) AND h.role = r.role AND h.mode IS NOT NULL
		AND NOT h.evicted AND CASE WHEN r.owner IS NOT NULL THEN h.owner = r.owner
			ELSE h.owner IS NULL AND (h.lease = r.lease OR h.acquired_in = pg_current_xact_id_if_assigned()::text::int8) END AND NOT _lock_election.may_be_over(h));
END $$;

-- Returns whether an attempt is worth entering a section.  It is if the request seems to re-enter a hold, or if
-- the names are open, no holder conflicts with the request, and no call is before it in a line.
CREATE OR REPLACE FUNCTION _lock_election.looks_free(r _lock_election.request) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind = r.kind AND h.name = ANY (r.names)
			AND CASE WHEN h.mode IS NULL THEN h.closed_until > clock_timestamp()
				ELSE h.ended IS NULL AND 'exclusive' IN (h.mode, r.mode) AND 'permit' NOT IN (h.mode, r.mode) AND NOT _lock_election.may_be_over(h) END)
		AND (r.arrival IS NOT NULL OR NOT EXISTS (SELECT FROM unnest(r.names) AS x(n) WHERE _lock_election.sees_line(r.kind, n))) THEN
		RETURN true;
	END IF;
	RETURN _lock_election.looks_held(r);
END $$;
-- Same as hold_is_over(), but takes no lock.
CREATE OR REPLACE FUNCTION _lock_election.may_be_over(h _lock_election.hold) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN h.ended IS NOT NULL OR h.expires_at IS NOT NULL AND _lock_election.ends(h.expires_at, h.life, h.ttl) <= clock_timestamp()
		OR h.lease IS NOT NULL AND NOT _lock_election.lease_lives(h.lease);
END $$;

-- Returns the limit that lock_timeout sets for a wait; NULL = unlimited.
CREATE OR REPLACE FUNCTION _lock_election.lock_timeout() RETURNS interval LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN nullif(current_setting('lock_timeout')::interval, '0');
END $$;

-- Raises a notice if another connection acquired one of the names for the same owner.  Callers with the same owner
-- share a hold, although each believes that it holds the name alone.
CREATE OR REPLACE FUNCTION _lock_election.notice_shared_owner(r _lock_election.request, names text[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n text := (SELECT h.name FROM _lock_election.hold h WHERE h.kind = r.kind AND h.name = ANY (names) AND h.role = r.role AND h.owner = r.owner AND h.pid <> pg_backend_pid()
		AND h.ended IS NULL AND NOT h.evicted ORDER BY array_position(names, h.name) LIMIT 1);
BEGIN
	IF n IS NOT NULL THEN
		RAISE NOTICE '% "%" was acquired by owner "%" on another connection, and both calls now hold it', _lock_election.word(r.kind), n, r.owner
			USING HINT = 'An owner is an identity, not a label: use a different one in each worker.';
	END IF;
END $$;

-- Attempts a request if it can succeed.
CREATE OR REPLACE FUNCTION _lock_election.attempt_if_free(r _lock_election.request) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	token int8;
BEGIN
	IF r.lease IS NULL AND NOT _lock_election.looks_free(r) THEN RETURN NULL; END IF;
	-- a caller without an arrival has already tried acquire_free()
	IF r.arrival IS NOT NULL AND r.kind = 1 AND r.mode = 'exclusive' AND r.lease IS NULL AND cardinality(r.names) = 1 THEN
		token := _lock_election.acquire_free(r.kind, r.names[1], r.ttl, r.owner, NULL, NULL, 0, true);
	END IF;
	IF token IS NULL THEN SELECT a.token INTO token FROM _lock_election.attempt(r, '200 ms') a; END IF;
	RETURN token;
END $$;

-- Waits for a request in the lines of its names; "until" NULL = unlimited.  Returns NULL if the call gives up.  Its
-- subtransaction leaves the lines if the call fails, is cancelled, or gives up.
CREATE OR REPLACE FUNCTION _lock_election.acquire_in_line(r _lock_election.request, until timestamptz) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	token int8;
	first_since timestamptz;
	waited interval;
BEGIN
	r.arrival := _lock_election.stand_in_line(r.kind, r.names, until);
	IF r.arrival IS NULL THEN RETURN NULL; END IF;
	first_since := clock_timestamp();
	LOOP
		token := _lock_election.attempt_if_free(r);
		IF token IS NOT NULL THEN RETURN token; END IF;
		IF clock_timestamp() >= until THEN RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998'; END IF;
		-- The previous call in the line has just been granted the name, and may release it at once.  So retry
		-- for 0.5 ms without a sleep: an attempt takes 30 us, but the shortest sleep takes 1.1 ms, because
		-- pg_sleep() rounds up to whole ms.  Then sleep for a twentieth of the time spent so far.
		waited := clock_timestamp() - first_since;
		CONTINUE WHEN waited < '0.5 ms';
		PERFORM pg_sleep(least(greatest(date_part('epoch', waited) / 20, 0.0005), 0.1, date_part('epoch', until - clock_timestamp())));
	END LOOP;
EXCEPTION WHEN SQLSTATE 'LE998' THEN
	RETURN NULL;
END $$;

-- Acquires a lock, waiting for at most "wait"; NULL = unlimited.  Returns NULL at the time limit.
CREATE OR REPLACE FUNCTION _lock_election.acquire(r _lock_election.request, wait interval) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	began timestamptz := clock_timestamp();
	most interval;
	token int8;
BEGIN
	PERFORM _lock_election.check_transaction();
	-- begin a life after a crash, because nothing expires before, and attempts that only read do not begin one
	PERFORM _lock_election.current_life();
	token := _lock_election.attempt_if_free(r);
	IF token IS NULL AND (wait IS NULL OR wait > '0') THEN
		most := _lock_election.lock_timeout();
		WHILE token IS NULL AND coalesce(clock_timestamp() < began + least(wait, most), true) LOOP
			-- Calls in the line may wait for the caller's own hold, so retry without entering the line.
			IF _lock_election.looks_held(r) THEN
				PERFORM pg_sleep(0.005);
				token := _lock_election.attempt_if_free(r);
			ELSE
				token := _lock_election.acquire_in_line(r, began + least(wait, most));
			END IF;
		END LOOP;
		IF token IS NULL THEN
			-- notify the first places, because this call no longer precedes them
			PERFORM _lock_election.nudge(r.kind, r.names);
			IF most < wait OR wait IS NULL THEN PERFORM _lock_election.fail('55P03', 'canceling statement due to lock timeout'); END IF;
		END IF;
	END IF;
	IF token IS NOT NULL AND r.owner IS NOT NULL THEN PERFORM _lock_election.notice_shared_owner(r, r.names); END IF;
	RETURN token;
END $$;

-- Grants a request at once, or adds a place to the queue.
CREATE OR REPLACE FUNCTION _lock_election.enqueue(r _lock_election.request, OUT token int8, OUT granted boolean, OUT queue_position int8, OUT channel text) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.check_transaction();
	r.place := true;
	r.of_lease := coalesce(r.of_lease, false);
	SELECT a.token, a.granted, a.queue_position INTO token, granted, queue_position
		FROM _lock_election.attempt(r, least(coalesce(_lock_election.lock_timeout(), '2 s'), '2 s')) a;
	IF token IS NULL THEN
		PERFORM _lock_election.fail('55P03', format('could not enter the queue of %s "%s"', _lock_election.word(r.kind), r.names[1]),
			'Another transaction that entered this queue has not ended yet.', 'Acquire and release outside of long transactions.');
	END IF;
	channel := _lock_election.channel(r.kind, r.names[1]);
END $$;

-- --- locks: the functions of locks, permits and places ------------------------------------------------------------------
--
-- From here on, each name gets COLLATE "C", as in the tables, so that equal bytes always have the same section.
-- Each array is replaced by a slice of itself, so that its subscripts begin at 1.

-- Returns a request with checked arguments.
CREATE OR REPLACE FUNCTION _lock_election.make(k int2, names text[], mode text, permits int8, ttl interval, owner text, lease int8, value text) RETURNS _lock_election.request
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	r _lock_election.request;
BEGIN
	IF mode = 'permit' THEN PERFORM _lock_election.check_permits(permits); ELSE PERFORM _lock_election.check_mode(mode); END IF;
	IF k = 2 THEN PERFORM _lock_election.check_text('candidate', value, 4096); END IF;
	IF owner IS NOT NULL THEN PERFORM _lock_election.check_text('owner', owner, 255); END IF;
	r.kind := k;
	r.names := names;
	r.mode := mode;
	r.permits := CASE WHEN mode = 'permit' THEN permits ELSE 0 END;
	IF lease IS NULL OR ttl IS NOT NULL THEN r.ttl := _lock_election.checked_ttl(ttl); END IF;
	IF lease IS NOT NULL THEN r.ttl := NULL; END IF;
	r.owner := owner;
	r.lease := lease;
	r.value := value;
	r.place := false;
	r.of_lease := false;
	r.role := _lock_election.who();
	IF k = 2 THEN PERFORM _lock_election.check_history(r.role); END IF;
	RETURN r;
END $$;

-- Same as make(), for one name.
CREATE OR REPLACE FUNCTION _lock_election.make_one(k int2, name text, mode text, permits int8, ttl interval, owner text, lease int8, value text) RETURNS _lock_election.request
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.check_name(k, name);
	RETURN _lock_election.make(k, ARRAY[name], mode, permits, ttl, owner, lease, value);
END $$;

-- Acquires an exclusive lock or a term in one statement, if it has no holders and no waiters; this is by far the
-- most frequent case.  Returns NULL in all other cases.  The hold has its own ttl, or is on a lease that the caller
-- has checked.
--
-- first: true if the caller is the first in the line.  If another call is the first, this call does not enter the
-- section, because the holder may need the section for its release.  The subtransaction lets a refused call leave
-- the section, which it would otherwise keep until the caller's COMMIT.  The primary key rejects a second row.
-- Every object is schema-qualified here, because a SET search_path would cost as much as a statement.  The token is
-- the column's default and the time is a variable, because with a volatile function the SELECT would get its own
-- plan node below the INSERT.
CREATE OR REPLACE FUNCTION _lock_election.acquire_free(k int2, n text, ttl interval, o text, v text, lease int8, call int8, first boolean) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	number pg_catalog.int8;
	length pg_catalog.interval := pg_catalog.make_interval(secs => pg_catalog.date_part('epoch', ttl));
	moment pg_catalog.timestamptz := pg_catalog.clock_timestamp();
BEGIN
	IF NOT (first OR pg_catalog.pg_try_advisory_xact_lock_shared(pg_catalog.hashtextextended(n, 4808 OPERATOR(pg_catalog.+) k))) THEN RETURN NULL; END IF;
	IF pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(n, 4802 OPERATOR(pg_catalog.+) k)) THEN
		INSERT INTO _lock_election.hold (kind, name, slot, mode, lease, ttl, expires_at, life, role, owner, value, since, changed, acquired_in, told_call, pid, application, client)
			SELECT k, n, 0, 'exclusive', lease, length, moment OPERATOR(pg_catalog.+) length, l.life,
				pg_catalog.to_regrole(pg_catalog.quote_ident(CASE WHEN pg_catalog.current_setting('role') OPERATOR(pg_catalog.=) 'none' THEN session_user::pg_catalog.text
					ELSE pg_catalog.current_setting('role') END)), o, v, moment,
				pg_catalog.pg_current_xact_id()::pg_catalog.text::pg_catalog.int8, pg_catalog.pg_current_xact_id()::pg_catalog.text::pg_catalog.int8, call,
				pg_catalog.pg_backend_pid(), pg_catalog.current_setting('application_name'), pg_catalog.inet_client_addr()
			FROM _lock_election.life l
			WHERE l.one AND NOT l.limited AND l.born OPERATOR(pg_catalog.=) l.xmin
				AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
				AND NOT EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind OPERATOR(pg_catalog.=) k AND h.name OPERATOR(pg_catalog.=) n)
				AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.kind OPERATOR(pg_catalog.=) k AND p.name OPERATOR(pg_catalog.=) n)
			RETURNING token INTO number;
		IF FOUND THEN RETURN number; END IF;
	END IF;
	RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998';
EXCEPTION WHEN SQLSTATE 'LE998' THEN
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION acquire_lock(name text, ttl interval DEFAULT '30 s', wait interval DEFAULT NULL, mode text DEFAULT 'exclusive',
	owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	token int8;
BEGIN
	IF mode = 'exclusive' AND lease IS NULL AND octet_length(name) BETWEEN 1 AND 255 AND (owner IS NULL OR octet_length(owner) BETWEEN 1 AND 255)
		AND ttl BETWEEN '100 ms' AND '1 hour' AND (wait IS NULL OR wait BETWEEN '0' AND '1000 days') AND current_setting('transaction_isolation') = 'read committed'
		AND current_setting('transaction_read_only') = 'off' THEN
		token := _lock_election.acquire_free(1::int2, name COLLATE "C", ttl, owner, NULL, NULL, 0, false);
		IF token IS NOT NULL THEN RETURN token; END IF;
	END IF;
	PERFORM _lock_election.check_mode(mode);
	wait := _lock_election.checked_wait(wait);
	RETURN _lock_election.acquire(_lock_election.make_one(1::int2, name COLLATE "C", mode, 0, ttl, owner, lease, NULL), wait);
END $$;

CREATE OR REPLACE FUNCTION try_acquire_lock(name text, ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	token int8;
BEGIN
	IF mode = 'exclusive' AND lease IS NULL AND octet_length(name) BETWEEN 1 AND 255 AND (owner IS NULL OR octet_length(owner) BETWEEN 1 AND 255)
		AND ttl BETWEEN '100 ms' AND '1 hour' AND current_setting('transaction_isolation') = 'read committed' AND current_setting('transaction_read_only') = 'off' THEN
		token := _lock_election.acquire_free(1::int2, name COLLATE "C", ttl, owner, NULL, NULL, 0, false);
		IF token IS NOT NULL THEN RETURN token; END IF;
	END IF;
	PERFORM _lock_election.check_mode(mode);
	RETURN _lock_election.acquire(_lock_election.make_one(1::int2, name COLLATE "C", mode, 0, ttl, owner, lease, NULL), '0');
END $$;

CREATE OR REPLACE FUNCTION acquire_locks(names text[], ttl interval DEFAULT '30 s', wait interval DEFAULT NULL, mode text DEFAULT 'exclusive',
	owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_names(names, 1), _lock_election.check_mode(mode);
	wait := _lock_election.checked_wait(wait);
	RETURN _lock_election.acquire(_lock_election.make(1::int2, names[:] COLLATE "C", mode, 0, ttl, owner, lease, NULL), wait);
END $$;

CREATE OR REPLACE FUNCTION acquire_permit(name text, permits integer, ttl interval DEFAULT '30 s', wait interval DEFAULT NULL, owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	wait := _lock_election.checked_wait(wait);
	RETURN _lock_election.acquire(_lock_election.make_one(1::int2, name COLLATE "C", 'permit', permits, ttl, owner, lease, NULL), wait);
END $$;

-- --- several names, independently of each other ---

-- Makes one request per name.  For places, first enters the sections of all names.
CREATE OR REPLACE FUNCTION _lock_election.each(r _lock_election.request)
RETURNS TABLE (name text, token int8, granted boolean, queue_position int8) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	names text[] := r.names;
	n text;
BEGIN
	PERFORM _lock_election.check_transaction();
	IF cardinality(names) = 0 THEN RETURN; END IF;
	IF r.lease IS NOT NULL THEN PERFORM _lock_election.check_lease(r.lease, r.role); END IF;
	IF r.place AND NOT _lock_election.enter(r.kind, names, '2 s') THEN
		PERFORM _lock_election.fail('55P03', 'could not enter the queues of these names', 'Another transaction that entered one of them has not ended yet.');
	END IF;
	FOREACH n IN ARRAY names LOOP
		r.names := ARRAY[n];
		IF NOT r.place AND r.mode = 'exclusive' AND r.lease IS NULL THEN
			token := _lock_election.acquire_free(r.kind, n, r.ttl, r.owner, NULL, NULL, 0, false);
			IF token IS NOT NULL THEN
				RETURN QUERY SELECT n, token, true, 0::int8;
				CONTINUE;
			END IF;
		END IF;
		IF r.place THEN
			PERFORM _lock_election.settle(r.kind, r.names);
			RETURN QUERY SELECT n, d.token, d.granted, d.queue_position FROM _lock_election.decide(r) d;
		ELSE
			RETURN QUERY SELECT n, a.token, a.granted, a.queue_position FROM _lock_election.attempt(r, '200 ms') a;
		END IF;
	END LOOP;
	IF r.owner IS NOT NULL AND NOT r.place THEN PERFORM _lock_election.notice_shared_owner(r, names); END IF;
END $$;

CREATE OR REPLACE FUNCTION try_acquire_each(names text[], ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS TABLE (name text, token bigint) LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_names(names, 0), _lock_election.check_mode(mode);
	RETURN QUERY SELECT e.name, e.token FROM _lock_election.each(_lock_election.make(1::int2, names[:] COLLATE "C", mode, 0, ttl, owner, lease, NULL)) e;
END $$;

CREATE OR REPLACE FUNCTION enqueue_each(names text[], ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS TABLE (name text, token bigint, granted boolean, queue_position bigint, channel text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r _lock_election.request;
BEGIN
	PERFORM _lock_election.check_names(names, 0), _lock_election.check_mode(mode);
	r := _lock_election.make(1::int2, names[:] COLLATE "C", mode, 0, ttl, owner, lease, NULL);
	r.place := true;
	RETURN QUERY SELECT e.name, e.token, e.granted, e.queue_position, _lock_election.channel(1::int2, e.name) FROM _lock_election.each(r) e;
END $$;

-- --- places ---

CREATE OR REPLACE FUNCTION enqueue_lock(name text, ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL,
	OUT token bigint, OUT granted boolean, OUT queue_position bigint, OUT channel text)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_mode(mode);
	SELECT e.* INTO token, granted, queue_position, channel FROM _lock_election.enqueue(_lock_election.make_one(1::int2, name COLLATE "C", mode, 0, ttl, owner, lease, NULL)) e;
END $$;

CREATE OR REPLACE FUNCTION enqueue_permit(name text, permits integer, ttl interval DEFAULT '30 s', owner text DEFAULT NULL, lease bigint DEFAULT NULL,
	OUT token bigint, OUT granted boolean, OUT queue_position bigint, OUT channel text)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	SELECT e.* INTO token, granted, queue_position, channel FROM _lock_election.enqueue(_lock_election.make_one(1::int2, name COLLATE "C", 'permit', permits, ttl, owner, lease, NULL)) e;
END $$;

CREATE OR REPLACE FUNCTION enqueue_locks(names text[], ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL,
	OUT token bigint, OUT granted boolean, OUT queue_position bigint, OUT channel text)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_names(names, 1), _lock_election.check_mode(mode);
	SELECT e.* INTO token, granted, queue_position, channel FROM _lock_election.enqueue(_lock_election.make(1::int2, names[:] COLLATE "C", mode, 0, ttl, owner, lease, NULL)) e;
END $$;

-- Settles these names.  Rolls back, as attempt() does, unless that grants this token.
CREATE OR REPLACE FUNCTION _lock_election.come_to(k int2, names text[], tok int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.look_at(k, names);
	IF NOT EXISTS (SELECT FROM _lock_election.hold x WHERE x.kind = k AND x.name = names[1] AND x.token = tok) THEN
		RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998';
	END IF;
EXCEPTION WHEN SQLSTATE 'LE998' THEN NULL;
END $$;

-- Returns whether no concurrent transaction is granting this place, whose lease is its own.  If one does so later,
-- the ttl of the hold starts after this check, so the hold lasts at least as long as a renewal of the lease states.
-- Otherwise the hold would end too early: its ttl has started, and its grant does not wait for the renewal.
CREATE OR REPLACE FUNCTION _lock_election.place_stays(tok int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF pg_try_advisory_xact_lock(hashint8extended(tok, 4806)) THEN RAISE EXCEPTION 'undo the lock' USING ERRCODE = 'LE998'; END IF;
	RETURN false;
EXCEPTION WHEN SQLSTATE 'LE998' THEN RETURN true;
END $$;

-- Checks a token once.  Returns true if it is held, false if it is queued, and NULL if neither.  renews: true =
-- also restart the ttl of a place.  goes_on: true = an earlier check in this call has restarted the ttl, and the
-- row has been locked since then.  Checks places first, because a place can become a hold, but a hold cannot become
-- a place.
CREATE OR REPLACE FUNCTION _lock_election.look(k int2, names text[], tok int8, renews boolean, goes_on boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8 := _lock_election.current_life();
	n text;
	h _lock_election.hold;
	p _lock_election.place;
	held int4 := 0;
	until timestamptz := clock_timestamp() + '2 s';
BEGIN
	IF EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = names[1] AND x.token = tok) THEN
		PERFORM _lock_election.come_to(k, names, tok);
	END IF;
	FOREACH n IN ARRAY names LOOP
		SELECT x.* INTO p FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok;
		IF FOUND THEN
			IF NOT goes_on AND NOT _lock_election.lease_lives(p.lease) THEN
				-- the place was granted since the check above, and its own lease was deleted with it
				IF NOT EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok) THEN
					RETURN _lock_election.look(k, names, tok, renews, goes_on);
				END IF;
				RETURN NULL;
			END IF;
			PERFORM _lock_election.check_role(k, n, p.role);
		ELSE
			SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
			IF NOT FOUND OR _lock_election.may_be_over(h) AND NOT (goes_on AND h.ended IS NULL AND h.expires_at IS NULL
				AND EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = h.lease AND NOT l.named)) THEN RETURN NULL; END IF;
			PERFORM _lock_election.check_role(k, n, h.role);
			IF h.evicted THEN RETURN NULL; END IF;
			IF h.lease IS NULL THEN
				PERFORM pg_try_advisory_xact_lock_shared(hashint8extended(tok, 4806));
				UPDATE _lock_election.hold x SET life = number, expires_at = clock_timestamp() + x.ttl WHERE x.kind = k AND x.name = n AND x.slot = h.slot AND x.token = tok
					AND x.ended IS NULL AND NOT x.evicted AND _lock_election.ends(x.expires_at, x.life, x.ttl) > clock_timestamp();
				-- another transaction ended the hold while this update waited
				IF NOT FOUND THEN RETURN NULL; END IF;
			END IF;
			held := held + 1;
		END IF;
	END LOOP;
	-- The lease must be live.  If the token has its own lease, renew it, which also locks its row, so that no
	-- other transaction ends the lease during the wait.
	IF coalesce(h.lease, p.lease) IS NULL THEN RETURN true; END IF;
	IF renews OR held > 0 THEN
		LOOP
			IF p.ttl IS NULL OR p.members IS NOT NULL OR _lock_election.place_stays(tok) THEN
				IF p.token IS NOT NULL AND NOT EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = p.name AND x.token = tok) THEN
					RETURN _lock_election.look(k, names, tok, false, goes_on);
				END IF;
				PERFORM FROM _lock_election.lease l WHERE l.id = coalesce(h.lease, p.lease) AND NOT l.named
					AND (goes_on OR _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp()) FOR NO KEY UPDATE SKIP LOCKED;
				IF FOUND THEN
					UPDATE _lock_election.lease l SET life = number, expires_at = clock_timestamp() + l.ttl WHERE l.id = coalesce(h.lease, p.lease);
					EXIT;
				END IF;
			END IF;
			EXIT WHEN NOT EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = coalesce(h.lease, p.lease) AND NOT l.named
				AND _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp());
			-- another transaction is granting the place: the ttl of the hold has begun, and this call could not
			-- renew it
			IF clock_timestamp() >= until THEN
				PERFORM _lock_election.fail('55P03', format('could not keep the place in the queue of %s "%s"', _lock_election.word(k), names[1]),
					'Another transaction is granting or ending it, and has not ended yet.');
			END IF;
			PERFORM pg_sleep(0.002);
		END LOOP;
	END IF;
	IF NOT EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = coalesce(h.lease, p.lease)
			AND (goes_on AND NOT l.named OR _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp())) THEN
		-- the place was granted since the check above, and its lease was deleted with it
		IF p.token IS NOT NULL AND NOT EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = p.name AND x.token = tok) THEN
			RETURN _lock_election.look(k, names, tok, false, goes_on);
		END IF;
		RETURN NULL;
	END IF;
	RETURN held = cardinality(names);
END $$;

CREATE OR REPLACE FUNCTION _lock_election.await(k int2, names text[], tok int8, wait interval) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	began timestamptz := clock_timestamp();
	pause float8 := 0.005;
	most interval;
	held boolean;
	first boolean := true;
BEGIN
	PERFORM _lock_election.check_transaction(), _lock_election.check_token(k, tok);
	wait := _lock_election.checked_wait(wait);
	LOOP
		held := _lock_election.look(k, names, tok, first OR clock_timestamp() - began >= wait, NOT first);
		IF held IS NULL THEN
			PERFORM _lock_election.fail('LE001', format('%s %s neither holds %s "%s" nor waits for it any more', CASE k WHEN 1 THEN 'token' ELSE 'term' END, tok,
				_lock_election.word(k), names[1]));
		END IF;
		IF held OR clock_timestamp() - began >= wait THEN RETURN held; END IF;
		first := false;
		most := coalesce(most, _lock_election.lock_timeout());
		IF clock_timestamp() - began >= most THEN PERFORM _lock_election.fail('55P03', 'canceling statement due to lock timeout'); END IF;
		PERFORM pg_sleep(least(pause, date_part('epoch', least(wait, most) - (clock_timestamp() - began))));
		pause := least(pause * 1.3, 0.1);
	END LOOP;
END $$;

CREATE OR REPLACE FUNCTION await_lock(name text, token bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(1::int2, name COLLATE "C");
	RETURN _lock_election.await(1::int2, ARRAY[name COLLATE "C"], token, wait);
END $$;

CREATE OR REPLACE FUNCTION await_locks(names text[], token bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_names(names, 1);
	RETURN _lock_election.await(1::int2, names[:] COLLATE "C", token, wait);
END $$;

-- --- renewals: update the row of a hold or of its lease, without a section ---

-- Raises an error if the token belongs to a place, for functions that need a holder's token.
CREATE OR REPLACE FUNCTION _lock_election.refuse_place(k int2, n text, tok int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	p record;
BEGIN
	SELECT x.role, x.lease INTO p FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok;
	IF FOUND AND _lock_election.lease_lives(p.lease) THEN
		PERFORM _lock_election.check_role(k, n, p.role);
		PERFORM _lock_election.fail('55000', format('%s %s is still in the queue of "%s"', CASE k WHEN 1 THEN 'token' ELSE 'term' END, tok, n), '',
			format('Each call of %s() renews its place, and returns true once it is granted.', CASE k WHEN 1 THEN 'await_lock' ELSE 'await_leadership' END));
	END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.renew(k int2, n text, tok int8, new_ttl interval) RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
	h _lock_election.hold;
	l record;
	got interval;
BEGIN
	PERFORM _lock_election.check_name(k, n), _lock_election.check_token(k, tok), _lock_election.check_transaction();
	IF new_ttl IS NOT NULL THEN new_ttl := _lock_election.checked_ttl(new_ttl); END IF;

	-- 1. find the hold, and check its role
	PERFORM _lock_election.refuse_place(k, n, tok);
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
	IF NOT FOUND OR _lock_election.may_be_over(h) THEN RETURN NULL; END IF;
	PERFORM _lock_election.check_role(k, n, h.role);
	IF h.evicted THEN RETURN NULL; END IF;

	-- 2. renew its row; the advisory lock tells a concurrent release not to wait for this transaction
	PERFORM pg_try_advisory_xact_lock_shared(hashint8extended(tok, 4806));
	number := _lock_election.life_of_renewal();
	IF h.lease IS NULL THEN
		UPDATE _lock_election.hold x SET ttl = coalesce(new_ttl, x.ttl), expires_at = clock_timestamp() + coalesce(new_ttl, x.ttl), life = coalesce(number, x.life)
			WHERE x.kind = k AND x.name = n AND x.slot = h.slot AND x.token = tok AND x.ended IS NULL AND NOT x.evicted
				AND (x.life = number AND x.expires_at > clock_timestamp() OR _lock_election.ends(x.expires_at, x.life, x.ttl) > clock_timestamp())
			RETURNING x.ttl INTO got;
		RETURN got;
	END IF;

	-- 3. if it is on a lease, renew the lease
	SELECT x.named INTO l FROM _lock_election.lease x WHERE x.id = h.lease;
	IF l.named AND new_ttl IS NOT NULL THEN
		PERFORM _lock_election.other_lease(k, n);
	END IF;
	RETURN _lock_election.keep(h.lease, new_ttl, 0);
END $$;

CREATE OR REPLACE FUNCTION renew_lock(name text, token bigint, ttl interval DEFAULT NULL)
RETURNS interval LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.renew(1::int2, name COLLATE "C", token, ttl);
END $$;

-- --- releases ---

-- Releases the hold or place with this token.
CREATE OR REPLACE FUNCTION _lock_election.release(k int2, n text, tok int8, hold_for interval, all_holds boolean, how text, of_lease int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	me oid := _lock_election.who();
	h _lock_election.hold;
	p _lock_election.place;
	inside boolean;
	until timestamptz;
	done boolean := false;
BEGIN
	inside := _lock_election.enter(k, ARRAY[n], '100 ms');
	until := clock_timestamp() + '100 ms';
	LOOP
		-- 1. release a place; places are checked first, as in look()
		SELECT x.* INTO p FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok;
		IF FOUND THEN
			IF NOT _lock_election.lease_lives(p.lease) THEN
				-- the place was granted since the check above, and its own lease was deleted with it
				CONTINUE WHEN NOT EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok);
				IF inside THEN PERFORM _lock_election.settle(k, ARRAY[n]); END IF;
				RETURN false;
			END IF;
			PERFORM _lock_election.check_role(k, n, p.role);
			done := _lock_election.end_place(p, how, p.lease = of_lease);
		ELSE
			-- 2. release a hold
			SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
			IF NOT FOUND THEN RETURN false; END IF;
			IF _lock_election.may_be_over(h) THEN
				IF inside THEN PERFORM _lock_election.settle(k, ARRAY[n]); END IF;
				RETURN false;
			END IF;
			PERFORM _lock_election.check_role(k, n, h.role);
			IF h.holds > 1 AND NOT coalesce(all_holds, false) THEN
				UPDATE _lock_election.hold x SET holds = x.holds - 1 WHERE x.kind = k AND x.name = n AND x.slot = h.slot AND x.token = tok AND x.holds > 1 AND x.ended IS NULL;
				IF FOUND THEN RETURN true; END IF;
				CONTINUE;    -- another release came first
			ELSE
				done := _lock_election.end_hold(h, how, h.lease = of_lease);
			END IF;
		END IF;
		EXIT WHEN done;

		-- 3. retry if another transaction has locked the row, such as a renewal that is being flushed, or an
		--    idle transaction
		IF clock_timestamp() >= until THEN
			PERFORM _lock_election.fail('55P03', format('could not release %s "%s"', _lock_election.word(k), n), 'Another transaction is changing it, and has not ended yet.');
		END IF;
		PERFORM pg_sleep(0.002);
	END LOOP;

	-- 4. close the name if there is a hold_for
	IF hold_for IS NOT NULL AND h.token IS NOT NULL AND h.since + hold_for > clock_timestamp() THEN
		INSERT INTO _lock_election.hold (kind, name, slot, token, closed_until, since, changed, role, pid)
			VALUES (k, n, -1, 0, h.since + hold_for, clock_timestamp(), pg_current_xact_id()::text::int8, me, pg_backend_pid())
			ON CONFLICT (kind, name, slot) DO UPDATE SET closed_until = greatest(hold.closed_until, excluded.closed_until), role = excluded.role;
	END IF;

	-- 5. grant the next place; outside of the section, its client is notified at the commit instead
	IF inside THEN PERFORM _lock_election.settle(k, ARRAY[n]); ELSE PERFORM _lock_election.nudge(k, ARRAY[n]); END IF;
	IF p.members IS NOT NULL THEN PERFORM _lock_election.look_at(k, p.members); END IF;
	RETURN true;
END $$;

-- Releases an exclusive lock with its own ttl in one statement, if it has no waiters.  Returns false in all
-- other cases, and if a fence or a renewal has locked the row.
CREATE OR REPLACE FUNCTION _lock_election.release_free(n text, tok int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF NOT (pg_try_advisory_xact_lock(hashtextextended(n, 4803)) AND pg_try_advisory_xact_lock(hashint8extended(tok, 4806))) THEN RETURN false; END IF;
	DELETE FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = n AND h.slot = 0 AND h.token = tok AND h.mode = 'exclusive' AND h.lease IS NULL AND h.holds = 1
		AND h.ended IS NULL AND h.expires_at > clock_timestamp()
		AND h.role = to_regrole(quote_ident(CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END))
		AND h.life = (SELECT l.life FROM _lock_election.life l WHERE l.one AND l.born = l.xmin)
		AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.kind = 1 AND p.name = n);
	RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION release_lock(name text, token bigint, hold_for interval DEFAULT NULL, all_holds boolean DEFAULT false)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
	-- same as release_free(), inlined: a call would make an acquire and its release 5 % slower
	IF hold_for IS NULL AND token > 0 AND octet_length(name) BETWEEN 1 AND 255 AND current_setting('transaction_isolation') = 'read committed'
		AND current_setting('transaction_read_only') = 'off' AND pg_try_advisory_xact_lock(hashtextextended(name COLLATE "C", 4803))
		AND pg_try_advisory_xact_lock(hashint8extended(token, 4806)) THEN
		DELETE FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.slot = 0 AND h.token = $2 AND h.mode = 'exclusive' AND h.lease IS NULL AND h.holds = 1
			AND h.ended IS NULL AND h.expires_at > clock_timestamp()
			AND h.role = to_regrole(quote_ident(CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END))
			AND h.life = (SELECT l.life FROM _lock_election.life l WHERE l.one AND l.born = l.xmin)
			AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.kind = 1 AND p.name = $1 COLLATE "C");
		IF FOUND THEN RETURN true; END IF;
	END IF;
	PERFORM _lock_election.check_name(1::int2, name COLLATE "C");
	hold_for := _lock_election.checked_hold_for(hold_for);
	IF coalesce(token, 0) <= 0 THEN RETURN false; END IF;
	PERFORM _lock_election.check_transaction();
	RETURN _lock_election.release(1::int2, name COLLATE "C", token, hold_for, all_holds, 'released', NULL);
END $$;

CREATE OR REPLACE FUNCTION release_lock(name text)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	number int8;
BEGIN
	PERFORM _lock_election.check_name(1::int2, name COLLATE "C"), _lock_election.check_transaction();
	SELECT h.token INTO number FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.pid = pg_backend_pid() AND h.ended IS NULL AND h.mode IS NOT NULL
		AND h.since >= pg_postmaster_start_time() ORDER BY h.token DESC LIMIT 1;
	IF NOT FOUND THEN RETURN false; END IF;
	RETURN _lock_election.release(1::int2, name COLLATE "C", number, NULL, false, 'released', NULL);
END $$;

CREATE OR REPLACE FUNCTION release_locks(names text[], token bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	n text;
	place record;
	every boolean := true;
BEGIN
	PERFORM _lock_election.check_names(names, 1);
	names := names[:];
	IF coalesce(token, 0) <= 0 THEN RETURN false; END IF;
	PERFORM _lock_election.check_transaction();
	PERFORM _lock_election.enter(1::int2, names COLLATE "C", '100 ms');
	-- a place leaves all its queues at once
	SELECT p.name, p.members INTO place FROM _lock_election.place p WHERE p.kind = 1 AND p.name = ANY (names COLLATE "C") AND p.token = $2 LIMIT 1;
	IF FOUND THEN
		RETURN _lock_election.release(1::int2, place.name, token, NULL, false, 'released', NULL) AND names COLLATE "C" <@ coalesce(place.members, ARRAY[place.name]);
	END IF;
	FOREACH n IN ARRAY names LOOP every := _lock_election.release(1::int2, n COLLATE "C", token, NULL, false, 'released', NULL) AND every; END LOOP;
	RETURN every;
END $$;

CREATE OR REPLACE FUNCTION release_each(names text[], tokens bigint[])
RETURNS TABLE (name text, released boolean) LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	members text[];
	left_queues text[] := '{}';
BEGIN
	PERFORM _lock_election.check_names(names, 0);
	IF tokens IS NULL THEN PERFORM _lock_election.fail('22023', 'tokens must not be null'); END IF;
	IF array_ndims(tokens) > 1 THEN PERFORM _lock_election.fail('22023', 'tokens must have one dimension only'); END IF;
	IF cardinality(names) <> cardinality(tokens) THEN
		PERFORM _lock_election.fail('22023', format('there are %s names and %s tokens', cardinality(names), cardinality(tokens)), 'Each name needs a token, which may be null.');
	END IF;
	PERFORM _lock_election.check_transaction();
	names := names[:];
	tokens := tokens[:];
	IF cardinality(names) > 0 THEN PERFORM _lock_election.enter(1::int2, names COLLATE "C", '100 ms'); END IF;
	FOR i IN 1 .. cardinality(names) LOOP
		name := names[i];
		released := coalesce(tokens[i], 0) > 0 AND _lock_election.release_free(names[i] COLLATE "C", tokens[i]);
		IF released THEN
			RETURN NEXT;
			CONTINUE;
		END IF;
		-- a place for several names leaves all its queues at once
		SELECT p.members INTO members FROM _lock_election.place p WHERE p.kind = 1 AND p.name = names[i] COLLATE "C" AND p.token = tokens[i];
		released := coalesce(tokens[i], 0) > 0 AND _lock_election.release(1::int2, names[i] COLLATE "C", tokens[i], NULL, false, 'released', NULL)
			OR coalesce(left_queues @> ARRAY[tokens[i] || ' ' || name COLLATE "C"], false);
		IF released AND members IS NOT NULL THEN
			left_queues := left_queues || ARRAY(SELECT tokens[i] || ' ' || m FROM unnest(members) m);
		END IF;
		RETURN NEXT;
	END LOOP;
END $$;

-- --- is_held() and set_permits() ---

CREATE OR REPLACE FUNCTION _lock_election.held(k int2, n text, tok int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
BEGIN
	PERFORM _lock_election.check_name(k, n), _lock_election.check_token(k, tok);
	IF current_setting('transaction_read_only') = 'off' OR pg_is_in_recovery() OR current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM _lock_election.check_transaction();
	END IF;
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
	RETURN FOUND AND NOT _lock_election.may_be_over(h);
END $$;

CREATE OR REPLACE FUNCTION is_held(name text, token bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.held(1::int2, name COLLATE "C", token);
END $$;

CREATE OR REPLACE FUNCTION set_permits(name text, permits integer)
RETURNS integer LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	used record;
BEGIN
	PERFORM _lock_election.check_name(1::int2, name COLLATE "C"), _lock_election.check_permits(permits), _lock_election.check_transaction();
	PERFORM _lock_election.current_life();
	IF NOT _lock_election.enter(1::int2, ARRAY[name COLLATE "C"], '1 s') THEN
		PERFORM _lock_election.fail('40001', format('the holders of "%s" have changed too often while their roles were read', name));
	END IF;
	PERFORM _lock_election.settle(1::int2, ARRAY[name COLLATE "C"]);
	IF EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.ended IS NULL AND NOT _lock_election.is_mine(h.role, 'pg_signal_backend')) THEN
		PERFORM _lock_election.fail('42501', format('permission denied to change the permits of "%s"', name), '',
			'Only members of all holders'' roles, or of pg_signal_backend, may do this.');
	END IF;
	SELECT x.mode, x.permits INTO used FROM (
		(SELECT h.mode, h.permits FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.mode IS NOT NULL LIMIT 1)
		UNION ALL (SELECT p.mode, p.permits FROM _lock_election.place p WHERE p.kind = 1 AND p.name = $1 COLLATE "C" LIMIT 1)) x LIMIT 1;
	IF NOT FOUND THEN RETURN NULL; END IF;
	IF used.mode <> 'permit' THEN PERFORM _lock_election.other_use(name); END IF;
	UPDATE _lock_election.hold h SET permits = $2 WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.mode = 'permit';
	UPDATE _lock_election.place p SET permits = $2 WHERE p.kind = 1 AND p.name = $1 COLLATE "C" AND p.mode = 'permit';
	PERFORM _lock_election.serve(1::int2, name COLLATE "C", NULL);
	RETURN used.permits;
END $$;

-- --- leases: the functions of leases ------------------------------------------------------------------------------------

-- Renews a lease and returns its ttl, or NULL if the lease has ended.  Writes only the lease's row, and does not
-- wait for sections.  call is the number of the lease_sync() call, or 0.  of_life is the current life, if the
-- caller has read it.
--
--     1. If no life can begin now, nothing expires: the lease is renewed, and its row keeps its life.
--     2. The row is locked before the clock is read.  A transaction that ends an expired lease keeps the row
--        locked while it ends the holds and places.  So this function notices it, even if this process was
--        suspended in between.
--     3. If another transaction has locked the row, this function waits for it only while the lease is live,
--        because that transaction renews or revokes the lease.
CREATE OR REPLACE FUNCTION _lock_election.keep(number int8, new_ttl interval, call int8, of_life int8 DEFAULT NULL) RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	got interval;
BEGIN
	IF of_life IS NULL THEN
		of_life := (SELECT l.life FROM _lock_election.life l WHERE l.one AND l.born = l.xmin
			AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
		IF of_life IS NULL THEN of_life := _lock_election.begin_life('100 ms'); END IF;
	END IF;
	PERFORM FROM _lock_election.lease x WHERE x.id = number FOR NO KEY UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		IF NOT EXISTS (SELECT FROM _lock_election.lease x WHERE x.id = number AND _lock_election.ends(x.expires_at, x.life, x.ttl) > clock_timestamp()) THEN RETURN NULL; END IF;
		PERFORM FROM _lock_election.lease x WHERE x.id = number FOR NO KEY UPDATE;
	END IF;
	UPDATE _lock_election.lease x SET expires_at = clock_timestamp() + coalesce(new_ttl, x.ttl), ttl = coalesce(new_ttl, x.ttl), life = coalesce(of_life, x.life),
			call = greatest(x.call, keep.call)
		WHERE x.id = number AND (x.life = of_life AND x.expires_at > clock_timestamp() OR _lock_election.ends(x.expires_at, x.life, x.ttl) > clock_timestamp())
		RETURNING x.ttl INTO got;
	RETURN got;
END $$;

-- Returns the role of a live named lease, or NULL if there is no such lease.  Raises an error if the lease
-- belongs to another role.
CREATE OR REPLACE FUNCTION _lock_election.own_lease(number int8) RETURNS oid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	l record;
BEGIN
	IF number IS NULL THEN PERFORM _lock_election.fail('22023', 'lease must not be null'); END IF;
	PERFORM _lock_election.check_transaction();
	SELECT x.role, _lock_election.ends(x.expires_at, x.life, x.ttl) AS at INTO l FROM _lock_election.lease x WHERE x.id = number AND x.named;
	IF NOT FOUND OR l.at <= clock_timestamp() THEN RETURN NULL; END IF;
	IF l.role <> _lock_election.who() THEN PERFORM _lock_election.fail('42501', format('lease %s belongs to another role', number)); END IF;
	RETURN l.role;
END $$;

CREATE OR REPLACE FUNCTION grant_lease(ttl interval DEFAULT '60 s', owner text DEFAULT NULL, wait interval DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	me oid := _lock_election.who();
	life int8;
	number int8;
	most int4;
BEGIN
	IF ttl IS NULL THEN PERFORM _lock_election.fail('22023', 'ttl must not be null', 'A lease has a ttl from 100 milliseconds to 24 days.'); END IF;
	ttl := _lock_election.checked_ttl(ttl);
	IF owner IS NOT NULL THEN PERFORM _lock_election.check_text('owner', owner, 255); END IF;
	PERFORM _lock_election.checked_wait(wait), _lock_election.check_transaction();
	life := _lock_election.current_life();
	SELECT c.max_leases_per_role INTO most FROM _lock_election.config c WHERE c.one;
	IF most > 0 AND (SELECT count(*) FROM _lock_election.lease l WHERE l.named AND l.role = me AND _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp()) >= most THEN
		PERFORM _lock_election.fail('53400', format('role "%s" has too many leases in this database', pg_get_userbyid(me)), '', format('See lock_election.max_leases_per_role (%s).', most));
	END IF;
	-- in every eighth call on average, delete some of the leases that clients left behind
	number := nextval('_lock_election.token');
	IF number % 8 = 0 THEN PERFORM _lock_election.drop_leases(20); END IF;
	INSERT INTO _lock_election.lease (id, ttl, expires_at, life, granted_in, role, named, owner) VALUES (number, $1, clock_timestamp() + $1, life, life, me, true, $2);
	INSERT INTO _lock_election.asked VALUES (number, 0);
	RETURN number;
END $$;

-- Deletes at most "most" leases that have ended and have no holds or places left.  Returns their number.
CREATE OR REPLACE FUNCTION _lock_election.drop_leases(most int4) RETURNS int4 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
	done int4 := 0;
BEGIN
	FOR number IN SELECT l.id FROM _lock_election.lease l WHERE l.expires_at < clock_timestamp() - interval '10 s' AND _lock_election.ends(l.expires_at, l.life, l.ttl) < clock_timestamp()
		AND NOT EXISTS (SELECT FROM _lock_election.hold h WHERE h.lease = l.id) AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.lease = l.id)
		LIMIT most FOR UPDATE SKIP LOCKED LOOP
		PERFORM _lock_election.drop_lease(number);
		done := done + 1;
	END LOOP;
	RETURN done;
END $$;
CREATE OR REPLACE FUNCTION _lock_election.drop_lease(number int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	DELETE FROM _lock_election.lease l WHERE l.id = number;
	DELETE FROM _lock_election.asked a WHERE a.lease = number;
	DELETE FROM _lock_election.loss x WHERE x.lease = number;
END $$;

CREATE OR REPLACE FUNCTION keep_alive(lease bigint)
RETURNS interval LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	got interval;
BEGIN
	IF _lock_election.own_lease(lease) IS NULL THEN RETURN NULL; END IF;
	got := _lock_election.keep(lease, NULL, 0);
	IF got IS NULL THEN RETURN NULL; END IF;
	PERFORM _lock_election.look_for(lease);
	RETURN least(got, (SELECT min(h.expires_at) - clock_timestamp() FROM _lock_election.hold h WHERE h.lease = $1 AND h.evicted AND h.expires_at > clock_timestamp()));
END $$;

-- Settles the names that the places of a lease wait for, except those with a live exclusive holder.
CREATE OR REPLACE FUNCTION _lock_election.look_for(number int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	q record;
BEGIN
	IF NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.lease = number) THEN RETURN; END IF;
	FOR q IN SELECT p.kind, array_agg(DISTINCT p.name) AS names FROM _lock_election.place p WHERE p.lease = number
		AND NOT EXISTS (SELECT FROM _lock_election.hold h LEFT JOIN _lock_election.lease l ON l.id = h.lease WHERE h.kind = p.kind AND h.name = p.name
			AND h.mode = 'exclusive' AND h.ended IS NULL AND CASE WHEN h.lease IS NULL OR h.evicted THEN h.expires_at ELSE l.expires_at END > clock_timestamp())
		GROUP BY p.kind LOOP
		PERFORM _lock_election.look_at(q.kind, q.names);
	END LOOP;
END $$;

CREATE OR REPLACE FUNCTION lease_time_to_live(lease bigint)
RETURNS interval LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	IF _lock_election.own_lease(lease) IS NULL THEN RETURN NULL; END IF;
	RETURN (SELECT _lock_election.time_left(_lock_election.ends(l.expires_at, l.life, l.ttl)) FROM _lock_election.lease l WHERE l.id = $1);
END $$;

CREATE OR REPLACE FUNCTION lease_holds(lease bigint)
RETURNS TABLE (kind text, name text, token bigint, granted boolean, queue_position bigint, channel text, owner text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	IF _lock_election.own_lease(lease) IS NULL THEN PERFORM _lock_election.fail('LE001', format('lease %s does not exist, or has ended', lease)); END IF;
	PERFORM _lock_election.look_for(lease);
	RETURN QUERY SELECT _lock_election.word(h.kind), h.name, h.token, true, 0::int8, _lock_election.channel(h.kind, coalesce(h.members[1], h.name)), h.owner
			FROM _lock_election.hold h WHERE h.lease = $1 AND h.ended IS NULL AND NOT h.evicted
		UNION ALL SELECT _lock_election.word(p.kind), p.name, p.token, false, _lock_election.rank(p.kind, ARRAY[p.name], p.token),
			CASE WHEN p.of_lease THEN _lock_election.lease_channel(p.lease) ELSE _lock_election.channel(p.kind, coalesce(p.members[1], p.name)) END, p.owner
			FROM _lock_election.place p WHERE p.lease = $1;
END $$;

-- Ends a lease with its holds and places.  Returns the number of these, including the lease.  An idle transaction
-- of the lease's role may have locked the row, so the wait for the row is short, and a forced end continues
-- without the row.
CREATE OR REPLACE FUNCTION _lock_election.end_lease(number int8, how text) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
	h _lock_election.hold;
	p _lock_election.place;
	q record;
	ended int8 := 0;
	mine boolean;
BEGIN
	-- 1. lock the row, so that no other transaction renews the lease or makes requests on it
	PERFORM FROM _lock_election.lease l WHERE l.id = number FOR UPDATE SKIP LOCKED;
	mine := FOUND;
	IF NOT mine AND how <> 'forced' THEN
		PERFORM FROM _lock_election.lease l WHERE l.id = number FOR UPDATE;
		IF NOT FOUND THEN RETURN 0; END IF;
		mine := true;
	END IF;
	IF mine THEN INSERT INTO _lock_election.loss VALUES (number, number, pg_current_xact_id()::text::int8, how) ON CONFLICT DO NOTHING; END IF;

	-- 2. end its holds and places, and grant the next places
	FOR q IN SELECT x.kind, array_agg(DISTINCT x.name) AS names FROM (SELECT y.kind, y.name FROM _lock_election.hold y WHERE y.lease = number
		UNION SELECT y.kind, y.name FROM _lock_election.place y WHERE y.lease = number) x GROUP BY x.kind LOOP
		PERFORM _lock_election.enter(q.kind, q.names, '50 ms');
		FOR p IN SELECT x.* FROM _lock_election.place x WHERE x.lease = number AND x.kind = q.kind LOOP
			IF _lock_election.end_place(p, how, mine) THEN ended := ended + 1; END IF;
		END LOOP;
		FOR h IN SELECT x.* FROM _lock_election.hold x WHERE x.lease = number AND x.kind = q.kind AND x.ended IS NULL LOOP
			IF _lock_election.end_hold(h, how, mine) THEN ended := ended + 1; END IF;
		END LOOP;
		PERFORM _lock_election.nudge(q.kind, q.names);
		PERFORM _lock_election.look_at(q.kind, q.names);
	END LOOP;
	IF NOT mine THEN RETURN ended; END IF;
	DELETE FROM _lock_election.lease l WHERE l.id = number;
	DELETE FROM _lock_election.asked a WHERE a.lease = number;
	DELETE FROM _lock_election.loss x WHERE x.lease = number AND x.token <> number;
	RETURN ended + 1;
END $$;

CREATE OR REPLACE FUNCTION revoke_lease(lease bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	IF _lock_election.own_lease(lease) IS NULL THEN RETURN false; END IF;
	PERFORM _lock_election.current_life();
	RETURN _lock_election.end_lease(lease, 'revoked') > 0;
END $$;

-- --- sync: lease_sync(), for client libraries ---------------------------------------------------------------------------
--
-- A call first renews the lease, then carries out the releases, then the other items, and finally returns the
-- news.  docs/reference/lease-sync.md describes arguments and rows.  The rules are implemented as follows:
--
--     renewal    A call without requests, even if it has releases, writes the lease's row and waits for no flush.
--                A call with requests must be flushed with its grants, and would keep that row locked until then.
--                So it locks the row only FOR KEY SHARE, renews nothing, and returns the time left.  If less than
--                half of the ttl is left, it renews as well, so that a client that makes requests all the time
--                keeps its lease.
--     old calls  Renewals store the number of the newest call in the lease's row, and calls with requests store it
--                in table asked.  Calls with requests exclude each other by an advisory lock of the lease.  A
--                renewal that finds this lock taken returns no news.
--     news       A news number consists of the oldest transaction that was running, and the call that returned it.
--                The next news is the changes of that transaction and of later transactions, except the changes
--                that the client has received as results.

DO $$
BEGIN
	IF pg_catalog.to_regtype('_lock_election.told') IS NULL THEN
		CREATE TYPE _lock_election.told AS (item pg_catalog.int4, event pg_catalog.text, kind pg_catalog.text, name pg_catalog.text, token pg_catalog.int8,
			queue_position pg_catalog.int8, owner pg_catalog.text, reason pg_catalog.text, sqlstate pg_catalog.text, message pg_catalog.text, detail pg_catalog.text, hint pg_catalog.text);
		-- Type of an item, with one or several names
		CREATE TYPE _lock_election.item AS (item pg_catalog.int4, action pg_catalog.text, names pg_catalog.text[], number pg_catalog.text, owner pg_catalog.text, value pg_catalog.text);
	END IF;
END $$;

-- Parses the texts of the items.
CREATE OR REPLACE FUNCTION _lock_election.read_items(texts text[]) RETURNS _lock_election.item[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n int4 := coalesce(cardinality(texts), 0);
	items _lock_election.item[] := '{}';
	i _lock_election.item;
	last _lock_election.item;
BEGIN
	texts := texts[:];    -- make subscripts begin at 1
	IF n % 6 <> 0 THEN PERFORM _lock_election.fail('22023', 'items cannot be read', format('Each item has 6 texts; there are %s.', n)); END IF;
	IF n / 6 > 1000 THEN PERFORM _lock_election.fail('22023', 'items cannot be read', format('There are %s; at most 1000 names are possible.', n / 6)); END IF;
	FOR at IN 0 .. n / 6 - 1 LOOP
		IF texts[at * 6 + 2] IS NULL THEN PERFORM _lock_election.fail('22023', 'items cannot be read', 'An action must not be null.'); END IF;
		IF texts[at * 6 + 1] IS NULL THEN PERFORM _lock_election.fail('22023', 'number of an item must not be null'); END IF;
		i := ROW(texts[at * 6 + 1]::int8::int4, texts[at * 6 + 2], ARRAY[texts[at * 6 + 3]], texts[at * 6 + 4], texts[at * 6 + 5], texts[at * 6 + 6]);
		IF i.action NOT IN ('release', 'resign', 'try_lock', 'try_shared', 'try_permit', 'try_candidate', 'enqueue_lock', 'enqueue_shared', 'enqueue_permit',
			'enqueue_candidate', 'proclaim') THEN
			PERFORM _lock_election.fail('22023', 'items cannot be read', format('There is no action "%s".', left(i.action, 64)));
		END IF;
		IF last.item = i.item THEN
			IF last.action <> i.action OR i.action NOT IN ('try_lock', 'try_shared', 'enqueue_lock', 'enqueue_shared') THEN
				PERFORM _lock_election.fail('22023', 'items cannot be read', format('Item %s appears twice.', i.item));
			END IF;
			last.names := last.names || i.names;
			items[cardinality(items)] := last;
		ELSE
			items := items || i;
			last := i;
		END IF;
	END LOOP;
	IF cardinality(items) > 128 THEN PERFORM _lock_election.fail('22023', 'items cannot be read', 'At most 128 are possible.'); END IF;
	RETURN items;
END $$;

-- Raises an error if the role may not execute the SQL function with the same effect as the action.
CREATE OR REPLACE FUNCTION _lock_election.check_right(me oid, action text, several boolean) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	f text := CASE action WHEN 'release' THEN 'release_lock' WHEN 'resign' THEN 'resign' WHEN 'proclaim' THEN 'proclaim' WHEN 'try_permit' THEN 'acquire_permit'
		WHEN 'try_candidate' THEN 'campaign' WHEN 'enqueue_permit' THEN 'enqueue_permit' WHEN 'enqueue_candidate' THEN 'enqueue_candidate'
		ELSE CASE WHEN action LIKE 'try%' THEN 'acquire_lock' ELSE 'enqueue_lock' END || CASE WHEN several THEN 's' ELSE '' END END;
BEGIN
	PERFORM FROM pg_proc p WHERE p.proname = f AND p.pronargs > 1 AND EXISTS (SELECT FROM pg_namespace d WHERE d.nspname = '_lock_election' AND d.nspowner = p.proowner AND d.oid <> p.pronamespace)
		AND NOT has_function_privilege(me, p.oid, 'EXECUTE');
	IF FOUND THEN PERFORM _lock_election.fail('42501', 'permission denied for function ' || f, 'lease_sync() requires the right to call the function of each action.'); END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.item_number(number text, what text) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF number IS NULL THEN PERFORM _lock_election.fail('22023', what || ' must not be null'); END IF;
	RETURN number::int8;
END $$;

-- Carries out one item.
CREATE OR REPLACE FUNCTION _lock_election.sync_item(i _lock_election.item, of_lease int8, call int8, me oid) RETURNS _lock_election.told LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	t _lock_election.told;
	k int2 := CASE WHEN i.action IN ('resign', 'proclaim', 'try_candidate', 'enqueue_candidate') THEN 2 ELSE 1 END;
	r _lock_election.request;
	h _lock_election.hold;
	number int8;
	hold_for interval;
BEGIN
	t.item := i.item;
	t.kind := _lock_election.word(k);
	t.name := i.names[1];
	PERFORM _lock_election.check_right(me, i.action, cardinality(i.names) > 1);

	-- 1. carry out a release or a proclaim
	IF i.action IN ('release', 'resign') THEN
		PERFORM _lock_election.check_name(k, t.name);
		IF i.action = 'release' THEN hold_for := _lock_election.checked_hold_for(i.value::interval); END IF;
		number := _lock_election.item_number(i.number, CASE k WHEN 1 THEN 'token' ELSE 'term' END);
		-- for an exclusive lock of this lease without waiters, delete its row, unless a fence has locked it
		IF k = 1 AND hold_for IS NULL AND number > 0 AND pg_try_advisory_xact_lock(hashtextextended(t.name, 4803))
			AND pg_try_advisory_xact_lock(hashint8extended(number, 4806)) THEN
			DELETE FROM _lock_election.hold x WHERE x.kind = 1 AND x.name = t.name AND x.slot = 0 AND x.token = number AND x.mode = 'exclusive' AND x.lease = of_lease
				AND x.role = me AND x.ended IS NULL AND NOT x.evicted AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.kind = 1 AND p.name = t.name);
			IF FOUND THEN
				t.event := 'released';
				RETURN t;
			END IF;
		END IF;
		t.event := CASE WHEN number > 0 AND _lock_election.release(k, t.name, number, hold_for, true, CASE k WHEN 1 THEN 'released' ELSE 'resigned' END, of_lease)
			THEN 'released' ELSE 'not_held' END;
		RETURN t;
	END IF;
	IF i.action = 'proclaim' THEN
		t.token := _lock_election.item_number(i.number, 'term');
		t.event := 'proclaimed';
		IF NOT _lock_election.proclaim(t.name, t.token, i.value) THEN
			t.event := 'not_held';
			t.token := NULL;
		END IF;
		RETURN t;
	END IF;

	-- 2. carry out a request: first try the most frequent kind, which is granted at once, then any kind
	t.owner := i.owner;
	IF k = 1 AND i.action IN ('try_lock', 'enqueue_lock') AND cardinality(i.names) = 1 AND octet_length(t.name) BETWEEN 1 AND 255
		AND (i.owner IS NULL OR octet_length(i.owner) BETWEEN 1 AND 255) THEN
		t.token := _lock_election.acquire_free(k, t.name, NULL, i.owner, NULL, of_lease, call, false);
		IF t.token IS NOT NULL THEN
			t.event := 'granted';
			RETURN t;
		END IF;
	END IF;
	IF cardinality(i.names) > 1 THEN PERFORM _lock_election.check_names(i.names, 1); ELSE PERFORM _lock_election.check_name(k, t.name); END IF;
	r := _lock_election.make(k, i.names, CASE WHEN i.action LIKE '%permit' THEN 'permit' WHEN i.action LIKE '%shared' THEN 'shared' ELSE 'exclusive' END,
		CASE WHEN i.action LIKE '%permit' THEN _lock_election.item_number(i.number, 'permits') END, NULL, i.owner, of_lease, i.value);
	r.place := i.action LIKE 'enqueue%';
	r.of_lease := true;
	r.call := call;
	IF k = 2 THEN
		t.token := _lock_election.acquire_free(k, t.name, NULL, i.owner, i.value, of_lease, call, false);
		IF t.token IS NOT NULL THEN
			t.event := 'granted';
			SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = 2 AND x.name = t.name AND x.slot = 0;
			PERFORM _lock_election.note(h, 'elected');
			RETURN t;
		END IF;
	END IF;
	IF k = 1 THEN r.value := NULL; END IF;
	IF NOT _lock_election.enter(k, r.names, '200 ms') THEN
		IF r.place THEN
			PERFORM _lock_election.fail('55P03', format('could not enter the queue of %s "%s"', t.kind, t.name), 'Another transaction that entered this queue has not ended yet.');
		END IF;
		t.event := 'not_granted';
		RETURN t;
	END IF;
	PERFORM _lock_election.settle(k, r.names);
	SELECT d.token, CASE WHEN d.token IS NULL THEN 'not_granted' WHEN d.granted THEN 'granted' ELSE 'queued' END, nullif(d.queue_position, 0)
		INTO t.token, t.event, t.queue_position FROM _lock_election.decide(r) d;
	RETURN t;
END $$;

-- Same as sync_item(), but returns an error of data, privileges, limits or states as the item's row.
CREATE OR REPLACE FUNCTION _lock_election.sync_item_alone(i _lock_election.item, of_lease int8, call int8, me oid) RETURNS _lock_election.told LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	t _lock_election.told;
BEGIN
	RETURN _lock_election.sync_item(i, of_lease, call, me);
EXCEPTION WHEN OTHERS THEN
	IF NOT (SQLSTATE ~ '^(22|42|534|55|LE)') THEN RAISE; END IF;
	GET STACKED DIAGNOSTICS t.sqlstate = RETURNED_SQLSTATE, t.message = MESSAGE_TEXT, t.detail = PG_EXCEPTION_DETAIL, t.hint = PG_EXCEPTION_HINT;
	t.item := i.item;
	t.event := 'error';
	t.detail := nullif(t.detail, '');
	t.hint := nullif(t.hint, '');
	RETURN t;
END $$;

-- Carries out all items, releases first.  If an item fails, starts again, with each item in its own subtransaction.
CREATE OR REPLACE FUNCTION _lock_election.sync_items(items _lock_election.item[], of_lease int8, call int8) RETURNS _lock_election.told[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	me oid := _lock_election.who();
	results _lock_election.told[];
	i _lock_election.item;
BEGIN
	BEGIN
		FOREACH i IN ARRAY items LOOP
			IF i.action IN ('release', 'resign') THEN results := results || _lock_election.sync_item(i, of_lease, call, me); END IF;
		END LOOP;
		FOREACH i IN ARRAY items LOOP
			IF i.action NOT IN ('release', 'resign') THEN results := results || _lock_election.sync_item(i, of_lease, call, me); END IF;
		END LOOP;
		RETURN results;
	EXCEPTION WHEN OTHERS THEN
		IF NOT (SQLSTATE ~ '^(22|42|534|55|LE)') THEN RAISE; END IF;
	END;
	results := NULL;
	FOREACH i IN ARRAY items LOOP
		IF i.action IN ('release', 'resign') THEN results := results || _lock_election.sync_item_alone(i, of_lease, call, me); END IF;
	END LOOP;
	FOREACH i IN ARRAY items LOOP
		IF i.action NOT IN ('release', 'resign') THEN results := results || _lock_election.sync_item_alone(i, of_lease, call, me); END IF;
	END LOOP;
	RETURN results;
END $$;

CREATE OR REPLACE FUNCTION lease_sync(lease bigint, call bigint, seen_incarnation bigint DEFAULT NULL, seen_news bigint DEFAULT NULL, items text[] DEFAULT NULL,
	wait interval DEFAULT '1 s')
RETURNS TABLE (item integer, event text, kind text, name text, token bigint, queue_position bigint, owner text, reason text, sqlstate text, message text, detail text,
	hint text, validity interval, incarnation bigint, news bigint, complete boolean, channel text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 3 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
	asked _lock_election.item[] := '{}';
	asks boolean := false;
	mailed boolean := false;     -- the call has only releases and no wait, so it does not renew the lease
	lasting boolean := false;    -- this call must be flushed
	before_call int8;
	l _lock_election.lease;
	number int8;
	at timestamptz;
	results _lock_election.told[];
	told boolean;
	seen_xact int8;
	seen_call int8;
	snapshot int8;
	all_news boolean;
	applied boolean := true;
BEGIN
	-- 1. check the transaction and the arguments
	IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
		PERFORM _lock_election.fail('25001', 'lease_sync() cannot run inside a transaction block');
	END IF;
	IF pg_is_in_recovery() OR current_setting('transaction_isolation') <> 'read committed' OR current_setting('transaction_read_only') = 'on' THEN
		PERFORM _lock_election.check_transaction();
	END IF;
	IF $2 IS NULL THEN PERFORM _lock_election.fail('22023', 'call must not be null'); END IF;
	IF $1 IS NULL THEN PERFORM _lock_election.fail('22023', 'lease must not be null'); END IF;
	IF $1 < 1 THEN PERFORM _lock_election.fail('22023', format('lease is out of range: %s', $1), 'It is the number of a lease.'); END IF;
	IF $2 < 1 THEN PERFORM _lock_election.fail('22023', format('call is out of range: %s', $2), 'Each call has a higher number.'); END IF;
	IF $5 IS NOT NULL AND $5 <> '{}' THEN
		asked := _lock_election.read_items($5);
		SELECT bool_or(i.action NOT IN ('release', 'resign') OR i.value IS NOT NULL), bool_or(i.value IS NOT NULL),
				bool_and(i.action = 'release' AND i.value IS NULL) AND $6 IS NULL INTO asks, lasting, mailed FROM unnest(asked) i;
	END IF;
	IF $6 IS NULL AND EXISTS (SELECT FROM unnest(asked) i WHERE i.action NOT IN ('release', 'resign')) THEN
		PERFORM _lock_election.fail('22023', 'wait must not be null', 'It may be null only if all items are releases.');
	END IF;
	IF $6 NOT BETWEEN '0' AND '1000 days' THEN PERFORM _lock_election.checked_wait($6); END IF;

	-- 2. check the lease
	number := (SELECT y.life FROM _lock_election.life y WHERE y.one AND y.born = y.xmin
		AND y.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
	IF number IS NULL THEN number := _lock_election.begin_life('100 ms'); END IF;
	SELECT x.* INTO l FROM _lock_election.lease x WHERE x.id = $1 AND x.named;
	IF FOUND AND l.role <> _lock_election.who() THEN PERFORM _lock_election.fail('42501', format('lease %s belongs to another role', $1)); END IF;
	before_call := l.call;
	at := CASE WHEN l.life = number THEN l.expires_at ELSE _lock_election.ends(l.expires_at, l.life, l.ttl) END;
	IF l.id IS NULL OR at <= clock_timestamp() THEN
		RETURN QUERY SELECT NULL::int4, 'gone', NULL, NULL, NULL::int8, NULL::int8, NULL,
			coalesce((SELECT x.reason FROM _lock_election.loss x WHERE x.lease = $1 AND x.token = $1), 'expired'),
			NULL, NULL, NULL, NULL, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL;
		RETURN;
	END IF;
	lasting := lasting OR l.life IS DISTINCT FROM number OR cardinality(asked) > 0 AND l.ttl > '5 min';

	-- 3. renew the lease
	IF asks THEN
		told := false;
		FOR i IN 1 .. 1000 LOOP
			told := pg_try_advisory_xact_lock(hashtextextended('lease ' || $1, 4801));
			EXIT WHEN told OR clock_timestamp() > statement_timestamp() + least(coalesce($6, '1 s'), '1 s');
			PERFORM pg_sleep(0.001);
		END LOOP;
		IF NOT told THEN PERFORM _lock_election.fail('55P03', format('another call of lease %s is in progress', $1)); END IF;
		SELECT x.* INTO l FROM _lock_election.lease x WHERE x.id = $1 FOR KEY SHARE;
		IF NOT FOUND THEN
			RETURN QUERY SELECT NULL::int4, 'gone', NULL, NULL, NULL::int8, NULL::int8, NULL, 'revoked', NULL, NULL, NULL, NULL, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL;
			RETURN;
		END IF;
		before_call := l.call;
		IF l.life IS DISTINCT FROM number OR at - clock_timestamp() < l.ttl / 2 THEN
			validity := _lock_election.keep($1, NULL, 0, number);
		ELSE
			validity := at - clock_timestamp();
		END IF;
		UPDATE _lock_election.asked a SET call = $2 WHERE a.lease = $1 AND a.call < $2;
		applied := FOUND AND before_call < $2;
		lasting := true;
	ELSIF NOT mailed THEN
		validity := _lock_election.keep($1, NULL, $2, number);
		IF validity IS NULL THEN
			RETURN QUERY SELECT NULL::int4, 'gone', NULL, NULL, NULL::int8, NULL::int8, NULL, 'expired', NULL, NULL, NULL, NULL, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL;
			RETURN;
		END IF;
		applied := before_call < $2;
		told := pg_try_advisory_xact_lock(hashtextextended('lease ' || $1, 4801));
	END IF;
	applied := applied AND ($3 = number OR $3 IS NULL AND l.granted_in = number OR mailed);

	-- 4. carry out the items
	IF applied AND cardinality(asked) > 0 THEN
		results := _lock_election.sync_items(asked, $1, $2);
	END IF;

	-- 5. read the news
	IF told AND number IS NOT NULL THEN
		snapshot := pg_snapshot_xmin(pg_current_snapshot())::text::int8;
		PERFORM _lock_election.look_for($1);
		incarnation := number;
		news := (snapshot << 22) | ($2 & 4194303);
		seen_xact := $4 >> 22;
		seen_call := $2 - (($2 - $4) & 4194303);
		all_news := $3 IS DISTINCT FROM number OR $4 IS NULL OR (SELECT count(*) FROM _lock_election.loss x WHERE x.lease = $1 AND x.changed >= seen_xact) >= 16;
		complete := all_news;
	ELSIF NOT mailed THEN
		incarnation := $3;
		news := $4;
	END IF;

	-- 6. return the rows
	event := 'lease';
	IF NOT mailed AND _lock_election.notifies('waiters') THEN channel := _lock_election.lease_channel($1); END IF;
	RETURN NEXT;
	IF cardinality(results) = 1 THEN
		RETURN QUERY SELECT r.*, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL::text FROM unnest(results) r;
	ELSIF results IS NOT NULL THEN
		RETURN QUERY SELECT r.*, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL::text FROM unnest(results) r
			ORDER BY (SELECT min(o) FROM unnest(asked) WITH ORDINALITY AS a(item, action, names, number, owner, value, o) WHERE a.item = r.item);
	END IF;
	IF all_news IS NOT NULL THEN
		RETURN QUERY SELECT NULL::int4, CASE WHEN h.evicted THEN 'evicted' ELSE 'granted' END, _lock_election.word(h.kind), h.name, h.token, NULL::int8, h.owner, NULL, NULL, NULL, NULL, NULL,
				NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL
			FROM _lock_election.hold h WHERE h.lease = $1 AND h.mode IS NOT NULL AND h.ended IS NULL
				AND (all_news OR h.changed >= seen_xact AND (h.told_call = 0 OR h.told_call > seen_call)) AND (h.told_call <> $2 OR h.changed <> coalesce(pg_current_xact_id_if_assigned()::text::int8, 0))
			UNION ALL SELECT NULL, 'queued', _lock_election.word(p.kind), p.name, p.token, NULL, p.owner, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
			FROM _lock_election.place p WHERE p.lease = $1
				AND (all_news OR p.changed >= seen_xact AND (p.told_call = 0 OR p.told_call > seen_call)) AND (p.told_call <> $2 OR p.changed <> coalesce(pg_current_xact_id_if_assigned()::text::int8, 0))
			UNION ALL SELECT NULL, 'lost', NULL, NULL, x.token, NULL, NULL, x.reason, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
			FROM _lock_election.loss x WHERE x.lease = $1 AND (all_news OR x.changed >= seen_xact)
			ORDER BY 5;
		-- flush, because the granting transaction may have committed with synchronous_commit = off
		lasting := lasting OR FOUND;
	END IF;

	-- 7. do not wait for a flush if nothing has to be durable and there are no synchronous standbys
	IF NOT lasting AND current_setting('_lock_election.granted', true) IS DISTINCT FROM 'yes' AND current_setting('synchronous_standby_names') = ''
		AND statement_timestamp() - transaction_timestamp() < interval '5 ms' THEN
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
END $$;

-- --- elections: the functions of elections ------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION campaign(election text, candidate text, ttl interval DEFAULT '15 s', wait interval DEFAULT NULL, owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	wait := _lock_election.checked_wait(wait);
	RETURN _lock_election.acquire(_lock_election.make_one(2::int2, election COLLATE "C", 'exclusive', 0, ttl, owner, lease, candidate), wait);
END $$;

CREATE OR REPLACE FUNCTION enqueue_candidate(election text, candidate text, ttl interval DEFAULT '15 s', owner text DEFAULT NULL, lease bigint DEFAULT NULL,
	OUT term bigint, OUT elected boolean, OUT queue_position bigint, OUT channel text)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	SELECT e.* INTO term, elected, queue_position, channel
		FROM _lock_election.enqueue(_lock_election.make_one(2::int2, election COLLATE "C", 'exclusive', 0, ttl, owner, lease, candidate)) e;
END $$;

CREATE OR REPLACE FUNCTION await_leadership(election text, term bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	RETURN _lock_election.await(2::int2, ARRAY[election COLLATE "C"], term, wait);
END $$;

CREATE OR REPLACE FUNCTION renew_leadership(election text, term bigint, ttl interval DEFAULT NULL)
RETURNS interval LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.renew(2::int2, election COLLATE "C", term, ttl);
END $$;

-- Changes the candidate in the row of the term.  Needs no section, because the leader stays the same.
CREATE OR REPLACE FUNCTION _lock_election.proclaim(n text, tok int8, v text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
BEGIN
	PERFORM _lock_election.check_name(2::int2, n), _lock_election.check_token(2::int2, tok), _lock_election.check_text('candidate', v, 4096);
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = 2 AND x.name = n AND x.slot = 0 AND x.token = tok AND x.ended IS NULL FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		SELECT x.role INTO h.role FROM _lock_election.place x WHERE x.kind = 2 AND x.name = n AND x.token = tok AND _lock_election.lease_lives(x.lease);
		IF FOUND THEN PERFORM _lock_election.check_role(2::int2, n, h.role); END IF;
		RETURN false;
	END IF;
	IF _lock_election.may_be_over(h) THEN RETURN false; END IF;
	PERFORM _lock_election.check_role(2::int2, n, h.role);
	PERFORM _lock_election.check_history(h.role);
	UPDATE _lock_election.hold x SET value = v WHERE x.kind = 2 AND x.name = n AND x.slot = 0;
	h.value := v;
	PERFORM _lock_election.note(h, 'proclaimed');
	RETURN true;
END $$;

CREATE OR REPLACE FUNCTION proclaim(election text, term bigint, candidate text)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_transaction();
	RETURN _lock_election.proclaim(election COLLATE "C", term, candidate);
END $$;

CREATE OR REPLACE FUNCTION resign(election text, term bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	IF coalesce(term, 0) <= 0 THEN RETURN false; END IF;
	PERFORM _lock_election.check_transaction();
	RETURN _lock_election.release(2::int2, election COLLATE "C", term, NULL, true, 'resigned', NULL);
END $$;

CREATE OR REPLACE FUNCTION is_leader(election text, term bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.held(2::int2, election COLLATE "C", term);
END $$;

CREATE OR REPLACE FUNCTION current_leader(election text, OUT candidate text, OUT term bigint, OUT elected_at timestamptz, OUT expires_at timestamptz, OUT valid_for interval)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	RETURN QUERY SELECT x.value, x.token, x.since, x.at, CASE WHEN NOT pg_is_in_recovery() THEN _lock_election.time_left(x.at) END
		FROM (SELECT h.value, h.token, h.since, h.ended, CASE WHEN h.lease IS NULL OR h.evicted THEN _lock_election.ends(h.expires_at, h.life, h.ttl)
				WHEN NOT pg_is_in_recovery() THEN _lock_election.ends(l.expires_at, l.life, l.ttl) END AS at, h.lease, l.id
			FROM _lock_election.hold h LEFT JOIN _lock_election.lease l ON l.id = h.lease WHERE h.kind = 2 AND h.name = $1 COLLATE "C" AND h.mode IS NOT NULL) x
		WHERE x.ended IS NULL AND (pg_is_in_recovery() OR (x.lease IS NULL OR x.id IS NOT NULL) AND x.at > clock_timestamp());
END $$;

CREATE OR REPLACE FUNCTION observe_election(election text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	RETURN _lock_election.channel(2::int2, election COLLATE "C");
END $$;

-- Returns the changes of an election.  First ends an expired term that no other call has ended yet.
CREATE OR REPLACE FUNCTION election_history(election text, after bigint DEFAULT 0, OUT change bigint, OUT how text, OUT candidate text, OUT term bigint,
	OUT elected_at timestamptz, OUT changed_at timestamptz, OUT ended_at timestamptz)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	IF NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AND current_setting('transaction_isolation') = 'read committed'
		AND EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind = 2 AND h.name = $1 COLLATE "C" AND h.mode IS NOT NULL AND _lock_election.may_be_over(h)) THEN
		PERFORM _lock_election.look_at(2::int2, ARRAY[election COLLATE "C"]);
	END IF;
	RETURN QUERY SELECT h.change, h.how, h.candidate, h.term, h.elected_at, h.changed_at, h.ended_at
		FROM _lock_election.history h WHERE h.election = $1 COLLATE "C" AND h.change > coalesce($2, 0) ORDER BY h.change;
END $$;

-- --- fences, versions, advisory locks -----------------------------------------------------------------------------------

-- Fences a hold: locks its row FOR KEY SHARE until the end of the (sub)transaction.  Until then, no other
-- transaction can delete the row, and its slot is not granted again; renewals are not blocked.  fence_guard()
-- reads the row of table fence.  A read-only transaction has nothing to protect, so it only checks that the lock
-- is held.
CREATE OR REPLACE FUNCTION _lock_election.fence(k int2, n text, tok int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
	read_only boolean := current_setting('transaction_read_only') = 'on';
BEGIN
	PERFORM _lock_election.check_name(k, n), _lock_election.check_token(k, tok);
	IF pg_is_in_recovery() THEN PERFORM _lock_election.check_transaction(); END IF;
	IF NOT read_only THEN
		-- with the first lock, a release does not wait for the row; with the second lock, views find the fencing
		-- process
		PERFORM pg_try_advisory_xact_lock_shared(hashint8extended(tok, 4806)), pg_try_advisory_xact_lock_shared(hashint8extended(tok, 4807));
		PERFORM FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL FOR KEY SHARE;
	END IF;
	-- after locking the row, check that the hold has not ended and its lease is live
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
	IF FOUND AND NOT _lock_election.may_be_over(h) THEN
		PERFORM _lock_election.check_role(k, n, h.role);
	ELSE
		IF current_setting('transaction_isolation') <> 'read committed' AND h.token IS NOT NULL THEN
			PERFORM _lock_election.fail('40001', 'could not serialize access due to concurrent update', 'The lock may have been renewed since this transaction began.');
		END IF;
		IF h.token IS NULL THEN PERFORM _lock_election.refuse_place(k, n, tok); END IF;
		PERFORM _lock_election.fail('LE001', format('%s "%s" is not held by %s %s', _lock_election.word(k), n, CASE k WHEN 1 THEN 'token' ELSE 'term' END, tok));
	END IF;
	IF NOT read_only THEN
		INSERT INTO _lock_election.fence VALUES (k, pg_current_xact_id()::text::int8, tok, pg_backend_pid(), n);
	END IF;
	-- delete rows of ended transactions, but not at higher isolation levels, where concurrent deletes could
	-- conflict
	IF NOT read_only AND current_setting('transaction_isolation') = 'read committed' THEN
		DELETE FROM _lock_election.fence f WHERE f.ctid = ANY (ARRAY(SELECT g.ctid FROM _lock_election.fence g
			WHERE g.transaction < pg_snapshot_xmin(pg_current_snapshot())::text::int8 LIMIT 2 FOR UPDATE SKIP LOCKED));
	END IF;
END $$;

CREATE OR REPLACE FUNCTION fence_lock(name text, token bigint)
RETURNS void LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.fence(1::int2, name COLLATE "C", token);
END $$;

CREATE OR REPLACE FUNCTION fence_leader(election text, term bigint)
RETURNS void LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.fence(2::int2, election COLLATE "C", term);
END $$;

CREATE OR REPLACE FUNCTION fence_guard()
RETURNS trigger LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	word text := coalesce(TG_ARGV[1], 'lock');
BEGIN
	IF TG_WHEN <> 'BEFORE' THEN
		PERFORM _lock_election.fail('39P01', format('trigger "%s" must be fired BEFORE: it calls fence_guard', TG_NAME));
	END IF;
	IF TG_NARGS NOT BETWEEN 1 AND 2 OR word NOT IN ('lock', 'election') THEN
		PERFORM _lock_election.fail('22023', format('trigger "%s" must call fence_guard with one argument, the name of a lock, or with two, the name and "lock" or "election"', TG_NAME));
	END IF;
	IF octet_length(TG_ARGV[0]) NOT BETWEEN 1 AND 255 THEN
		PERFORM _lock_election.fail('22023', format('trigger "%s" calls fence_guard with a name of %s bytes', TG_NAME, octet_length(TG_ARGV[0])), 'A name has 1 to 255 bytes.');
	END IF;
	-- only rows with the id of this transaction count: a rollback to a savepoint removes them, and no other
	-- transaction can write them
	IF NOT EXISTS (SELECT FROM _lock_election.fence f WHERE f.transaction = pg_current_xact_id_if_assigned()::text::int8 AND f.kind = CASE word WHEN 'lock' THEN 1 ELSE 2 END
		AND f.name = TG_ARGV[0]) THEN
		PERFORM _lock_election.fail('55000', format('cannot write to table "%s": this transaction has not fenced %s "%s"', TG_TABLE_NAME, word, TG_ARGV[0]), '',
			format('Call %s in this transaction first.', CASE word WHEN 'election' THEN 'fence_leader(election, term)' ELSE 'fence_lock(name, token)' END));
	END IF;
	IF TG_LEVEL = 'STATEMENT' THEN RETURN NULL; END IF;
	RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

-- --- versions ---

-- Raises an error if the keys of a role, plus "more" bytes, exceed the limit.  First checks the size of the whole
-- table, which is cheap, and is an upper bound for every role.
CREATE OR REPLACE FUNCTION _lock_election.check_keys(role name, more int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	most int8 := (SELECT c.max_keys_per_role FROM _lock_election.config c WHERE c.one);
BEGIN
	IF most > 0 AND more > 0 AND pg_table_size('_lock_election.versioned') + more > most
		AND (SELECT coalesce(sum(octet_length(x.key) + coalesce(octet_length(x.value), 0) + 150), 0) FROM _lock_election.versioned x WHERE x.role = $1) + more > most THEN
		PERFORM _lock_election.fail('53400', format('the keys of role "%s" take too much room in this database', role), '',
			format('See lock_election.max_keys_per_role (%s).', pg_size_pretty(most)));
	END IF;
END $$;

CREATE OR REPLACE FUNCTION compare_and_set(key text, expected_version bigint, value text)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	v record;
	number int8;
BEGIN
	PERFORM _lock_election.check_text('key', key, 255);
	IF octet_length(value) > 4096 THEN
		PERFORM _lock_election.fail('22023', format('value is too long: %s bytes', octet_length(value)), 'It is a text of 0 to 4096 bytes.');
	END IF;
	IF expected_version IS NULL THEN PERFORM _lock_election.fail('22023', 'expected_version must not be null'); END IF;
	IF expected_version < 0 THEN
		PERFORM _lock_election.fail('22023', format('expected_version is out of range: %s', expected_version), 'It is a version, or 0 for a key that does not exist.');
	END IF;
	IF current_setting('transaction_read_only') = 'on' THEN PERFORM _lock_election.fail('25006', 'cannot execute compare_and_set() in a read-only transaction'); END IF;
	IF expected_version = 0 THEN
		PERFORM _lock_election.check_keys(pg_get_userbyid(_lock_election.who()), octet_length(key) + coalesce(octet_length(value), 0) + 150);
		INSERT INTO _lock_election.versioned AS x (key, version, role, value) VALUES ($1, 1, pg_get_userbyid(_lock_election.who()), $3)
			ON CONFLICT DO NOTHING RETURNING x.version INTO number;
		IF FOUND THEN RETURN number; END IF;
	END IF;
	SELECT x.version, x.role, coalesce(octet_length(x.value), 0) AS bytes INTO v FROM _lock_election.versioned x WHERE x.key = $1 COLLATE "C" FOR UPDATE;
	IF NOT FOUND THEN RETURN NULL; END IF;
	IF NOT _lock_election.is_mine(to_regrole(quote_ident(v.role)), CASE WHEN to_regrole('pg_write_all_data') IS NOT NULL THEN 'pg_write_all_data' END) IS NOT DISTINCT FROM true THEN
		PERFORM _lock_election.fail('42501', format('permission denied to write key "%s"', key), 'It belongs to another role.');
	END IF;
	IF v.version <> expected_version THEN RETURN NULL; END IF;
	PERFORM _lock_election.check_keys(v.role, coalesce(octet_length(value), 0) - v.bytes);
	UPDATE _lock_election.versioned x SET version = x.version + 1, value = $3 WHERE x.key = $1 COLLATE "C" RETURNING x.version INTO number;
	RETURN number;
END $$;

CREATE OR REPLACE FUNCTION read_versioned(key text, OUT value text, OUT version bigint)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	v record;
BEGIN
	PERFORM _lock_election.check_text('key', key, 255);
	SELECT x.version, x.role, x.value INTO v FROM _lock_election.versioned x WHERE x.key = $1 COLLATE "C";
	version := 0;
	IF NOT FOUND THEN RETURN; END IF;
	IF NOT _lock_election.is_mine(to_regrole(quote_ident(v.role)), CASE WHEN to_regrole('pg_read_all_data') IS NOT NULL THEN 'pg_read_all_data' END) IS NOT DISTINCT FROM true THEN
		PERFORM _lock_election.fail('42501', format('permission denied to read key "%s"', key), 'It belongs to another role.');
	END IF;
	version := v.version;
	value := v.value;
END $$;

CREATE OR REPLACE FUNCTION version_guard()
RETURNS trigger LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	col text := coalesce(TG_ARGV[0], 'version');
	a record;
	was int8;
	now int8;
BEGIN
	IF TG_WHEN <> 'BEFORE' OR TG_LEVEL <> 'ROW' OR TG_OP <> 'UPDATE' THEN
		PERFORM _lock_election.fail('39P01', format('trigger "%s" must be fired BEFORE UPDATE FOR EACH ROW: it calls version_guard', TG_NAME));
	END IF;
	IF TG_NARGS > 1 THEN
		PERFORM _lock_election.fail('22023', format('trigger "%s" must call version_guard with at most one argument, the name of a column', TG_NAME));
	END IF;
	SELECT x.atttypid, x.attgenerated INTO a FROM pg_attribute x WHERE x.attrelid = TG_RELID AND x.attname = col AND x.attnum > 0 AND NOT x.attisdropped;
	IF NOT FOUND THEN
		PERFORM _lock_election.fail('42703', format('column "%s" of table "%s" does not exist', col, TG_TABLE_NAME), format('Trigger "%s" calls version_guard with it.', TG_NAME));
	END IF;
	IF a.atttypid NOT IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) THEN
		PERFORM _lock_election.fail('42804', format('column "%s" of table "%s" cannot be a version', col, TG_TABLE_NAME), 'A version is a smallint, integer or bigint.');
	END IF;
	IF a.attgenerated <> '' THEN
		PERFORM _lock_election.fail('428C9', format('column "%s" of table "%s" cannot be a version', col, TG_TABLE_NAME), 'It is a generated column.');
	END IF;
	-- read only this column, because other columns may have types whose functions would run with the privileges
	-- of this function
	EXECUTE format('SELECT ($1).%1$I, ($2).%1$I', col) INTO was, now USING OLD, NEW;
	IF was IS NULL OR now IS NULL THEN
		PERFORM _lock_election.fail('22004', format('version "%s" of a row of table "%s" is null', col, TG_TABLE_NAME), '',
			CASE WHEN now IS NULL THEN 'Set it to the version that was read.' ELSE 'Make the column NOT NULL DEFAULT 1.' END);
	END IF;
	IF was <> now THEN
		PERFORM _lock_election.fail('40001', format('row of table "%s" was changed since it was read', TG_TABLE_NAME),
			format('It has version %s, but the update expects %s.', was, now),
			CASE WHEN now < was THEN 'Read the row again, and repeat the transaction.'
				ELSE 'An update must contain the version that was read; the trigger increments it.' END);
	END IF;
	IF now >= (CASE a.atttypid WHEN 'int2'::regtype THEN 32767 WHEN 'int4'::regtype THEN 2147483647 ELSE 9223372036854775807 END) THEN
		PERFORM _lock_election.fail('22003', format('version "%s" is out of range', col));
	END IF;
	RETURN jsonb_populate_record(NEW, jsonb_build_object(col, now + 1));
END $$;

-- --- advisory locks ---

CREATE OR REPLACE FUNCTION advisory_acquire(name text, wait interval DEFAULT NULL, shared boolean DEFAULT false, scope text DEFAULT 'session')
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	section int8;
	ms int8;
	before text := current_setting('lock_timeout');
	standing boolean;
BEGIN
	PERFORM _lock_election.check_text('name', name, 255);
	IF scope IS NULL THEN PERFORM _lock_election.fail('22023', 'scope must not be null'); END IF;
	IF scope NOT IN ('session', 'transaction') THEN
		PERFORM _lock_election.fail('22023', format('unknown scope "%s"', scope), 'A scope is "session" or "transaction".');
	END IF;
	shared := coalesce(shared, false);
	wait := _lock_election.checked_wait(wait);
	IF pg_is_in_recovery() THEN
		PERFORM _lock_election.fail('25006', 'cannot use advisory locks during recovery', 'A lock on this standby would not exclude sessions on the primary.', 'Connect to the primary.');
	END IF;
	section := hashtextextended(name COLLATE "C", 4805);
	standing := scope = 'session';

	-- 1. try to acquire it at once
	IF (CASE WHEN standing AND shared THEN pg_try_advisory_lock_shared(section) WHEN standing THEN pg_try_advisory_lock(section)
		WHEN shared THEN pg_try_advisory_xact_lock_shared(section) ELSE pg_try_advisory_xact_lock(section) END) THEN
		RETURN true;
	END IF;
	IF wait <= '0' THEN RETURN false; END IF;

	-- 2. wait without a time limit, or with a limit that lock_timeout reaches first
	ms := ceil(date_part('epoch', wait) * 1000);
	IF wait IS NULL OR wait > '24 days' OR _lock_election.lock_timeout() <= wait THEN
		PERFORM CASE WHEN standing AND shared THEN pg_advisory_lock_shared(section)::text WHEN standing THEN pg_advisory_lock(section)::text
			WHEN shared THEN pg_advisory_xact_lock_shared(section)::text ELSE pg_advisory_xact_lock(section)::text END;
		RETURN true;
	END IF;

	-- 3. wait with the time limit of this call
	BEGIN
		PERFORM set_config('lock_timeout', ms || 'ms', true);
		PERFORM CASE WHEN standing AND shared THEN pg_advisory_lock_shared(section)::text WHEN standing THEN pg_advisory_lock(section)::text
			WHEN shared THEN pg_advisory_xact_lock_shared(section)::text ELSE pg_advisory_xact_lock(section)::text END;
		PERFORM set_config('lock_timeout', before, true);
		RETURN true;
	EXCEPTION WHEN lock_not_available THEN
		RETURN false;
	END;
END $$;

CREATE OR REPLACE FUNCTION advisory_release(name text, shared boolean DEFAULT false)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.check_text('name', name, 255);
	RETURN CASE WHEN shared THEN pg_advisory_unlock_shared(hashtextextended(name COLLATE "C", 4805)) ELSE pg_advisory_unlock(hashtextextended(name COLLATE "C", 4805)) END;
END $$;

-- --- operators: evict, force, limits, reap ------------------------------------------------------------------------------

-- Raises an error, because the caller may not end or evict any of the holders.
CREATE OR REPLACE FUNCTION _lock_election.deny(k int2, n text, what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.fail('42501', format('permission denied to %s the holder of %s "%s"', what, _lock_election.word(k), n), '',
		'Only members of the holder''s role, or of pg_signal_backend, may do this.');
END $$;

-- Evicts the holders of a name.  Each evicted hold gets its own fixed deadline, copied from its lease if it is
-- on one.
CREATE OR REPLACE FUNCTION _lock_election.evict(k int2, n text) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
	h _lock_election.hold;
	counted int8 := 0;
	denied boolean := false;
	managed boolean := false;
BEGIN
	PERFORM _lock_election.check_name(k, n), _lock_election.check_transaction(), _lock_election.current_life();
	FOR h IN SELECT x.* FROM _lock_election.hold x WHERE x.kind = k AND x.name = n LOOP
		CONTINUE WHEN CASE WHEN h.mode IS NULL THEN h.closed_until <= clock_timestamp() ELSE _lock_election.may_be_over(h) END;
		IF NOT _lock_election.is_mine(h.role, 'pg_signal_backend') THEN
			denied := true;
			CONTINUE;
		END IF;
		managed := true;
		CONTINUE WHEN h.mode IS NULL OR h.evicted;
		PERFORM pg_try_advisory_xact_lock_shared(hashint8extended(h.token, 4806));
		-- wait for a concurrent renewal: the evicted hold gets the deadline that the renewal returns to the client
		PERFORM FROM _lock_election.lease l WHERE l.id = h.lease FOR SHARE;
		UPDATE _lock_election.hold x SET evicted = true, changed = pg_current_xact_id()::text::int8, told_call = 0,
				ttl = coalesce(x.ttl, (SELECT l.ttl FROM _lock_election.lease l WHERE l.id = x.lease)),
				life = CASE WHEN x.lease IS NULL THEN x.life ELSE (SELECT l.life FROM _lock_election.lease l WHERE l.id = x.lease) END,
				expires_at = CASE WHEN x.lease IS NULL THEN x.expires_at ELSE (SELECT l.expires_at FROM _lock_election.lease l WHERE l.id = x.lease) END
			WHERE x.kind = k AND x.token = h.token AND x.name = ANY (CASE WHEN h.members IS NOT NULL AND NOT EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = h.lease AND l.named)
				THEN h.members ELSE ARRAY[n] END) AND x.ended IS NULL AND NOT x.evicted;
		IF FOUND THEN
			counted := counted + 1;
			RAISE LOG 'lock_election: % "%" is evicted by role %, token %', _lock_election.word(k), n, _lock_election.who()::regrole, h.token;
		END IF;
	END LOOP;
	IF denied AND NOT managed THEN PERFORM _lock_election.deny(k, n, 'evict'); END IF;
	RETURN counted;
END $$;

CREATE OR REPLACE FUNCTION evict_lock(name text)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.evict(1::int2, name COLLATE "C");
END $$;
CREATE OR REPLACE FUNCTION evict_leader(election text)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.evict(2::int2, election COLLATE "C");
END $$;

CREATE OR REPLACE FUNCTION _lock_election.force(k int2, n text) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
	counted int8 := 0;
	inside boolean;
	opened boolean := false;
	denied boolean := false;
	until timestamptz;
BEGIN
	PERFORM _lock_election.check_name(k, n), _lock_election.check_transaction();
	PERFORM _lock_election.current_life();
	inside := _lock_election.enter(k, ARRAY[n], '200 ms');
	until := clock_timestamp() + '2 s';
	FOR h IN SELECT x.* FROM _lock_election.hold x WHERE x.kind = k AND x.name = n LOOP
		CONTINUE WHEN CASE WHEN h.mode IS NULL THEN h.closed_until <= clock_timestamp() ELSE _lock_election.may_be_over(h) END;
		IF NOT _lock_election.is_mine(h.role, 'pg_signal_backend') THEN
			denied := true;
		ELSIF h.mode IS NULL THEN
			DELETE FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.slot = h.slot;
			opened := true;
		ELSE
			-- retry while the row is locked by a renewal that is being flushed, or by another transaction that ends
			-- the hold
			WHILE NOT _lock_election.end_hold(h, 'forced', false) LOOP
				SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.slot = h.slot AND x.token = h.token AND x.ended IS NULL;
				EXIT WHEN NOT FOUND;
				IF clock_timestamp() >= until THEN
					PERFORM _lock_election.fail('55P03', format('could not end the holder of %s "%s"', _lock_election.word(k), n), 'Another transaction is changing it, and has not ended yet.');
				END IF;
				PERFORM pg_sleep(0.002);
			END LOOP;
			CONTINUE WHEN h.token IS NULL;
			counted := counted + 1;
			RAISE LOG 'lock_election: % "%" is released by role %, token %', _lock_election.word(k), n, _lock_election.who()::regrole, h.token;
		END IF;
	END LOOP;
	IF opened THEN RAISE NOTICE '% "%" was closed, and is open again', _lock_election.word(k), n; END IF;
	IF denied AND counted = 0 AND NOT opened THEN PERFORM _lock_election.deny(k, n, 'end'); END IF;
	IF inside THEN PERFORM _lock_election.settle(k, ARRAY[n]); ELSE PERFORM _lock_election.nudge(k, ARRAY[n]); END IF;
	RETURN counted;
END $$;

CREATE OR REPLACE FUNCTION force_release_lock(name text)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.force(1::int2, name COLLATE "C");
END $$;
CREATE OR REPLACE FUNCTION force_resign(election text)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.force(2::int2, election COLLATE "C");
END $$;

CREATE OR REPLACE FUNCTION force_release_role(role regrole)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	number int8;
	h _lock_election.hold;
	p _lock_election.place;
	names text[];
	locks text[];
	elections text[];
	k int2;
	lives boolean;
	ended int8;
	counted int8 := 0;
BEGIN
	IF role IS NULL THEN PERFORM _lock_election.fail('22023', 'role must not be null'); END IF;
	IF role = 0::oid THEN PERFORM _lock_election.fail('22023', 'invalid role: -'); END IF;
	PERFORM _lock_election.check_transaction();
	IF NOT _lock_election.is_mine(role, 'pg_signal_backend') THEN
		PERFORM _lock_election.fail('42501', format('permission denied to end the locks and leases of role %s', role), '', 'Only members of that role, or of pg_signal_backend, may do this.');
	END IF;
	PERFORM _lock_election.current_life();
	-- 1. enter the sections, and end the places first, so that they are not granted the names that step 2 releases
	FOREACH k IN ARRAY '{1,2}'::int2[] LOOP
		SELECT coalesce(array_agg(DISTINCT x.name), '{}') INTO names FROM (SELECT y.name FROM _lock_election.hold y WHERE y.kind = k AND y.role = $1::oid
			UNION SELECT y.name FROM _lock_election.place y WHERE y.kind = k AND y.role = $1::oid) x;
		IF k = 1 THEN locks := names; ELSE elections := names; END IF;
		PERFORM _lock_election.enter(k, names, '200 ms');
		FOR p IN SELECT x.* FROM _lock_election.place x WHERE x.kind = k AND x.role = $1::oid LOOP
			lives := _lock_election.lease_lives(p.lease);
			IF _lock_election.end_place(p, 'forced', false) AND lives THEN counted := counted + 1; END IF;
		END LOOP;
	END LOOP;

	-- 2. end leases with their holds and places, then the other holds
	FOR number IN SELECT l.id FROM _lock_election.lease l WHERE l.role = $1::oid AND l.named LOOP
		-- count a lease with its holds and places as one; if its row is locked, only holds and places are ended:
		-- count them
		lives := _lock_election.lease_lives(number);
		ended := _lock_election.end_lease(number, 'forced');
		IF lives THEN counted := counted + CASE WHEN EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = number) THEN ended ELSE 1 END; END IF;
	END LOOP;
	FOR h IN SELECT x.* FROM _lock_election.hold x WHERE x.role = $1::oid AND x.ended IS NULL LOOP
		IF h.mode IS NULL THEN
			DELETE FROM _lock_election.hold x WHERE x.kind = h.kind AND x.name = h.name AND x.slot = h.slot;
			IF h.closed_until > clock_timestamp() THEN counted := counted + 1; END IF;
		ELSIF NOT _lock_election.may_be_over(h) AND _lock_election.end_hold(h, 'forced', false) THEN
			counted := counted + 1;
		END IF;
	END LOOP;

	-- 3. grant the next places
	PERFORM _lock_election.nudge(1::int2, locks), _lock_election.nudge(2::int2, elections);
	PERFORM _lock_election.look_at(1::int2, locks), _lock_election.look_at(2::int2, elections);
	RAISE LOG 'lock_election: all of role % is released by role %: %', role, _lock_election.who()::regrole, counted;
	RETURN counted;
END $$;

CREATE OR REPLACE FUNCTION advance_revision(min bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	lowest int8;
BEGIN
	IF min IS NULL THEN PERFORM _lock_election.fail('22023', 'min must not be null'); END IF;
	-- same limit as in the C edition; it is so far below 2^53 that all later tokens stay below 2^53
	IF min NOT BETWEEN 1 AND 8725724278030336 THEN
		PERFORM _lock_election.fail('22023', format('min is out of range: %s', min), 'It is a number from 1 to 8725724278030336.');
	END IF;
	PERFORM _lock_election.check_transaction();
	PERFORM pg_advisory_xact_lock(hashtextextended('lock_election life', 4801));
	lowest := (SELECT CASE WHEN t.is_called THEN t.last_value + 1 ELSE t.last_value END FROM _lock_election.token t);
	IF min > lowest THEN
		PERFORM setval('_lock_election.token', min, false);
		lowest := min;
	END IF;
	-- write a row, so that the commit flushes the number
	UPDATE _lock_election.config c SET notify = c.notify WHERE c.one;
	PERFORM set_config('synchronous_commit', 'on', true);
	RETURN lowest;
END $$;

-- Changes a setting that is a configuration parameter in the C edition.
CREATE OR REPLACE FUNCTION lock_election.configure(setting text, value text)
RETURNS void LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	good boolean;
BEGIN
	IF setting IS NULL THEN PERFORM _lock_election.fail('22023', 'setting must not be null'); END IF;
	BEGIN
		good := CASE WHEN setting = 'notify' THEN value IN ('all', 'waiters', 'elections', 'none')
			WHEN setting = 'max_ttl' THEN value::interval BETWEEN '100 ms' AND '24 days'
			WHEN setting = 'max_hold_for' THEN value::interval BETWEEN '0' AND '24 days'
			WHEN setting = 'history_retention' THEN value::interval >= '0'
			WHEN setting IN ('max_locks_per_role', 'max_waiters_per_lock', 'max_leases_per_role') THEN value::int4 >= 0
			WHEN setting IN ('max_keys_per_role', 'max_history_per_role') THEN pg_size_bytes(value) >= 0 END;
	EXCEPTION WHEN data_exception THEN
		good := false;
	END;
	IF value IS NULL OR NOT good THEN PERFORM _lock_election.fail('22023', format('invalid value for %s: %s', setting, coalesce('"' || value || '"', 'null'))); END IF;
	CASE setting
		WHEN 'notify' THEN UPDATE _lock_election.config SET notify = value WHERE one;
		WHEN 'max_ttl' THEN UPDATE _lock_election.config SET max_ttl = _lock_election.exact(value::interval) WHERE one;
		WHEN 'max_hold_for' THEN UPDATE _lock_election.config SET max_hold_for = _lock_election.exact(value::interval) WHERE one;
		WHEN 'history_retention' THEN UPDATE _lock_election.config SET history_retention = _lock_election.exact(value::interval) WHERE one;
		WHEN 'max_locks_per_role' THEN
			UPDATE _lock_election.config SET max_locks_per_role = value::int4 WHERE one;
			UPDATE _lock_election.life SET limited = value::int4 > 0 WHERE one;
			UPDATE _lock_election.life SET born = xmin WHERE one;
		WHEN 'max_waiters_per_lock' THEN UPDATE _lock_election.config SET max_waiters_per_lock = value::int4 WHERE one;
		WHEN 'max_leases_per_role' THEN UPDATE _lock_election.config SET max_leases_per_role = value::int4 WHERE one;
		WHEN 'max_keys_per_role' THEN UPDATE _lock_election.config SET max_keys_per_role = pg_size_bytes(value) WHERE one;
		WHEN 'max_history_per_role' THEN UPDATE _lock_election.config SET max_history_per_role = pg_size_bytes(value) WHERE one;
		ELSE PERFORM _lock_election.fail('0A000', format('the portable edition has no setting "%s"', setting),
			'It has notify, max_ttl, max_hold_for, history_retention, max_locks_per_role, max_waiters_per_lock, max_leases_per_role, max_keys_per_role and max_history_per_role.', CASE setting
			WHEN 'fence_timeout' THEN 'An SQL function cannot end a connection: limit the transactions that fence with statement_timeout and idle_in_transaction_session_timeout.'
			WHEN 'expiry_grace' THEN 'Use a longer ttl.'
			WHEN 'durable_release' THEN 'A release is as durable as its commit.'
			WHEN 'min_durability' THEN 'Locks are as durable as synchronous_commit makes their commit.'
			ELSE '' END);
	END CASE;
END $$;
COMMENT ON FUNCTION lock_election.configure(text, text) IS
'Only in the portable edition: changes a setting for all roles. The settings are notify, max_ttl, max_hold_for, history_retention, max_locks_per_role, max_waiters_per_lock, max_leases_per_role, max_keys_per_role and max_history_per_role; 0 means no limit. Only the role that installed the functions may call it, and roles to which it grants EXECUTE. Errors: 0A000 if there is no such setting; 22023 for a bad value.';

-- Ends expired holds, places and leases, and deletes old rows.  Calling this is optional, because the next call
-- that uses a name does the same.  It keeps tables small if names are used only once, and informs observers of
-- an expired leader that has no waiting candidates.
CREATE OR REPLACE FUNCTION lock_election.reap(most int DEFAULT 1000)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	q record;
	w _lock_election.place;
	changed boolean;
	done int8 := 0;
BEGIN
	PERFORM _lock_election.check_transaction(), _lock_election.current_life();
	FOR q IN SELECT x.kind, x.name FROM (
			SELECT h.kind, h.name FROM _lock_election.hold h WHERE CASE WHEN h.mode IS NULL THEN h.closed_until <= clock_timestamp() ELSE _lock_election.may_be_over(h) END
			UNION SELECT p.kind, p.name FROM _lock_election.place p
				WHERE NOT EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = p.lease AND _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp())) x LIMIT most LOOP
		CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtextextended(q.name, 4802 + q.kind));
		changed := _lock_election.settle(q.kind, ARRAY[q.name]);
		-- end abandoned places behind the first place
		FOR w IN SELECT x.* FROM _lock_election.place x WHERE x.kind = q.kind AND x.name = q.name LOOP
			CONTINUE WHEN NOT _lock_election.place_is_over(w);
			changed := _lock_election.end_place(w, 'expired', false) OR changed;
		END LOOP;
		IF changed THEN done := done + 1; END IF;
	END LOOP;
	done := done + _lock_election.drop_leases(most);
	DELETE FROM _lock_election.loss x WHERE x.lease = x.token AND x.changed < pg_snapshot_xmin(pg_current_snapshot())::text::int8 - 1000000;
	DELETE FROM _lock_election.fence f WHERE f.transaction < pg_snapshot_xmin(pg_current_snapshot())::text::int8;
	DELETE FROM _lock_election.history h USING _lock_election.config c WHERE c.history_retention > '0' AND h.changed_at < clock_timestamp() - c.history_retention;
	RETURN done;
END $$;
COMMENT ON FUNCTION lock_election.reap(int) IS
'Only in the portable edition: ends expired holds and queue places of at most this many names, and removes leases and history that are no longer needed. Returns the number of names and leases. Does not wait for other transactions. Every role may call it, but calling it is optional.';

-- --- views and health() -------------------------------------------------------------------------------------------------

-- Returns whether role "me" may see the owner, token and connection of a hold of "role".
CREATE OR REPLACE FUNCTION _lock_election.may_see(role oid, me oid) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT role = me OR pg_has_role(me, 'pg_read_all_stats', 'USAGE') OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = role) AND pg_has_role(me, role, 'USAGE')
$$;

CREATE OR REPLACE FUNCTION lock_election.look(OUT kind text, OUT name text, OUT slot integer, OUT mode text, OUT owner text, OUT value text, OUT role oid, OUT token bigint, OUT lease bigint,
	OUT holds integer, OUT since timestamptz, OUT expires_at timestamptz, OUT time_left interval, OUT waiters bigint, OUT closed_until timestamptz, OUT queue_position bigint, OUT pid integer,
	OUT term bigint, OUT application_name text, OUT client_addr inet, OUT connected boolean, OUT evicted boolean)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	me oid := _lock_election.who();
	standby boolean := pg_is_in_recovery();
BEGIN
	RETURN QUERY
	WITH h AS (SELECT x.*, l.named, (_lock_election.may_see(x.role, me)) AS mine,
			CASE WHEN x.lease IS NULL OR x.evicted THEN _lock_election.ends(x.expires_at, x.life, x.ttl) WHEN NOT standby THEN _lock_election.ends(l.expires_at, l.life, l.ttl) END AS at
		FROM _lock_election.hold x LEFT JOIN _lock_election.lease l ON l.id = x.lease),
	p AS (SELECT x.*, l.named, (_lock_election.may_see(x.role, me)) AS mine,
			_lock_election.ends(l.expires_at, l.life, l.ttl) AS at
		FROM _lock_election.place x LEFT JOIN _lock_election.lease l ON l.id = x.lease WHERE NOT standby),
	-- Blocked calls are found by their gates, and so only for names that have a holder or a place. waitstart exists
	-- since PostgreSQL 14, and is NULL for the first call in a line.  View waiters reads the start and the address
	-- with the privileges of its reader.
	line AS (SELECT k.kind, k.name, l.pid, a.usesysid, a.application_name, (_lock_election.may_see(a.usesysid, me)) AS mine,
			coalesce((SELECT s.last_value - ((s.last_value - f.objid::int8) & 4294967295) FROM _lock_election.token s, pg_locks f
				WHERE f.locktype = 'advisory' AND f.objsubid = 2 AND f.pid = l.pid AND f.database = l.database
					AND f.classid = (hashtextextended(k.name, 4810 + k.kind) & 4294967295)::oid LIMIT 1), 9223372036854775807) AS arrival, to_jsonb(l) ->> 'waitstart' AS waitstart
		FROM pg_locks l JOIN (SELECT h.kind, h.name FROM h UNION SELECT p.kind, p.name FROM p) k
			ON (l.classid::int8 << 32) | l.objid::int8 = hashtextextended(k.name, 4808 + k.kind)
		JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE NOT standby AND l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'
			AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())),
	live AS (SELECT q.*, row_number() OVER (PARTITION BY q.kind, q.name ORDER BY q.came, q.waitstart, q.pid) AS rank FROM (
		SELECT p.kind, p.name, p.token AS came, NULL AS waitstart, p.token, p.mode, p.owner, p.value, p.role, p.lease, p.named, p.since, p.at, p.pid, p.application, p.client, p.mine FROM p WHERE p.at > clock_timestamp()
		UNION ALL SELECT line.kind, line.name, line.arrival, line.waitstart, NULL, NULL, NULL, NULL, line.usesysid, NULL, false, line.waitstart::timestamptz, NULL, line.pid, line.application_name, NULL,
			line.mine FROM line) q),
	c AS (SELECT x.kind, x.name, x.closed_until FROM _lock_election.hold x WHERE x.mode IS NULL AND x.closed_until > clock_timestamp()),
	n AS (SELECT live.kind, live.name, count(*) AS waiters FROM live GROUP BY live.kind, live.name)
	SELECT _lock_election.word(h.kind), h.name, CASE WHEN h.mode IS NOT NULL THEN h.slot END, h.mode, CASE WHEN h.mine THEN h.owner END, CASE WHEN h.kind = 2 THEN h.value END, h.role,
		CASE WHEN h.mine AND h.mode IS NOT NULL THEN h.token END, CASE WHEN h.mine AND h.named THEN h.lease END, CASE WHEN h.mode IS NOT NULL THEN h.holds END,
		CASE WHEN h.mode IS NOT NULL THEN h.since END, h.at, CASE WHEN NOT standby THEN _lock_election.time_left(h.at) END, CASE WHEN NOT standby THEN coalesce(n.waiters, 0) END, c.closed_until, 0::int8,
		CASE WHEN h.mine AND h.mode IS NOT NULL THEN h.pid END, CASE WHEN h.kind = 2 AND h.mode IS NOT NULL THEN h.token END, CASE WHEN h.mine THEN h.application END, CASE WHEN h.mine THEN h.client END,
		CASE WHEN h.mine AND h.mode IS NOT NULL AND NOT standby THEN EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = h.pid AND (a.backend_start IS NULL OR a.backend_start <= h.since)) END,
		CASE WHEN h.mode IS NOT NULL THEN h.evicted END
		FROM h LEFT JOIN n ON n.kind = h.kind AND n.name = h.name LEFT JOIN c ON c.kind = h.kind AND c.name = h.name
		WHERE h.ended IS NULL AND CASE WHEN h.mode IS NULL THEN c.closed_until IS NOT NULL AND NOT EXISTS (SELECT FROM h o
			WHERE o.kind = h.kind AND o.name = h.name AND o.mode IS NOT NULL AND o.ended IS NULL AND (standby OR o.at > clock_timestamp())) ELSE standby OR h.at > clock_timestamp() END
	UNION ALL
	SELECT _lock_election.word(live.kind), live.name, NULL, live.mode, CASE WHEN live.mine THEN live.owner END, CASE WHEN live.kind = 2 THEN live.value END, live.role,
		CASE WHEN live.mine THEN live.token END, CASE WHEN live.mine AND live.named THEN live.lease END, 1, live.since, live.at, _lock_election.time_left(live.at), NULL,
		c.closed_until, live.rank,
		CASE WHEN live.mine THEN live.pid END, NULL, CASE WHEN live.mine THEN live.application END, CASE WHEN live.mine THEN live.client END,
		CASE WHEN live.mine THEN EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = live.pid AND (live.at IS NULL OR a.backend_start IS NULL OR a.backend_start <= live.since)) END, false
		FROM live LEFT JOIN c ON c.kind = live.kind AND c.name = live.name;
END $$;

CREATE OR REPLACE FUNCTION lock_election.look_leases(OUT lease bigint, OUT owner text, OUT role oid, OUT ttl interval, OUT expires_at timestamptz, OUT time_left interval)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	me oid := _lock_election.who();
BEGIN
	IF pg_is_in_recovery() THEN RETURN; END IF;
	RETURN QUERY SELECT CASE WHEN x.mine THEN x.id END, CASE WHEN x.mine THEN x.owner END, x.role, x.ttl, x.at, _lock_election.time_left(x.at)
		FROM (SELECT l.*, _lock_election.may_see(l.role, me) AS mine, _lock_election.ends(l.expires_at, l.life, l.ttl) AS at FROM _lock_election.lease l WHERE l.named) x
		WHERE x.at > clock_timestamp();
END $$;

-- fenced_by: processes that hold the advisory lock of a fence; not computed unless selected.  Both views repeat
-- this query instead of one view reading the other, because an upgrade locks the views in the opposite order
-- from a query, and could deadlock with it.
CREATE OR REPLACE VIEW lock_election.locks AS
SELECT l.kind, l.name, l.slot, l.mode, l.owner, l.role::pg_catalog.regrole AS role,
	l.token, l.lease, l.holds, l.since AS acquired_at, l.expires_at, l.time_left, l.closed_until, l.waiters,
	l.pid, l.application_name, l.client_addr, l.connected, l.evicted, COALESCE(f.pids, '{}') AS fenced_by,
	CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_xact_replay_timestamp() END AS replayed_at
FROM lock_election.look() l LEFT JOIN (
	SELECT (a.classid::pg_catalog.int8 OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) a.objid::pg_catalog.int8 AS key,
		pg_catalog.array_agg(DISTINCT a.pid) AS pids
	FROM pg_catalog.pg_locks a
	WHERE a.locktype OPERATOR(pg_catalog.=) 'advisory' AND a.objsubid OPERATOR(pg_catalog.=) 1 AND a.granted
		AND a.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
	GROUP BY 1) f ON f.key OPERATOR(pg_catalog.=) pg_catalog.hashint8extended(l.token, 4807)
WHERE l.queue_position OPERATOR(pg_catalog.=) 0;

CREATE OR REPLACE VIEW lock_election.elections AS
SELECT l.name AS election, l.value AS candidate, l.term, l.owner, l.role::pg_catalog.regrole AS role,
	l.since AS elected_at, l.expires_at, l.time_left AS valid_for, l.waiters AS waiting,
	l.pid, l.application_name, l.client_addr, l.connected, l.evicted, COALESCE(f.pids, '{}') AS fenced_by,
	CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_xact_replay_timestamp() END AS replayed_at
FROM lock_election.look() l LEFT JOIN (
	SELECT (a.classid::pg_catalog.int8 OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) a.objid::pg_catalog.int8 AS key,
		pg_catalog.array_agg(DISTINCT a.pid) AS pids
	FROM pg_catalog.pg_locks a
	WHERE a.locktype OPERATOR(pg_catalog.=) 'advisory' AND a.objsubid OPERATOR(pg_catalog.=) 1 AND a.granted
		AND a.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
	GROUP BY 1) f ON f.key OPERATOR(pg_catalog.=) pg_catalog.hashint8extended(l.token, 4807)
WHERE l.term IS NOT NULL;

-- PostgreSQL shows the start and the address of a statement to members of its role and of pg_read_all_stats.
-- The reader of this view may be a member of these even if the installer, with whose privileges look() runs, is
-- not.  Blocked calls are the rows without expires_at.
CREATE OR REPLACE VIEW lock_election.waiters AS
WITH l AS MATERIALIZED (SELECT * FROM lock_election.look()),
h AS MATERIALIZED (
	SELECT l.kind, l.name, pg_catalog.array_agg(DISTINCT l.pid) AS pids
	FROM l WHERE l.queue_position OPERATOR(pg_catalog.=) 0 AND l.connected
	GROUP BY l.kind, l.name)
SELECT w.kind, w.name, w.queue_position, w.mode, w.owner, w.role::pg_catalog.regrole AS role,
	w.token, w.lease, COALESCE(w.since, a.query_start) AS waiting_since, w.pid, w.application_name, COALESCE(w.client_addr, a.client_addr) AS client_addr, w.connected,
	CASE WHEN w.closed_until IS NOT NULL THEN '{0}'::pg_catalog.int4[] ELSE '{}'::pg_catalog.int4[] END
		OPERATOR(pg_catalog.||) COALESCE(h.pids, pg_catalog.array_remove(ARRAY[CASE
			WHEN w.queue_position OPERATOR(pg_catalog.>) 1 THEN
				pg_catalog.first_value(CASE WHEN w.connected THEN w.pid END)
					OVER (PARTITION BY w.kind, w.name ORDER BY w.queue_position) END], NULL)) AS blocked_by,
	w.closed_until
FROM l w LEFT JOIN h ON h.kind OPERATOR(pg_catalog.=) w.kind AND h.name OPERATOR(pg_catalog.=) w.name
	LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) w.pid AND w.expires_at IS NULL
WHERE w.queue_position OPERATOR(pg_catalog.>) 0
ORDER BY w.kind, w.name, w.queue_position;

CREATE OR REPLACE VIEW lock_election.leases AS
WITH n AS MATERIALIZED (
	SELECT l.lease, pg_catalog.count(*) FILTER (WHERE l.queue_position OPERATOR(pg_catalog.=) 0) AS holds,
		pg_catalog.count(*) FILTER (WHERE l.queue_position OPERATOR(pg_catalog.>) 0) AS waits
	FROM lock_election.look() l WHERE l.lease IS NOT NULL
	GROUP BY l.lease)
SELECT l.lease, l.owner, l.role::pg_catalog.regrole AS role, l.ttl, l.expires_at, l.time_left,
	CASE WHEN l.lease IS NOT NULL THEN COALESCE(n.holds, 0) END AS locks,
	CASE WHEN l.lease IS NOT NULL THEN COALESCE(n.waits, 0) END AS waiting
FROM lock_election.look_leases() l LEFT JOIN n ON n.lease OPERATOR(pg_catalog.=) l.lease;

CREATE OR REPLACE FUNCTION lock_election.health(OUT ok boolean, OUT problem text, OUT role text, OUT manager boolean, OUT loading boolean, OUT request_wait interval, OUT standby_confirms boolean,
	OUT standby_wait interval, OUT incarnation bigint, OUT library_version text, OUT sql_version text, OUT replayed_at timestamptz, OUT cannot_write_since timestamptz, OUT blocked_by int4)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	sql_version := (SELECT 'portable ' || e.version FROM _lock_election.edition e);
	role := CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE 'primary' END;
	manager := false;
	loading := false;
	IF pg_is_in_recovery() THEN
		replayed_at := pg_last_xact_replay_timestamp();
		problem := 'the server is a standby';
	ELSE
		incarnation := (SELECT max(l.life) FROM _lock_election.lives l);
		IF current_setting('default_transaction_read_only') = 'on' THEN problem := 'transactions are read-only here'; END IF;
	END IF;
	ok := problem IS NULL;
END $$;

-- --- rights: who may call what ------------------------------------------------------------------------------------------

REVOKE ALL ON ALL TABLES IN SCHEMA _lock_election FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA _lock_election FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA _lock_election FROM PUBLIC;
REVOKE ALL ON SCHEMA _lock_election FROM PUBLIC;
DO $$
DECLARE
	grantee pg_catalog.name;
BEGIN
	-- revoke privileges that ALTER DEFAULT PRIVILEGES has granted on creation
	FOR grantee IN SELECT DISTINCT pg_catalog.pg_get_userbyid(a.grantee) FROM (
			SELECT n.nspacl AS acl, n.nspowner AS owner FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election'
			UNION ALL SELECT c.relacl, c.relowner FROM pg_catalog.pg_class c WHERE c.relnamespace OPERATOR(pg_catalog.=) '_lock_election'::pg_catalog.regnamespace
			UNION ALL SELECT p.proacl, p.proowner FROM pg_catalog.pg_proc p WHERE p.pronamespace OPERATOR(pg_catalog.=) '_lock_election'::pg_catalog.regnamespace) x,
		LATERAL pg_catalog.aclexplode(x.acl) a WHERE a.grantee OPERATOR(pg_catalog.<>) ALL (ARRAY[0::pg_catalog.oid, x.owner]) LOOP
		EXECUTE pg_catalog.format('REVOKE ALL ON ALL TABLES IN SCHEMA _lock_election FROM %1$I; REVOKE ALL ON ALL SEQUENCES IN SCHEMA _lock_election FROM %1$I;'
			' REVOKE ALL ON ALL FUNCTIONS IN SCHEMA _lock_election FROM %1$I; REVOKE ALL ON SCHEMA _lock_election FROM %1$I', grantee);
	END LOOP;
	IF pg_catalog.current_setting('_lock_election.new') OPERATOR(pg_catalog.=) 'yes' THEN
		FOR grantee IN SELECT DISTINCT pg_catalog.pg_get_userbyid(a.grantee) FROM pg_catalog.pg_proc p, LATERAL pg_catalog.aclexplode(p.proacl) a
			WHERE p.oid OPERATOR(pg_catalog.=) ANY (ARRAY['advance_revision(bigint)'::pg_catalog.regprocedure, 'lock_election.configure(text,text)'::pg_catalog.regprocedure]::pg_catalog.oid[])
				AND a.grantee OPERATOR(pg_catalog.<>) ALL (ARRAY[0::pg_catalog.oid, p.proowner]) LOOP
			EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION advance_revision(bigint), lock_election.configure(text, text) FROM %I', grantee);
		END LOOP;
	END IF;
END $$;
GRANT SELECT ON lock_election.locks, lock_election.elections, lock_election.waiters, lock_election.leases TO PUBLIC;
-- not for PUBLIC: the first function cannot be undone, the second changes settings for all roles
REVOKE ALL ON FUNCTION advance_revision(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION lock_election.configure(text, text) FROM PUBLIC;

-- Fail if another role owns one of these functions, because that role could replace a function that other roles
-- run.
DO $$
DECLARE
	alien pg_catalog.text;
BEGIN
	SELECT p.oid::pg_catalog.regprocedure::pg_catalog.text INTO alien FROM pg_catalog.pg_proc p
		WHERE p.pronamespace OPERATOR(pg_catalog.=) ANY (ARRAY['lock_election'::pg_catalog.regnamespace, '_lock_election'::pg_catalog.regnamespace]::pg_catalog.oid[])
			AND p.proowner OPERATOR(pg_catalog.<>) (SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election')
		LIMIT 1;
	IF alien IS NULL THEN
		SELECT p.oid::pg_catalog.regprocedure::pg_catalog.text INTO alien FROM pg_catalog.pg_proc p
			WHERE p.pronamespace OPERATOR(pg_catalog.=) (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) pg_catalog.current_schema())
				-- a function of this file, or one with the same name, to which a call could resolve instead
				AND EXISTS (SELECT FROM pg_catalog.pg_proc o WHERE o.pronamespace OPERATOR(pg_catalog.=) p.pronamespace AND o.proname OPERATOR(pg_catalog.=) p.proname
					AND o.prosecdef AND pg_catalog.strpos(o.prosrc, '_lock_election.') OPERATOR(pg_catalog.>) 0)
				AND p.proowner OPERATOR(pg_catalog.<>) (SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election')
			LIMIT 1;
	END IF;
	IF alien IS NOT NULL THEN
		RAISE EXCEPTION 'function % belongs to another role', alien USING ERRCODE = '42501', HINT = 'Drop it, or install into another schema.';
	END IF;
	PERFORM _lock_election.begin_life('2 s');
END $$;

-- --- comments: the same as in the C edition ---

COMMENT ON FUNCTION acquire_lock(pg_catalog.text, interval, interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Acquires a lock. Returns its token, or NULL if the lock was not granted within "wait" (NULL: no limit, ''0'': do not wait). The lock is held until its release, or expires "ttl" after the last renewal. With ttl => NULL it ends with this connection, with "lease" it ends with the lease. If the same owner (or, without an owner, the same lease) acquires the lock again, it gets the same token. A rollback undoes the acquire. Errors: 55P03 if lock_timeout expires; LE001 if the request ended while it waited; 53400 if the limit lock_election.max_waiters_per_lock or max_locks_per_role is reached.';
COMMENT ON FUNCTION try_acquire_lock(pg_catalog.text, interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Acquires a lock without waiting, like acquire_lock with wait => ''0''. Returns the token, or NULL if others hold the lock or wait for it.';
COMMENT ON FUNCTION acquire_locks(pg_catalog.text[], interval, interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Acquires several locks, all or none; otherwise works like acquire_lock. Returns one token for all of them, or NULL if they were not granted within "wait". The request enters all queues at the same moment, and no later request overtakes it, so it causes no deadlock, whatever the order of names. Renewing one lock renews all. At most 1000 names. Errors: 22023 also for a repeated name, or if the owner already holds only some of the names; otherwise as acquire_lock.';
COMMENT ON FUNCTION release_locks(pg_catalog.text[], bigint) IS
'Releases, like release_lock, those of the given locks that the token holds. Returns whether the token held all of them.';
COMMENT ON FUNCTION try_acquire_each(pg_catalog.text[], interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Calls try_acquire_lock for each of the names, in one request. Returns one row per name, in the given order, with its token, or NULL if the lock was not granted. Each lock has its own TTL; on a "lease", one keep_alive renews all. At most 1000 names. After an error, no lock is acquired. A rollback undoes all acquires. Errors: 22023 also for a repeated name; otherwise as acquire_lock.';
COMMENT ON FUNCTION release_each(pg_catalog.text[], bigint[]) IS
'Calls release_lock for each of the names, with the token at the same position in "tokens", in one request. Returns one row per name, in the given order: true if the lock was released, or false if that token does not hold it or is NULL. At most 1000 names. The releases take effect as with release_lock; SELECT * FROM release_each(...) also counts as a statement of its own. Errors: 22023 also for a repeated name, or more or fewer tokens than names; 42501 for another role''s lock, and then no lock is released; otherwise as release_lock.';
COMMENT ON FUNCTION renew_lock(pg_catalog.text, bigint, interval) IS
'Restarts the TTL of a lock, with another length if "ttl" is given. Returns the time for which the lock is valid, counted from when the call was sent: the TTL; less if the lock would end earlier after a server crash (shortly after a restart, and while the tables cannot be written); 24 days for a lock that is bound to its connection. Returns NULL if the lock is lost or evicted. A replaced primary can return NULL while the new one still has the lock. Errors: 55000 for a token that is still queued.';
COMMENT ON FUNCTION release_lock(pg_catalog.text) IS
'Releases the lock of this name that this connection acquired last. Returns true, or false if the connection holds no such lock. The release takes effect like a release by token. With a connection pool, release by token.';
COMMENT ON FUNCTION release_lock(pg_catalog.text, bigint, interval, boolean) IS
'Releases a lock. Returns true, or false if this token does not hold the lock or is NULL.
- The release takes effect immediately if this call is a statement of its own, outside of transaction blocks and pipelines; otherwise at commit.
- A server crash within the next moments may bring the lock back until its TTL ends, unless the call waits for a flush. The call waits if the TTL exceeds 5 minutes, with "hold_for", with setting lock_election.durable_release, and with a synchronous standby.
- "hold_for", at most lock_election.max_hold_for, keeps the name closed for this time after the acquire. A closed name counts as a lock of the role.
- "all_holds" releases all holds of a named owner instead of one.
Errors: 53400 if open transactions have too many releases, see max_locks_per_transaction.';
COMMENT ON FUNCTION is_held(pg_catalog.text, bigint) IS
'Returns whether this token holds the lock now. Only the result true waits for synchronous standbys, as synchronous_commit requires. A replaced primary can return false while the new one still has the lock.';
COMMENT ON FUNCTION evict_lock(pg_catalog.text) IS
'Evicts the holders of a lock: none of them can be renewed any more. Returns the number of newly evicted holders.
- An evicted holder may continue to work, and keeps the lock, until it releases it or until "expires_at" in view locks.
- renew_lock returns NULL for an evicted holder, and await_lock raises LE001.
- keep_alive renews the lease of an evicted holder, but returns at most the time that is left to this holder.
- lease_holds does not list an evicted holder. New requests of an evicted holder wait like others.
- If one acquire_locks call with a TTL acquired several names, all are evicted, but only one is counted.
- An eviction survives crashes, like the lock.
Requires membership in the holder''s role or in pg_signal_backend. Each eviction is logged.
Errors: 55000 if a holder is bound to its connection. Then no holder is evicted; terminate the connection instead.';
COMMENT ON FUNCTION force_release_lock(pg_catalog.text) IS
'Ends the holders of a lock immediately. Returns the number of ended holders. Until they notice, they may work at the same time as the next holder; use evict_lock if the next holder must wait until they stop. The call also opens a name that "hold_for" has closed. Requires membership in the holder''s role or in pg_signal_backend. The release is logged.';
COMMENT ON FUNCTION force_release_role(pg_catalog.regrole) IS
'Ends all holds, waits, leases, leaderships and candidacies of a role in this database, and opens the names that it has closed. Returns the number of ended items.
- A lock that a transaction has fenced stays taken until the fence ends.
- To pass a dropped role, use its number from the views.
- First revoke the role''s right to connect.
Requires membership in the role or in pg_signal_backend. The call is logged.
Errors: 22023 if the argument is not a role.';
COMMENT ON FUNCTION advance_revision(bigint) IS
'Raises the tokens of this database: every later request gets a token of at least "min". Queued requests keep their tokens. Returns the lowest token that the next request can get: "min", or more if this database had already passed "min". The change takes effect immediately, is durable when the function returns, and cannot be undone, not even by a rollback. Only superusers, and roles to which they grant EXECUTE, may call the function.
Use it if the database may have forgotten tokens, for example after a base backup was restored in place, or after pg_resetwal. The page on failover and restore lists all cases.';
COMMENT ON FUNCTION enqueue_lock(pg_catalog.text, interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Enters the queue of a lock and returns immediately. Returns the token, whether the lock is already granted, the position in the queue (from 1) if it is not, and the channel on which the grant is announced (use LISTEN).
- The queue place expires "ttl" after this call or the last await_lock. With "lease" it lasts as long as the lease, and with ttl => NULL as long as this connection. After the grant, the lock lasts like a lock of acquire_lock.
- A rollback undoes the call.
- Every call takes a new place. But a repeated request (of the same owner, if it names one) on a named lease returns the same token, so that you can repeat a call whose reply was lost.
Errors: 53400 if the limit lock_election.max_waiters_per_lock or max_locks_per_role is reached; LE001 if the lease does not exist.';
COMMENT ON FUNCTION enqueue_permit(pg_catalog.text, integer, interval, pg_catalog.text, bigint) IS
'Enters the queue for one of "permits" permits; otherwise works like enqueue_lock. Every call takes a new place, even on a named lease. Errors: 22023 also if the name is in use with another number of permits; otherwise as enqueue_lock.';
COMMENT ON FUNCTION enqueue_locks(pg_catalog.text[], interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Enters the queues of several locks under one token, like enqueue_lock for one lock. The locks are granted together when the request is first in every queue. No later request overtakes it, so a free lock may stay idle until then. "queue_position" is the position in the longest queue. The grant is announced once, on the "channel" of the first name. The token is for await_locks and release_locks. At most 1000 names. Errors: 22023 also for an empty array or a repeated name; otherwise as enqueue_lock.';
COMMENT ON FUNCTION enqueue_each(pg_catalog.text[], interval, pg_catalog.text, pg_catalog.text, bigint) IS
'Calls enqueue_lock for each of the names, in one request. Returns one queue place per name, in the given order. Each place has its own token for await_lock and release_lock. At most 1000 names. After an error, no place is taken. Errors: 22023 also for a repeated name; otherwise as enqueue_lock.';
COMMENT ON FUNCTION await_lock(pg_catalog.text, bigint, interval) IS
'Returns whether this token of enqueue_lock is granted, after waiting for at most "wait" (NULL: no limit). Each call restarts the TTL of the queue place, or of the lock once it is granted. To leave the queue, call release_lock. Errors: LE001 if the token is neither held nor queued any more, or was evicted; 55P03 if lock_timeout expires.';
COMMENT ON FUNCTION await_locks(pg_catalog.text[], bigint, interval) IS
'Returns whether all of these locks are granted to this token of enqueue_locks, like await_lock for one lock. Errors: LE001 if one of the locks is neither held nor queued any more; otherwise as await_lock.';
COMMENT ON FUNCTION fence_lock(pg_catalog.text, bigint) IS
'Fences a lock: from this call to the end of the (sub)transaction, no other holder is granted the lock, whatever ends the current hold. Later writes of the transaction take effect before the next grant, or not at all. After the holder''s lease has ended, lock_election.fence_timeout limits the fence. Errors: LE001 if the token does not hold the lock; 53400 if open transactions have too many fences, see max_locks_per_transaction.';
COMMENT ON FUNCTION fence_guard() IS
'Rejects writes to a table by transactions that have not fenced a lock, or the leadership of an election. Use it in a trigger BEFORE INSERT, UPDATE, DELETE or TRUNCATE. The trigger''s argument is the name of the lock; for an election, the arguments are its name and ''election''. Errors: 55000 if the transaction has not fenced the lock or leader; 39P01 if the function was not called by a BEFORE trigger.';
COMMENT ON FUNCTION acquire_permit(pg_catalog.text, integer, interval, interval, pg_catalog.text, bigint) IS
'Acquires one of "permits" permits of this name; otherwise works like acquire_lock. Returns its token, or NULL if no permit was granted within "wait". All simultaneous users of the name must pass the same number of permits. A permit is renewed and released like a lock. Errors: 22023 also if the name is in use with another number of permits; otherwise as acquire_lock.';
COMMENT ON FUNCTION set_permits(pg_catalog.text, integer) IS
'Changes the number of permits of a name that is in use. Returns the old number, or NULL if the name is not in use. A higher number grants permits to waiters immediately. A lower number takes effect as permits are released. Requires membership in the roles of all holders, or in pg_signal_backend. Errors: 40001 if other roles kept acquiring the name during the check.';
COMMENT ON FUNCTION grant_lease(interval, pg_catalog.text, interval) IS
'Grants a lease and returns its number. Any number of locks and permits can be acquired on the lease (argument "lease"); they end with the lease. "wait" is for client libraries: the maximum time to wait until the lease is durable (NULL: no limit). Until then, lease_sync returns no validity. Errors: 53400 if the limit lock_election.max_leases_per_role is reached.';
COMMENT ON FUNCTION keep_alive(bigint) IS
'Restarts the TTL of a lease and of everything on it except evicted holders. Returns the time for which the lease is valid (see renew_lock), or NULL if the lease has ended. If a holder on the lease was evicted, the result is at most the time left to this holder.';
COMMENT ON FUNCTION lease_sync(bigint, bigint, bigint, bigint, pg_catalog.text[], interval) IS
'For client libraries: renews the lease, then carries out the releases among "items", then the other requests. Returns the result of each item, and all changes on the lease since the news that the client has seen. The reference page lease_sync has the details. Errors: 22023 for arguments that cannot be read; 25001 in a transaction block; 42501 for another role''s lease; any error that prevents the renewal of the lease. The error of a single item is returned as a row.';
COMMENT ON FUNCTION revoke_lease(bigint) IS
'Immediately ends the lease and everything on it, even in a transaction that rolls back. Returns true, or false if the lease had already ended.';
COMMENT ON FUNCTION lease_time_to_live(bigint) IS
'Returns the time that the lease has left, or NULL if it has ended.';
COMMENT ON FUNCTION lease_holds(bigint) IS
'Lists everything on a lease, with one row per name.
- "kind": lock (permits included) or election.
- "queue_position": 0 for a holder; for a queue place or candidacy, its position from 1.
- "token": the same for all names of one acquire_locks or enqueue_locks.
- "channel": where a grant to a place is announced; for several names, that of the first name.
- "owner": NULL if no owner was named.
The rows are as durable as the result of is_held. Each row was true at some moment during the call. Evicted holders are not listed, nor are locks and places that another connection may still roll back.
Errors: LE001 if the lease does not exist or has ended; 40001 if too many entries on the lease ended while it was read.';
COMMENT ON FUNCTION compare_and_set(pg_catalog.text, bigint, pg_catalog.text) IS
'Sets the value of a key if its version is still the expected one. Returns the new version, which is one higher, or NULL if the version differs.
- The expected version of a new key is 0.
- A value has up to 4096 bytes.
- The write is part of this transaction and follows its isolation level. The call waits for another transaction that is setting the key.
- A key is never removed. Set its value to NULL instead.
- A key belongs to the role that created it. Setting it requires membership in this role or in pg_write_all_data.
Errors: 53400 if a key grows beyond lock_election.max_keys_per_role; 40001 for a concurrent change under REPEATABLE READ or SERIALIZABLE; 25006 if the transaction or the server is read-only.';
COMMENT ON FUNCTION read_versioned(pg_catalog.text) IS
'Returns the value of a key and its version. If the key does not exist, the value is NULL and the version is 0. Requires membership in the role that created the key or in pg_read_all_data.';
COMMENT ON FUNCTION version_guard() IS
'Adds optimistic locking to a table. Use it in a trigger BEFORE UPDATE FOR EACH ROW. The trigger''s argument is the name of a smallint, integer or bigint column (default: version). An UPDATE must supply the current version of the row, and the trigger then increments it. Errors: 40001 if the UPDATE supplies another version; 22003, 22004, 39P01, 42703, 42804 or 428C9 if the trigger or its column does not fit.';
COMMENT ON FUNCTION advisory_acquire(pg_catalog.text, interval, boolean, pg_catalog.text) IS
'Acquires an advisory lock of PostgreSQL by name. Returns true, or false if the lock was not granted within "wait".
- "wait": NULL or more than 24 days means no limit, ''0'' means do not wait.
- scope ''session'': the lock is held until it was released as often as it was acquired, or until the connection ends, independently of transactions.
- scope ''transaction'': the lock is held to the end of the (sub)transaction.
- The names have other keys than those of pg_advisory_lock. Two names with the same hash exclude each other.
Errors: 25006 on a standby (see lock_election.advisory_on_standby); 55P03 if lock_timeout expires; 40P01 for a deadlock; 53200 if there is no room for the lock, see max_locks_per_transaction.';
COMMENT ON FUNCTION advisory_release(pg_catalog.text, boolean) IS
'Immediately releases one acquisition of an advisory lock of scope ''session''. Returns true, or false with a WARNING if this connection does not hold the lock in this mode. pg_advisory_unlock_all and DISCARD ALL also release the lock.';
COMMENT ON FUNCTION campaign(pg_catalog.text, pg_catalog.text, interval, interval, pg_catalog.text, bigint) IS
'Waits to be elected, like acquire_lock for a lock. Returns the term, or NULL if the candidate was not elected within "wait". Candidates are elected in order of arrival. "candidate" is the candidate''s public text, of 1 to 4096 bytes. If the leader (the same owner or, without an owner, the same lease) campaigns again, the call acts as a proclaim and returns the same term. A rollback undoes the campaign, but not the proclaim. Errors: as acquire_lock.';
COMMENT ON FUNCTION enqueue_candidate(pg_catalog.text, pg_catalog.text, interval, pg_catalog.text, bigint) IS
'Becomes a candidate and returns immediately, like enqueue_lock. Returns the term, whether the candidate is already elected, the position in the queue (from 1) if it is not, and the channel on which the election is announced. Every call adds a new candidacy, even if the caller already leads. Errors: as enqueue_lock.';
COMMENT ON FUNCTION await_leadership(pg_catalog.text, bigint, interval) IS
'Returns whether this term of enqueue_candidate is elected, like await_lock for a lock. To withdraw, call "resign". Errors: LE001 if the term is neither leader nor candidate any more; 55P03 if lock_timeout expires.';
COMMENT ON FUNCTION proclaim(pg_catalog.text, bigint, pg_catalog.text) IS
'Changes the leader''s public text without a new election. Returns true, or false if this term does not lead. The change takes effect immediately, is durable when the function returns, and survives a rollback.';
COMMENT ON FUNCTION renew_leadership(pg_catalog.text, bigint, interval) IS
'Restarts the TTL of the leader, with another length if "ttl" is given. Returns the time for which the term is valid (see renew_lock), or NULL if the term is lost. Errors: 55000 for a term that is still queued.';
COMMENT ON FUNCTION resign(pg_catalog.text, bigint) IS
'Ends a leadership or a candidacy. Returns true, or false if this term is neither leader nor candidate, or is NULL. The call takes effect and waits like release_lock. A server crash may likewise bring the term back: the leader then leads until its TTL ends, or the candidate may still be elected.';
COMMENT ON FUNCTION current_leader(pg_catalog.text) IS
'Returns the leader of an election, or no row if there is none. Every role may call the function.
- After a server crash, the returned leader still leads, unless its term is bound to its connection.
- "expires_at": when the term ends without a renewal; infinity if it is bound to a connection.
- "valid_for": the time until "expires_at"; NULL if the term is bound to a connection, and on a standby.
- A standby returns the replayed leader; "expires_at" then ignores renewals since the election or the last proclaim, and is NULL for a term on a named lease.';
COMMENT ON FUNCTION is_leader(pg_catalog.text, bigint) IS
'Returns whether this term leads now, like is_held for a lock.';
COMMENT ON FUNCTION fence_leader(pg_catalog.text, bigint) IS
'Fences the term of a leader, like fence_lock for locks. Errors: LE001 if the term does not lead; 53400 as fence_lock.';
COMMENT ON FUNCTION evict_leader(pg_catalog.text) IS
'Evicts the leader of an election, like evict_lock for locks. Returns 1, or 0 if there is no leader or if it was evicted before. An evicted leader may lead and proclaim until it resigns or until "expires_at" in view elections. Requires membership in the leader''s role or in pg_signal_backend. The eviction is logged. Errors: 55000 if the term is bound to a connection; terminate the connection instead.';
COMMENT ON FUNCTION force_resign(pg_catalog.text) IS
'Ends the leadership of an election immediately. Returns 1, or 0 if there was no leader. Until the former leader notices, two may lead at the same time; use evict_leader if the next leader must wait until the former one stops. Requires membership in the leader''s role or in pg_signal_backend. The call is logged.';
COMMENT ON FUNCTION observe_election(pg_catalog.text) IS
'Returns the channel to LISTEN on, which is always the same for an election. A notification is sent for every new leader, every proclaim and every end of a term. The payload is JSON with the fields "event" (a value of "how" in election_history), "term", "change", and "previous" (the number of the previous change; "0": unknown). A client that has not seen the previous change should call election_history().';
COMMENT ON FUNCTION election_history(pg_catalog.text, bigint) IS
'Returns every change of an election after the change numbered "after", in order and without gaps. A change is the start of a term (elected), a new candidate text (proclaimed), or the end of a term (resigned, expired, revoked with its lease, forced, evicted, undone with its transaction, disconnected). Every role may call the function, also on a standby, where it returns what has been replayed. Changes are kept for lock_election.history_retention.';
COMMENT ON FUNCTION lock_election.look() IS
'Returns every holder (queue_position 0), every waiter, and every name that is closed (no mode). Used by the views locks, elections and waiters.';
COMMENT ON FUNCTION lock_election.look_leases() IS
'Returns every named lease. Used by view leases.';
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
COMMENT ON SCHEMA lock_election IS 'Views of lock_election, and functions for operators.';
COMMENT ON SCHEMA _lock_election IS 'The portable edition of lock_election, version 1: tables and functions for internal use only.';

-- --- without a transaction: drop the functions again, and say why in the last message ---

DO $$
DECLARE
	f pg_catalog.regprocedure;
BEGIN
	IF pg_catalog.to_regclass('_lock_election.edition') IS NOT NULL THEN RETURN; END IF;
	FOR f IN SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
		WHERE n.nspname OPERATOR(pg_catalog.=) pg_catalog.current_schema() AND pg_catalog.pg_get_userbyid(p.proowner) OPERATOR(pg_catalog.=) current_user
			AND p.prosecdef AND pg_catalog.strpos(p.prosrc, '_lock_election.') OPERATOR(pg_catalog.>) 0
	LOOP
		EXECUTE pg_catalog.format('DROP FUNCTION %s', f);
	END LOOP;
END $$;
DO $$
BEGIN
	IF NULLIF(pg_catalog.current_setting('_lock_election.installing', true), '') IS NULL THEN
		RAISE EXCEPTION 'the installation has failed: this file has to run in one transaction' USING ERRCODE = '25P01',
			HINT = 'Type: psql -q -1 -v ON_ERROR_STOP=1 -f lock_election.sql';
	END IF;
END $$;
