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
