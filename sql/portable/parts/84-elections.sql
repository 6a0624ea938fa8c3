-- --- elections: the functions of elections ------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION campaign(election text, candidate text, ttl interval DEFAULT '15 s', wait interval DEFAULT NULL, owner text DEFAULT NULL, lease bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	wait := _lock_election.checked_wait(wait);
	RETURN _lock_election.acquire(_lock_election.make_one(2::int2, election COLLATE "C", 'exclusive', 0, ttl, owner, lease, candidate), wait);
END $$;

CREATE OR REPLACE FUNCTION enqueue_candidate(election text, candidate text, ttl interval DEFAULT '15 s', owner text DEFAULT NULL, lease bigint DEFAULT NULL,
	OUT term bigint, OUT elected boolean, OUT queue_position bigint, OUT channel text)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	SELECT e.* INTO term, elected, queue_position, channel
		FROM _lock_election.enqueue(_lock_election.make_one(2::int2, election COLLATE "C", 'exclusive', 0, ttl, owner, lease, candidate)) e;
END $$;

CREATE OR REPLACE FUNCTION await_leadership(election text, term bigint, wait interval DEFAULT '0')
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	RETURN _lock_election.await(2::int2, ARRAY[election COLLATE "C"], term, wait);
END $$;

CREATE OR REPLACE FUNCTION renew_leadership(election text, term bigint, ttl interval DEFAULT NULL)
RETURNS interval LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.renew(2::int2, election COLLATE "C", term, ttl);
END $$;

-- Changes the candidate in the row of the term.  Needs no section, because the leader stays the same.
CREATE OR REPLACE FUNCTION _lock_election.proclaim(n text, tok int8, v text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
BEGIN
	PERFORM _lock_election.check_name(2::int2, n), _lock_election.check_token(2::int2, tok), _lock_election.check_text('candidate', v, 4096);
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = 2 AND x.name = n AND x.slot = 0 AND x.token = tok AND x.ended IS NULL FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		SELECT x.role INTO h.role FROM _lock_election.place x WHERE x.kind = 2 AND x.name = n AND x.token = tok AND _lock_election.lease_lives(x.lease);
		IF FOUND THEN PERFORM _lock_election.check_role(2::int2, n, h.role); END IF;
		RETURN false;
	END IF;
	IF _lock_election.may_be_over(h) THEN RETURN false; END IF;
	PERFORM _lock_election.check_role(2::int2, n, h.role);
	PERFORM _lock_election.check_history(h.role);
	UPDATE _lock_election.hold x SET value = v WHERE x.kind = 2 AND x.name = n AND x.slot = 0;
	h.value := v;
	PERFORM _lock_election.note(h, 'proclaimed');
	RETURN true;
END $$;

CREATE OR REPLACE FUNCTION proclaim(election text, term bigint, candidate text)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_transaction();
	RETURN _lock_election.proclaim(election COLLATE "C", term, candidate);
END $$;

CREATE OR REPLACE FUNCTION resign(election text, term bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	IF coalesce(term, 0) <= 0 THEN RETURN false; END IF;
	PERFORM _lock_election.check_transaction();
	RETURN _lock_election.release(2::int2, election COLLATE "C", term, NULL, true, 'resigned', NULL);
END $$;

CREATE OR REPLACE FUNCTION is_leader(election text, term bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN _lock_election.held(2::int2, election COLLATE "C", term);
END $$;

CREATE OR REPLACE FUNCTION current_leader(election text, OUT candidate text, OUT term bigint, OUT elected_at timestamptz, OUT expires_at timestamptz, OUT valid_for interval)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	RETURN QUERY SELECT x.value, x.token, x.since, x.at, CASE WHEN NOT pg_is_in_recovery() THEN _lock_election.time_left(x.at) END
		FROM (SELECT h.value, h.token, h.since, h.ended, CASE WHEN h.lease IS NULL OR h.evicted THEN _lock_election.ends(h.expires_at, h.life, h.ttl)
				WHEN NOT pg_is_in_recovery() THEN _lock_election.ends(l.expires_at, l.life, l.ttl) END AS at, h.lease, l.id
			FROM _lock_election.hold h LEFT JOIN _lock_election.lease l ON l.id = h.lease WHERE h.kind = 2 AND h.name = $1 COLLATE "C" AND h.mode IS NOT NULL) x
		WHERE x.ended IS NULL AND (pg_is_in_recovery() OR (x.lease IS NULL OR x.id IS NOT NULL) AND x.at > clock_timestamp());
END $$;

CREATE OR REPLACE FUNCTION observe_election(election text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	RETURN _lock_election.channel(2::int2, election COLLATE "C");
END $$;

-- Returns the changes of an election.  First ends an expired term that no other call has ended yet.
CREATE OR REPLACE FUNCTION election_history(election text, after bigint DEFAULT 0, OUT change bigint, OUT how text, OUT candidate text, OUT term bigint,
	OUT elected_at timestamptz, OUT changed_at timestamptz, OUT ended_at timestamptz)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.check_name(2::int2, election COLLATE "C");
	IF NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AND current_setting('transaction_isolation') = 'read committed'
		AND EXISTS (SELECT FROM _lock_election.hold h WHERE h.kind = 2 AND h.name = $1 COLLATE "C" AND h.mode IS NOT NULL AND _lock_election.may_be_over(h)) THEN
		PERFORM _lock_election.look_at(2::int2, ARRAY[election COLLATE "C"]);
	END IF;
	RETURN QUERY SELECT h.change, h.how, h.candidate, h.term, h.elected_at, h.changed_at, h.ended_at
		FROM _lock_election.history h WHERE h.election = $1 COLLATE "C" AND h.change > coalesce($2, 0) ORDER BY h.change;
END $$;
