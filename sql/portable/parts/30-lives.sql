-- --- lives: crashes and promotions --------------------------------------------------------------------------------------
--
-- A crash may lose what was not flushed, renewals above all, and a promotion what was not replicated.  Both empty the
-- UNLOGGED table life.  The first call that finds it empty begins a life:
--
--     1. Tokens go on above all that may have been given out.
--     2. A lease that was last renewed or granted in an earlier life is over no sooner than its ttl after the begin of
--        the life that came next (ends()).  So each begins anew once, and a crash loop keeps none of them alive.
--     3. The first renewal in a life is flushed, because it is what gives a lease the next beginning.
--
-- A token is a sequence's number.  Each life sets it to at least the milliseconds since 2025 times 2^12: below 2^53 for 69
-- years, below the tokens of the C edition of the same moment, and above those of a life that was lost, as long as the
-- clocks of the servers differ by less than that life has lasted.  After a move from the C edition it is config.tokens_ahead
-- more.

-- Begins a life, unless another transaction does: then NULL.
CREATE OR REPLACE FUNCTION _lock_election.begin_life(patience interval) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	until timestamptz := clock_timestamp() + patience;
	here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
	moment int8 := floor((date_part('epoch', clock_timestamp()) - 1735689600) * 1000)::int8;
	l record;
	number int8;
BEGIN
	-- 1. alone
	WHILE NOT pg_try_advisory_xact_lock(hashtextextended('lock_election life', 4801)) LOOP
		IF clock_timestamp() >= until THEN RETURN NULL; END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	SELECT x.life, x.database = here AND x.born = x.xmin AS whole INTO l FROM _lock_election.life x WHERE x.one;
	IF l.whole THEN RETURN l.life; END IF;

	-- 2. a copy of another database has its rows, and none of its holders
	IF l.life IS NOT NULL THEN
		DELETE FROM _lock_election.hold;
		DELETE FROM _lock_election.place;
		DELETE FROM _lock_election.lease;
		DELETE FROM _lock_election.asked;
		-- these tell transactions of the other database, whose numbers come again here
		DELETE FROM _lock_election.loss;
		DELETE FROM _lock_election.fence;
		DELETE FROM _lock_election.life;
	END IF;

	-- 3. numbers go on
	PERFORM setval('_lock_election.token', greatest((SELECT last_value FROM _lock_election.token) + (1 << 22),
		((moment + 1) << 12) + (SELECT c.tokens_ahead FROM _lock_election.config c WHERE c.one)));
	number := greatest((SELECT max(x.life) FROM _lock_election.lives x) + 1, moment);
	DELETE FROM _lock_election.lives x WHERE x.started < clock_timestamp() - interval '60 days';
	INSERT INTO _lock_election.lives VALUES (number, clock_timestamp());
	INSERT INTO _lock_election.life (life, database, limited) SELECT number, here, c.max_locks_per_role > 0 FROM _lock_election.config c WHERE c.one;
	UPDATE _lock_election.life SET born = xmin WHERE one;
	RETURN number;
END $$;

-- The present life.
CREATE OR REPLACE FUNCTION _lock_election.current_life() RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
BEGIN
	SELECT l.life INTO number FROM _lock_election.life l JOIN pg_database d ON d.oid = l.database
		WHERE l.one AND l.born = l.xmin AND d.datname = current_database();
	IF FOUND THEN RETURN number; END IF;
	number := _lock_election.begin_life('2 s');
	IF number IS NULL THEN
		PERFORM _lock_election.fail('57P03', 'the locks of this database are not ready after a crash of the server',
			'Another transaction has begun to make them ready, and has not ended yet.');
	END IF;
	RETURN number;
END $$;

-- The present life, for a renewal; NULL while another transaction begins one, which may stand still: nothing expires
-- meanwhile, and the renewal is made without.
CREATE OR REPLACE FUNCTION _lock_election.life_of_renewal() RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
BEGIN
	SELECT l.life INTO number FROM _lock_election.life l JOIN pg_database d ON d.oid = l.database
		WHERE l.one AND l.born = l.xmin AND d.datname = current_database();
	IF FOUND THEN RETURN number; END IF;
	RETURN _lock_election.begin_life('100 ms');
END $$;

-- When something ends that was set in a life, as of now; never, before the present life has begun.  In a restored dump all
-- has ended, also before the first call begins its life.
CREATE OR REPLACE FUNCTION _lock_election.ends(expires_at timestamptz, of_life int8, ttl interval) RETURNS timestamptz LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
	restored boolean;
	next timestamptz;
BEGIN
	IF pg_is_in_recovery() THEN RETURN expires_at; END IF;
	SELECT l.life, l.born IS DISTINCT FROM l.xmin INTO number, restored FROM _lock_election.life l WHERE l.one;
	IF restored THEN RETURN '-infinity'; END IF;
	IF number = of_life THEN RETURN expires_at; END IF;
	IF number IS NULL THEN RETURN 'infinity'; END IF;
	SELECT l.started INTO next FROM _lock_election.lives l WHERE l.life > of_life ORDER BY l.life LIMIT 1;
	RETURN greatest(expires_at, next + ttl);
END $$;

-- How long that is from now; NULL: it does not end yet.
CREATE OR REPLACE FUNCTION _lock_election.time_left(at timestamptz) RETURNS interval LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN CASE WHEN isfinite(at) THEN at - clock_timestamp() END;
END $$;
