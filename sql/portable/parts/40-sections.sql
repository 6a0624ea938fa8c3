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
