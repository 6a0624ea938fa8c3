-- --- sections: the critical section of a name --------------------------------------------------------------------------
--
-- What decides who holds a name runs in its section, a transaction-level advisory lock: it sees all that earlier sections
-- have written.  A section lasts until the caller's COMMIT.  So that an idle transaction stops nobody else's work, nobody
-- waits for a section without a limit: an attempt that cannot enter one is refused, as the name is being acquired or
-- released in it; a release goes on without it; renewals and is_held() never need one.

-- Enters the sections of these names, in the same order as everybody; false: not all of them in this time each.  Who has to
-- wait does so in PostgreSQL's queue, first come, first served.
CREATE OR REPLACE FUNCTION _lock_election.enter(k int2, names text[], patience interval) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	limit_ms int4;
	before text;
	section int8;
BEGIN
	IF cardinality(names) = 1 AND pg_try_advisory_xact_lock(hashtextextended(names[1], 4802 + k)) THEN RETURN true; END IF;
	limit_ms := date_part('epoch', patience) * 1000;
	FOR section IN SELECT DISTINCT hashtextextended(n, 4802 + k) FROM unnest(names) AS x(n) ORDER BY 1 LOOP
		CONTINUE WHEN pg_try_advisory_xact_lock(section);
		IF limit_ms <= 0 THEN RETURN false; END IF;
		before := current_setting('lock_timeout');
		BEGIN
			PERFORM set_config('lock_timeout', limit_ms || 'ms', true);
			PERFORM pg_advisory_xact_lock(section);
			PERFORM set_config('lock_timeout', before, true);
		EXCEPTION WHEN lock_not_available THEN
			RETURN false;
		END;
	END LOOP;
	RETURN true;
END $$;

-- --- lines: those who wait without a place ---
--
-- A place is a row, which others see once it is committed.  A call that waits inside of its own statement has none: these
-- stand in PostgreSQL's queue of one more advisory lock, the gate of the name.  The first one alone tries again and again.
-- It has an arrival, which it takes from the sequence of the tokens when it has become the first, and which will be its
-- token: places with a lower token go before it, and those with a higher one behind it, so that tokens rise from grant to
-- grant.  Others read it in pg_locks, where it is the second half of an advisory lock.  All of them last until the end of the
-- transaction, or of the subtransaction of who gives up, as the section does.

-- The lower half of a number, as an argument of an advisory lock.
CREATE OR REPLACE FUNCTION _lock_election.low(v int8) RETURNS int4 LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN (v & 4294967295) - CASE WHEN v & 2147483648 <> 0 THEN 4294967296 ELSE 0 END;
END $$;

-- Whether somebody waits in the line of this name.  To be called in its section: nobody becomes the first before that ends.
CREATE OR REPLACE FUNCTION _lock_election.has_line(k int2, n text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN NOT pg_try_advisory_xact_lock_shared(hashtextextended(n, 4808 + k));
END $$;

-- The same, outside of the section, and without keeping anything: what is seen may have changed at once.
CREATE OR REPLACE FUNCTION _lock_election.sees_line(k int2, n text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	gate int8 := hashtextextended(n, 4808 + k);
BEGIN
	RETURN CASE WHEN pg_try_advisory_lock_shared(gate) THEN NOT pg_advisory_unlock_shared(gate) ELSE true END;
END $$;

-- Whether the first in the line of this name has come before this token: it tells its arrival twice, and the later one counts.
-- Who has told none may still wait in the line of another name, and comes after all the places that there are by now.
CREATE OR REPLACE FUNCTION _lock_election.is_behind_line(k int2, n text, token int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN _lock_election.has_line(k, n)
		AND coalesce((SELECT bool_and((token - l.objid::int8) & 4294967295 < 2147483648) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 2
			AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
			AND l.classid = (hashtextextended(n, 4810 + k) & 4294967295)::oid), false);
END $$;

-- Stands in the lines of these names until it is the first in all of them, and takes its arrival.  NULL: not before this
-- moment.
CREATE OR REPLACE FUNCTION _lock_election.stand_in_line(k int2, names text[], until timestamptz) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	before text := current_setting('lock_timeout');
	gate int8;
	arrival int8;
BEGIN
	FOR gate IN SELECT DISTINCT hashtextextended(n, 4808 + k) FROM unnest(names) AS x(n) ORDER BY 1 LOOP
		CONTINUE WHEN pg_try_advisory_xact_lock(gate);
		PERFORM set_config('lock_timeout', CASE WHEN until IS NULL THEN 0 ELSE least(greatest(date_part('epoch', until - clock_timestamp()) * 1000, 1), 2147483647) END::int4 || 'ms', true);
		PERFORM pg_advisory_xact_lock(gate);
	END LOOP;
	PERFORM set_config('lock_timeout', before, true);
	-- places go before it until it has told a number, so that the number which counts is one that comes after their tokens
	FOR turn IN 1 .. 2 LOOP
		arrival := nextval('_lock_election.token');
		PERFORM pg_advisory_xact_lock(_lock_election.low(hashtextextended(n, 4810 + k)), _lock_election.low(arrival)) FROM unnest(names) AS x(n);
	END LOOP;
	RETURN arrival;
EXCEPTION WHEN lock_not_available THEN
	RETURN NULL;
END $$;
