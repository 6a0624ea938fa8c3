-- --- fences, versions, advisory locks -----------------------------------------------------------------------------------

-- Fences a hold: locks its row FOR KEY SHARE until the end of the (sub)transaction.  Until then, no other
-- transaction can delete the row, and its slot is not granted again; renewals are not blocked.  fence_guard()
-- reads the row of table fence.  A read-only transaction has nothing to protect, so it only checks that the lock
-- is held.
CREATE OR REPLACE FUNCTION _lock_election.fence(k int2, n text, tok int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	h _lock_election.hold;
	read_only boolean := current_setting('transaction_read_only') = 'on';
BEGIN
	PERFORM _lock_election.check_name(k, n), _lock_election.check_token(k, tok);
	IF pg_is_in_recovery() THEN PERFORM _lock_election.check_transaction(); END IF;
	IF NOT read_only THEN
		-- with the first lock, a release does not wait for the row; with the second lock, views find the fencing
		-- process
		PERFORM pg_try_advisory_xact_lock_shared(hashint8extended(tok, 4806)), pg_try_advisory_xact_lock_shared(hashint8extended(tok, 4807));
		PERFORM FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL FOR KEY SHARE;
	END IF;
	-- after locking the row, check that the hold has not ended and its lease is live
	SELECT x.* INTO h FROM _lock_election.hold x WHERE x.kind = k AND x.name = n AND x.token = tok AND x.mode IS NOT NULL;
	IF FOUND AND NOT _lock_election.may_be_over(h) THEN
		PERFORM _lock_election.check_role(k, n, h.role);
	ELSE
		IF current_setting('transaction_isolation') <> 'read committed' AND h.token IS NOT NULL THEN
			PERFORM _lock_election.fail('40001', 'could not serialize access due to concurrent update', 'The lock may have been renewed since this transaction began.');
		END IF;
		IF h.token IS NULL THEN PERFORM _lock_election.refuse_place(k, n, tok); END IF;
		PERFORM _lock_election.fail('LE001', format('%s "%s" is not held by %s %s', _lock_election.word(k), n, CASE k WHEN 1 THEN 'token' ELSE 'term' END, tok));
	END IF;
	IF NOT read_only THEN
		INSERT INTO _lock_election.fence VALUES (k, pg_current_xact_id()::text::int8, tok, pg_backend_pid(), n);
	END IF;
	-- delete rows of ended transactions, but not at higher isolation levels, where concurrent deletes could
	-- conflict
	IF NOT read_only AND current_setting('transaction_isolation') = 'read committed' THEN
		DELETE FROM _lock_election.fence f WHERE f.ctid = ANY (ARRAY(SELECT g.ctid FROM _lock_election.fence g
			WHERE g.transaction < pg_snapshot_xmin(pg_current_snapshot())::text::int8 LIMIT 2 FOR UPDATE SKIP LOCKED));
	END IF;
END $$;

CREATE OR REPLACE FUNCTION fence_lock(name text, token bigint)
RETURNS void LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.fence(1::int2, name COLLATE "C", token);
END $$;

CREATE OR REPLACE FUNCTION fence_leader(election text, term bigint)
RETURNS void LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM _lock_election.fence(2::int2, election COLLATE "C", term);
END $$;

CREATE OR REPLACE FUNCTION fence_guard()
RETURNS trigger LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	word text := coalesce(TG_ARGV[1], 'lock');
BEGIN
	IF TG_WHEN <> 'BEFORE' THEN
		PERFORM _lock_election.fail('39P01', format('trigger "%s" must be fired BEFORE: it calls fence_guard', TG_NAME));
	END IF;
	IF TG_NARGS NOT BETWEEN 1 AND 2 OR word NOT IN ('lock', 'election') THEN
		PERFORM _lock_election.fail('22023', format('trigger "%s" must call fence_guard with one argument, the name of a lock, or with two, the name and "lock" or "election"', TG_NAME));
	END IF;
	IF octet_length(TG_ARGV[0]) NOT BETWEEN 1 AND 255 THEN
		PERFORM _lock_election.fail('22023', format('trigger "%s" calls fence_guard with a name of %s bytes', TG_NAME, octet_length(TG_ARGV[0])), 'A name has 1 to 255 bytes.');
	END IF;
	-- only rows with the id of this transaction count: a rollback to a savepoint removes them, and no other
	-- transaction can write them
	IF NOT EXISTS (SELECT FROM _lock_election.fence f WHERE f.transaction = pg_current_xact_id_if_assigned()::text::int8 AND f.kind = CASE word WHEN 'lock' THEN 1 ELSE 2 END
		AND f.name = TG_ARGV[0]) THEN
		PERFORM _lock_election.fail('55000', format('cannot write to table "%s": this transaction has not fenced %s "%s"', TG_TABLE_NAME, word, TG_ARGV[0]), '',
			format('Call %s in this transaction first.', CASE word WHEN 'election' THEN 'fence_leader(election, term)' ELSE 'fence_lock(name, token)' END));
	END IF;
	IF TG_LEVEL = 'STATEMENT' THEN RETURN NULL; END IF;
	RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

-- --- versions ---

-- Raises an error if the keys of a role, plus "more" bytes, exceed the limit.  First checks the size of the whole
-- table, which is cheap, and is an upper bound for every role.
CREATE OR REPLACE FUNCTION _lock_election.check_keys(role name, more int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	most int8 := (SELECT c.max_keys_per_role FROM _lock_election.config c WHERE c.one);
BEGIN
	IF most > 0 AND more > 0 AND pg_table_size('_lock_election.versioned') + more > most
		AND (SELECT coalesce(sum(octet_length(x.key) + coalesce(octet_length(x.value), 0) + 150), 0) FROM _lock_election.versioned x WHERE x.role = $1) + more > most THEN
		PERFORM _lock_election.fail('53400', format('the keys of role "%s" take too much room in this database', role), '',
			format('See lock_election.max_keys_per_role (%s).', pg_size_pretty(most)));
	END IF;
END $$;

CREATE OR REPLACE FUNCTION compare_and_set(key text, expected_version bigint, value text)
RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	v record;
	number int8;
BEGIN
	PERFORM _lock_election.check_text('key', key, 255);
	IF octet_length(value) > 4096 THEN
		PERFORM _lock_election.fail('22023', format('value is too long: %s bytes', octet_length(value)), 'It is a text of 0 to 4096 bytes.');
	END IF;
	IF expected_version IS NULL THEN PERFORM _lock_election.fail('22023', 'expected_version must not be null'); END IF;
	IF expected_version < 0 THEN
		PERFORM _lock_election.fail('22023', format('expected_version is out of range: %s', expected_version), 'It is a version, or 0 for a key that does not exist.');
	END IF;
	IF current_setting('transaction_read_only') = 'on' THEN PERFORM _lock_election.fail('25006', 'cannot execute compare_and_set() in a read-only transaction'); END IF;
	IF expected_version = 0 THEN
		PERFORM _lock_election.check_keys(pg_get_userbyid(_lock_election.who()), octet_length(key) + coalesce(octet_length(value), 0) + 150);
		INSERT INTO _lock_election.versioned AS x (key, version, role, value) VALUES ($1, 1, pg_get_userbyid(_lock_election.who()), $3)
			ON CONFLICT DO NOTHING RETURNING x.version INTO number;
		IF FOUND THEN RETURN number; END IF;
	END IF;
	SELECT x.version, x.role, coalesce(octet_length(x.value), 0) AS bytes INTO v FROM _lock_election.versioned x WHERE x.key = $1 COLLATE "C" FOR UPDATE;
	IF NOT FOUND THEN RETURN NULL; END IF;
	IF NOT _lock_election.is_mine(to_regrole(quote_ident(v.role)), CASE WHEN to_regrole('pg_write_all_data') IS NOT NULL THEN 'pg_write_all_data' END) IS NOT DISTINCT FROM true THEN
		PERFORM _lock_election.fail('42501', format('permission denied to write key "%s"', key), 'It belongs to another role.');
	END IF;
	IF v.version <> expected_version THEN RETURN NULL; END IF;
	PERFORM _lock_election.check_keys(v.role, coalesce(octet_length(value), 0) - v.bytes);
	UPDATE _lock_election.versioned x SET version = x.version + 1, value = $3 WHERE x.key = $1 COLLATE "C" RETURNING x.version INTO number;
	RETURN number;
END $$;

CREATE OR REPLACE FUNCTION read_versioned(key text, OUT value text, OUT version bigint)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	v record;
BEGIN
	PERFORM _lock_election.check_text('key', key, 255);
	SELECT x.version, x.role, x.value INTO v FROM _lock_election.versioned x WHERE x.key = $1 COLLATE "C";
	version := 0;
	IF NOT FOUND THEN RETURN; END IF;
	IF NOT _lock_election.is_mine(to_regrole(quote_ident(v.role)), CASE WHEN to_regrole('pg_read_all_data') IS NOT NULL THEN 'pg_read_all_data' END) IS NOT DISTINCT FROM true THEN
		PERFORM _lock_election.fail('42501', format('permission denied to read key "%s"', key), 'It belongs to another role.');
	END IF;
	version := v.version;
	value := v.value;
END $$;

CREATE OR REPLACE FUNCTION version_guard()
RETURNS trigger LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	col text := coalesce(TG_ARGV[0], 'version');
	a record;
	was int8;
	now int8;
BEGIN
	IF TG_WHEN <> 'BEFORE' OR TG_LEVEL <> 'ROW' OR TG_OP <> 'UPDATE' THEN
		PERFORM _lock_election.fail('39P01', format('trigger "%s" must be fired BEFORE UPDATE FOR EACH ROW: it calls version_guard', TG_NAME));
	END IF;
	IF TG_NARGS > 1 THEN
		PERFORM _lock_election.fail('22023', format('trigger "%s" must call version_guard with at most one argument, the name of a column', TG_NAME));
	END IF;
	SELECT x.atttypid, x.attgenerated INTO a FROM pg_attribute x WHERE x.attrelid = TG_RELID AND x.attname = col AND x.attnum > 0 AND NOT x.attisdropped;
	IF NOT FOUND THEN
		PERFORM _lock_election.fail('42703', format('column "%s" of table "%s" does not exist', col, TG_TABLE_NAME), format('Trigger "%s" calls version_guard with it.', TG_NAME));
	END IF;
	IF a.atttypid NOT IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) THEN
		PERFORM _lock_election.fail('42804', format('column "%s" of table "%s" cannot be a version', col, TG_TABLE_NAME), 'A version is a smallint, integer or bigint.');
	END IF;
	IF a.attgenerated <> '' THEN
		PERFORM _lock_election.fail('428C9', format('column "%s" of table "%s" cannot be a version', col, TG_TABLE_NAME), 'It is a generated column.');
	END IF;
	-- read only this column, because other columns may have types whose functions would run with the privileges
	-- of this function
	EXECUTE format('SELECT ($1).%1$I, ($2).%1$I', col) INTO was, now USING OLD, NEW;
	IF was IS NULL OR now IS NULL THEN
		PERFORM _lock_election.fail('22004', format('version "%s" of a row of table "%s" is null', col, TG_TABLE_NAME), '',
			CASE WHEN now IS NULL THEN 'Set it to the version that was read.' ELSE 'Make the column NOT NULL DEFAULT 1.' END);
	END IF;
	IF was <> now THEN
		PERFORM _lock_election.fail('40001', format('row of table "%s" was changed since it was read', TG_TABLE_NAME),
			format('It has version %s, but the update expects %s.', was, now),
			CASE WHEN now < was THEN 'Read the row again, and repeat the transaction.'
				ELSE 'An update must contain the version that was read; the trigger increments it.' END);
	END IF;
	IF now >= (CASE a.atttypid WHEN 'int2'::regtype THEN 32767 WHEN 'int4'::regtype THEN 2147483647 ELSE 9223372036854775807 END) THEN
		PERFORM _lock_election.fail('22003', format('version "%s" is out of range', col));
	END IF;
	RETURN jsonb_populate_record(NEW, jsonb_build_object(col, now + 1));
END $$;

-- --- advisory locks ---

CREATE OR REPLACE FUNCTION advisory_acquire(name text, wait interval DEFAULT NULL, shared boolean DEFAULT false, scope text DEFAULT 'session')
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	section int8;
	ms int8;
	before text := current_setting('lock_timeout');
	standing boolean;
BEGIN
	PERFORM _lock_election.check_text('name', name, 255);
	IF scope IS NULL THEN PERFORM _lock_election.fail('22023', 'scope must not be null'); END IF;
	IF scope NOT IN ('session', 'transaction') THEN
		PERFORM _lock_election.fail('22023', format('unknown scope "%s"', scope), 'A scope is "session" or "transaction".');
	END IF;
	shared := coalesce(shared, false);
	wait := _lock_election.checked_wait(wait);
	IF pg_is_in_recovery() THEN
		PERFORM _lock_election.fail('25006', 'cannot use advisory locks during recovery', 'A lock on this standby would not exclude sessions on the primary.', 'Connect to the primary.');
	END IF;
	section := hashtextextended(name COLLATE "C", 4805);
	standing := scope = 'session';

	-- 1. try to acquire it at once
	IF (CASE WHEN standing AND shared THEN pg_try_advisory_lock_shared(section) WHEN standing THEN pg_try_advisory_lock(section)
		WHEN shared THEN pg_try_advisory_xact_lock_shared(section) ELSE pg_try_advisory_xact_lock(section) END) THEN
		RETURN true;
	END IF;
	IF wait <= '0' THEN RETURN false; END IF;

	-- 2. wait without a time limit, or with a limit that lock_timeout reaches first
	ms := ceil(date_part('epoch', wait) * 1000);
	IF wait IS NULL OR wait > '24 days' OR _lock_election.lock_timeout() <= wait THEN
		PERFORM CASE WHEN standing AND shared THEN pg_advisory_lock_shared(section)::text WHEN standing THEN pg_advisory_lock(section)::text
			WHEN shared THEN pg_advisory_xact_lock_shared(section)::text ELSE pg_advisory_xact_lock(section)::text END;
		RETURN true;
	END IF;

	-- 3. wait with the time limit of this call
	BEGIN
		PERFORM set_config('lock_timeout', ms || 'ms', true);
		PERFORM CASE WHEN standing AND shared THEN pg_advisory_lock_shared(section)::text WHEN standing THEN pg_advisory_lock(section)::text
			WHEN shared THEN pg_advisory_xact_lock_shared(section)::text ELSE pg_advisory_xact_lock(section)::text END;
		PERFORM set_config('lock_timeout', before, true);
		RETURN true;
	EXCEPTION WHEN lock_not_available THEN
		RETURN false;
	END;
END $$;

CREATE OR REPLACE FUNCTION advisory_release(name text, shared boolean DEFAULT false)
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.check_text('name', name, 255);
	RETURN CASE WHEN shared THEN pg_advisory_unlock_shared(hashtextextended(name COLLATE "C", 4805)) ELSE pg_advisory_unlock(hashtextextended(name COLLATE "C", 4805)) END;
END $$;
