-- --- base: small helpers ------------------------------------------------------------------------------------------------
--
-- Only the public functions call the functions of schema _lock_election.  The public functions are SECURITY
-- DEFINER, with a search_path of only pg_catalog, which also applies to all functions that they call.

-- Returns the caller's role: the role of SET ROLE, or the session's role.  Ignores the owner of a SECURITY DEFINER
-- function that makes the call, because current_user is always the owner of the functions of this file.
CREATE OR REPLACE FUNCTION _lock_election.who() RETURNS pg_catalog.oid LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	me oid := to_regrole(quote_ident(CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END));
BEGIN
	-- the role of SET ROLE was dropped; fail, because a NULL must not be compared with other roles
	IF me IS NULL THEN PERFORM _lock_election.fail('42704', format('role "%s" does not exist any more', current_setting('role'))); END IF;
	RETURN me;
END $$;

-- Returns whether the caller has the privileges of "role", or those of "also", a second role that is sufficient.
CREATE OR REPLACE FUNCTION _lock_election.is_mine(role oid, also text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	me oid := _lock_election.who();
BEGIN
	RETURN role = me OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = me AND r.rolsuper)
		OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = role) AND pg_has_role(me, role, 'USAGE')
		OR also IS NOT NULL AND pg_has_role(me, also, 'USAGE');
END $$;

-- Returns the word for a kind.  Has no SET search_path, so that the planner inlines the function into the calling
-- statement.
CREATE OR REPLACE FUNCTION _lock_election.word(k int2) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN k OPERATOR(pg_catalog.=) 1 THEN 'lock' ELSE 'election' END
$$;

-- Raises an error.
CREATE OR REPLACE FUNCTION _lock_election.fail(code text, message text, detail text DEFAULT '', hint text DEFAULT '') RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF detail = '' AND hint = '' THEN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message; END IF;
	IF hint = '' THEN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail; END IF;
	IF detail = '' THEN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, HINT = hint; END IF;
	RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail, HINT = hint;
END $$;

-- Raises an error unless the caller's role is that which acquired the lock or term, as in the C edition.  A member
-- of that role must use SET ROLE first.
CREATE OR REPLACE FUNCTION _lock_election.check_role(k int2, n text, role oid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF role IS DISTINCT FROM _lock_election.who() THEN
		PERFORM _lock_election.fail('42501', format('%s "%s" is held by another role', _lock_election.word(k), n), '',
			CASE k WHEN 1 THEN 'A lock belongs to the role that acquired it: SET ROLE to that role, or use force_release_lock().'
				ELSE 'An election belongs to the role that acquired it: SET ROLE to that role, or use force_resign().' END);
	END IF;
END $$;

-- Raises an error if no request can be decided here: on a standby, in a read-only transaction, and at isolation
-- levels above READ COMMITTED, where the snapshot may be older than the section of the name.
CREATE OR REPLACE FUNCTION _lock_election.check_transaction() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF pg_is_in_recovery() THEN
		PERFORM _lock_election.fail('25006', 'cannot use the locks of lock_election during recovery', 'The server is a standby.', 'Connect to the primary.');
	END IF;
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM _lock_election.fail('0A000', 'the portable edition of lock_election works in READ COMMITTED only',
			'This transaction is ' || upper(current_setting('transaction_isolation')) || ': it cannot see what others have come to hold since it began.',
			'BEGIN ISOLATION LEVEL READ COMMITTED, or SET default_transaction_isolation = ''read committed''.');
	END IF;
	IF current_setting('transaction_read_only') = 'on' THEN
		PERFORM _lock_election.fail('25006', 'cannot use the locks of lock_election in a read-only transaction', 'The portable edition writes rows.', 'BEGIN READ WRITE.');
	END IF;
END $$;

-- --- arguments: same errors as in the C edition ---

CREATE OR REPLACE FUNCTION _lock_election.check_text(what text, v text, most int4) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF v IS NULL THEN PERFORM _lock_election.fail('22023', what || ' must not be null'); END IF;
	IF v = '' THEN PERFORM _lock_election.fail('22023', what || ' must not be empty', format('It is a text of 1 to %s bytes.', most)); END IF;
	IF octet_length(v) > most THEN
		PERFORM _lock_election.fail('22023', format('%s is too long: %s bytes', what, octet_length(v)), format('It is a text of 1 to %s bytes.', most));
	END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_name(k int2, n text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF octet_length(n) BETWEEN 1 AND 255 THEN RETURN; END IF;
	PERFORM _lock_election.check_text(CASE k WHEN 1 THEN 'name' ELSE 'election' END, n, 255);
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_token(k int2, token int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF token IS NULL THEN PERFORM _lock_election.fail('22023', CASE k WHEN 1 THEN 'token' ELSE 'term' END || ' must not be null'); END IF;
END $$;

-- Returns the interval in hours, minutes and seconds only, so that its length does not depend on the time zone.
CREATE OR REPLACE FUNCTION _lock_election.exact(v interval) RETURNS interval LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN make_interval(secs => date_part('epoch', v));
END $$;

CREATE OR REPLACE FUNCTION _lock_election.out_of_range(what text, v interval, range text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM _lock_election.fail('22023', format('%s is out of range: %s', what, v), 'It is an interval ' || range || '.');
END $$;

-- Raises the error that this interval exceeds the limit, which is shown in the format of a setting.
CREATE OR REPLACE FUNCTION _lock_election.too_long(what text, v interval, most interval) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ms int8 := date_part('epoch', most) * 1000;
BEGIN
	PERFORM _lock_election.fail('53400', format('%s is too long for this server: %s', what, v), '', format('See lock_election.max_%s (%s).', what,
		CASE WHEN ms % 86400000 = 0 THEN ms / 86400000 || 'd' WHEN ms % 3600000 = 0 THEN ms / 3600000 || 'h' WHEN ms % 60000 = 0 THEN ms / 60000 || 'min'
			WHEN ms % 1000 = 0 THEN ms / 1000 || 's' ELSE ms || 'ms' END));
END $$;

CREATE OR REPLACE FUNCTION _lock_election.checked_ttl(ttl interval) RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	most interval;
BEGIN
	IF ttl IS NULL THEN
		PERFORM _lock_election.fail('0A000', 'ttl => NULL needs the C edition of lock_election', 'An SQL function cannot notice the end of a connection.',
			'Pass a ttl, and renew the lock.');
	END IF;
	IF NOT ttl BETWEEN '100 ms' AND '24 days' THEN
		PERFORM _lock_election.out_of_range('ttl', ttl, 'from 100 milliseconds to 24 days');
	END IF;
	IF ttl > '1 hour' THEN
		SELECT max_ttl INTO most FROM _lock_election.config WHERE one;
		IF ttl > most THEN PERFORM _lock_election.too_long('ttl', ttl, most); END IF;
	END IF;
	RETURN make_interval(secs => date_part('epoch', ttl));
END $$;

CREATE OR REPLACE FUNCTION _lock_election.checked_wait(wait interval) RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF wait < '0' OR date_part('epoch', wait) >= 9223372036854.775 AND wait > '106751991 days 04:00:54.775806' THEN
		PERFORM _lock_election.out_of_range('wait', wait, 'of 0 or more, or null to wait without limit');
	END IF;
	RETURN CASE WHEN wait > '1000 days' THEN NULL ELSE wait END;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.checked_hold_for(hold_for interval) RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	most interval;
BEGIN
	IF hold_for IS NULL OR hold_for = '0' THEN RETURN NULL; END IF;
	IF NOT hold_for BETWEEN '0' AND '24 days' THEN PERFORM _lock_election.out_of_range('hold_for', hold_for, 'from 0 to 24 days'); END IF;
	SELECT max_hold_for INTO most FROM _lock_election.config WHERE one;
	IF hold_for > most THEN PERFORM _lock_election.too_long('hold_for', hold_for, most); END IF;
	RETURN _lock_election.exact(hold_for);
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_mode(mode text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF mode IS NULL THEN PERFORM _lock_election.fail('22023', 'mode must not be null'); END IF;
	IF mode NOT IN ('exclusive', 'shared') THEN
		PERFORM _lock_election.fail('22023', format('unknown mode "%s"', CASE WHEN octet_length(mode) > 64 THEN left(mode, 32 - (octet_length(left(mode, 32)) - 64 + abs(octet_length(left(mode, 32)) - 64)) / 2) ELSE mode END), 'A mode is "exclusive" or "shared".');
	END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_permits(permits int8) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF permits IS NULL THEN PERFORM _lock_election.fail('22023', 'permits must not be null', 'It must be at least 1.'); END IF;
	IF permits NOT BETWEEN 1 AND 2147483647 THEN
		PERFORM _lock_election.fail('22023', 'permits is out of range: ' || permits, 'It must be at least 1.');
	END IF;
END $$;

CREATE OR REPLACE FUNCTION _lock_election.check_names(names text[], least_names int4) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	twice text;
BEGIN
	IF names IS NULL THEN PERFORM _lock_election.fail('22023', 'names must not be null'); END IF;
	IF array_ndims(names) > 1 THEN PERFORM _lock_election.fail('22023', 'names must have one dimension only'); END IF;
	IF NOT cardinality(names) BETWEEN least_names AND 1000 THEN
		PERFORM _lock_election.fail('22023', format('names is out of range: %s names', cardinality(names)), format('It is an array of %s to 1000 names.', least_names));
	END IF;
	PERFORM _lock_election.check_text(format('names[%s]', i), n, 255) FROM unnest(names) WITH ORDINALITY AS x(n, i);
	SELECT n INTO twice FROM unnest(names) AS x(n) GROUP BY n COLLATE "C", n HAVING count(*) > 1 ORDER BY n COLLATE "C" LIMIT 1;
	IF FOUND THEN PERFORM _lock_election.fail('22023', format('names contains "%s" twice', twice)); END IF;
END $$;
