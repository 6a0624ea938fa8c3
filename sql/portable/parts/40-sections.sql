-- --- sections: the critical section of a name --------------------------------------------------------------------------
--
-- All code that grants a name runs in the section of the name, which is a transaction-level advisory lock, and
-- sees everything that earlier sections have written.  A section lasts until the caller's COMMIT.  Each wait for
-- a section has a time limit, so that an idle transaction does not block others.  If an attempt cannot enter the
-- section, it is refused, because another transaction is acquiring or releasing the name.  A release continues
-- without the section.  Renewals and is_held() never need a section.

-- Enters the sections of these names, in an order that is the same for all callers.  Returns false if one of the
-- sections cannot be entered within "patience".  PostgreSQL's lock queue serves waiting callers in the order of
-- arrival.
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

-- --- lines: calls that wait without a place ---
--
-- A place is a row, which other transactions see only after its commit.  A call that waits inside its own
-- statement has no place.  Such calls form a *line*: PostgreSQL's queue for another advisory lock, the *gate* of
-- the name.  Only the first call in the line retries.  When a call becomes the first, it takes a number from the
-- token sequence, its *arrival*, which will be its token.  Places with a lower token are served before the call,
-- and places with a higher token after it, so that tokens rise from grant to grant.  Other transactions read the
-- arrival in pg_locks, where it is the second half of an advisory lock.  Like the section, these locks last
-- until the end of the transaction, or of the subtransaction of a call that gives up.

-- Returns the lower half of a number, for use as an argument of an advisory lock.
CREATE OR REPLACE FUNCTION _lock_election.low(v int8) RETURNS int4 LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN (v & 4294967295) - CASE WHEN v & 2147483648 <> 0 THEN 4294967296 ELSE 0 END;
END $$;

-- Returns whether a call waits in the line of this name.  Must be called in the section of the name.  If it returns
-- false, it has locked the gate, so that no call becomes the first in the line before the section ends.
CREATE OR REPLACE FUNCTION _lock_election.has_line(k int2, n text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN NOT pg_try_advisory_xact_lock_shared(hashtextextended(n, 4808 + k));
END $$;

-- Same as has_line(), but for use outside of the section.  Does not keep the lock, so the result may be outdated at
-- once.
CREATE OR REPLACE FUNCTION _lock_election.sees_line(k int2, n text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	gate int8 := hashtextextended(n, 4808 + k);
BEGIN
	RETURN CASE WHEN pg_try_advisory_lock_shared(gate) THEN NOT pg_advisory_unlock_shared(gate) ELSE true END;
END $$;

-- Returns whether the place with this token is behind the first call in the line of this name, that is, whether the
-- arrival of that call is lower than the token.  A call publishes its arrival twice, and the higher number counts.
-- Returns false if the call has not published an arrival yet: it may still wait in the line of another name, and
-- its arrival will be higher than the tokens of all places that exist now.
CREATE OR REPLACE FUNCTION _lock_election.is_behind_line(k int2, n text, token int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN _lock_election.has_line(k, n)
		AND coalesce((SELECT bool_and((token - l.objid::int8) & 4294967295 < 2147483648) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 2
			AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
			AND l.classid = (hashtextextended(n, 4810 + k) & 4294967295)::oid), false);
END $$;

-- Waits in the lines of these names until the call is the first in all of them, and returns its arrival.
-- Returns NULL if the call is not the first by "until".
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
	-- Places are served before this call until it has published an arrival.  The second arrival, which counts,
	-- is above the tokens of those places.
	FOR turn IN 1 .. 2 LOOP
		arrival := nextval('_lock_election.token');
		PERFORM pg_advisory_xact_lock(_lock_election.low(hashtextextended(n, 4810 + k)), _lock_election.low(arrival)) FROM unnest(names) AS x(n);
	END LOOP;
	RETURN arrival;
EXCEPTION WHEN lock_not_available THEN
	RETURN NULL;
END $$;
