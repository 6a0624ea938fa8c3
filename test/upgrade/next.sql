-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION lock_election UPDATE" to load this file. \quit

DO $$
DECLARE
	library pg_catalog.text := pg_catalog.current_setting('lock_election.version', true);
BEGIN
	IF pg_catalog.string_to_array(library, '.')::pg_catalog.int4[]
		OPERATOR(pg_catalog.<) '{@NEXT,@}'::pg_catalog.int4[] THEN
		RAISE EXCEPTION 'the server still runs version % of the lock_election library, and this script is of version @NEXT@', library
			USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Restart the server, then try again.';
	END IF;
END
$$;

ALTER TABLE _lock_election.slot ADD COLUMN note pg_catalog.text COLLATE pg_catalog."C";
ALTER TABLE _lock_election.slot ALTER COLUMN note SET STORAGE PLAIN;

CREATE FUNCTION lock_election.library_version() RETURNS pg_catalog.text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'le_library_version';

-- The columns of a function cannot be changed in place.
DO $$
DECLARE
	columns pg_catalog.text := pg_catalog.pg_get_function_arguments('lock_election.counters()'::pg_catalog.regprocedure);
BEGIN
	DROP VIEW lock_election.stat;
	DROP FUNCTION lock_election.counters();
	EXECUTE pg_catalog.format('CREATE FUNCTION lock_election.counters(%s, OUT added bigint)
		RETURNS pg_catalog.record LANGUAGE C VOLATILE PARALLEL UNSAFE AS ''$libdir/lock_election'', ''le_stat''', columns);
	CREATE VIEW lock_election.stat AS SELECT * FROM lock_election.counters();
	GRANT SELECT ON lock_election.stat TO PUBLIC;
END
$$;
