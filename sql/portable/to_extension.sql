-- Moves a database from the portable edition of lock_election to the extension, in place and in one
-- transaction.
--
--     psql -d app -f to_extension.sql
--
-- Run it as a superuser, on a server with the library in shared_preload_libraries.
--
-- Locks, queue places, leases, terms, histories, closed names and versions move with their tokens, and so do
-- privileges on the functions and views, and triggers that call fence_guard() or version_guard().  The
-- functions stay in their schema.  Leases start over, as after a restart.  New tokens are higher than all
-- earlier ones.  If something cannot move, the script says what to do, and changes nothing.  If the database
-- has moved already, it does nothing.  docs/how-to/move.md has the steps.
--
-- The owner of the portable edition is an ordinary role.  So this script calls none of its functions, and
-- reads its tables only after it has locked them and checked that they are as the installation file made
-- them.

DO $move$
DECLARE
	-- All tables of the portable edition, in the order in which most of its functions lock them.
	old_tables CONSTANT pg_catalog.text[] := '{life,hold,place,lease,lives,asked,loss,history,fence,versioned,config,edition}';
	-- The time for which callers have to wait for this script before it gives up.
	patience CONSTANT pg_catalog.interval := '2 s';
	-- The words in table history, in the order of the extension's numbers for them, from 1.
	hows CONSTANT pg_catalog.text[] := '{elected,proclaimed,resigned,expired,revoked,forced,undone,disconnected,evicted}';
	-- The maximum of advance_revision() of the extension, in units of 2^28 tokens.
	most_incarnation CONSTANT pg_catalog.int8 := 32505856;
	old_owner pg_catalog.oid;
	place pg_catalog.name;
	place_oid pg_catalog.oid;
	locked pg_catalog.oid[] := '{}';
	lockable pg_catalog.text[];
	target pg_catalog.text;
	until pg_catalog.timestamptz;
	found pg_catalog.text;
	number pg_catalog.int8;
	life_is_known pg_catalog.bool;
	moment pg_catalog.timestamptz;
	newest pg_catalog.int8;
	routines pg_catalog.text;
	item pg_catalog.record;
	counts pg_catalog.text;
BEGIN
	-- 1. make unqualified names refer to objects of PostgreSQL from here on; check the role and the server
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	until := clock_timestamp() + patience;
	IF NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
		RAISE EXCEPTION 'only a superuser can move to the extension' USING ERRCODE = '42501', HINT = 'CREATE EXTENSION lock_election needs one.';
	END IF;
	IF EXISTS (SELECT FROM pg_extension WHERE extname = 'lock_election') THEN
		RAISE NOTICE 'the extension lock_election is installed already: nothing to do';
		RETURN;
	END IF;
	IF to_regclass('_lock_election.edition') IS NULL THEN
		RAISE EXCEPTION 'the portable edition of lock_election is not installed in this database' USING ERRCODE = '55000',
			HINT = 'For a new installation type: CREATE EXTENSION lock_election';
	END IF;
	IF pg_is_in_recovery() THEN
		RAISE EXCEPTION 'cannot move during recovery' USING ERRCODE = '25006', HINT = 'Connect to the primary.';
	END IF;
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'this script works in READ COMMITTED only' USING ERRCODE = '0A000';
	END IF;
	IF current_setting('lock_election.version', true) IS NULL THEN
		RAISE EXCEPTION 'lock_election is not in shared_preload_libraries' USING ERRCODE = '55000',
			HINT = 'Add this line to postgresql.conf and restart the server: shared_preload_libraries = ''lock_election''';
	END IF;
	SELECT n.nspowner INTO old_owner FROM pg_namespace n WHERE n.nspname = '_lock_election';
	SELECT n.nspname, n.oid INTO place, place_oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE p.proname = 'lease_sync' AND p.proowner = old_owner AND strpos(p.prosrc, '_lock_election.') > 0 LIMIT 1;
	IF place IS NULL OR (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'lock_election') IS DISTINCT FROM old_owner THEN
		RAISE EXCEPTION 'the portable edition of lock_election is incomplete' USING ERRCODE = '55000', HINT = 'Install its file again, as the role that owns it.';
	END IF;

	-- 2. lock all tables: calls of other sessions wait from here on, and fail with 57014 before this transaction
	--    ends
	ALTER SCHEMA _lock_election RENAME TO _lock_election_portable;
	ALTER SCHEMA lock_election RENAME TO lock_election_portable;
	PERFORM set_config('lock_timeout', '100ms', true), set_config('deadlock_timeout', '50ms', true), set_config('jit', 'off', true);
	SELECT coalesce(array_agg(DISTINCT t.tgrelid::regclass::text), '{}') INTO lockable FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
		WHERE p.pronamespace = place_oid AND p.proname IN ('fence_guard', 'version_guard') AND p.proowner = old_owner AND t.tgparentid = 0;
	FOREACH target IN ARRAY lockable || ARRAY(SELECT format('_lock_election_portable.%I', o) FROM unnest(old_tables) o) LOOP
		LOOP
			BEGIN
				EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', target);
				EXIT;
			EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
				IF clock_timestamp() >= until THEN
					SELECT string_agg(DISTINCT l.pid::text, ', ') INTO found FROM pg_locks l
						WHERE l.granted AND l.locktype = 'relation' AND l.relation = target::regclass AND l.pid IS DISTINCT FROM pg_backend_pid()
							AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
					RAISE EXCEPTION 'transactions that have used locks have not ended' USING ERRCODE = '55P03',
						DETAIL = format('They have locked table %s: processes %s.', target, coalesce(found, 'of prepared transactions')),
						HINT = 'End them, then try again.';
				END IF;
				-- cancel calls that wait for a table that is locked here, because they may have locked the target
				PERFORM pg_cancel_backend(x.pid) FROM (SELECT DISTINCT l.pid FROM pg_locks l
					WHERE NOT l.granted AND l.locktype = 'relation' AND l.relation = ANY (locked)) x;
			END;
		END LOOP;
		locked := locked || target::regclass::oid;
	END LOOP;
	PERFORM set_config('lock_timeout', '2s', true), set_config('deadlock_timeout', '1s', true);

	-- 3. check that the tables are as the file made them, so that reading them runs no code of their owner
	SELECT format('%s: %s', c.oid::regclass, x.what) INTO found FROM pg_class c, LATERAL (
			SELECT 'kind of relation' AS what WHERE c.relkind <> 'r' OR c.relispartition
			UNION ALL SELECT 'children' FROM pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid)
			UNION ALL SELECT 'rules' FROM pg_rewrite r WHERE r.ev_class = c.oid
			UNION ALL SELECT 'column ' || a.attname FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
				AND (a.atttypid >= 16384 OR a.attgenerated <> '')
			UNION ALL SELECT 'index ' || i.indexrelid::regclass FROM pg_index i WHERE i.indrelid = c.oid
				AND (i.indexprs IS NOT NULL OR pg_get_expr(i.indpred, i.indrelid) NOT IN ('(lease IS NOT NULL)', 'evicted'))
			UNION ALL SELECT 'constraint ' || k.conname FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype NOT IN ('p', 'n')
				AND pg_get_constraintdef(k.oid) <> 'CHECK (one)'
			UNION ALL SELECT 'statistics ' || s.stxname FROM pg_statistic_ext s WHERE s.stxrelid = c.oid) x
		WHERE c.relnamespace = '_lock_election_portable'::regnamespace AND c.relname = ANY (old_tables) LIMIT 1;
	IF found IS NOT NULL THEN
		RAISE EXCEPTION 'a table of the portable edition has been changed: %', found USING ERRCODE = '55000', HINT = 'Take that back, as the role that owns it.';
	END IF;
	IF (SELECT max(e.version) FROM _lock_election_portable.edition e) IS DISTINCT FROM 1 THEN
		RAISE EXCEPTION 'the portable edition has another version than this script' USING ERRCODE = '55000', HINT = 'Use the script of the same release.';
	END IF;
	IF (SELECT c.relkind FROM pg_class c WHERE c.oid = '_lock_election_portable.token'::regclass) <> 'S' THEN
		RAISE EXCEPTION 'a table of the portable edition has been changed: token' USING ERRCODE = '55000';
	END IF;

	-- 4. fail if advisory locks are held: they cannot move, because their keys differ; locks of pg_advisory_lock()
	--    look the same
	FOR i IN 1 .. 20 LOOP
		-- ignore calls that wait for this transaction, and retry for calls that are about to wait; these hold
		-- advisory locks, too
		SELECT string_agg(DISTINCT l.pid::text, ', ') INTO found FROM pg_locks l
			WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
				AND l.pid <> pg_backend_pid() AND NOT EXISTS (SELECT FROM pg_locks w WHERE w.pid = l.pid AND NOT w.granted AND w.relation = ANY (locked));
		EXIT WHEN found IS NULL;
		PERFORM pg_sleep(0.01);
	END LOOP;
	IF found IS NOT NULL AND current_setting('move.advisory_locks', true) IS DISTINCT FROM 'mine' THEN
		RAISE EXCEPTION 'advisory locks are held, and cannot move' USING ERRCODE = '55006', DETAIL = format('Processes %s.', found),
			HINT = 'Release those of advisory_acquire(). If all of them are of pg_advisory_lock(): PGOPTIONS=''-c move.advisory_locks=mine''';
	END IF;

	-- 5. copy the rows that have not ended, see ends() of the portable edition; in a copy of another database,
	--    remove the holders of the original
	moment := clock_timestamp();
	SELECT l.life, true INTO number, life_is_known FROM _lock_election_portable.life l JOIN pg_database d ON d.oid = l.database
		WHERE l.one AND l.born = l.xmin AND d.datname = current_database();
	CREATE TEMPORARY TABLE moving_life (life, began_next) ON COMMIT DROP AS
		SELECT x.life, CASE WHEN x.life = number THEN '-infinity'::timestamptz
				ELSE (SELECT l.started FROM _lock_election_portable.lives l WHERE l.life > x.life ORDER BY l.life LIMIT 1) END
		FROM (SELECT l.life FROM _lock_election_portable.lease l UNION SELECT h.life FROM _lock_election_portable.hold h) x;
	CREATE TEMPORARY TABLE moving_lease (id, ttl, ends_at, role, named, owner) ON COMMIT DROP AS
		SELECT l.id, l.ttl, CASE WHEN number IS NULL THEN 'infinity' ELSE greatest(l.expires_at, y.began_next + l.ttl) END, l.role, l.named, l.owner
		FROM _lock_election_portable.lease l JOIN moving_life y ON y.life = l.life;
	CREATE TEMPORARY TABLE moving_hold ON COMMIT DROP AS
		SELECT h.*, CASE WHEN h.expires_at IS NULL THEN NULL WHEN number IS NULL THEN 'infinity' ELSE greatest(h.expires_at, y.began_next + h.ttl) END AS ends_at
		FROM _lock_election_portable.hold h LEFT JOIN moving_life y ON y.life = h.life;
	IF life_is_known IS NULL AND EXISTS (SELECT FROM _lock_election_portable.life) THEN
		TRUNCATE moving_lease, moving_hold;
	END IF;
	CREATE INDEX ON moving_lease (id);
	CREATE INDEX ON moving_hold (lease);
	CREATE INDEX ON moving_hold (kind, name);
	ANALYZE moving_lease, moving_hold;
	DELETE FROM moving_lease l WHERE l.ends_at <= moment;
	-- add the ends of expired terms that no call has ended, but not to the old table, whose triggers and defaults
	-- would run
	CREATE TEMPORARY TABLE moving_history (election, change, role, how, candidate, term, elected_at, changed_at, ended_at) ON COMMIT DROP AS
		SELECT h.election, h.change, h.role, h.how, h.candidate, h.term, h.elected_at, h.changed_at, h.ended_at FROM _lock_election_portable.history h;
	INSERT INTO moving_history
		SELECT h.name, nextval('_lock_election_portable.token'), h.role, CASE WHEN h.evicted THEN 'evicted' ELSE 'expired' END, h.value, h.token, h.since, moment, moment
		FROM moving_hold h WHERE h.kind = 2 AND h.mode IS NOT NULL AND h.ended IS NULL
			AND (h.ends_at <= moment OR h.lease IS NOT NULL AND NOT EXISTS (SELECT FROM moving_lease l WHERE l.id = h.lease));
	DELETE FROM moving_hold h WHERE h.ended IS NOT NULL OR h.ends_at <= moment OR h.closed_until <= moment
		OR h.lease IS NOT NULL AND NOT EXISTS (SELECT FROM moving_lease l WHERE l.id = h.lease);
	CREATE TEMPORARY TABLE moving_place ON COMMIT DROP AS
		SELECT p.*, l.named, l.ttl AS lease_ttl, l.ends_at FROM _lock_election_portable.place p JOIN moving_lease l ON l.id = p.lease
		WHERE p.members IS NULL OR (SELECT count(*) FROM _lock_election_portable.place q WHERE q.kind = p.kind AND q.token = p.token) = cardinality(p.members);

	-- 6. find the highest number, and fail if there are rows that the extension could not read
	SELECT s.last_value INTO newest FROM _lock_election_portable.token s;
	SELECT greatest(newest, (SELECT max(h.token) FROM _lock_election_portable.hold h), (SELECT max(p.token) FROM _lock_election_portable.place p),
		(SELECT max(l.id) FROM _lock_election_portable.lease l), (SELECT max(h.change) FROM moving_history h)) INTO newest;
	IF newest >> 28 > most_incarnation - 1000 THEN
		RAISE EXCEPTION 'the tokens of the portable edition are too high for the extension: %', newest USING ERRCODE = '54000';
	END IF;
	IF EXISTS (SELECT FROM moving_hold h WHERE octet_length(h.name) NOT BETWEEN 1 AND 255 OR h.kind NOT IN (1, 2) OR octet_length(h.application) > 63 OR octet_length(h.owner) > 255 OR octet_length(h.value) > 4096
			OR h.mode IS NOT NULL AND (h.mode NOT IN ('exclusive', 'shared', 'permit') OR h.token <= 0 OR h.slot < 0 OR h.holds <= 0 OR h.ttl <= '0'
				OR h.mode = 'exclusive' AND h.slot <> 0 OR h.mode = 'permit' AND h.permits <= 0 OR h.lease IS NULL AND (h.ttl IS NULL OR h.expires_at IS NULL)))
		OR EXISTS (SELECT FROM moving_place p WHERE octet_length(p.name) NOT BETWEEN 1 AND 255 OR p.kind NOT IN (1, 2) OR octet_length(p.application) > 63 OR octet_length(p.owner) > 255 OR octet_length(p.value) > 4096
			OR p.mode NOT IN ('exclusive', 'shared', 'permit') OR p.token <= 0 OR p.ttl <= '0' OR p.mode = 'permit' AND p.permits <= 0)
		OR EXISTS (SELECT FROM moving_lease l WHERE l.id <= 0 OR l.ttl <= '0' OR octet_length(l.owner) > 255) THEN
		RAISE EXCEPTION 'a row of the portable edition has been changed' USING ERRCODE = '55000', HINT = 'End what it is of with force_release_lock(), force_resign() or revoke_lease().';
	END IF;

	-- 7. remember privileges and the triggers of other tables, and drop the triggers
	CREATE TEMPORARY TABLE moving_right (kind, schema, name, types, acl) ON COMMIT DROP AS
		SELECT 'FUNCTION', CASE p.pronamespace WHEN place_oid THEN place ELSE 'lock_election' END, p.proname, p.proargtypes::oid[], p.proacl FROM pg_proc p
			WHERE p.pronamespace IN (place_oid, 'lock_election_portable'::regnamespace) AND p.proowner = old_owner AND p.proacl IS NOT NULL
				AND p.prosecdef AND strpos(p.prosrc, '_lock_election.') > 0
		UNION ALL SELECT 'TABLE', 'lock_election', c.relname, NULL, c.relacl FROM pg_class c
			WHERE c.relnamespace = 'lock_election_portable'::regnamespace AND c.relkind = 'v' AND c.relacl IS NOT NULL
		UNION ALL SELECT 'SCHEMA', 'lock_election', NULL, NULL, n.nspacl FROM pg_namespace n WHERE n.nspname = 'lock_election_portable' AND n.nspacl IS NOT NULL;
	CREATE TEMPORARY TABLE moving_trigger (relation, name, definition, enabled, comment) ON COMMIT DROP AS
		SELECT t.tgrelid::regclass::text, t.tgname, pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid, 'pg_trigger')
		FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
		WHERE p.pronamespace = place_oid AND p.proname IN ('fence_guard', 'version_guard') AND p.proowner = old_owner AND t.tgparentid = 0;
	FOR item IN SELECT * FROM moving_trigger LOOP
		EXECUTE format('DROP TRIGGER %I ON %s', item.name, item.relation);
	END LOOP;

	-- 8. replace functions and views by the extension; fail if other objects depend on them
	BEGIN
		SELECT string_agg(c.oid::regclass::text, ', ') INTO routines FROM pg_class c WHERE c.relnamespace = 'lock_election_portable'::regnamespace AND c.relkind = 'v';
		EXECUTE 'DROP VIEW ' || routines;
		SELECT string_agg(p.oid::regprocedure::text, ', ') INTO routines FROM pg_proc p
			WHERE p.proowner = old_owner AND (p.pronamespace IN ('lock_election_portable'::regnamespace, '_lock_election_portable'::regnamespace)
				OR p.pronamespace = place_oid AND p.prosecdef AND strpos(p.prosrc, '_lock_election.') > 0);
		EXECUTE 'DROP ROUTINE ' || routines;
		DROP SCHEMA lock_election_portable;
	EXCEPTION WHEN dependent_objects_still_exist THEN
		GET STACKED DIAGNOSTICS found = PG_EXCEPTION_DETAIL;
		RAISE EXCEPTION 'other objects depend on functions or views of lock_election' USING ERRCODE = '2BP01', DETAIL = found,
			HINT = 'Drop them, and create them again after the move, in one transaction with it if need be.';
	END;
	EXECUTE format('CREATE EXTENSION lock_election SCHEMA %I', place);

	-- 9. insert the rows before a manager reads them, as if the run of an earlier manager had ended now.  A lease
	--    gets its time left, but at least 5 minutes, or its ttl if that is shorter; an evicted hold gets only its
	--    time left
	ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;
	ALTER TABLE _lock_election.lease DISABLE TRIGGER USER;
	ALTER TABLE _lock_election.queue DISABLE TRIGGER USER;
	ALTER TABLE _lock_election.history DISABLE TRIGGER USER;
	ALTER TABLE moving_lease ADD time_left interval;
	UPDATE moving_lease l SET time_left = CASE WHEN isfinite(l.ends_at) THEN least(l.ttl, greatest(l.ends_at - moment, '5 min')) ELSE l.ttl END;
	INSERT INTO _lock_election.lease (id, ttl, time_left, expires_at, role, owner)
		SELECT l.id, extract(epoch FROM l.ttl) * 1000000, extract(epoch FROM l.time_left) * 1000000, moment + l.time_left, l.role, CASE WHEN l.named THEN l.owner END
		FROM moving_lease l WHERE l.named OR EXISTS (SELECT FROM moving_hold h WHERE h.lease = l.id AND NOT h.evicted)
			OR EXISTS (SELECT FROM moving_place p WHERE p.lease = l.id AND p.members IS NOT NULL);
	INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, expires_at, name, owner, value, acquirer, evicted)
		SELECT h.token, h.since, extract(epoch FROM coalesce(l.ttl, h.ttl)) * 1000000, CASE WHEN h.ends_at IS NULL THEN 0 ELSE extract(epoch FROM x.time_left) * 1000000 END,
			CASE WHEN h.lease IS NULL OR h.evicted AND NOT l.named THEN 0 ELSE h.lease END, 0, h.role, h.slot, h.holds, h.permits, h.kind,
			array_position('{exclusive,shared,permit}'::text[], h.mode), CASE WHEN h.ends_at IS NOT NULL THEN moment + x.time_left END,
			h.name, h.owner, h.value, left(format('%s %s %s', h.pid, coalesce(host(h.client), '-'), h.application), 127), h.evicted
		FROM moving_hold h LEFT JOIN moving_lease l ON l.id = h.lease, LATERAL (SELECT CASE WHEN NOT isfinite(h.ends_at) THEN h.ttl
			WHEN h.evicted THEN h.ends_at - moment ELSE least(h.ttl, greatest(h.ends_at - moment, '5 min')) END AS time_left) x
		WHERE h.mode IS NOT NULL;
	INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, closed_until, name)
		SELECT 0, moment, 0, 0, 0, 0, h.role, (SELECT coalesce(max(x.slot), -1) + 1 FROM moving_hold x WHERE x.kind = h.kind AND x.name = h.name AND x.mode IS NOT NULL),
			0, 0, h.kind, 0, h.closed_until, h.name
		FROM moving_hold h WHERE h.mode IS NULL;
	INSERT INTO _lock_election.queue (token, entered_at, ttl, time_left, lease, session, role, permits, holds, member, kind, mode, name, owner, value, acquirer)
		SELECT p.token, p.since, extract(epoch FROM coalesce(p.ttl, p.lease_ttl)) * 1000000,
			CASE WHEN p.named OR p.members IS NOT NULL THEN 0 ELSE extract(epoch FROM l.time_left) * 1000000 END,
			CASE WHEN p.named OR p.members IS NOT NULL THEN p.lease ELSE 0 END, 0, p.role, p.permits, 1, coalesce(array_position(p.members, p.name), 0), p.kind,
			array_position('{exclusive,shared,permit}'::text[], p.mode), p.name, p.owner, p.value, left(format('%s %s %s', p.pid, coalesce(host(p.client), '-'), p.application), 127)
		FROM moving_place p JOIN moving_lease l ON l.id = p.lease;
	INSERT INTO _lock_election.history (change, term, elected_at, at, role, how, election, candidate)
		SELECT h.change, h.term, h.elected_at, h.changed_at, h.role, coalesce(array_position(hows, h.how), array_position(hows, 'expired')), h.election, h.candidate
		FROM moving_history h;
	INSERT INTO _lock_election.versioned (version, role, key, value) SELECT v.version, v.role, v.key, v.value FROM _lock_election_portable.versioned v;
	INSERT INTO _lock_election.incarnation_floor VALUES (newest >> 28);
	ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write;
	ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row;
	ALTER TABLE _lock_election.lease ENABLE ALWAYS TRIGGER refuse_write;
	ALTER TABLE _lock_election.lease ENABLE ALWAYS TRIGGER refuse_row;
	ALTER TABLE _lock_election.queue ENABLE ALWAYS TRIGGER refuse_write;
	ALTER TABLE _lock_election.queue ENABLE ALWAYS TRIGGER refuse_row;
	ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_write;
	ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_row;

	-- 10. restore privileges and triggers
	FOR item IN SELECT r.kind, r.acl, CASE r.kind WHEN 'FUNCTION' THEN p.oid::regprocedure::text WHEN 'TABLE' THEN format('%I.%I', r.schema, r.name) ELSE quote_ident(r.schema) END AS name
			FROM moving_right r LEFT JOIN (pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace)
				ON r.kind = 'FUNCTION' AND n.nspname = r.schema AND p.proname = r.name AND p.proargtypes::oid[] = r.types
			WHERE r.kind <> 'FUNCTION' OR p.oid IS NOT NULL LOOP
		EXECUTE format('REVOKE ALL ON %s %s FROM PUBLIC', item.kind, item.name);
		SELECT string_agg(format('GRANT %s ON %s %s TO %s%s', a.privilege_type, item.kind, item.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
				CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), '; ') INTO found
			FROM aclexplode(item.acl) a WHERE a.grantee <> old_owner AND (a.grantee = 0 OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = a.grantee));
		IF found IS NOT NULL THEN EXECUTE found; END IF;
	END LOOP;
	FOR item IN SELECT * FROM moving_trigger LOOP
		EXECUTE item.definition;
		IF item.enabled <> 'O' THEN
			EXECUTE format('ALTER TABLE %s %s TRIGGER %I', item.relation, CASE item.enabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, item.name);
		END IF;
		IF item.comment IS NOT NULL THEN EXECUTE format('COMMENT ON TRIGGER %I ON %s IS %L', item.name, item.relation, item.comment); END IF;
	END LOOP;

	-- 11. report the settings to change, because the extension's settings cannot be changed in a transaction
	FOR item IN SELECT * FROM (SELECT unnest('{notify,max_ttl,max_hold_for,history_retention,max_locks_per_role,max_waiters_per_lock,max_leases_per_role,max_keys_per_role,max_history_per_role}'::text[]) AS name,
				unnest(ARRAY[c.notify, extract(epoch FROM c.max_ttl)::int || 's', extract(epoch FROM c.max_hold_for)::int || 's', (extract(epoch FROM c.history_retention) / 60)::int || 'min',
					c.max_locks_per_role::text, c.max_waiters_per_lock::text, c.max_leases_per_role::text,
					ceil(c.max_keys_per_role / 1048576.0)::text || 'MB', ceil(c.max_history_per_role / 1048576.0)::text || 'MB']) AS value,
				unnest('{all,2073600s,86400s,10080min,0,1000,0,256MB,256MB}'::text[]) AS usual FROM _lock_election_portable.config c) x WHERE x.value <> x.usual LOOP
		RAISE WARNING 'the portable edition has %=%', item.name, item.value USING HINT = format('Type: ALTER SYSTEM SET lock_election.%s = %L', item.name, item.value);
	END LOOP;

	-- 12. notify waiting clients, drop the old tables, and cancel the calls that wait for them
	PERFORM pg_notify('le_' || left(encode(sha256(convert_to(c.channel_key || p.lease, 'UTF8')), 'hex'), 32), '')
		FROM _lock_election_portable.config c, (SELECT DISTINCT p.lease FROM moving_place p WHERE p.named) p;
	SELECT format('%s holds, %s places, %s leases, %s changes of elections and %s versions', (SELECT count(*) FROM moving_hold h WHERE h.mode IS NOT NULL),
		(SELECT count(*) FROM moving_place), (SELECT count(*) FROM moving_lease l WHERE l.named), (SELECT count(*) FROM moving_history),
		(SELECT count(*) FROM _lock_election_portable.versioned)) INTO counts;
	SELECT string_agg(c.oid::regclass::text, ', ') INTO found FROM pg_class c WHERE c.relnamespace = '_lock_election_portable'::regnamespace AND c.relname = ANY (old_tables);
	EXECUTE 'DROP TABLE ' || found;
	DROP SEQUENCE _lock_election_portable.token;
	DROP TYPE _lock_election_portable.request, _lock_election_portable.item, _lock_election_portable.told;
	BEGIN
		DROP SCHEMA _lock_election_portable;
	EXCEPTION WHEN dependent_objects_still_exist THEN
		GET STACKED DIAGNOSTICS found = PG_EXCEPTION_DETAIL;
		RAISE EXCEPTION 'schema _lock_election has objects that are not of the portable edition' USING ERRCODE = '2BP01', DETAIL = found, HINT = 'Drop them.';
	END;
	PERFORM pg_cancel_backend(x.pid) FROM (SELECT DISTINCT l.pid FROM pg_locks l WHERE NOT l.granted AND l.locktype = 'relation' AND l.relation = ANY (locked)) x;
	RAISE NOTICE 'moved to the extension: %', counts;
END $move$;
