-- Moves a database from the extension lock_election back to the portable edition, in place and in one
-- transaction.
--
--     psql -d app -v owner=installer -f from_extension.sql
--
-- Run it as a superuser, with lock_election.sql in the same folder.
--
-- owner is the role that will own the portable edition; the default is the owner of the database.  It needs
-- CREATE on the database, and on the schema of the functions, where they stay.
--
-- Locks, queue places, leases, terms, histories, closed names and versions move with their tokens, and so do
-- privileges on functions and views, and triggers that call fence_guard() or version_guard().  Leases start
-- over.  New tokens are higher than all earlier ones.  If something only works in the extension, the script
-- refuses to move, and changes nothing.  If the database has moved already, it does nothing.
-- docs/how-to/move.md has the steps.
--
-- The script stops the manager before it reads the tables, and no manager can start before this transaction ends,
-- so the tables contain everything that a manager has confirmed.

\set ON_ERROR_STOP on
\if :{?owner}
\else
	SELECT pg_catalog.pg_get_userbyid(d.datdba) AS owner FROM pg_catalog.pg_database d
		WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() \gset
\endif
SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'lock_election')
	AND pg_catalog.to_regclass('_lock_election.edition') IS NOT NULL AS moved \gset
\if :moved
	\echo the portable edition is installed already: nothing to do
\else

BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT pg_catalog.set_config('move.owner', :'owner', true) \g /dev/null

DO $move$
DECLARE
	own_tables CONSTANT pg_catalog.text[] := '{slot,lease,queue,history,incarnation_floor,versioned}';
	place pg_catalog.name;
	until pg_catalog.timestamptz;
	managers pg_catalog.int4[];
	here pg_catalog.oid;
	what pg_catalog.text;
	target pg_catalog.text;
	item pg_catalog.record;
BEGIN
	-- 1. make unqualified names refer to objects of PostgreSQL from here on; check the roles and the server
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	SELECT d.oid INTO here FROM pg_database d WHERE d.datname = current_database();
	IF NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
		RAISE EXCEPTION 'only a superuser can move from the extension' USING ERRCODE = '42501';
	END IF;
	SELECT n.nspname INTO place FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'lock_election';
	IF place IS NULL THEN
		RAISE EXCEPTION 'the extension lock_election is not installed in this database' USING ERRCODE = '55000',
			HINT = 'For a new installation of the portable edition run its file, lock_election.sql.';
	END IF;
	IF pg_is_in_recovery() THEN
		RAISE EXCEPTION 'cannot move during recovery' USING ERRCODE = '25006', HINT = 'Connect to the primary.';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = current_setting('move.owner')) THEN
		RAISE EXCEPTION 'role "%" does not exist', current_setting('move.owner') USING ERRCODE = '42704';
	END IF;
	IF (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_setting('move.owner')) THEN
		RAISE EXCEPTION 'the portable edition is not for a superuser: "%"', current_setting('move.owner') USING ERRCODE = '42501',
			DETAIL = 'Its functions have the rights of their owner.', HINT = 'Name an ordinary role with CREATE on the database: psql -v owner=installer -f from_extension.sql';
	END IF;
	PERFORM set_config('lock_timeout', '2s', true), set_config('jit', 'off', true);
	CREATE TEMPORARY TABLE moving_place ON COMMIT DROP AS SELECT place AS schema;

	-- 2. refuse to move if there is anything that cannot move; check this before any client is affected, and again
	--    in step 3, when nothing can change any more
	CREATE OR REPLACE FUNCTION pg_temp.refuse_what_cannot_move(at_last boolean) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $check$
	DECLARE
		here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
		until timestamptz := clock_timestamp() + interval '2 s';
		what text;
	BEGIN
		SELECT string_agg(format('%s "%s"', CASE x.kind WHEN 1 THEN 'lock' ELSE 'election' END, x.name), ', ') INTO what FROM (
			SELECT s.kind, s.name FROM _lock_election.slot s WHERE s.mode <> 0 AND s.ttl = -1 AND s.time_left >= 0
			UNION SELECT q.kind, q.name FROM _lock_election.queue q WHERE q.ttl = -1 ORDER BY 1, 2 LIMIT 20) x;
		IF what IS NOT NULL THEN
			RAISE EXCEPTION 'locks that last as long as their connection cannot move' USING ERRCODE = '0A000', DETAIL = what || '.',
				HINT = 'They were acquired with ttl => NULL: release them, or end their connections.';
		END IF;
		SELECT string_agg(DISTINCT l.pid::text, ', ') INTO what FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 19525 AND l.database = here;
		IF what IS NOT NULL THEN
			RAISE EXCEPTION 'locks of advisory_acquire() are held, and cannot move' USING ERRCODE = '55006', DETAIL = format('Processes %s.', what), HINT = 'Release them.';
		END IF;
		-- wait for the end of fences; without a manager, no new fence begins
		WHILE at_last LOOP
			SELECT string_agg(DISTINCT l.pid::text, ', ') INTO what FROM pg_locks l WHERE l.locktype = 'userlock' AND l.database = here;
			EXIT WHEN what IS NULL;
			IF clock_timestamp() > until THEN
				RAISE EXCEPTION 'open transactions have fenced locks' USING ERRCODE = '55006', DETAIL = format('Processes %s.', what), HINT = 'End them, then try again.';
			END IF;
			PERFORM pg_sleep(0.005);
		END LOOP;
	END $check$;
	PERFORM pg_temp.refuse_what_cannot_move(false);

	-- 3. prevent new managers, and stop the running one, which first writes everything that it has confirmed
	LOCK TABLE _lock_election.meta IN ACCESS EXCLUSIVE MODE;
	PERFORM pg_stat_clear_snapshot();
	SELECT array_agg(a.pid) INTO managers FROM pg_stat_activity a WHERE a.datid = here AND a.backend_type = 'lock_election manager';
	PERFORM pg_terminate_backend(m) FROM unnest(managers) m;
	until := clock_timestamp() + interval '10 s';
	LOOP
		PERFORM pg_stat_clear_snapshot();
		EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = ANY (managers));
		IF clock_timestamp() > until THEN
			RAISE EXCEPTION 'the manager of this database does not end' USING ERRCODE = '55006', DETAIL = format('Process %s.', array_to_string(managers, ', '));
		END IF;
		PERFORM pg_sleep(0.005);
	END LOOP;
	FOREACH target IN ARRAY own_tables LOOP EXECUTE format('LOCK TABLE _lock_election.%I IN ACCESS EXCLUSIVE MODE', target); END LOOP;
	PERFORM pg_temp.refuse_what_cannot_move(true);

	-- 4. copy the rows.  The time left in a row is that at its last write, or more.  A hold whose transaction may
	--    still roll back counts as committed.  In a copy of another database, fail until a manager has removed the
	--    holders of the original
	IF EXISTS (SELECT FROM _lock_election.meta m WHERE m.database <> here) THEN
		RAISE EXCEPTION 'this database is a copy whose locks have not been looked at yet' USING ERRCODE = '55000',
			HINT = 'Wait until the manager of this database has started: SELECT * FROM lock_election.manager';
	END IF;
	CREATE TEMPORARY TABLE moving_slot ON COMMIT DROP AS SELECT s.*, count(*) OVER (PARTITION BY s.kind, s.token) AS members FROM _lock_election.slot s WHERE s.mode <> 0 AND s.time_left >= 0;
	CREATE TEMPORARY TABLE moving_closed ON COMMIT DROP AS SELECT s.kind, s.name, max(s.closed_until) AS closed_until, max(s.role) AS role
		FROM _lock_election.slot s WHERE s.closed_until > clock_timestamp() GROUP BY s.kind, s.name;
	CREATE TEMPORARY TABLE moving_queue ON COMMIT DROP AS SELECT q.* FROM _lock_election.queue q;
	CREATE TEMPORARY TABLE moving_lease ON COMMIT DROP AS SELECT l.*, NOT EXISTS (SELECT FROM _lock_election.slot s WHERE s.token = l.id)
		AND NOT EXISTS (SELECT FROM _lock_election.queue q WHERE q.token = l.id) AS named FROM _lock_election.lease l;
	CREATE TEMPORARY TABLE moving_history ON COMMIT DROP AS SELECT h.* FROM _lock_election.history h;
	CREATE TEMPORARY TABLE moving_version ON COMMIT DROP AS SELECT v.* FROM _lock_election.versioned v;
	CREATE TEMPORARY TABLE moving_number ON COMMIT DROP AS SELECT (greatest((SELECT max(m.incarnation) FROM _lock_election.meta m),
		(SELECT max(f.incarnation) FROM _lock_election.incarnation_floor f), (SELECT max(s.token) >> 28 FROM _lock_election.slot s),
		(SELECT max(l.id) >> 28 FROM _lock_election.lease l), (SELECT max(h.change) >> 28 FROM _lock_election.history h)) + 1) << 28 AS first_token;
	CREATE TEMPORARY TABLE moving_setting ON COMMIT DROP AS SELECT substr(s.name, 15) AS name, s.setting FROM pg_settings s
		WHERE starts_with(s.name, 'lock_election.') AND s.setting IS DISTINCT FROM s.boot_val;
	CREATE INDEX ON moving_slot (token);
	CREATE INDEX ON moving_slot (lease);
	CREATE INDEX ON moving_queue (token);
	CREATE INDEX ON moving_queue (lease);
	CREATE INDEX ON moving_lease (id);
	ANALYZE moving_slot, moving_queue, moving_lease;
	IF (SELECT n.first_token FROM moving_number n) >= 9007199254740992 - 68719476736 THEN
		RAISE EXCEPTION 'the tokens of the extension are too high' USING ERRCODE = '54000';
	END IF;

	-- 5. remember privileges and the triggers of other tables, and drop the triggers
	CREATE TEMPORARY TABLE moving_right (kind, schema, name, types, acl) ON COMMIT DROP AS
		SELECT 'FUNCTION', n.nspname, p.proname, p.proargtypes::oid[], p.proacl FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
			JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'lock_election'
			WHERE p.proacl IS NOT NULL
		UNION ALL SELECT 'TABLE', 'lock_election', c.relname, NULL, c.relacl FROM pg_class c
			WHERE c.relnamespace = 'lock_election'::regnamespace AND c.relname IN ('locks', 'waiters', 'elections', 'leases') AND c.relacl IS NOT NULL
		UNION ALL SELECT 'SCHEMA', 'lock_election', NULL, NULL, n.nspacl FROM pg_namespace n WHERE n.nspname = 'lock_election' AND n.nspacl IS NOT NULL;
	CREATE TEMPORARY TABLE moving_owner ON COMMIT DROP AS SELECT e.extowner AS owner FROM pg_extension e WHERE e.extname = 'lock_election';
	CREATE TEMPORARY TABLE moving_trigger (relation, name, definition, enabled, comment) ON COMMIT DROP AS
		SELECT t.tgrelid::regclass::text, t.tgname, pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid, 'pg_trigger')
		FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = place AND p.proname IN ('fence_guard', 'version_guard') AND t.tgparentid = 0;
	FOR item IN SELECT * FROM moving_trigger LOOP
		EXECUTE format('DROP TRIGGER %I ON %s', item.name, item.relation);
	END LOOP;

	-- 6. drop the extension
	BEGIN
		DROP EXTENSION lock_election;
	EXCEPTION WHEN dependent_objects_still_exist THEN
		GET STACKED DIAGNOSTICS what = PG_EXCEPTION_DETAIL;
		RAISE EXCEPTION 'other objects depend on functions or views of lock_election' USING ERRCODE = '2BP01', DETAIL = what,
			HINT = 'Drop them, and create them again after the move.';
	END;
	PERFORM set_config('search_path', quote_ident(place), true);
END $move$;

SELECT pg_catalog.current_setting('client_min_messages') AS messages \gset
SET LOCAL ROLE :"owner";
\ir lock_election.sql
RESET ROLE;
SELECT pg_catalog.set_config('client_min_messages', :'messages', true) \g /dev/null

DO $move$
DECLARE
	hows CONSTANT pg_catalog.text[] := '{elected,proclaimed,resigned,expired,revoked,forced,undone,disconnected,evicted}';
	modes CONSTANT pg_catalog.text[] := '{exclusive,shared,permit}';
	number pg_catalog.int8;
	moment pg_catalog.timestamptz;
	clock pg_catalog.int8;
	first_token pg_catalog.int8;
	grants pg_catalog.text;
	item pg_catalog.record;
BEGIN
	-- 7. continue tokens above those of the extension, also after a life that is lost
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	moment := clock_timestamp();
	clock := (floor((extract(epoch FROM moment) - 1735689600) * 1000)::int8 + 1) << 12;
	SELECT n.first_token INTO first_token FROM moving_number n;
	SELECT l.life INTO number FROM _lock_election.life l WHERE l.one;
	PERFORM setval('_lock_election.token', greatest((SELECT t.last_value FROM _lock_election.token t), first_token));
	UPDATE _lock_election.config c SET tokens_ahead = greatest(first_token - clock, 0) WHERE c.one;

	-- 8. insert the rows; leases start over with the time left in their rows
	INSERT INTO _lock_election.lease (id, ttl, expires_at, life, granted_in, role, named, owner)
		SELECT l.id, make_interval(secs => l.ttl / 1000000.0), moment + make_interval(secs => l.time_left / 1000000.0), number, 0, l.role, l.named, l.owner FROM moving_lease l
			WHERE l.named OR EXISTS (SELECT FROM moving_slot s WHERE s.lease = l.id) OR EXISTS (SELECT FROM moving_queue q WHERE q.lease = l.id)
		UNION ALL SELECT q.token, make_interval(secs => q.ttl / 1000000.0), moment + make_interval(secs => q.time_left / 1000000.0), number, 0, q.role, false, q.owner
			FROM moving_queue q WHERE q.lease = 0;
	INSERT INTO _lock_election.asked SELECT l.id, 0 FROM _lock_election.lease l WHERE l.named;
	INSERT INTO _lock_election.hold (kind, slot, token, lease, life, changed, expires_at, since, ttl, role, holds, permits, pid, evicted, mode, name, owner, value, members, application, client)
		SELECT s.kind, CASE WHEN s.mode = 1 THEN 0 ELSE row_number() OVER (PARTITION BY s.kind, s.name ORDER BY s.slot) - 1 END, s.token, nullif(s.lease, 0), number,
			pg_current_xact_id()::text::int8, CASE WHEN s.evicted THEN least(moment + make_interval(secs => s.time_left / 1000000.0), s.expires_at)
				WHEN s.lease = 0 THEN moment + make_interval(secs => s.time_left / 1000000.0) END,
			s.acquired_at, CASE WHEN s.lease = 0 OR s.evicted OR NOT l.named THEN make_interval(secs => s.ttl / 1000000.0) END, s.role, s.holds,
			CASE s.mode WHEN 3 THEN s.permits ELSE 0 END, coalesce(a.pid::int4, 0), s.evicted, modes[s.mode], s.name, s.owner, s.value,
			CASE WHEN s.members > 1 OR NOT l.named THEN (SELECT array_agg(m.name ORDER BY m.name) FROM moving_slot m WHERE m.kind = s.kind AND m.token = s.token) END,
			substr(s.acquirer, length(split_part(s.acquirer, ' ', 1)) + length(split_part(s.acquirer, ' ', 2)) + 3), a.address::inet
		FROM moving_slot s LEFT JOIN moving_lease l ON l.id = s.lease, LATERAL (SELECT nullif(split_part(s.acquirer, ' ', 1), '') AS pid, nullif(nullif(split_part(s.acquirer, ' ', 2), '-'), '') AS address) a
		WHERE s.lease = 0 OR l.id IS NOT NULL;
	INSERT INTO _lock_election.hold (kind, name, slot, token, closed_until, since, changed, role, pid)
		SELECT c.kind, c.name, -1, 0, c.closed_until, moment, pg_current_xact_id()::text::int8, c.role, 0 FROM moving_closed c;
	INSERT INTO _lock_election.place (kind, token, lease, changed, since, ttl, role, permits, pid, of_lease, mode, name, owner, value, members, application, client)
		SELECT q.kind, q.token, CASE q.lease WHEN 0 THEN q.token ELSE q.lease END, pg_current_xact_id()::text::int8, q.entered_at,
			CASE WHEN NOT coalesce(l.named, false) THEN make_interval(secs => q.ttl / 1000000.0) END, q.role, CASE q.mode WHEN 3 THEN q.permits ELSE 0 END, coalesce(a.pid::int4, 0),
			coalesce(l.named, false), modes[q.mode], q.name, q.owner, q.value,
			CASE WHEN q.member > 0 THEN (SELECT array_agg(m.name ORDER BY m.member) FROM moving_queue m WHERE m.kind = q.kind AND m.token = q.token) END,
			substr(q.acquirer, length(split_part(q.acquirer, ' ', 1)) + length(split_part(q.acquirer, ' ', 2)) + 3), a.address::inet
		FROM moving_queue q LEFT JOIN moving_lease l ON l.id = q.lease, LATERAL (SELECT nullif(split_part(q.acquirer, ' ', 1), '') AS pid, nullif(nullif(split_part(q.acquirer, ' ', 2), '-'), '') AS address) a
		WHERE q.lease = 0 OR l.id IS NOT NULL;
	INSERT INTO _lock_election.history (change, role, term, elected_at, changed_at, ended_at, how, candidate, election)
		SELECT h.change, h.role, h.term, h.elected_at, h.at, CASE WHEN h.how > 2 THEN h.at END, hows[h.how], h.candidate, h.election FROM moving_history h;
	-- assign a dropped role's keys to the bootstrap superuser, because a new role may have the dropped role's name
	INSERT INTO _lock_election.versioned (version, role, key, value)
		SELECT v.version, CASE WHEN v.role_oid = to_regrole(quote_ident(v.role)) THEN v.role ELSE (SELECT r.rolname FROM pg_roles r WHERE r.oid = 10) END, v.key, v.value FROM moving_version v;

	-- 9. restore privileges and triggers
	FOR item IN SELECT r.kind, r.acl, CASE r.kind WHEN 'FUNCTION' THEN p.oid::regprocedure::text WHEN 'TABLE' THEN format('%I.%I', r.schema, r.name) ELSE quote_ident(r.schema) END AS name
			FROM moving_right r LEFT JOIN (pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace)
				ON r.kind = 'FUNCTION' AND n.nspname = r.schema AND p.proname = r.name AND p.proargtypes::oid[] = r.types
			WHERE r.kind <> 'FUNCTION' OR p.oid IS NOT NULL LOOP
		EXECUTE format('REVOKE ALL ON %s %s FROM PUBLIC', item.kind, item.name);
		SELECT string_agg(format('GRANT %s ON %s %s TO %s%s', a.privilege_type, item.kind, item.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
				CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), '; ') INTO grants
			FROM aclexplode(item.acl) a WHERE a.grantee <> (SELECT o.owner FROM moving_owner o) AND (a.grantee = 0 OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = a.grantee));
		IF grants IS NOT NULL THEN EXECUTE grants; END IF;
	END LOOP;
	FOR item IN SELECT * FROM moving_trigger LOOP
		EXECUTE item.definition;
		IF item.enabled <> 'O' THEN
			EXECUTE format('ALTER TABLE %s %s TRIGGER %I', item.relation, CASE item.enabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, item.name);
		END IF;
		IF item.comment IS NOT NULL THEN EXECUTE format('COMMENT ON TRIGGER %I ON %s IS %L', item.name, item.relation, item.comment); END IF;
	END LOOP;

	-- 10. copy changed settings that the portable edition has as well
	FOR item IN SELECT * FROM moving_setting s LOOP
		CASE item.name
			WHEN 'notify' THEN UPDATE _lock_election.config SET notify = item.setting WHERE one;
			WHEN 'max_ttl' THEN UPDATE _lock_election.config SET max_ttl = make_interval(secs => item.setting::float8 / 1000) WHERE one;
			WHEN 'max_hold_for' THEN UPDATE _lock_election.config SET max_hold_for = make_interval(secs => item.setting::float8 / 1000) WHERE one;
			WHEN 'history_retention' THEN UPDATE _lock_election.config SET history_retention = make_interval(mins => item.setting::int4) WHERE one;
			WHEN 'max_waiters_per_lock' THEN UPDATE _lock_election.config SET max_waiters_per_lock = item.setting::int4 WHERE one;
			WHEN 'max_leases_per_role' THEN UPDATE _lock_election.config SET max_leases_per_role = item.setting::int4 WHERE one;
			WHEN 'max_keys_per_role' THEN UPDATE _lock_election.config SET max_keys_per_role = item.setting::int8 * 1048576 WHERE one;
			WHEN 'max_history_per_role' THEN UPDATE _lock_election.config SET max_history_per_role = item.setting::int8 * 1048576 WHERE one;
			WHEN 'max_locks_per_role' THEN
				UPDATE _lock_election.config SET max_locks_per_role = item.setting::int4 WHERE one;
				UPDATE _lock_election.life SET limited = item.setting::int4 > 0 WHERE one;
				UPDATE _lock_election.life SET born = xmin WHERE one;
			WHEN 'expiry_grace', 'fence_timeout', 'max_memory_per_role', 'min_durability', 'advisory_on_standby', 'durable_release' THEN
				RAISE WARNING 'the portable edition has no setting %', item.name USING DETAIL = format('It was %s.', item.setting);
			ELSE NULL;
		END CASE;
	END LOOP;

	-- 11. cancel calls that wait for a reply of the manager.  Before PostgreSQL 17, their wait event does not
	--    identify them; they fail with 57P03 within 5 s
	RAISE NOTICE 'moved to the portable edition: % holds, % places, % leases, % changes of elections and % versions',
		(SELECT count(*) FROM moving_slot), (SELECT count(*) FROM moving_queue), (SELECT count(*) FROM moving_lease l WHERE l.named),
		(SELECT count(*) FROM moving_history), (SELECT count(*) FROM moving_version);
	PERFORM pg_stat_clear_snapshot();
	PERFORM pg_cancel_backend(a.pid) FROM pg_stat_activity a WHERE a.datname = current_database() AND a.backend_type = 'client backend'
		AND a.wait_event = 'LockElectionLock' AND a.pid <> pg_backend_pid();
END $move$;
COMMIT;
\endif
