-- --- sections: the critical section of a name --------------------------------------------------------------------------
--
-- What decides who holds a name runs in its section, a transaction-level advisory lock: it sees all that earlier sections
-- have written.  A section lasts until the caller's COMMIT.  So that an idle transaction stops nobody else's work, nobody
-- waits for a section without a limit: an attempt that cannot enter one is refused, as the name is being acquired or
-- released in it; a release goes on without it; renewals and is_held() never need one.

CREATE OR REPLACE FUNCTION _lock_election.section(k int2, n text) RETURNS int8 LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT hashtextextended(n, 4802 + k)
$$;

-- Enters the sections of these names, in the same order as everybody; false: not all of them in this time.
CREATE OR REPLACE FUNCTION _lock_election.enter(k int2, names text[], patience interval) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	until timestamptz;
	pause float8;
	section int8;
BEGIN
	IF cardinality(names) = 1 AND pg_try_advisory_xact_lock(hashtextextended(names[1], 4802 + k)) THEN RETURN true; END IF;
	until := clock_timestamp() + patience;
	FOR section IN SELECT DISTINCT hashtextextended(n, 4802 + k) FROM unnest(names) AS x(n) ORDER BY 1 LOOP
		pause := 0.0005;
		WHILE NOT pg_try_advisory_xact_lock(section) LOOP
			IF clock_timestamp() >= until THEN RETURN false; END IF;
			PERFORM pg_sleep(pause);
			pause := least(pause * 1.5, 0.01);
		END LOOP;
	END LOOP;
	RETURN true;
END $$;
