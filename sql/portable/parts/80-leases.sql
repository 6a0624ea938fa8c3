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
