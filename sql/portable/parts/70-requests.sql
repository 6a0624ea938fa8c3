-- --- requests: acquire and enqueue --------------------------------------------------------------------------------------
--
-- A request is for one name, or for several names together.  It is granted at once, takes a place in the queue,
-- or is refused.

-- Type of a request with checked arguments.  A request is an attempt, or takes a place if it is not granted.
DO $$
BEGIN
	IF pg_catalog.to_regtype('_lock_election.request') IS NULL THEN
		CREATE TYPE _lock_election.request AS (
			kind pg_catalog.int2, names pg_catalog.text[], mode pg_catalog.text, permits pg_catalog.int4, ttl pg_catalog.interval,
			owner pg_catalog.text, lease pg_catalog.int8, value pg_catalog.text,
			-- place: true = take a place, false = attempt; of_lease: true = announce the grant on the lease's
			-- channel; call: number of the lease_sync() call
			place pg_catalog.bool, of_lease pg_catalog.bool, call pg_catalog.int8, role pg_catalog.oid,
			-- arrival of a call that is the first in the lines; otherwise NULL
			arrival pg_catalog.int8);
	END IF;
END $$;

-- Raises an error if a lease has ended or belongs to another role.  Locks the lease's row, so that it stays
-- until this transaction ends.
CREATE OR REPLACE FUNCTION _lock_election.check_lease(number int8, role oid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	l record;
BEGIN
	SELECT x.role, _lock_election.ends(x.expires_at, x.life, x.ttl) AS at INTO l FROM _lock_election.lease x WHERE x.id = number AND x.named FOR KEY SHARE SKIP LOCKED;
	IF NOT FOUND OR l.at <= clock_timestamp() THEN
		PERFORM _lock_election.fail('LE001', format('lease %s does not exist, or has ended', number));
	END IF;
	IF l.role <> role THEN PERFORM _lock_election.fail('42501', format('lease %s belongs to another role', number)); END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.other_use(n text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.fail('22023', format('"%s" is in use in another way', n), 'A name can be used for a lock or for permits, but not for both at the same time.');
END $$;

-- Raises an error if the history of the role's elections is too long for another request or proclaim.  First checks
-- the size of the whole table, which is cheap, and is an upper bound for every role.
CREATE OR REPLACE FUNCTION _lock_election.check_history(role oid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	most int8 := (SELECT c.max_history_per_role FROM _lock_election.config c WHERE c.one);
BEGIN
	IF most > 0 AND pg_table_size('_lock_election.history') >= most
		AND (SELECT sum(octet_length(x.election) + octet_length(x.candidate) + 150) FROM _lock_election.history x WHERE x.role = $1) >= most THEN
		PERFORM _lock_election.fail('53400', format('the history of the elections of role "%s" is too long in this database', pg_get_userbyid(role)), '',
			format('See lock_election.max_history_per_role (%s).', pg_size_pretty(most)));
	END IF;
END $$;

-- Raises an error if a name is in use in a different way, such as another mode.
CREATE OR REPLACE FUNCTION _lock_election.check_use(r _lock_election.request, n text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	used record;
BEGIN
	SELECT x.mode, x.permits INTO used FROM (
		(SELECT h.mode, h.permits FROM _lock_election.hold h WHERE h.kind = r.kind AND h.name = n AND h.mode IS NOT NULL LIMIT 1)
		UNION ALL (SELECT p.mode, p.permits FROM _lock_election.place p WHERE p.kind = r.kind AND p.name = n LIMIT 1)) x LIMIT 1;
	IF NOT FOUND THEN RETURN; END IF;
	IF (used.mode = 'permit') <> (r.mode = 'permit') THEN
		PERFORM _lock_election.other_use(n);
	END IF;
	IF r.mode = 'permit' AND used.permits <> r.permits THEN
		PERFORM _lock_election.fail('22023', format('"%s" is in use with %s permits, not %s', n, used.permits, r.permits), '',
			'All users of a name must pass the same number; set_permits() changes it while the name is in use.');
	END IF;
END $$;

-- Returns the hold of a name that the request re-enters.  With a named owner, that is a hold of the same owner,
-- preferably on the same lease.  Without a named owner, it is a hold on the same lease, or of the same
-- transaction.
CREATE OR REPLACE FUNCTION _lock_election.own_hold(r _lock_election.request, n text) RETURNS _lock_election.hold LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
BEGIN
	IF r.mode = 'permit' THEN RETURN NULL; END IF;
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = r.kind AND x.name = n AND x.mode IS NOT NULL AND x.ended IS NULL AND NOT x.evicted AND x.role = r.role
		AND CASE WHEN r.owner IS NOT NULL THEN x.owner = r.owner ELSE x.owner IS NULL AND (x.lease = r.lease OR x.acquired_in = pg_current_xact_id()::text::int8) END
		ORDER BY r.lease IS NOT DISTINCT FROM (SELECT l.id FROM _lock_election.lease l WHERE l.id = x.lease AND l.named) DESC, x.token DESC LIMIT 1;
	RETURN h;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.other_lease(k int2, n text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.fail('22023', format('%s "%s" has another kind of lease', _lock_election.word(k), n),
		'It was acquired with a ttl, with a named lease, or with ttl => NULL (for as long as its connection lasts), and cannot change that until it is released.');
END $$;

-- Re-enters a hold.  Counts an additional hold, except on a named lease and for an election.  Never shortens the
-- time left.
CREATE OR REPLACE FUNCTION _lock_election.hold_again(r _lock_election.request, h _lock_election.hold) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF r.mode = 'exclusive' AND h.mode = 'shared' THEN
		PERFORM _lock_election.fail('22023', format('lock "%s" is held in mode shared by the same owner, which now requests mode exclusive', h.name), '',
			'Release it first, or acquire it in mode exclusive from the start.');
	END IF;
	IF r.lease IS DISTINCT FROM (SELECT l.id FROM _lock_election.lease l WHERE l.id = h.lease AND l.named) THEN
		PERFORM _lock_election.other_lease(h.kind, h.name);
	END IF;
	IF r.lease IS NULL THEN
		PERFORM pg_try_advisory_xact_lock_shared(hashint8extended(h.token, 4806));
		UPDATE _lock_election.hold x SET holds = x.holds + CASE x.kind WHEN 1 THEN 1 ELSE 0 END, life = CASE WHEN x.expires_at IS NULL THEN x.life ELSE _lock_election.current_life() END,
			expires_at = CASE WHEN x.expires_at IS NOT NULL THEN greatest(_lock_election.ends(x.expires_at, x.life, x.ttl), clock_timestamp() + r.ttl) END
			WHERE x.kind = h.kind AND x.name = h.name AND x.slot = h.slot AND x.token = h.token AND x.ended IS NULL AND NOT x.evicted;
		-- a transaction outside of the section ended the hold while this update waited
		IF NOT FOUND THEN RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998'; END IF;
		UPDATE _lock_election.lease l SET expires_at = greatest(l.expires_at, clock_timestamp() + r.ttl) WHERE l.id = h.lease AND NOT l.named;
	END IF;
	IF r.kind = 2 AND h.value IS DISTINCT FROM r.value THEN
		UPDATE _lock_election.hold x SET value = r.value WHERE x.kind = 2 AND x.name = h.name AND x.slot = 0;
		h.value := r.value;
		PERFORM _lock_election.note(h, 'proclaimed');
	END IF;
END $$;

-- Raises an error if the request exceeds a limit of the role or of the queue.
CREATE OR REPLACE FUNCTION _lock_election.check_limits(r _lock_election.request, waits boolean) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	c _lock_election.config;
	n text;
BEGIN
	SELECT x.* INTO c FROM _lock_election.config x WHERE x.one;
	IF waits AND c.max_waiters_per_lock > 0 THEN
		FOREACH n IN ARRAY r.names LOOP
			-- the second count excludes abandoned places, which may be behind a live place
			IF (SELECT count(*) FROM _lock_election.place p WHERE p.kind = r.kind AND p.name = n) >= c.max_waiters_per_lock
				AND (SELECT count(*) FROM _lock_election.place p JOIN _lock_election.lease l ON l.id = p.lease WHERE p.kind = r.kind AND p.name = n
					AND _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp()) >= c.max_waiters_per_lock THEN
				PERFORM _lock_election.fail('53400', format('too many requests wait for %s "%s"', _lock_election.word(r.kind), n), '',
					format('See lock_election.max_waiters_per_lock (%s).', c.max_waiters_per_lock));
			END IF;
		END LOOP;
	END IF;
	IF c.max_locks_per_role > 0 AND (SELECT count(*) FROM _lock_election.hold h WHERE h.role = r.role) + (SELECT count(*) FROM _lock_election.place p WHERE p.role = r.role)
		+ cardinality(r.names) > c.max_locks_per_role
		AND (SELECT count(*) FROM _lock_election.hold h WHERE h.role = r.role AND CASE WHEN h.mode IS NULL THEN h.closed_until > clock_timestamp() ELSE NOT _lock_election.may_be_over(h) END)
			+ (SELECT count(*) FROM _lock_election.place p JOIN _lock_election.lease l ON l.id = p.lease WHERE p.role = r.role
				AND _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp())
			+ cardinality(r.names) > c.max_locks_per_role THEN
		PERFORM _lock_election.fail('53400', format('role "%s" has too many locks in this database', pg_get_userbyid(r.role)), '',
			format('See lock_election.max_locks_per_role (%s).', c.max_locks_per_role));
	END IF;
END $$;

-- Decides a request in the sections of its names, after settle().  Returns a NULL token if the request is
-- refused.
CREATE OR REPLACE FUNCTION _lock_election.decide(r _lock_election.request, OUT token int8, OUT granted boolean, OUT queue_position int8) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n text;
	h _lock_election.hold;
	again _lock_election.hold;
	own int4 := 0;
	free boolean := true;
	behind boolean;
	several boolean := cardinality(r.names) > 1;
	number int8 := _lock_election.current_life();
	on_lease int8 := r.lease;
BEGIN
	granted := false;

	-- 1. check whether a name is used in a different way
	FOREACH n IN ARRAY r.names LOOP PERFORM _lock_election.check_use(r, n); END LOOP;

	-- 2. check whether this request repeats an earlier one: for one name, search for a hold first; for several
	--    names, search for a place first
	IF r.place AND r.lease IS NOT NULL AND r.mode <> 'permit' THEN
		IF NOT several THEN
			SELECT x.token, true INTO token, granted FROM _lock_election.hold x WHERE x.kind = r.kind AND x.name = r.names[1] AND x.lease = r.lease AND x.ended IS NULL AND NOT x.evicted
				AND x.owner IS NOT DISTINCT FROM r.owner ORDER BY x.token DESC LIMIT 1;
		END IF;
		IF token IS NULL THEN
			SELECT x.token, false INTO token, granted FROM _lock_election.place x WHERE x.kind = r.kind AND x.name = r.names[1] AND x.lease = r.lease AND x.mode = r.mode
				AND x.owner IS NOT DISTINCT FROM r.owner AND x.value IS NOT DISTINCT FROM r.value
				AND (several AND x.members @> r.names AND r.names @> x.members OR NOT several AND x.members IS NULL) ORDER BY x.token LIMIT 1;
		END IF;
		IF token IS NULL AND several THEN
			SELECT x.token, true INTO token, granted FROM _lock_election.hold x WHERE x.kind = r.kind AND x.name = ANY (r.names) AND x.lease = r.lease AND x.ended IS NULL AND NOT x.evicted
				AND x.owner IS NOT DISTINCT FROM r.owner GROUP BY x.token HAVING count(*) = cardinality(r.names) ORDER BY x.token LIMIT 1;
		END IF;
		IF token IS NOT NULL THEN
			queue_position := CASE WHEN granted THEN 0 ELSE _lock_election.rank(r.kind, r.names, token) END;
			IF granted THEN
				PERFORM _lock_election.hold_again(r, x) FROM _lock_election.hold x WHERE x.kind = r.kind AND x.name = ANY (r.names) AND x.token = decide.token;
			END IF;
			RETURN;
		END IF;
		granted := false;
	END IF;

	-- 3. re-enter a hold
	IF NOT r.place THEN
		FOREACH n IN ARRAY r.names LOOP
			h := _lock_election.own_hold(r, n);
			IF h.token IS NOT NULL THEN
				IF several AND own > 0 AND again.token <> h.token THEN EXIT; END IF;
				own := own + 1;
				again := h;
			END IF;
		END LOOP;
		IF own > 0 THEN
			IF own < cardinality(r.names) THEN
				PERFORM _lock_election.fail('22023', format('lock "%s" is already held by the same owner', again.name),
					'Locks that are acquired together share one token, and this lock already has another.', 'Release it first, or acquire all of them together from the start.');
			END IF;
			FOREACH n IN ARRAY r.names LOOP PERFORM _lock_election.hold_again(r, _lock_election.own_hold(r, n)); END LOOP;
			token := again.token;
			granted := true;
			queue_position := 0;
			RETURN;
		END IF;
	END IF;

	-- 4. check whether the names are free, and no place or call comes before this request
	FOREACH n IN ARRAY r.names LOOP
		behind := EXISTS (SELECT FROM _lock_election.place p WHERE p.kind = r.kind AND p.name = n AND (r.arrival IS NULL OR p.token < r.arrival));
		free := free AND NOT behind AND _lock_election.admits(r.kind, n, r.mode, r.permits) AND (r.arrival IS NOT NULL OR NOT _lock_election.has_line(r.kind, n));
	END LOOP;
	IF NOT free AND NOT r.place THEN RETURN; END IF;

	-- 5. check the limits
	PERFORM _lock_election.check_limits(r, NOT free);

	-- 6. create a hold, or a place
	token := coalesce(r.arrival, nextval('_lock_election.token'));
	granted := free;
	IF on_lease IS NULL AND (several OR NOT free) THEN
		on_lease := token;
		INSERT INTO _lock_election.lease (id, ttl, expires_at, life, granted_in, role, named, owner)
			VALUES (token, r.ttl, clock_timestamp() + r.ttl, number, number, r.role, false, r.owner);
	END IF;
	IF free THEN
		FOREACH n IN ARRAY r.names LOOP
			INSERT INTO _lock_election.hold (kind, name, slot, token, mode, lease, ttl, expires_at, life, role, owner, value, permits, members, since, changed, acquired_in, told_call, pid, application, client)
				VALUES (r.kind, n, _lock_election.free_slot(r.kind, n, r.mode), token, r.mode, on_lease, CASE WHEN r.lease IS NULL THEN r.ttl END,
					CASE WHEN on_lease IS NULL THEN clock_timestamp() + r.ttl END, number, r.role, r.owner, r.value, r.permits,
					CASE WHEN several THEN r.names END, clock_timestamp(), pg_current_xact_id()::text::int8, pg_current_xact_id()::text::int8,
					coalesce(r.call, 0), pg_backend_pid(), current_setting('application_name'), inet_client_addr());
		END LOOP;
		IF r.kind = 2 THEN
			SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = 2 AND x.name = r.names[1] AND x.slot = 0;
			PERFORM _lock_election.note(h, 'elected');
		END IF;
		queue_position := 0;
	ELSE
		INSERT INTO _lock_election.place (kind, name, token, mode, lease, ttl, role, owner, value, permits, members, of_lease, since, changed, told_call, pid, application, client)
			SELECT r.kind, x.n, decide.token, r.mode, on_lease, CASE WHEN r.lease IS NULL THEN r.ttl END, r.role,
				r.owner, r.value, r.permits, CASE WHEN several THEN r.names END, r.of_lease, clock_timestamp(), pg_current_xact_id()::text::int8, coalesce(r.call, 0), pg_backend_pid(),
				current_setting('application_name'), inet_client_addr() FROM unnest(r.names) AS x(n);
		queue_position := _lock_election.rank(r.kind, r.names, token);
	END IF;
END $$;

-- Returns the position of a place in its queue, or in the longest of its queues if it is for several names.  Does
-- not count expired places.  There may be thousands of places, so the query calls no function for a live place.
CREATE OR REPLACE FUNCTION _lock_election.rank(k int2, names text[], tok int8) RETURNS int8 LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT max(r.rank) FROM unnest(names) AS n(name), LATERAL (SELECT count(*) AS rank
		FROM _lock_election.place p JOIN _lock_election.lease l ON l.id = p.lease
		WHERE p.kind = k AND p.name = n.name AND p.token <= tok
			AND (l.expires_at > clock_timestamp() OR _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp())) r
$$;

-- Attempts a request once.  A refused attempt is rolled back, and leaves its sections, because the caller's
-- transaction may become idle or continue to wait.  If the attempt had ended or granted anything, notifies waiters,
-- which then settle the names.
CREATE OR REPLACE FUNCTION _lock_election.attempt(r _lock_election.request, patience interval, OUT token int8, OUT granted boolean, OUT queue_position int8)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	changed boolean := false;
BEGIN
	IF r.lease IS NOT NULL THEN PERFORM _lock_election.check_lease(r.lease, r.role); END IF;
	PERFORM _lock_election.current_life();
	BEGIN
		IF _lock_election.enter(r.kind, r.names, patience) THEN
			changed := _lock_election.settle(r.kind, r.names, r.arrival);
			SELECT d.token, d.granted, d.queue_position INTO token, granted, queue_position FROM _lock_election.decide(r) d;
			IF token IS NOT NULL THEN RETURN; END IF;
		END IF;
		RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998';
	EXCEPTION WHEN SQLSTATE 'LE998' THEN
		token := NULL;
		granted := false;
	END;
	IF changed THEN PERFORM _lock_election.nudge(r.kind, r.names); END IF;
END $$;

-- Returns whether the request seems to re-enter a hold of its owner, its lease or this transaction.
CREATE OR REPLACE FUNCTION _lock_election.looks_held(r _lock_election.request) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN r.mode <> 'permit' AND EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind = r.kind AND h.name = ANY (r.names) AND h.role = r.role AND h.mode IS NOT NULL
		AND NOT h.evicted AND CASE WHEN r.owner IS NOT NULL THEN h.owner = r.owner
			ELSE h.owner IS NULL AND (h.lease = r.lease OR h.acquired_in = pg_current_xact_id_if_assigned()::text::int8) END AND NOT _lock_election.may_be_over(h));
END $$;

-- Returns whether an attempt is worth entering a section.  It is if the request seems to re-enter a hold, or if
-- the names are open, no holder conflicts with the request, and no call is before it in a line.
CREATE OR REPLACE FUNCTION _lock_election.looks_free(r _lock_election.request) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind = r.kind AND h.name = ANY (r.names)
			AND CASE WHEN h.mode IS NULL THEN h.closed_until > clock_timestamp()
				ELSE h.ended IS NULL AND 'exclusive' IN (h.mode, r.mode) AND 'permit' NOT IN (h.mode, r.mode) AND NOT _lock_election.may_be_over(h) END)
		AND (r.arrival IS NOT NULL OR NOT EXISTS (SELECT FROM unnest(r.names) AS x(n) WHERE _lock_election.sees_line(r.kind, n))) THEN
		RETURN true;
	END IF;
	RETURN _lock_election.looks_held(r);
END $$;
-- Same as hold_is_over(), but takes no lock.
CREATE OR REPLACE FUNCTION _lock_election.may_be_over(h _lock_election.hold) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN h.ended IS NOT NULL OR h.expires_at IS NOT NULL AND _lock_election.ends(h.expires_at, h.life, h.ttl) <= clock_timestamp()
		OR h.lease IS NOT NULL AND NOT _lock_election.lease_lives(h.lease);
END $$;

-- Returns the limit that lock_timeout sets for a wait; NULL = unlimited.
CREATE OR REPLACE FUNCTION _lock_election.lock_timeout() RETURNS interval LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN nullif(current_setting('lock_timeout')::interval, '0');
END $$;

-- Raises a notice if another connection acquired one of the names for the same owner.  Callers with the same owner
-- share a hold, although each believes that it holds the name alone.
CREATE OR REPLACE FUNCTION _lock_election.notice_shared_owner(r _lock_election.request, names text[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n text := (SELECT h.name FROM _lock_election.hold h WHERE h.kind = r.kind AND h.name = ANY (names) AND h.role = r.role AND h.owner = r.owner AND h.pid <> pg_backend_pid()
		AND h.ended IS NULL AND NOT h.evicted ORDER BY array_position(names, h.name) LIMIT 1);
BEGIN
	IF n IS NOT NULL THEN
		RAISE NOTICE '% "%" was acquired by owner "%" on another connection, and both calls now hold it', _lock_election.word(r.kind), n, r.owner
			USING HINT = 'An owner is an identity, not a label: use a different one in each worker.';
	END IF;
END $$;

-- Attempts a request if it can succeed.
CREATE OR REPLACE FUNCTION _lock_election.attempt_if_free(r _lock_election.request) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	token int8;
BEGIN
	IF r.lease IS NULL AND NOT _lock_election.looks_free(r) THEN RETURN NULL; END IF;
	-- a caller without an arrival has already tried acquire_free()
	IF r.arrival IS NOT NULL AND r.kind = 1 AND r.mode = 'exclusive' AND r.lease IS NULL AND cardinality(r.names) = 1 THEN
		token := _lock_election.acquire_free(r.kind, r.names[1], r.ttl, r.owner, NULL, NULL, 0, true);
	END IF;
	IF token IS NULL THEN SELECT a.token INTO token FROM _lock_election.attempt(r, '200 ms') a; END IF;
	RETURN token;
END $$;

-- Waits for a request in the lines of its names; "until" NULL = unlimited.  Returns NULL if the call gives up.  Its
-- subtransaction leaves the lines if the call fails, is cancelled, or gives up.
CREATE OR REPLACE FUNCTION _lock_election.acquire_in_line(r _lock_election.request, until timestamptz) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	token int8;
	first_since timestamptz;
	waited interval;
BEGIN
	r.arrival := _lock_election.stand_in_line(r.kind, r.names, until);
	IF r.arrival IS NULL THEN RETURN NULL; END IF;
	first_since := clock_timestamp();
	LOOP
		token := _lock_election.attempt_if_free(r);
		IF token IS NOT NULL THEN RETURN token; END IF;
		IF clock_timestamp() >= until THEN RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998'; END IF;
		-- The previous call in the line has just been granted the name, and may release it at once.  So retry
		-- for 0.5 ms without a sleep: an attempt takes 30 us, but the shortest sleep takes 1.1 ms, because
		-- pg_sleep() rounds up to whole ms.  Then sleep for a twentieth of the time spent so far.
		waited := clock_timestamp() - first_since;
		CONTINUE WHEN waited < '0.5 ms';
		PERFORM pg_sleep(least(greatest(date_part('epoch', waited) / 20, 0.0005), 0.1, date_part('epoch', until - clock_timestamp())));
	END LOOP;
EXCEPTION WHEN SQLSTATE 'LE998' THEN
	RETURN NULL;
END $$;

-- Acquires a lock, waiting for at most "wait"; NULL = unlimited.  Returns NULL at the time limit.
CREATE OR REPLACE FUNCTION _lock_election.acquire(r _lock_election.request, wait interval) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	began timestamptz := clock_timestamp();
	most interval;
	token int8;
BEGIN
	PERFORM _lock_election.check_transaction();
	-- begin a life after a crash, because nothing expires before, and attempts that only read do not begin one
	PERFORM _lock_election.current_life();
	token := _lock_election.attempt_if_free(r);
	IF token IS NULL AND (wait IS NULL OR wait > '0') THEN
		most := _lock_election.lock_timeout();
		WHILE token IS NULL AND coalesce(clock_timestamp() < began + least(wait, most), true) LOOP
			-- Calls in the line may wait for the caller's own hold, so retry without entering the line.
			IF _lock_election.looks_held(r) THEN
				PERFORM pg_sleep(0.005);
				token := _lock_election.attempt_if_free(r);
			ELSE
				token := _lock_election.acquire_in_line(r, began + least(wait, most));
			END IF;
		END LOOP;
		IF token IS NULL THEN
			-- notify the first places, because this call no longer precedes them
			PERFORM _lock_election.nudge(r.kind, r.names);
			IF most < wait OR wait IS NULL THEN PERFORM _lock_election.fail('55P03', 'canceling statement due to lock timeout'); END IF;
		END IF;
	END IF;
	IF token IS NOT NULL AND r.owner IS NOT NULL THEN PERFORM _lock_election.notice_shared_owner(r, r.names); END IF;
	RETURN token;
END $$;

-- Grants a request at once, or adds a place to the queue.
CREATE OR REPLACE FUNCTION _lock_election.enqueue(r _lock_election.request, OUT token int8, OUT granted boolean, OUT queue_position int8, OUT channel text) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.check_transaction();
	r.place := true;
	r.of_lease := coalesce(r.of_lease, false);
	SELECT a.token, a.granted, a.queue_position INTO token, granted, queue_position
		FROM _lock_election.attempt(r, least(coalesce(_lock_election.lock_timeout(), '2 s'), '2 s')) a;
	IF token IS NULL THEN
		PERFORM _lock_election.fail('55P03', format('could not enter the queue of %s "%s"', _lock_election.word(r.kind), r.names[1]),
			'Another transaction that entered this queue has not ended yet.', 'Acquire and release outside of long transactions.');
	END IF;
	channel := _lock_election.channel(r.kind, r.names[1]);
END $$;
