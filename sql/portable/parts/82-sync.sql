-- --- sync: lease_sync(), for client libraries ---------------------------------------------------------------------------
--
-- A call first renews the lease, then carries out the releases, then the other items, and finally returns the
-- news.  docs/reference/lease-sync.md describes arguments and rows.  The rules are implemented as follows:
--
--     renewal    A call without requests, even if it has releases, writes the lease's row and waits for no flush.
--                A call with requests must be flushed with its grants, and would keep that row locked until then.
--                So it locks the row only FOR KEY SHARE, renews nothing, and returns the time left.  If less than
--                half of the ttl is left, it renews as well, so that a client that makes requests all the time
--                keeps its lease.
--     old calls  Renewals store the number of the newest call in the lease's row, and calls with requests store it
--                in table asked.  Calls with requests exclude each other by an advisory lock of the lease.  A
--                renewal that finds this lock taken returns no news.
--     news       A news number consists of the oldest transaction that was running, and the call that returned it.
--                The next news is the changes of that transaction and of later transactions, except the changes
--                that the client has received as results.

DO $$
BEGIN
	IF pg_catalog.to_regtype('_lock_election.told') IS NULL THEN
		CREATE TYPE _lock_election.told AS (item pg_catalog.int4, event pg_catalog.text, kind pg_catalog.text, name pg_catalog.text, token pg_catalog.int8,
			queue_position pg_catalog.int8, owner pg_catalog.text, reason pg_catalog.text, sqlstate pg_catalog.text, message pg_catalog.text, detail pg_catalog.text, hint pg_catalog.text);
		-- Type of an item, with one or several names
		CREATE TYPE _lock_election.item AS (item pg_catalog.int4, action pg_catalog.text, names pg_catalog.text[], number pg_catalog.text, owner pg_catalog.text, value pg_catalog.text);
	END IF;
END $$;

-- Parses the texts of the items.
CREATE OR REPLACE FUNCTION _lock_election.read_items(texts text[]) RETURNS _lock_election.item[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n int4 := coalesce(cardinality(texts), 0);
	items _lock_election.item[] := '{}';
	i _lock_election.item;
	last _lock_election.item;
BEGIN
	texts := texts[:];    -- make subscripts begin at 1
	IF n % 6 <> 0 THEN PERFORM _lock_election.fail('22023', 'items cannot be read', format('Each item has 6 texts; there are %s.', n)); END IF;
	IF n / 6 > 1000 THEN PERFORM _lock_election.fail('22023', 'items cannot be read', format('There are %s; at most 1000 names are possible.', n / 6)); END IF;
	FOR at IN 0 .. n / 6 - 1 LOOP
		IF texts[at * 6 + 2] IS NULL THEN PERFORM _lock_election.fail('22023', 'items cannot be read', 'An action must not be null.'); END IF;
		IF texts[at * 6 + 1] IS NULL THEN PERFORM _lock_election.fail('22023', 'number of an item must not be null'); END IF;
		i := ROW(texts[at * 6 + 1]::int8::int4, texts[at * 6 + 2], ARRAY[texts[at * 6 + 3]], texts[at * 6 + 4], texts[at * 6 + 5], texts[at * 6 + 6]);
		IF i.action NOT IN ('release', 'resign', 'try_lock', 'try_shared', 'try_permit', 'try_candidate', 'enqueue_lock', 'enqueue_shared', 'enqueue_permit',
			'enqueue_candidate', 'proclaim') THEN
			PERFORM _lock_election.fail('22023', 'items cannot be read', format('There is no action "%s".', left(i.action, 64)));
		END IF;
		IF last.item = i.item THEN
			IF last.action <> i.action OR i.action NOT IN ('try_lock', 'try_shared', 'enqueue_lock', 'enqueue_shared') THEN
				PERFORM _lock_election.fail('22023', 'items cannot be read', format('Item %s appears twice.', i.item));
			END IF;
			last.names := last.names || i.names;
			items[cardinality(items)] := last;
		ELSE
			items := items || i;
			last := i;
		END IF;
	END LOOP;
	IF cardinality(items) > 128 THEN PERFORM _lock_election.fail('22023', 'items cannot be read', 'At most 128 are possible.'); END IF;
	RETURN items;
END $$;

-- Raises an error if the role may not execute the SQL function with the same effect as the action.
CREATE OR REPLACE FUNCTION _lock_election.check_right(me oid, action text, several boolean) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	f text := CASE action WHEN 'release' THEN 'release_lock' WHEN 'resign' THEN 'resign' WHEN 'proclaim' THEN 'proclaim' WHEN 'try_permit' THEN 'acquire_permit'
		WHEN 'try_candidate' THEN 'campaign' WHEN 'enqueue_permit' THEN 'enqueue_permit' WHEN 'enqueue_candidate' THEN 'enqueue_candidate'
		ELSE CASE WHEN action LIKE 'try%' THEN 'acquire_lock' ELSE 'enqueue_lock' END || CASE WHEN several THEN 's' ELSE '' END END;
BEGIN
	PERFORM FROM pg_proc p WHERE p.proname = f AND p.pronargs > 1 AND EXISTS (SELECT FROM pg_namespace d WHERE d.nspname = '_lock_election' AND d.nspowner = p.proowner AND d.oid <> p.pronamespace)
		AND NOT has_function_privilege(me, p.oid, 'EXECUTE');
	IF FOUND THEN PERFORM _lock_election.fail('42501', 'permission denied for function ' || f, 'lease_sync() requires the right to call the function of each action.'); END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.item_number(number text, what text) RETURNS int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF number IS NULL THEN PERFORM _lock_election.fail('22023', what || ' must not be null'); END IF;
	RETURN number::int8;
END $$;

-- Carries out one item.
CREATE OR REPLACE FUNCTION _lock_election.sync_item(i _lock_election.item, of_lease int8, call int8, me oid) RETURNS _lock_election.told LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	t _lock_election.told;
	k int2 := CASE WHEN i.action IN ('resign', 'proclaim', 'try_candidate', 'enqueue_candidate') THEN 2 ELSE 1 END;
	r _lock_election.request;
	h _lock_election.hold;
	number int8;
	hold_for interval;
BEGIN
	t.item := i.item;
	t.kind := _lock_election.word(k);
	t.name := i.names[1];
	PERFORM _lock_election.check_right(me, i.action, cardinality(i.names) > 1);

	-- 1. carry out a release or a proclaim
	IF i.action IN ('release', 'resign') THEN
		PERFORM _lock_election.check_name(k, t.name);
		IF i.action = 'release' THEN hold_for := _lock_election.checked_hold_for(i.value::interval); END IF;
		number := _lock_election.item_number(i.number, CASE k WHEN 1 THEN 'token' ELSE 'term' END);
		-- for an exclusive lock of this lease without waiters, delete its row, unless a fence has locked it
		IF k = 1 AND hold_for IS NULL AND number > 0 AND pg_try_advisory_xact_lock(hashtextextended(t.name, 4803))
			AND pg_try_advisory_xact_lock(hashint8extended(number, 4806)) THEN
			DELETE FROM _lock_election.hold x WHERE x.kind = 1 AND x.name = t.name AND x.slot = 0 AND x.token = number AND x.mode = 'exclusive' AND x.lease = of_lease
				AND x.role = me AND x.ended IS NULL AND NOT x.evicted AND NOT EXISTS (SELECT FROM _lock_election.place p WHERE p.kind = 1 AND p.name = t.name);
			IF FOUND THEN
				t.event := 'released';
				RETURN t;
			END IF;
		END IF;
		t.event := CASE WHEN number > 0 AND _lock_election.release(k, t.name, number, hold_for, true, CASE k WHEN 1 THEN 'released' ELSE 'resigned' END, of_lease)
			THEN 'released' ELSE 'not_held' END;
		RETURN t;
	END IF;
	IF i.action = 'proclaim' THEN
		t.token := _lock_election.item_number(i.number, 'term');
		t.event := 'proclaimed';
		IF NOT _lock_election.proclaim(t.name, t.token, i.value) THEN
			t.event := 'not_held';
			t.token := NULL;
		END IF;
		RETURN t;
	END IF;

	-- 2. carry out a request: first try the most frequent kind, which is granted at once, then any kind
	t.owner := i.owner;
	IF k = 1 AND i.action IN ('try_lock', 'enqueue_lock') AND cardinality(i.names) = 1 AND octet_length(t.name) BETWEEN 1 AND 255
		AND (i.owner IS NULL OR octet_length(i.owner) BETWEEN 1 AND 255) THEN
		t.token := _lock_election.acquire_free(k, t.name, NULL, i.owner, NULL, of_lease, call, false);
		IF t.token IS NOT NULL THEN
			t.event := 'granted';
			RETURN t;
		END IF;
	END IF;
	IF cardinality(i.names) > 1 THEN PERFORM _lock_election.check_names(i.names, 1); ELSE PERFORM _lock_election.check_name(k, t.name); END IF;
	r := _lock_election.make(k, i.names, CASE WHEN i.action LIKE '%permit' THEN 'permit' WHEN i.action LIKE '%shared' THEN 'shared' ELSE 'exclusive' END,
		CASE WHEN i.action LIKE '%permit' THEN _lock_election.item_number(i.number, 'permits') END, NULL, i.owner, of_lease, i.value);
	r.place := i.action LIKE 'enqueue%';
	r.of_lease := true;
	r.call := call;
	IF k = 2 THEN
		t.token := _lock_election.acquire_free(k, t.name, NULL, i.owner, i.value, of_lease, call, false);
		IF t.token IS NOT NULL THEN
			t.event := 'granted';
			SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = 2 AND x.name = t.name AND x.slot = 0;
			PERFORM _lock_election.note(h, 'elected');
			RETURN t;
		END IF;
	END IF;
	IF k = 1 THEN r.value := NULL; END IF;
	IF NOT _lock_election.enter(k, r.names, '200 ms') THEN
		IF r.place THEN
			PERFORM _lock_election.fail('55P03', format('could not enter the queue of %s "%s"', t.kind, t.name), 'Another transaction that entered this queue has not ended yet.');
		END IF;
		t.event := 'not_granted';
		RETURN t;
	END IF;
	PERFORM _lock_election.settle(k, r.names);
	SELECT d.token, CASE WHEN d.token IS NULL THEN 'not_granted' WHEN d.granted THEN 'granted' ELSE 'queued' END, nullif(d.queue_position, 0)
		INTO t.token, t.event, t.queue_position FROM _lock_election.decide(r) d;
	RETURN t;
END $$;

-- Same as sync_item(), but returns an error of data, privileges, limits or states as the item's row.
CREATE OR REPLACE FUNCTION _lock_election.sync_item_alone(i _lock_election.item, of_lease int8, call int8, me oid) RETURNS _lock_election.told LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	t _lock_election.told;
BEGIN
	RETURN _lock_election.sync_item(i, of_lease, call, me);
EXCEPTION WHEN OTHERS THEN
	IF NOT (SQLSTATE ~ '^(22|42|534|55|LE)') THEN RAISE; END IF;
	GET STACKED DIAGNOSTICS t.sqlstate = RETURNED_SQLSTATE, t.message = MESSAGE_TEXT, t.detail = PG_EXCEPTION_DETAIL, t.hint = PG_EXCEPTION_HINT;
	t.item := i.item;
	t.event := 'error';
	t.detail := nullif(t.detail, '');
	t.hint := nullif(t.hint, '');
	RETURN t;
END $$;

-- Carries out all items, releases first.  If an item fails, starts again, with each item in its own subtransaction.
CREATE OR REPLACE FUNCTION _lock_election.sync_items(items _lock_election.item[], of_lease int8, call int8) RETURNS _lock_election.told[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	me oid := _lock_election.who();
	results _lock_election.told[];
	i _lock_election.item;
BEGIN
	BEGIN
		FOREACH i IN ARRAY items LOOP
			IF i.action IN ('release', 'resign') THEN results := results || _lock_election.sync_item(i, of_lease, call, me); END IF;
		END LOOP;
		FOREACH i IN ARRAY items LOOP
			IF i.action NOT IN ('release', 'resign') THEN results := results || _lock_election.sync_item(i, of_lease, call, me); END IF;
		END LOOP;
		RETURN results;
	EXCEPTION WHEN OTHERS THEN
		IF NOT (SQLSTATE ~ '^(22|42|534|55|LE)') THEN RAISE; END IF;
	END;
	results := NULL;
	FOREACH i IN ARRAY items LOOP
		IF i.action IN ('release', 'resign') THEN results := results || _lock_election.sync_item_alone(i, of_lease, call, me); END IF;
	END LOOP;
	FOREACH i IN ARRAY items LOOP
		IF i.action NOT IN ('release', 'resign') THEN results := results || _lock_election.sync_item_alone(i, of_lease, call, me); END IF;
	END LOOP;
	RETURN results;
END $$;

CREATE OR REPLACE FUNCTION lease_sync(lease bigint, call bigint, seen_incarnation bigint DEFAULT NULL, seen_news bigint DEFAULT NULL, items text[] DEFAULT NULL,
	wait interval DEFAULT '1 s')
RETURNS TABLE (item integer, event text, kind text, name text, token bigint, queue_position bigint, owner text, reason text, sqlstate text, message text, detail text,
	hint text, validity interval, incarnation bigint, news bigint, complete boolean, channel text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 3 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
	asked _lock_election.item[] := '{}';
	asks boolean := false;
	mailed boolean := false;     -- the call has only releases and no wait, so it does not renew the lease
	lasting boolean := false;    -- this call must be flushed
	before_call int8;
	l _lock_election.lease;
	number int8;
	at timestamptz;
	results _lock_election.told[];
	told boolean;
	seen_xact int8;
	seen_call int8;
	snapshot int8;
	all_news boolean;
	applied boolean := true;
BEGIN
	-- 1. check the transaction and the arguments
	IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
		PERFORM _lock_election.fail('25001', 'lease_sync() cannot run inside a transaction block');
	END IF;
	IF pg_is_in_recovery() OR current_setting('transaction_isolation') <> 'read committed' OR current_setting('transaction_read_only') = 'on' THEN
		PERFORM _lock_election.check_transaction();
	END IF;
	IF $2 IS NULL THEN PERFORM _lock_election.fail('22023', 'call must not be null'); END IF;
	IF $1 IS NULL THEN PERFORM _lock_election.fail('22023', 'lease must not be null'); END IF;
	IF $1 < 1 THEN PERFORM _lock_election.fail('22023', format('lease is out of range: %s', $1), 'It is the number of a lease.'); END IF;
	IF $2 < 1 THEN PERFORM _lock_election.fail('22023', format('call is out of range: %s', $2), 'Each call has a higher number.'); END IF;
	IF $5 IS NOT NULL AND $5 <> '{}' THEN
		asked := _lock_election.read_items($5);
		SELECT bool_or(i.action NOT IN ('release', 'resign') OR i.value IS NOT NULL), bool_or(i.value IS NOT NULL),
				bool_and(i.action = 'release' AND i.value IS NULL) AND $6 IS NULL INTO asks, lasting, mailed FROM unnest(asked) i;
	END IF;
	IF $6 IS NULL AND EXISTS (SELECT FROM unnest(asked) i WHERE i.action NOT IN ('release', 'resign')) THEN
		PERFORM _lock_election.fail('22023', 'wait must not be null', 'It may be null only if all items are releases.');
	END IF;
	IF $6 NOT BETWEEN '0' AND '1000 days' THEN PERFORM _lock_election.checked_wait($6); END IF;

	-- 2. check the lease
	number := (SELECT y.life FROM _lock_election.life y WHERE y.one AND y.born = y.xmin
		AND y.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
	IF number IS NULL THEN number := _lock_election.begin_life('100 ms'); END IF;
	SELECT x.* INTO l FROM _lock_election.lease x WHERE x.id = $1 AND x.named;
	IF FOUND AND l.role <> _lock_election.who() THEN PERFORM _lock_election.fail('42501', format('lease %s belongs to another role', $1)); END IF;
	before_call := l.call;
	at := CASE WHEN l.life = number THEN l.expires_at ELSE _lock_election.ends(l.expires_at, l.life, l.ttl) END;
	IF l.id IS NULL OR at <= clock_timestamp() THEN
		RETURN QUERY SELECT NULL::int4, 'gone', NULL, NULL, NULL::int8, NULL::int8, NULL,
			coalesce((SELECT x.reason FROM _lock_election.loss x WHERE x.lease = $1 AND x.token = $1), 'expired'),
			NULL, NULL, NULL, NULL, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL;
		RETURN;
	END IF;
	lasting := lasting OR l.life IS DISTINCT FROM number OR cardinality(asked) > 0 AND l.ttl > '5 min';

	-- 3. renew the lease
	IF asks THEN
		told := false;
		FOR i IN 1 .. 1000 LOOP
			told := pg_try_advisory_xact_lock(hashtextextended('lease ' || $1, 4801));
			EXIT WHEN told OR clock_timestamp() > statement_timestamp() + least(coalesce($6, '1 s'), '1 s');
			PERFORM pg_sleep(0.001);
		END LOOP;
		IF NOT told THEN PERFORM _lock_election.fail('55P03', format('another call of lease %s is in progress', $1)); END IF;
		SELECT x.* INTO l FROM _lock_election.lease x WHERE x.id = $1 FOR KEY SHARE;
		IF NOT FOUND THEN
			RETURN QUERY SELECT NULL::int4, 'gone', NULL, NULL, NULL::int8, NULL::int8, NULL, 'revoked', NULL, NULL, NULL, NULL, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL;
			RETURN;
		END IF;
		before_call := l.call;
		IF l.life IS DISTINCT FROM number OR at - clock_timestamp() < l.ttl / 2 THEN
			validity := _lock_election.keep($1, NULL, 0, number);
		ELSE
			validity := at - clock_timestamp();
		END IF;
		UPDATE _lock_election.asked a SET call = $2 WHERE a.lease = $1 AND a.call < $2;
		applied := FOUND AND before_call < $2;
		lasting := true;
	ELSIF NOT mailed THEN
		validity := _lock_election.keep($1, NULL, $2, number);
		IF validity IS NULL THEN
			RETURN QUERY SELECT NULL::int4, 'gone', NULL, NULL, NULL::int8, NULL::int8, NULL, 'expired', NULL, NULL, NULL, NULL, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL;
			RETURN;
		END IF;
		applied := before_call < $2;
		told := pg_try_advisory_xact_lock(hashtextextended('lease ' || $1, 4801));
	END IF;
	applied := applied AND ($3 = number OR $3 IS NULL AND l.granted_in = number OR mailed);

	-- 4. carry out the items
	IF applied AND cardinality(asked) > 0 THEN
		results := _lock_election.sync_items(asked, $1, $2);
	END IF;

	-- 5. read the news
	IF told AND number IS NOT NULL THEN
		snapshot := pg_snapshot_xmin(pg_current_snapshot())::text::int8;
		PERFORM _lock_election.look_for($1);
		incarnation := number;
		news := (snapshot << 22) | ($2 & 4194303);
		seen_xact := $4 >> 22;
		seen_call := $2 - (($2 - $4) & 4194303);
		all_news := $3 IS DISTINCT FROM number OR $4 IS NULL OR (SELECT count(*) FROM _lock_election.loss x WHERE x.lease = $1 AND x.changed >= seen_xact) >= 16;
		complete := all_news;
	ELSIF NOT mailed THEN
		incarnation := $3;
		news := $4;
	END IF;

	-- 6. return the rows
	event := 'lease';
	IF NOT mailed AND _lock_election.notifies('waiters') THEN channel := _lock_election.lease_channel($1); END IF;
	RETURN NEXT;
	IF cardinality(results) = 1 THEN
		RETURN QUERY SELECT r.*, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL::text FROM unnest(results) r;
	ELSIF results IS NOT NULL THEN
		RETURN QUERY SELECT r.*, NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL::text FROM unnest(results) r
			ORDER BY (SELECT min(o) FROM unnest(asked) WITH ORDINALITY AS a(item, action, names, number, owner, value, o) WHERE a.item = r.item);
	END IF;
	IF all_news IS NOT NULL THEN
		RETURN QUERY SELECT NULL::int4, CASE WHEN h.evicted THEN 'evicted' ELSE 'granted' END, _lock_election.word(h.kind), h.name, h.token, NULL::int8, h.owner, NULL, NULL, NULL, NULL, NULL,
				NULL::interval, NULL::int8, NULL::int8, NULL::boolean, NULL
			FROM _lock_election.hold h WHERE h.lease = $1 AND h.mode IS NOT NULL AND h.ended IS NULL
				AND (all_news OR h.changed >= seen_xact AND (h.told_call = 0 OR h.told_call > seen_call)) AND (h.told_call <> $2 OR h.changed <> coalesce(pg_current_xact_id_if_assigned()::text::int8, 0))
			UNION ALL SELECT NULL, 'queued', _lock_election.word(p.kind), p.name, p.token, NULL, p.owner, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
			FROM _lock_election.place p WHERE p.lease = $1
				AND (all_news OR p.changed >= seen_xact AND (p.told_call = 0 OR p.told_call > seen_call)) AND (p.told_call <> $2 OR p.changed <> coalesce(pg_current_xact_id_if_assigned()::text::int8, 0))
			UNION ALL SELECT NULL, 'lost', NULL, NULL, x.token, NULL, NULL, x.reason, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
			FROM _lock_election.loss x WHERE x.lease = $1 AND (all_news OR x.changed >= seen_xact)
			ORDER BY 5;
		-- flush, because the granting transaction may have committed with synchronous_commit = off
		lasting := lasting OR FOUND;
	END IF;

	-- 7. do not wait for a flush if nothing has to be durable and there are no synchronous standbys
	IF NOT lasting AND current_setting('_lock_election.granted', true) IS DISTINCT FROM 'yes' AND current_setting('synchronous_standby_names') = ''
		AND statement_timestamp() - transaction_timestamp() < interval '5 ms' THEN
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
END $$;
