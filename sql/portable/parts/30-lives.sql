-- --- lives: crashes and promotions --------------------------------------------------------------------------------------
--
-- A crash may lose commits that were not flushed, mostly renewals.  A promotion may lose commits that were not
-- replicated.  Both leave the UNLOGGED table life empty.  The first call that finds it empty begins a life, with
-- these rules:
--
--     1. Tokens continue above all tokens that may have been returned.
--     2. A lease that was last granted or renewed in an earlier life expires no sooner than its ttl after the
--        start of the life that followed (ends()).  So each lease starts over only once, and a series of crashes
--        does not keep it alive.
--     3. The first renewal of a lease in a life is flushed, because if it were lost, the lease would not start
--        over after the next crash.
--
-- A token is a number from a sequence.  Each life sets the sequence to at least 2^12 times the milliseconds
-- since 2025.  That number is below 2^53 for 69 years, and below the tokens that the C edition returns at the
-- same time.  It is above the tokens of a life that was lost in a promotion, if the servers' clocks differ by
-- less than the length of that life.  After a move from the C edition, config.tokens_ahead is added.

-- Begins a life and returns its number, or returns the life that another transaction has begun meanwhile.
-- Returns NULL if another transaction is still beginning a life after "patience".
CREATE OR REPLACE FUNCTION _lock_election.begin_life(patience interval) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	until timestamptz := clock_timestamp() + patience;
	here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
	moment int8 := floor((date_part('epoch', clock_timestamp()) - 1735689600) * 1000)::int8;
	l record;
	number int8;
BEGIN
	-- 1. take a lock, so that only one transaction begins a life
	WHILE NOT pg_try_advisory_xact_lock(hashtextextended('lock_election life', 4801)) LOOP
		IF clock_timestamp() >= until THEN RETURN NULL; END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	SELECT x.life, x.database = here AND x.born = x.xmin AS whole INTO l FROM _lock_election.life x WHERE x.one;
	IF l.whole THEN RETURN l.life; END IF;

	-- 2. if this is a copy of another database, delete the copied rows, whose holders use the other database
	IF l.life IS NOT NULL THEN
		DELETE FROM _lock_election.hold;
		DELETE FROM _lock_election.place;
		DELETE FROM _lock_election.lease;
		DELETE FROM _lock_election.asked;
		-- these rows contain transaction ids of the original database; later transactions may get the same ids here
		DELETE FROM _lock_election.loss;
		DELETE FROM _lock_election.fence;
		DELETE FROM _lock_election.life;
	END IF;

	-- 3. continue tokens and lives above all earlier numbers
	PERFORM setval('_lock_election.token', greatest((SELECT last_value FROM _lock_election.token) + (1 << 22),
		((moment + 1) << 12) + (SELECT c.tokens_ahead FROM _lock_election.config c WHERE c.one)));
	number := greatest((SELECT max(x.life) FROM _lock_election.lives x) + 1, moment);
	DELETE FROM _lock_election.lives x WHERE x.started < clock_timestamp() - interval '60 days';
	INSERT INTO _lock_election.lives VALUES (number, clock_timestamp());
	INSERT INTO _lock_election.life (life, database, limited) SELECT number, here, c.max_locks_per_role > 0 FROM _lock_election.config c WHERE c.one;
	UPDATE _lock_election.life SET born = xmin WHERE one;
	RETURN number;
END $$;

-- Returns the current life, and begins one if necessary.
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
			'Another transaction is preparing them, and has not ended yet.');
	END IF;
	RETURN number;
END $$;

-- Returns the current life for a renewal.  Returns NULL if another transaction is beginning a life and may be idle;
-- then nothing expires, and the renewal does not change the life in its row.
CREATE OR REPLACE FUNCTION _lock_election.life_of_renewal() RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
BEGIN
	SELECT l.life INTO number FROM _lock_election.life l JOIN pg_database d ON d.oid = l.database
		WHERE l.one AND l.born = l.xmin AND d.datname = current_database();
	IF FOUND THEN RETURN number; END IF;
	RETURN _lock_election.begin_life('100 ms');
END $$;

-- Returns the current deadline of a lease or hold whose expires_at was set in of_life.  The deadline is infinite
-- until the current life has begun.  But in a restored dump everything has expired, even before the first call
-- begins a life.
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

-- Returns the time left until a deadline, or NULL if the deadline is infinite.
CREATE OR REPLACE FUNCTION _lock_election.time_left(at timestamptz) RETURNS interval LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN CASE WHEN isfinite(at) THEN at - clock_timestamp() END;
END $$;
