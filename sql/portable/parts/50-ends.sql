-- --- ends: how holds, places and leases end -----------------------------------------------------------------------------
--
-- Nobody watches the clock: what is over is ended by whoever comes to the name next, waits for it, or calls reap().
-- Before that, its row is locked: a renewal that is under way has it locked as well, so it is either seen or finds the
-- row ended.  A fence has a hold's row locked FOR KEY SHARE: the row may be marked as ended, and cannot be deleted.

-- The channel on which grants of a lease's places are announced.  These are in PL/pgSQL because it keeps their plans.
CREATE OR REPLACE FUNCTION _lock_election.lease_channel(lease int8) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN (SELECT 'le_' || left(encode(sha256(convert_to(c.channel_key || lease, 'UTF8')), 'hex'), 32) FROM _lock_election.config c WHERE c.one);
END $$;
-- The channel of a lock or an election: the clients compute it as well.
CREATE OR REPLACE FUNCTION _lock_election.channel(k int2, n text) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN 'le_' || left(encode(sha256(convert_to(_lock_election.word(k) || ' ' || n, 'UTF8')), 'hex'), 32);
END $$;

-- Whether grants (waiters) or changes of leaders (elections) are announced.
CREATE OR REPLACE FUNCTION _lock_election.notifies(what text) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN (SELECT c.notify IN ('all', what) FROM _lock_election.config c WHERE c.one);
END $$;

-- Tells the client of a place that it has been granted, or has to look.
CREATE OR REPLACE FUNCTION _lock_election.announce(p _lock_election.place) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF NOT _lock_election.notifies('waiters') THEN RETURN; END IF;
	IF p.of_lease THEN
		PERFORM pg_notify(_lock_election.lease_channel(p.lease), '');
	ELSE
		PERFORM pg_notify(_lock_election.channel(p.kind, coalesce(p.members[1], p.name)), format('{"event":"granted","token":"%s"}', p.token));
	END IF;
END $$;

-- A change of an election: a row of its history, and a notification.
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

-- Tells the client of a named lease of an end that it has not asked for; the newest 16 are kept.
CREATE OR REPLACE FUNCTION _lock_election.lose(of_lease int8, tok int8, how text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	INSERT INTO _lock_election.loss (lease, token, changed, reason)
		SELECT of_lease, tok, pg_current_xact_id()::text::int8, how FROM _lock_election.lease l WHERE l.id = of_lease AND l.named ON CONFLICT DO NOTHING;
	DELETE FROM _lock_election.loss x WHERE x.lease = of_lease AND x.token IN (SELECT y.token FROM _lock_election.loss y
		WHERE y.lease = of_lease ORDER BY y.changed DESC, y.token OFFSET 16);
END $$;

-- Whether a lease lives; without a lock.
CREATE OR REPLACE FUNCTION _lock_election.lease_lives(number int8) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = number
		AND (l.expires_at > clock_timestamp() OR _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp()));
END $$;

-- Whether a lease has ended; it cannot be renewed any more in the transactions that others have begun.
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

-- A lease without a name goes with the last that hangs on it.  One that is renewed just now is left to drop_leases().
CREATE OR REPLACE FUNCTION _lock_election.drop_group(number int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM FROM _lock_election.lease l WHERE l.id = number AND NOT l.named AND NOT EXISTS (SELECT FROM _lock_election.hold h WHERE h.lease = number)
		AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.lease = number) FOR UPDATE SKIP LOCKED;
	IF FOUND THEN DELETE FROM _lock_election.lease l WHERE l.id = number; END IF;
END $$;

-- Whether a hold is over, by its own time, its lease, or because a fence alone keeps its row.
CREATE OR REPLACE FUNCTION _lock_election.hold_is_over(h _lock_election.hold) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF h.ended IS NOT NULL THEN RETURN true; END IF;
	IF h.expires_at IS NOT NULL AND _lock_election.ends(h.expires_at, h.life, h.ttl) <= clock_timestamp() THEN RETURN true; END IF;
	RETURN h.lease IS NOT NULL AND _lock_election.lease_is_over(h.lease);
END $$;

-- Ends a hold.  asked: by its own client, who needs not be told.  False: its row is renewed, ended or fenced just now.
CREATE OR REPLACE FUNCTION _lock_election.end_hold(h _lock_election.hold, how text, asked boolean) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	expires boolean := how = 'expired' AND h.expires_at IS NOT NULL;
	gone boolean;
BEGIN
	-- 1. the row: deleted, or marked while a fence stands
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

	-- 2. who is told
	IF h.ended IS NULL THEN
		IF h.kind = 2 THEN PERFORM _lock_election.note(h, CASE WHEN how = 'expired' AND h.evicted THEN 'evicted' ELSE how END); END IF;
		IF h.lease IS NOT NULL AND NOT asked THEN PERFORM _lock_election.lose(h.lease, h.token, CASE WHEN how = 'expired' AND h.evicted THEN 'evicted' ELSE how END); END IF;
	END IF;
	IF gone AND h.lease IS NOT NULL THEN PERFORM _lock_election.drop_group(h.lease); END IF;
	RETURN true;
END $$;

-- Whether a place is over.
CREATE OR REPLACE FUNCTION _lock_election.place_is_over(p _lock_election.place) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN _lock_election.lease_is_over(p.lease);
END $$;

-- Lets the clients of those look that are first in the queues of these names, where nobody else will.
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

-- Ends a place, in all of its queues.  False: it is renewed or ended just now.
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
