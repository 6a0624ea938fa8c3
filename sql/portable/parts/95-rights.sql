-- --- rights: who may call what ------------------------------------------------------------------------------------------

REVOKE ALL ON ALL TABLES IN SCHEMA _lock_election FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA _lock_election FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA _lock_election FROM PUBLIC;
REVOKE ALL ON SCHEMA _lock_election FROM PUBLIC;
GRANT SELECT ON lock_election.locks, lock_election.elections, lock_election.waiters, lock_election.leases TO PUBLIC;
-- not for everyone: there is no way back, or it holds for everybody
REVOKE ALL ON FUNCTION advance_revision(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION lock_election.configure(text, text) FROM PUBLIC;

-- Nobody else may own one of these functions: he could change it, and it runs for everybody.
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
			WHERE p.pronamespace OPERATOR(pg_catalog.=) (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) pg_catalog.current_schema()) AND p.prosecdef
				AND pg_catalog.strpos(p.prosrc, '_lock_election.') OPERATOR(pg_catalog.>) 0
				AND p.proowner OPERATOR(pg_catalog.<>) (SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election')
			LIMIT 1;
	END IF;
	IF alien IS NOT NULL THEN
		RAISE EXCEPTION 'function % belongs to another role', alien USING ERRCODE = '42501', HINT = 'Drop it, or install into another schema.';
	END IF;
	PERFORM _lock_election.begin_life('2 s');
END $$;
