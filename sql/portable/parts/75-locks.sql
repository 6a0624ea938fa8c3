-- --- locks: the functions of locks, permits and places ------------------------------------------------------------------
--
-- From here on, each name gets COLLATE "C", as in the tables, so that equal bytes always have the same section.
-- Each array is replaced by a slice of itself, so that its subscripts begin at 1.

-- Returns a request with checked arguments.
CREATE OR REPLACE FUNCTION _lock_election.make(k int2, names text[], mode text, permits int8, ttl interval, owner text, lease int8, value text) RETURNS _lock_election.request
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	r _lock_election.request;
BEGIN
	IF mode = 'permit' THEN PERFORM _lock_election.check_permits(permits); ELSE PERFORM _lock_election.check_mode(mode); END IF;
	IF k = 2 THEN PERFORM _lock_election.check_text('candidate', value, 4096); END IF;
	IF owner IS NOT NULL THEN PERFORM _lock_election.check_text('owner', owner, 255); END IF;
	r.kind := k;
	r.names := names;
	r.mode := mode;
	r.permits := CASE WHEN mode = 'permit' THEN permits ELSE 0 END;
	IF lease IS NULL OR ttl IS NOT NULL THEN r.ttl := _lock_election.checked_ttl(ttl); END IF;
	IF lease IS NOT NULL THEN r.ttl := NULL; END IF;
	r.owner := owner;
	r.lease := lease;
	r.value := value;
	r.place := false;
	r.of_lease := false;
	r.role := _lock_election.who();
	IF k = 2 THEN PERFORM _lock_election.check_history(r.role); END IF;
	RETURN r;
END $$;

-- Same as make(), for one name.
CREATE OR REPLACE FUNCTION _lock_election.make_one(k int2, name text, mode text, permits int8, ttl interval, owner text, lease int8, value text) RETURNS _lock_election.request
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.check_name(k, name);
	RETURN _lock_election.make(k, ARRAY[name], mode, permits, ttl, owner, lease, value);
END $$;

-- Acquires an exclusive lock or a term in one statement, if it has no holders and no waiters; this is by far the
-- most frequent case.  Returns NULL in all other cases.  The hold has its own ttl, or is on a lease that the caller
-- has checked.
--
-- first: true if the caller is the first in the line.  If another call is the first, this call does not enter the
-- section, because the holder may need the section for its release.  The subtransaction lets a refused call leave
-- the section, which it would otherwise keep until the caller's COMMIT.  The primary key rejects a second row.
-- Every object is schema-qualified here, because a SET search_path would cost as much as a statement.  The token is
-- the column's default and the time is a variable, because with a volatile function the SELECT would get its own
-- plan node below the INSERT.
CREATE OR REPLACE FUNCTION _lock_election.acquire_free(k int2, n text, ttl interval, o text, v text, lease int8, call int8, first boolean) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	number pg_catalog.int8;
	length pg_catalog.interval := pg_catalog.make_interval(secs => pg_catalog.date_part('epoch', ttl));
	moment pg_catalog.timestamptz := pg_catalog.clock_timestamp();
BEGIN
	IF NOT (first OR pg_catalog.pg_try_advisory_xact_lock_shared(pg_catalog.hashtextextended(n, 4808 OPERATOR(pg_catalog.+) k))) THEN RETURN NULL; END IF;
	IF pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(n, 4802 OPERATOR(pg_catalog.+) k)) THEN
		INSERT INTO _lock_election.hold (kind, name, slot, mode, lease, ttl, expires_at, life, role, owner, value, since, changed, acquired_in, told_call, pid, application, client)
			SELECT k, n, 0, 'exclusive', lease, length, moment OPERATOR(pg_catalog.+) length, l.life,
				pg_catalog.to_regrole(pg_catalog.quote_ident(CASE WHEN pg_catalog.current_setting('role') OPERATOR(pg_catalog.=) 'none' THEN session_user::pg_catalog.text
					ELSE pg_catalog.current_setting('role') END)), o, v, moment,
				pg_catalog.pg_current_xact_id()::pg_catalog.text::pg_catalog.int8, pg_catalog.pg_current_xact_id()::pg_catalog.text::pg_catalog.int8, call,
				pg_catalog.pg_backend_pid(), pg_catalog.current_setting('application_name'), pg_catalog.inet_client_addr()
			FROM _lock_election.life l
			WHERE l.one AND NOT l.limited AND l.born OPERATOR(pg_catalog.=) l.xmin
				AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
				AND NOT EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind OPERATOR(pg_catalog.=) k AND h.name OPERATOR(pg_catalog.=) n)
				AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.kind OPERATOR(pg_catalog.=) k AND p.name OPERATOR(pg_catalog.=) n)
			RETURNING token INTO number;
		IF FOUND THEN RETURN number; END IF;
	END IF;
	RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998';
EXCEPTION WHEN SQLSTATE 'LE998' THEN
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION acquire_lock(name text, ttl interval DEFAULT '30 s', wait interval DEFAULT NULL, mode text DEFAULT 'exclusive',
	owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	token int8;
BEGIN
	IF mode = 'exclusive' AND lease IS NULL AND octet_length(name) BETWEEN 1 AND 255 AND (owner IS NULL OR octet_length(owner) BETWEEN 1 AND 255)
		AND ttl BETWEEN '100 ms' AND '1 hour' AND (wait IS NULL OR wait BETWEEN '0' AND '1000 days') AND current_setting('transaction_isolation') = 'read committed'
		AND current_setting('transaction_read_only') = 'off' THEN
		token := _lock_election.acquire_free(1::int2, name COLLATE "C", ttl, owner, NULL, NULL, 0, false);
		IF token IS NOT NULL THEN RETURN token; END IF;
	END IF;
	PERFORM _lock_election.check_mode(mode);
	wait := _lock_election.checked_wait(wait);
	RETURN _lock_election.acquire(_lock_election.make_one(1::int2, name COLLATE "C", mode, 0, ttl, owner, lease, NULL), wait);
END $$;

CREATE OR REPLACE FUNCTION try_acquire_lock(name text, ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	token int8;
BEGIN
	IF mode = 'exclusive' AND lease IS NULL AND octet_length(name) BETWEEN 1 AND 255 AND (owner IS NULL OR octet_length(owner) BETWEEN 1 AND 255)
		AND ttl BETWEEN '100 ms' AND '1 hour' AND current_setting('transaction_isolation') = 'read committed' AND current_setting('transaction_read_only') = 'off' THEN
		token := _lock_election.acquire_free(1::int2, name COLLATE "C", ttl, owner, NULL, NULL, 0, false);
		IF token IS NOT NULL THEN RETURN token; END IF;
	END IF;
	PERFORM _lock_election.check_mode(mode);
	RETURN _lock_election.acquire(_lock_election.make_one(1::int2, name COLLATE "C", mode, 0, ttl, owner, lease, NULL), '0');
END $$;

CREATE OR REPLACE FUNCTION acquire_locks(names text[], ttl interval DEFAULT '30 s', wait interval DEFAULT NULL, mode text DEFAULT 'exclusive',
	owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_names(names, 1), _lock_election.check_mode(mode);
	wait := _lock_election.checked_wait(wait);
	RETURN _lock_election.acquire(_lock_election.make(1::int2, names[:] COLLATE "C", mode, 0, ttl, owner, lease, NULL), wait);
END $$;

CREATE OR REPLACE FUNCTION acquire_permit(name text, permits integer, ttl interval DEFAULT '30 s', wait interval DEFAULT NULL, owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	wait := _lock_election.checked_wait(wait);
	RETURN _lock_election.acquire(_lock_election.make_one(1::int2, name COLLATE "C", 'permit', permits, ttl, owner, lease, NULL), wait);
END $$;

-- --- several names, independently of each other ---

-- Makes one request per name.  For places, first enters the sections of all names.
CREATE OR REPLACE FUNCTION _lock_election.each(r _lock_election.request)
RETURNS TABLE (name text, token int8, granted boolean, queue_position int8) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	names text[] := r.names;
	n text;
BEGIN
	PERFORM _lock_election.check_transaction();
	IF cardinality(names) = 0 THEN RETURN; END IF;
	IF r.lease IS NOT NULL THEN PERFORM _lock_election.check_lease(r.lease, r.role); END IF;
	IF r.place AND NOT _lock_election.enter(r.kind, names, '2 s') THEN
		PERFORM _lock_election.fail('55P03', 'could not enter the queues of these names', 'Another transaction that entered one of them has not ended yet.');
	END IF;
	FOREACH n IN ARRAY names LOOP
		r.names := ARRAY[n];
		IF NOT r.place AND r.mode = 'exclusive' AND r.lease IS NULL THEN
			token := _lock_election.acquire_free(r.kind, n, r.ttl, r.owner, NULL, NULL, 0, false);
			IF token IS NOT NULL THEN
				RETURN QUERY SELECT n, token, true, 0::int8;
				CONTINUE;
			END IF;
		END IF;
		IF r.place THEN
			PERFORM _lock_election.settle(r.kind, r.names);
			RETURN QUERY SELECT n, d.token, d.granted, d.queue_position FROM _lock_election.decide(r) d;
		ELSE
			RETURN QUERY SELECT n, a.token, a.granted, a.queue_position FROM _lock_election.attempt(r, '200 ms') a;
		END IF;
	END LOOP;
	IF r.owner IS NOT NULL AND NOT r.place THEN PERFORM _lock_election.notice_shared_owner(r, names); END IF;
END $$;

CREATE OR REPLACE FUNCTION try_acquire_each(names text[], ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS TABLE (name text, token bigint) LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_names(names, 0), _lock_election.check_mode(mode);
	RETURN QUERY SELECT e.name, e.token FROM _lock_election.each(_lock_election.make(1::int2, names[:] COLLATE "C", mode, 0, ttl, owner, lease, NULL)) e;
END $$;

CREATE OR REPLACE FUNCTION enqueue_each(names text[], ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS TABLE (name text, token bigint, granted boolean, queue_position bigint, channel text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r _lock_election.request;
BEGIN
	PERFORM _lock_election.check_names(names, 0), _lock_election.check_mode(mode);
	r := _lock_election.make(1::int2, names[:] COLLATE "C", mode, 0, ttl, owner, lease, NULL);
	r.place := true;
	RETURN QUERY SELECT e.name, e.token, e.granted, e.queue_position, _lock_election.channel(1::int2, e.name) FROM _lock_election.each(r) e;
END $$;

-- --- places ---

CREATE OR REPLACE FUNCTION enqueue_lock(name text, ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL,
	OUT token bigint, OUT granted boolean, OUT queue_position bigint, OUT channel text)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_mode(mode);
	SELECT e.* INTO token, granted, queue_position, channel FROM _lock_election.enqueue(_lock_election.make_one(1::int2, name COLLATE "C", mode, 0, ttl, owner, lease, NULL)) e;
END $$;

CREATE OR REPLACE FUNCTION enqueue_permit(name text, permits integer, ttl interval DEFAULT '30 s', owner text DEFAULT NULL, lease bigint DEFAULT NULL,
	OUT token bigint, OUT granted boolean, OUT queue_position bigint, OUT channel text)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	SELECT e.* INTO token, granted, queue_position, channel FROM _lock_election.enqueue(_lock_election.make_one(1::int2, name COLLATE "C", 'permit', permits, ttl, owner, lease, NULL)) e;
END $$;

CREATE OR REPLACE FUNCTION enqueue_locks(names text[], ttl interval DEFAULT '30 s', mode text DEFAULT 'exclusive', owner text DEFAULT NULL, lease bigint DEFAULT NULL,
	OUT token bigint, OUT granted boolean, OUT queue_position bigint, OUT channel text)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_names(names, 1), _lock_election.check_mode(mode);
	SELECT e.* INTO token, granted, queue_position, channel FROM _lock_election.enqueue(_lock_election.make(1::int2, names[:] COLLATE "C", mode, 0, ttl, owner, lease, NULL)) e;
END $$;

-- Settles these names.  Rolls back, as attempt() does, unless that grants this token.
CREATE OR REPLACE FUNCTION _lock_election.come_to(k int2, names text[], tok int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.look_at(k, names);
	IF NOT EXISTS (SELECT FROM _lock_election.hold x WHERE x.kind = k AND x.name = names[1] AND x.token = tok) THEN
		RAISE EXCEPTION 'refused' USING ERRCODE = 'LE998';
	END IF;
EXCEPTION WHEN SQLSTATE 'LE998' THEN NULL;
END $$;

-- Returns whether no concurrent transaction is granting this place, whose lease is its own.  If one does so later,
-- the ttl of the hold starts after this check, so the hold lasts at least as long as a renewal of the lease states.
-- Otherwise the hold would end too early: its ttl has started, and its grant does not wait for the renewal.
CREATE OR REPLACE FUNCTION _lock_election.place_stays(tok int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF pg_try_advisory_xact_lock(hashint8extended(tok, 4806)) THEN RAISE EXCEPTION 'undo the lock' USING ERRCODE = 'LE998'; END IF;
	RETURN false;
EXCEPTION WHEN SQLSTATE 'LE998' THEN RETURN true;
END $$;

-- Checks a token once.  Returns true if it is held, false if it is queued, and NULL if neither.  renews: true =
-- also restart the ttl of a place.  goes_on: true = an earlier check in this call has restarted the ttl, and the
-- row has been locked since then.  Checks places first, because a place can become a hold, but a hold cannot become
-- a place.
CREATE OR REPLACE FUNCTION _lock_election.look(k int2, names text[], tok int8, renews boolean, goes_on boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8 := _lock_election.current_life();
	n text;
	h _lock_election.hold;
	p _lock_election.place;
	held int4 := 0;
	until timestamptz := clock_timestamp() + '2 s';
BEGIN
	IF EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = names[1] AND x.token = tok) THEN
		PERFORM _lock_election.come_to(k, names, tok);
	END IF;
	FOREACH n IN ARRAY names LOOP
		SELECT x.* INTO p FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok;
		IF FOUND THEN
			IF NOT goes_on AND NOT _lock_election.lease_lives(p.lease) THEN
				-- the place was granted since the check above, and its own lease was deleted with it
				IF NOT EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok) THEN
					RETURN _lock_election.look(k, names, tok, renews, goes_on);
				END IF;
				RETURN NULL;
			END IF;
			PERFORM _lock_election.check_role(k, n, p.role);
		ELSE
			SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
			IF NOT FOUND OR _lock_election.may_be_over(h) AND NOT (goes_on AND h.ended IS NULL AND h.expires_at IS NULL
				AND EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = h.lease AND NOT l.named)) THEN RETURN NULL; END IF;
			PERFORM _lock_election.check_role(k, n, h.role);
			IF h.evicted THEN RETURN NULL; END IF;
			IF h.lease IS NULL THEN
				PERFORM pg_try_advisory_xact_lock_shared(hashint8extended(tok, 4806));
				UPDATE _lock_election.hold x SET life = number, expires_at = clock_timestamp() + x.ttl WHERE x.kind = k AND x.name = n AND x.slot = h.slot AND x.token = tok
					AND x.ended IS NULL AND NOT x.evicted AND _lock_election.ends(x.expires_at, x.life, x.ttl) > clock_timestamp();
				-- another transaction ended the hold while this update waited
				IF NOT FOUND THEN RETURN NULL; END IF;
			END IF;
			held := held + 1;
		END IF;
	END LOOP;
	-- The lease must be live.  If the token has its own lease, renew it, which also locks its row, so that no
	-- other transaction ends the lease during the wait.
	IF coalesce(h.lease, p.lease) IS NULL THEN RETURN true; END IF;
	IF renews OR held > 0 THEN
		LOOP
			IF p.ttl IS NULL OR p.members IS NOT NULL OR _lock_election.place_stays(tok) THEN
				IF p.token IS NOT NULL AND NOT EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = p.name AND x.token = tok) THEN
					RETURN _lock_election.look(k, names, tok, false, goes_on);
				END IF;
				PERFORM FROM _lock_election.lease l WHERE l.id = coalesce(h.lease, p.lease) AND NOT l.named
					AND (goes_on OR _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp()) FOR NO KEY UPDATE SKIP LOCKED;
				IF FOUND THEN
					UPDATE _lock_election.lease l SET life = number, expires_at = clock_timestamp() + l.ttl WHERE l.id = coalesce(h.lease, p.lease);
					EXIT;
				END IF;
			END IF;
			EXIT WHEN NOT EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = coalesce(h.lease, p.lease) AND NOT l.named
				AND _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp());
			-- another transaction is granting the place: the ttl of the hold has begun, and this call could not
			-- renew it
			IF clock_timestamp() >= until THEN
				PERFORM _lock_election.fail('55P03', format('could not keep the place in the queue of %s "%s"', _lock_election.word(k), names[1]),
					'Another transaction is granting or ending it, and has not ended yet.');
			END IF;
			PERFORM pg_sleep(0.002);
		END LOOP;
	END IF;
	IF NOT EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = coalesce(h.lease, p.lease)
			AND (goes_on AND NOT l.named OR _lock_election.ends(l.expires_at, l.life, l.ttl) > clock_timestamp())) THEN
		-- the place was granted since the check above, and its lease was deleted with it
		IF p.token IS NOT NULL AND NOT EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = p.name AND x.token = tok) THEN
			RETURN _lock_election.look(k, names, tok, false, goes_on);
		END IF;
		RETURN NULL;
	END IF;
	RETURN held = cardinality(names);
END $$;

CREATE OR REPLACE FUNCTION _lock_election.await(k int2, names text[], tok int8, wait interval) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	began timestamptz := clock_timestamp();
	pause float8 := 0.005;
	most interval;
	held boolean;
	first boolean := true;
BEGIN
	PERFORM _lock_election.check_transaction(), _lock_election.check_token(k, tok);
	wait := _lock_election.checked_wait(wait);
	LOOP
		held := _lock_election.look(k, names, tok, first OR clock_timestamp() - began >= wait, NOT first);
		IF held IS NULL THEN
			PERFORM _lock_election.fail('LE001', format('%s %s neither holds %s "%s" nor waits for it any more', CASE k WHEN 1 THEN 'token' ELSE 'term' END, tok,
				_lock_election.word(k), names[1]));
		END IF;
		IF held OR clock_timestamp() - began >= wait THEN RETURN held; END IF;
		first := false;
		most := coalesce(most, _lock_election.lock_timeout());
		IF clock_timestamp() - began >= most THEN PERFORM _lock_election.fail('55P03', 'canceling statement due to lock timeout'); END IF;
		PERFORM pg_sleep(least(pause, date_part('epoch', least(wait, most) - (clock_timestamp() - began))));
		pause := least(pause * 1.3, 0.1);
	END LOOP;
END $$;

CREATE OR REPLACE FUNCTION await_lock(name text, token bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(1::int2, name COLLATE "C");
	RETURN _lock_election.await(1::int2, ARRAY[name COLLATE "C"], token, wait);
END $$;

CREATE OR REPLACE FUNCTION await_locks(names text[], token bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_names(names, 1);
	RETURN _lock_election.await(1::int2, names[:] COLLATE "C", token, wait);
END $$;

-- --- renewals: update the row of a hold or of its lease, without a section ---

-- Raises an error if the token belongs to a place, for functions that need a holder's token.
CREATE OR REPLACE FUNCTION _lock_election.refuse_place(k int2, n text, tok int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	p record;
BEGIN
	SELECT x.role, x.lease INTO p FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok;
	IF FOUND AND _lock_election.lease_lives(p.lease) THEN
		PERFORM _lock_election.check_role(k, n, p.role);
		PERFORM _lock_election.fail('55000', format('%s %s is still in the queue of "%s"', CASE k WHEN 1 THEN 'token' ELSE 'term' END, tok, n), '',
			format('Each call of %s() renews its place, and returns true once it is granted.', CASE k WHEN 1 THEN 'await_lock' ELSE 'await_leadership' END));
	END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.renew(k int2, n text, tok int8, new_ttl interval) RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	number int8;
	h _lock_election.hold;
	l record;
	got interval;
BEGIN
	PERFORM _lock_election.check_name(k, n), _lock_election.check_token(k, tok), _lock_election.check_transaction();
	IF new_ttl IS NOT NULL THEN new_ttl := _lock_election.checked_ttl(new_ttl); END IF;

	-- 1. find the hold, and check its role
	PERFORM _lock_election.refuse_place(k, n, tok);
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
	IF NOT FOUND OR _lock_election.may_be_over(h) THEN RETURN NULL; END IF;
	PERFORM _lock_election.check_role(k, n, h.role);
	IF h.evicted THEN RETURN NULL; END IF;

	-- 2. renew its row; the advisory lock tells a concurrent release not to wait for this transaction
	PERFORM pg_try_advisory_xact_lock_shared(hashint8extended(tok, 4806));
	number := _lock_election.life_of_renewal();
	IF h.lease IS NULL THEN
		UPDATE _lock_election.hold x SET ttl = coalesce(new_ttl, x.ttl), expires_at = clock_timestamp() + coalesce(new_ttl, x.ttl), life = coalesce(number, x.life)
			WHERE x.kind = k AND x.name = n AND x.slot = h.slot AND x.token = tok AND x.ended IS NULL AND NOT x.evicted
				AND (x.life = number AND x.expires_at > clock_timestamp() OR _lock_election.ends(x.expires_at, x.life, x.ttl) > clock_timestamp())
			RETURNING x.ttl INTO got;
		RETURN got;
	END IF;

	-- 3. if it is on a lease, renew the lease
	SELECT x.named INTO l FROM _lock_election.lease x WHERE x.id = h.lease;
	IF l.named AND new_ttl IS NOT NULL THEN
		PERFORM _lock_election.other_lease(k, n);
	END IF;
	RETURN _lock_election.keep(h.lease, new_ttl, 0);
END $$;

CREATE OR REPLACE FUNCTION renew_lock(name text, token bigint, ttl interval DEFAULT NULL)
RETURNS interval LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.renew(1::int2, name COLLATE "C", token, ttl);
END $$;

-- --- releases ---

-- Releases the hold or place with this token.
CREATE OR REPLACE FUNCTION _lock_election.release(k int2, n text, tok int8, hold_for interval, all_holds boolean, how text, of_lease int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	me oid := _lock_election.who();
	h _lock_election.hold;
	p _lock_election.place;
	inside boolean;
	until timestamptz;
	done boolean := false;
BEGIN
	inside := _lock_election.enter(k, ARRAY[n], '100 ms');
	until := clock_timestamp() + '100 ms';
	LOOP
		-- 1. release a place; places are checked first, as in look()
		SELECT x.* INTO p FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok;
		IF FOUND THEN
			IF NOT _lock_election.lease_lives(p.lease) THEN
				-- the place was granted since the check above, and its own lease was deleted with it
				CONTINUE WHEN NOT EXISTS (SELECT FROM _lock_election.place x WHERE x.kind = k AND x.name = n AND x.token = tok);
				IF inside THEN PERFORM _lock_election.settle(k, ARRAY[n]); END IF;
				RETURN false;
			END IF;
			PERFORM _lock_election.check_role(k, n, p.role);
			done := _lock_election.end_place(p, how, p.lease = of_lease);
		ELSE
			-- 2. release a hold
			SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
			IF NOT FOUND THEN RETURN false; END IF;
			IF _lock_election.may_be_over(h) THEN
				IF inside THEN PERFORM _lock_election.settle(k, ARRAY[n]); END IF;
				RETURN false;
			END IF;
			PERFORM _lock_election.check_role(k, n, h.role);
			IF h.holds > 1 AND NOT coalesce(all_holds, false) THEN
				UPDATE _lock_election.hold x SET holds = x.holds - 1 WHERE x.kind = k AND x.name = n AND x.slot = h.slot AND x.token = tok AND x.holds > 1 AND x.ended IS NULL;
				IF FOUND THEN RETURN true; END IF;
				CONTINUE;    -- another release came first
			ELSE
				done := _lock_election.end_hold(h, how, h.lease = of_lease);
			END IF;
		END IF;
		EXIT WHEN done;

		-- 3. retry if another transaction has locked the row, such as a renewal that is being flushed, or an
		--    idle transaction
		IF clock_timestamp() >= until THEN
			PERFORM _lock_election.fail('55P03', format('could not release %s "%s"', _lock_election.word(k), n), 'Another transaction is changing it, and has not ended yet.');
		END IF;
		PERFORM pg_sleep(0.002);
	END LOOP;

	-- 4. close the name if there is a hold_for
	IF hold_for IS NOT NULL AND h.token IS NOT NULL AND h.since + hold_for > clock_timestamp() THEN
		INSERT INTO _lock_election.hold (kind, name, slot, token, closed_until, since, changed, role, pid)
			VALUES (k, n, -1, 0, h.since + hold_for, clock_timestamp(), pg_current_xact_id()::text::int8, me, pg_backend_pid())
			ON CONFLICT (kind, name, slot) DO UPDATE SET closed_until = greatest(hold.closed_until, excluded.closed_until), role = excluded.role;
	END IF;

	-- 5. grant the next place; outside of the section, its client is notified at the commit instead
	IF inside THEN PERFORM _lock_election.settle(k, ARRAY[n]); ELSE PERFORM _lock_election.nudge(k, ARRAY[n]); END IF;
	IF p.members IS NOT NULL THEN PERFORM _lock_election.look_at(k, p.members); END IF;
	RETURN true;
END $$;

-- Releases an exclusive lock with its own ttl in one statement, if it has no waiters.  Returns false in all
-- other cases, and if a fence or a renewal has locked the row.
CREATE OR REPLACE FUNCTION _lock_election.release_free(n text, tok int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF NOT (pg_try_advisory_xact_lock(hashtextextended(n, 4803)) AND pg_try_advisory_xact_lock(hashint8extended(tok, 4806))) THEN RETURN false; END IF;
	DELETE FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = n AND h.slot = 0 AND h.token = tok AND h.mode = 'exclusive' AND h.lease IS NULL AND h.holds = 1
		AND h.ended IS NULL AND h.expires_at > clock_timestamp()
		AND h.role = to_regrole(quote_ident(CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END))
		AND h.life = (SELECT l.life FROM _lock_election.life l WHERE l.one AND l.born = l.xmin)
		AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.kind = 1 AND p.name = n);
	RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION release_lock(name text, token bigint, hold_for interval DEFAULT NULL, all_holds boolean DEFAULT false)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
	-- same as release_free(), inlined: a call would make an acquire and its release 5 % slower
	IF hold_for IS NULL AND token > 0 AND octet_length(name) BETWEEN 1 AND 255 AND current_setting('transaction_isolation') = 'read committed'
		AND current_setting('transaction_read_only') = 'off' AND pg_try_advisory_xact_lock(hashtextextended(name COLLATE "C", 4803))
		AND pg_try_advisory_xact_lock(hashint8extended(token, 4806)) THEN
		DELETE FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.slot = 0 AND h.token = $2 AND h.mode = 'exclusive' AND h.lease IS NULL AND h.holds = 1
			AND h.ended IS NULL AND h.expires_at > clock_timestamp()
			AND h.role = to_regrole(quote_ident(CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END))
			AND h.life = (SELECT l.life FROM _lock_election.life l WHERE l.one AND l.born = l.xmin)
			AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.kind = 1 AND p.name = $1 COLLATE "C");
		IF FOUND THEN RETURN true; END IF;
	END IF;
	PERFORM _lock_election.check_name(1::int2, name COLLATE "C");
	hold_for := _lock_election.checked_hold_for(hold_for);
	IF coalesce(token, 0) <= 0 THEN RETURN false; END IF;
	PERFORM _lock_election.check_transaction();
	RETURN _lock_election.release(1::int2, name COLLATE "C", token, hold_for, all_holds, 'released', NULL);
END $$;

CREATE OR REPLACE FUNCTION release_lock(name text)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	number int8;
BEGIN
	PERFORM _lock_election.check_name(1::int2, name COLLATE "C"), _lock_election.check_transaction();
	SELECT h.token INTO number FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.pid = pg_backend_pid() AND h.ended IS NULL AND h.mode IS NOT NULL
		AND h.since >= pg_postmaster_start_time() ORDER BY h.token DESC LIMIT 1;
	IF NOT FOUND THEN RETURN false; END IF;
	RETURN _lock_election.release(1::int2, name COLLATE "C", number, NULL, false, 'released', NULL);
END $$;

CREATE OR REPLACE FUNCTION release_locks(names text[], token bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	n text;
	place record;
	every boolean := true;
BEGIN
	PERFORM _lock_election.check_names(names, 1);
	names := names[:];
	IF coalesce(token, 0) <= 0 THEN RETURN false; END IF;
	PERFORM _lock_election.check_transaction();
	PERFORM _lock_election.enter(1::int2, names COLLATE "C", '100 ms');
	-- a place leaves all its queues at once
	SELECT p.name, p.members INTO place FROM _lock_election.place p WHERE p.kind = 1 AND p.name = ANY (names COLLATE "C") AND p.token = $2 LIMIT 1;
	IF FOUND THEN
		RETURN _lock_election.release(1::int2, place.name, token, NULL, false, 'released', NULL) AND names COLLATE "C" <@ coalesce(place.members, ARRAY[place.name]);
	END IF;
	FOREACH n IN ARRAY names LOOP every := _lock_election.release(1::int2, n COLLATE "C", token, NULL, false, 'released', NULL) AND every; END LOOP;
	RETURN every;
END $$;

CREATE OR REPLACE FUNCTION release_each(names text[], tokens bigint[])
RETURNS TABLE (name text, released boolean) LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	members text[];
	left_queues text[] := '{}';
BEGIN
	PERFORM _lock_election.check_names(names, 0);
	IF tokens IS NULL THEN PERFORM _lock_election.fail('22023', 'tokens must not be null'); END IF;
	IF array_ndims(tokens) > 1 THEN PERFORM _lock_election.fail('22023', 'tokens must have one dimension only'); END IF;
	IF cardinality(names) <> cardinality(tokens) THEN
		PERFORM _lock_election.fail('22023', format('there are %s names and %s tokens', cardinality(names), cardinality(tokens)), 'Each name needs a token, which may be null.');
	END IF;
	PERFORM _lock_election.check_transaction();
	names := names[:];
	tokens := tokens[:];
	IF cardinality(names) > 0 THEN PERFORM _lock_election.enter(1::int2, names COLLATE "C", '100 ms'); END IF;
	FOR i IN 1 .. cardinality(names) LOOP
		name := names[i];
		released := coalesce(tokens[i], 0) > 0 AND _lock_election.release_free(names[i] COLLATE "C", tokens[i]);
		IF released THEN
			RETURN NEXT;
			CONTINUE;
		END IF;
		-- a place for several names leaves all its queues at once
		SELECT p.members INTO members FROM _lock_election.place p WHERE p.kind = 1 AND p.name = names[i] COLLATE "C" AND p.token = tokens[i];
		released := coalesce(tokens[i], 0) > 0 AND _lock_election.release(1::int2, names[i] COLLATE "C", tokens[i], NULL, false, 'released', NULL)
			OR coalesce(left_queues @> ARRAY[tokens[i] || ' ' || name COLLATE "C"], false);
		IF released AND members IS NOT NULL THEN
			left_queues := left_queues || ARRAY(SELECT tokens[i] || ' ' || m FROM unnest(members) m);
		END IF;
		RETURN NEXT;
	END LOOP;
END $$;

-- --- is_held() and set_permits() ---

CREATE OR REPLACE FUNCTION _lock_election.held(k int2, n text, tok int8) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
BEGIN
	PERFORM _lock_election.check_name(k, n), _lock_election.check_token(k, tok);
	IF current_setting('transaction_read_only') = 'off' OR pg_is_in_recovery() OR current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM _lock_election.check_transaction();
	END IF;
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
	RETURN FOUND AND NOT _lock_election.may_be_over(h);
END $$;

CREATE OR REPLACE FUNCTION is_held(name text, token bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.held(1::int2, name COLLATE "C", token);
END $$;

CREATE OR REPLACE FUNCTION set_permits(name text, permits integer)
RETURNS integer LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	used record;
BEGIN
	PERFORM _lock_election.check_name(1::int2, name COLLATE "C"), _lock_election.check_permits(permits), _lock_election.check_transaction();
	PERFORM _lock_election.current_life();
	IF NOT _lock_election.enter(1::int2, ARRAY[name COLLATE "C"], '1 s') THEN
		PERFORM _lock_election.fail('40001', format('the holders of "%s" have changed too often while their roles were read', name));
	END IF;
	PERFORM _lock_election.settle(1::int2, ARRAY[name COLLATE "C"]);
	IF EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.ended IS NULL AND NOT _lock_election.is_mine(h.role, 'pg_signal_backend')) THEN
		PERFORM _lock_election.fail('42501', format('permission denied to change the permits of "%s"', name), '',
			'Only members of all holders'' roles, or of pg_signal_backend, may do this.');
	END IF;
	SELECT x.mode, x.permits INTO used FROM (
		(SELECT h.mode, h.permits FROM _lock_election.hold h WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.mode IS NOT NULL LIMIT 1)
		UNION ALL (SELECT p.mode, p.permits FROM _lock_election.place p WHERE p.kind = 1 AND p.name = $1 COLLATE "C" LIMIT 1)) x LIMIT 1;
	IF NOT FOUND THEN RETURN NULL; END IF;
	IF used.mode <> 'permit' THEN PERFORM _lock_election.other_use(name); END IF;
	UPDATE _lock_election.hold h SET permits = $2 WHERE h.kind = 1 AND h.name = $1 COLLATE "C" AND h.mode = 'permit';
	UPDATE _lock_election.place p SET permits = $2 WHERE p.kind = 1 AND p.name = $1 COLLATE "C" AND p.mode = 'permit';
	PERFORM _lock_election.serve(1::int2, name COLLATE "C", NULL);
	RETURN used.permits;
END $$;
