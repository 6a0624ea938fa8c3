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
