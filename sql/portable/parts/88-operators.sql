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
