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
