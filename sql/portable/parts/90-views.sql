-- --- views and health() -------------------------------------------------------------------------------------------------

-- Returns whether role "me" may see the owner, token and connection of a hold of "role".
CREATE OR REPLACE FUNCTION _lock_election.may_see(role oid, me oid) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT role = me OR pg_has_role(me, 'pg_read_all_stats', 'USAGE') OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = role) AND pg_has_role(me, role, 'USAGE')
$$;

CREATE OR REPLACE FUNCTION lock_election.look(OUT kind text, OUT name text, OUT slot integer, OUT mode text, OUT owner text, OUT value text, OUT role oid, OUT token bigint, OUT lease bigint,
	OUT holds integer, OUT since timestamptz, OUT expires_at timestamptz, OUT time_left interval, OUT waiters bigint, OUT closed_until timestamptz, OUT queue_position bigint, OUT pid integer,
	OUT term bigint, OUT application_name text, OUT client_addr inet, OUT connected boolean, OUT evicted boolean)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	me oid := _lock_election.who();
	standby boolean := pg_is_in_recovery();
BEGIN
	RETURN QUERY
	WITH h AS (SELECT x.*, l.named, (_lock_election.may_see(x.role, me)) AS mine,
			CASE WHEN x.lease IS NULL OR x.evicted THEN _lock_election.ends(x.expires_at, x.life, x.ttl) WHEN NOT standby THEN _lock_election.ends(l.expires_at, l.life, l.ttl) END AS at
		FROM _lock_election.hold x LEFT JOIN _lock_election.lease l ON l.id = x.lease),
	p AS (SELECT x.*, l.named, (_lock_election.may_see(x.role, me)) AS mine,
			_lock_election.ends(l.expires_at, l.life, l.ttl) AS at
		FROM _lock_election.place x LEFT JOIN _lock_election.lease l ON l.id = x.lease WHERE NOT standby),
	-- Blocked calls are found by their gates, and so only for names that have a holder or a place. waitstart exists
	-- since PostgreSQL 14, and is NULL for the first call in a line.  View waiters reads the start and the address
	-- with the privileges of its reader.
	line AS (SELECT k.kind, k.name, l.pid, a.usesysid, a.application_name, (_lock_election.may_see(a.usesysid, me)) AS mine,
			coalesce((SELECT s.last_value - ((s.last_value - f.objid::int8) & 4294967295) FROM _lock_election.token s, pg_locks f
				WHERE f.locktype = 'advisory' AND f.objsubid = 2 AND f.pid = l.pid AND f.database = l.database
					AND f.classid = (hashtextextended(k.name, 4810 + k.kind) & 4294967295)::oid LIMIT 1), 9223372036854775807) AS arrival, to_jsonb(l) ->> 'waitstart' AS waitstart
		FROM pg_locks l JOIN (SELECT h.kind, h.name FROM h UNION SELECT p.kind, p.name FROM p) k
			ON (l.classid::int8 << 32) | l.objid::int8 = hashtextextended(k.name, 4808 + k.kind)
		JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE NOT standby AND l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'
			AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())),
	live AS (SELECT q.*, row_number() OVER (PARTITION BY q.kind, q.name ORDER BY q.came, q.waitstart, q.pid) AS rank FROM (
		SELECT p.kind, p.name, p.token AS came, NULL AS waitstart, p.token, p.mode, p.owner, p.value, p.role, p.lease, p.named, p.since, p.at, p.pid, p.application, p.client, p.mine FROM p WHERE p.at > clock_timestamp()
		UNION ALL SELECT line.kind, line.name, line.arrival, line.waitstart, NULL, NULL, NULL, NULL, line.usesysid, NULL, false, line.waitstart::timestamptz, NULL, line.pid, line.application_name, NULL,
			line.mine FROM line) q),
	c AS (SELECT x.kind, x.name, x.closed_until FROM _lock_election.hold x WHERE x.mode IS NULL AND x.closed_until > clock_timestamp()),
	n AS (SELECT live.kind, live.name, count(*) AS waiters FROM live GROUP BY live.kind, live.name)
	SELECT _lock_election.word(h.kind), h.name, CASE WHEN h.mode IS NOT NULL THEN h.slot END, h.mode, CASE WHEN h.mine THEN h.owner END, CASE WHEN h.kind = 2 THEN h.value END, h.role,
		CASE WHEN h.mine AND h.mode IS NOT NULL THEN h.token END, CASE WHEN h.mine AND h.named THEN h.lease END, CASE WHEN h.mode IS NOT NULL THEN h.holds END,
		CASE WHEN h.mode IS NOT NULL THEN h.since END, h.at, CASE WHEN NOT standby THEN _lock_election.time_left(h.at) END, CASE WHEN NOT standby THEN coalesce(n.waiters, 0) END, c.closed_until, 0::int8,
		CASE WHEN h.mine AND h.mode IS NOT NULL THEN h.pid END, CASE WHEN h.kind = 2 AND h.mode IS NOT NULL THEN h.token END, CASE WHEN h.mine THEN h.application END, CASE WHEN h.mine THEN h.client END,
		CASE WHEN h.mine AND h.mode IS NOT NULL AND NOT standby THEN EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = h.pid AND (a.backend_start IS NULL OR a.backend_start <= h.since)) END,
		CASE WHEN h.mode IS NOT NULL THEN h.evicted END
		FROM h LEFT JOIN n ON n.kind = h.kind AND n.name = h.name LEFT JOIN c ON c.kind = h.kind AND c.name = h.name
		WHERE h.ended IS NULL AND CASE WHEN h.mode IS NULL THEN c.closed_until IS NOT NULL AND NOT EXISTS (SELECT FROM h o
			WHERE o.kind = h.kind AND o.name = h.name AND o.mode IS NOT NULL AND o.ended IS NULL AND (standby OR o.at > clock_timestamp())) ELSE standby OR h.at > clock_timestamp() END
	UNION ALL
	SELECT _lock_election.word(live.kind), live.name, NULL, live.mode, CASE WHEN live.mine THEN live.owner END, CASE WHEN live.kind = 2 THEN live.value END, live.role,
		CASE WHEN live.mine THEN live.token END, CASE WHEN live.mine AND live.named THEN live.lease END, 1, live.since, live.at, _lock_election.time_left(live.at), NULL,
		c.closed_until, live.rank,
		CASE WHEN live.mine THEN live.pid END, NULL, CASE WHEN live.mine THEN live.application END, CASE WHEN live.mine THEN live.client END,
		CASE WHEN live.mine THEN EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = live.pid AND (live.at IS NULL OR a.backend_start IS NULL OR a.backend_start <= live.since)) END, false
		FROM live LEFT JOIN c ON c.kind = live.kind AND c.name = live.name;
END $$;

CREATE OR REPLACE FUNCTION lock_election.look_leases(OUT lease bigint, OUT owner text, OUT role oid, OUT ttl interval, OUT expires_at timestamptz, OUT time_left interval)
RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	me oid := _lock_election.who();
BEGIN
	IF pg_is_in_recovery() THEN RETURN; END IF;
	RETURN QUERY SELECT CASE WHEN x.mine THEN x.id END, CASE WHEN x.mine THEN x.owner END, x.role, x.ttl, x.at, _lock_election.time_left(x.at)
		FROM (SELECT l.*, _lock_election.may_see(l.role, me) AS mine, _lock_election.ends(l.expires_at, l.life, l.ttl) AS at FROM _lock_election.lease l WHERE l.named) x
		WHERE x.at > clock_timestamp();
END $$;

-- fenced_by: processes that hold the advisory lock of a fence; not computed unless selected.  Both views repeat
-- this query instead of one view reading the other, because an upgrade locks the views in the opposite order
-- from a query, and could deadlock with it.
CREATE OR REPLACE VIEW lock_election.locks AS
SELECT l.kind, l.name, l.slot, l.mode, l.owner, l.role::pg_catalog.regrole AS role,
	l.token, l.lease, l.holds, l.since AS acquired_at, l.expires_at, l.time_left, l.closed_until, l.waiters,
	l.pid, l.application_name, l.client_addr, l.connected, l.evicted, COALESCE(f.pids, '{}') AS fenced_by,
	CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_xact_replay_timestamp() END AS replayed_at
FROM lock_election.look() l LEFT JOIN (
	SELECT (a.classid::pg_catalog.int8 OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) a.objid::pg_catalog.int8 AS key,
		pg_catalog.array_agg(DISTINCT a.pid) AS pids
	FROM pg_catalog.pg_locks a
	WHERE a.locktype OPERATOR(pg_catalog.=) 'advisory' AND a.objsubid OPERATOR(pg_catalog.=) 1 AND a.granted
		AND a.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
	GROUP BY 1) f ON f.key OPERATOR(pg_catalog.=) pg_catalog.hashint8extended(l.token, 4807)
WHERE l.queue_position OPERATOR(pg_catalog.=) 0;

CREATE OR REPLACE VIEW lock_election.elections AS
SELECT l.name AS election, l.value AS candidate, l.term, l.owner, l.role::pg_catalog.regrole AS role,
	l.since AS elected_at, l.expires_at, l.time_left AS valid_for, l.waiters AS waiting,
	l.pid, l.application_name, l.client_addr, l.connected, l.evicted, COALESCE(f.pids, '{}') AS fenced_by,
	CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_xact_replay_timestamp() END AS replayed_at
FROM lock_election.look() l LEFT JOIN (
	SELECT (a.classid::pg_catalog.int8 OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) a.objid::pg_catalog.int8 AS key,
		pg_catalog.array_agg(DISTINCT a.pid) AS pids
	FROM pg_catalog.pg_locks a
	WHERE a.locktype OPERATOR(pg_catalog.=) 'advisory' AND a.objsubid OPERATOR(pg_catalog.=) 1 AND a.granted
		AND a.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
	GROUP BY 1) f ON f.key OPERATOR(pg_catalog.=) pg_catalog.hashint8extended(l.token, 4807)
WHERE l.term IS NOT NULL;

-- PostgreSQL shows the start and the address of a statement to members of its role and of pg_read_all_stats.
-- The reader of this view may be a member of these even if the installer, with whose privileges look() runs, is
-- not.  Blocked calls are the rows without expires_at.
CREATE OR REPLACE VIEW lock_election.waiters AS
WITH l AS MATERIALIZED (SELECT * FROM lock_election.look()),
h AS MATERIALIZED (
	SELECT l.kind, l.name, pg_catalog.array_agg(DISTINCT l.pid) AS pids
	FROM l WHERE l.queue_position OPERATOR(pg_catalog.=) 0 AND l.connected
	GROUP BY l.kind, l.name)
SELECT w.kind, w.name, w.queue_position, w.mode, w.owner, w.role::pg_catalog.regrole AS role,
	w.token, w.lease, COALESCE(w.since, a.query_start) AS waiting_since, w.pid, w.application_name, COALESCE(w.client_addr, a.client_addr) AS client_addr, w.connected,
	CASE WHEN w.closed_until IS NOT NULL THEN '{0}'::pg_catalog.int4[] ELSE '{}'::pg_catalog.int4[] END
		OPERATOR(pg_catalog.||) COALESCE(h.pids, pg_catalog.array_remove(ARRAY[CASE
			WHEN w.queue_position OPERATOR(pg_catalog.>) 1 THEN
				pg_catalog.first_value(CASE WHEN w.connected THEN w.pid END)
					OVER (PARTITION BY w.kind, w.name ORDER BY w.queue_position) END], NULL)) AS blocked_by,
	w.closed_until
FROM l w LEFT JOIN h ON h.kind OPERATOR(pg_catalog.=) w.kind AND h.name OPERATOR(pg_catalog.=) w.name
	LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) w.pid AND w.expires_at IS NULL
WHERE w.queue_position OPERATOR(pg_catalog.>) 0
ORDER BY w.kind, w.name, w.queue_position;

CREATE OR REPLACE VIEW lock_election.leases AS
WITH n AS MATERIALIZED (
	SELECT l.lease, pg_catalog.count(*) FILTER (WHERE l.queue_position OPERATOR(pg_catalog.=) 0) AS holds,
		pg_catalog.count(*) FILTER (WHERE l.queue_position OPERATOR(pg_catalog.>) 0) AS waits
	FROM lock_election.look() l WHERE l.lease IS NOT NULL
	GROUP BY l.lease)
SELECT l.lease, l.owner, l.role::pg_catalog.regrole AS role, l.ttl, l.expires_at, l.time_left,
	CASE WHEN l.lease IS NOT NULL THEN COALESCE(n.holds, 0) END AS locks,
	CASE WHEN l.lease IS NOT NULL THEN COALESCE(n.waits, 0) END AS waiting
FROM lock_election.look_leases() l LEFT JOIN n ON n.lease OPERATOR(pg_catalog.=) l.lease;

CREATE OR REPLACE FUNCTION lock_election.health(OUT ok boolean, OUT problem text, OUT role text, OUT manager boolean, OUT loading boolean, OUT request_wait interval, OUT standby_confirms boolean,
	OUT standby_wait interval, OUT incarnation bigint, OUT library_version text, OUT sql_version text, OUT replayed_at timestamptz, OUT cannot_write_since timestamptz, OUT blocked_by int4)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	sql_version := (SELECT 'portable ' || e.version FROM _lock_election.edition e);
	role := CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE 'primary' END;
	manager := false;
	loading := false;
	IF pg_is_in_recovery() THEN
		replayed_at := pg_last_xact_replay_timestamp();
		problem := 'the server is a standby';
	ELSE
		incarnation := (SELECT max(l.life) FROM _lock_election.lives l);
		IF current_setting('default_transaction_read_only') = 'on' THEN problem := 'transactions are read-only here'; END IF;
	END IF;
	ok := problem IS NULL;
END $$;
