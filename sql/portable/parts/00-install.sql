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
