-- The contract of optimistic versions: keys, and rows of a table with version_guard().
-- Promises: -
\set ON_ERROR_STOP on
\pset format unaligned
\pset tuples_only on
\pset pager off

CREATE FUNCTION state_of(sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE sql;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;

BEGIN;
SELECT no_plan();

-- --- arguments ---

SELECT throws_ok($$SELECT compare_and_set(NULL, 0, 'x')$$, '22023', 'key must not be null');
SELECT throws_ok($$SELECT compare_and_set('', 0, 'x')$$, '22023', 'key must not be empty');
SELECT throws_ok($$SELECT compare_and_set(repeat('x', 256), 0, 'x')$$, '22023', 'key is too long: 256 bytes');
SELECT throws_ok($$SELECT compare_and_set(repeat('ä', 128), 0, 'x')$$, '22023', 'key is too long: 256 bytes');
SELECT throws_ok($$SELECT compare_and_set('a', NULL, 'x')$$, '22023', 'expected_version must not be null');
SELECT throws_ok($$SELECT compare_and_set('a', -1, 'x')$$, '22023', 'expected_version is out of range: -1');
SELECT throws_ok($$SELECT compare_and_set('a', 0, repeat('x', 4097))$$, '22023', 'value is too long: 4097 bytes');
SELECT throws_ok($$SELECT read_versioned(NULL)$$, '22023', 'key must not be null');
SELECT throws_ok($$SELECT read_versioned('')$$, '22023', 'key must not be empty');
SELECT throws_ok($$SELECT read_versioned(repeat('x', 256))$$, '22023', 'key is too long: 256 bytes');

-- --- keys ---

SELECT is((value, version)::text, '(,0)', 'a missing key has version 0') FROM read_versioned('a');
SELECT is(compare_and_set('a', 1, 'x'), NULL, 'a missing key cannot be set');
SELECT is(compare_and_set('a', 0, 'x'), 1::bigint, 'a missing key is created with version 0');
SELECT is(compare_and_set('a', 0, 'y'), NULL, 'an existing key is not created again');
SELECT is((value, version)::text, '(x,1)', 'the created key is read') FROM read_versioned('a');
SELECT is(compare_and_set('a', 1, 'y'), 2::bigint, 'the current version sets the key');
SELECT is(compare_and_set('a', 1, 'z'), NULL, 'an older version does not set the key');
SELECT is(compare_and_set('a', 3, 'z'), NULL, 'a future version does not set the key');
SELECT is(compare_and_set('a', 9223372036854775807, 'z'), NULL, 'the highest version does not set the key');
SELECT is((value, version)::text, '(y,2)', 'wrong versions change nothing') FROM read_versioned('a');
SELECT is(compare_and_set('a', 2, NULL), 3::bigint, 'a key can be set to null');
SELECT is((value IS NULL, version)::text, '(t,3)', 'a null value has a version') FROM read_versioned('a');
SELECT is(compare_and_set('a', 0, 'again'), NULL, 'a key with a null value still exists');
SELECT is(compare_and_set('a', 3, 'again'), 4::bigint, 'the version continues after a null value');
SELECT is(compare_and_set('a', 4, ''), 5::bigint, 'a key can be set to an empty value');
SELECT is((value IS NOT NULL, value)::text, '(t,"")', 'an empty value is not null') FROM read_versioned('a');
SELECT is(compare_and_set(repeat('k', 255), 0, repeat('ä', 2048)), 1::bigint, 'a key of 255 bytes and a value of 4096 bytes are accepted');
SELECT is(compare_and_set(repeat('k', 255), 1, repeat(chr(128512), 1024)), 2::bigint, 'a value of 4096 bytes can be replaced');
SELECT is((length(value), version)::text, '(1024,2)', 'a value of 4096 bytes is read') FROM read_versioned(repeat('k', 255));
SELECT is(compare_and_set('n', 0, '1'), 1::bigint, 'a key for a counter is created');
SELECT is(array_agg(compare_and_set('n', (read_versioned('n')).version, 'x')), '{2,3,4}'::bigint[], 'a statement sees its own changes')
FROM generate_series(1, 3);

SAVEPOINT s;
SELECT compare_and_set('a', 5, 'undone');
SELECT compare_and_set('undone', 0, 'undone');
ROLLBACK TO s;
SELECT is((value, version)::text, '("",5)', 'a rollback undoes a change') FROM read_versioned('a');
SELECT is(version, 0::bigint, 'a rollback undoes a creation') FROM read_versioned('undone');

-- --- privileges ---

CREATE ROLE le_app;
CREATE ROLE le_member IN ROLE le_app;
CREATE ROLE le_other;
CREATE ROLE le_reader IN ROLE pg_read_all_data;
CREATE ROLE le_writer IN ROLE pg_write_all_data;
GRANT USAGE ON SCHEMA public TO le_app, le_member, le_other, le_reader, le_writer;
SELECT table_privs_are('_lock_election', 'versioned', 'public', ARRAY[]::text[]);
SET ROLE le_app;
SELECT is(compare_and_set('app', 0, '1'), 1::bigint, 'an ordinary role creates a key');
SET ROLE le_member;
SELECT is(compare_and_set('app', 1, '2'), 2::bigint, 'a member of the role sets the key');
SELECT is((value, version)::text, '(2,2)', 'a member of the role reads the key') FROM read_versioned('app');
SET ROLE le_other;
SELECT throws_ok($$SELECT compare_and_set('app', 2, '3')$$, '42501', 'permission denied to write key "app"');
SELECT throws_ok($$SELECT compare_and_set('app', 0, '3')$$, '42501', NULL, 'another role cannot set the key, with any version');
SELECT throws_ok($$SELECT read_versioned('app')$$, '42501', 'permission denied to read key "app"');
SELECT throws_ok($$SELECT * FROM _lock_election.versioned$$, '42501', NULL, 'another role cannot read the table');
SELECT throws_ok($$INSERT INTO _lock_election.versioned (version, role, key, value) VALUES (1, 'le_app', 'k', 'v')$$, '42501', NULL, 'another role cannot insert into the table');
SELECT throws_ok($$DELETE FROM _lock_election.versioned$$, '42501', NULL, 'another role cannot delete from the table');
SELECT is(current_user::text, 'le_other', 'the current role is unchanged');
SET ROLE le_reader;
SELECT is(value, '2', 'a member of pg_read_all_data reads the key') FROM read_versioned('app');
SELECT throws_ok($$SELECT compare_and_set('app', 2, '3')$$, '42501', NULL, 'a member of pg_read_all_data cannot set the key');
SET ROLE le_writer;
SELECT is(compare_and_set('app', 2, '3'), 3::bigint, 'a member of pg_write_all_data sets the key');
SELECT throws_ok($$SELECT read_versioned('app')$$, '42501', NULL, 'a member of pg_write_all_data cannot read the key');
SET ROLE le_member;
SELECT is(compare_and_set('app', 3, '4'), 4::bigint, 'the key belongs to its creator after a write by another role');
RESET ROLE;
SELECT is(value, '4', 'a superuser reads the key') FROM read_versioned('app');
ALTER ROLE le_app RENAME TO le_app2;
SET ROLE le_app2;
SELECT throws_ok($$SELECT read_versioned('app')$$, '42501', NULL, 'a key of a role that no longer exists belongs to nobody');
RESET ROLE;
SELECT is(compare_and_set('app', 4, '5'), 5::bigint, 'a superuser can set a key without an owner');
UPDATE _lock_election.versioned SET role = 'le_app2' WHERE role = 'le_app';
SET ROLE le_app2;
SELECT is(value, '5', 'a superuser can change the owner of a key') FROM read_versioned('app');
RESET ROLE;

-- --- correct use of version_guard() ---

CREATE TABLE t (id int PRIMARY KEY, data text, version int NOT NULL DEFAULT 1);
CREATE TRIGGER guard BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION version_guard();
INSERT INTO t VALUES (1, 'a');
UPDATE t SET data = 'b', version = 1 WHERE id = 1;
SELECT is((data, version)::text, '(b,2)', 'an update with the version that was read succeeds') FROM t;
SELECT throws_ok($$UPDATE t SET data = 'c', version = 1 WHERE id = 1$$, '40001', 'row of table "t" was changed since it was read');
SELECT throws_ok($$UPDATE t SET data = 'c', version = 3 WHERE id = 1$$, '40001', NULL, 'an update with a higher version fails');
SELECT throws_ok($$UPDATE t SET version = version + 1 WHERE id = 1$$, '40001', NULL, 'an update that increments the version itself fails');
UPDATE t SET data = data || 'c';
SELECT is((data, version)::text, '(bc,3)', 'an update without the version succeeds') FROM t;
INSERT INTO t VALUES (1, 'x', 3) ON CONFLICT (id) DO UPDATE SET data = excluded.data, version = excluded.version;
SELECT is((data, version)::text, '(x,4)', 'ON CONFLICT DO UPDATE with the current version succeeds') FROM t;
SELECT throws_ok($$INSERT INTO t VALUES (1, 'y', 3) ON CONFLICT (id) DO UPDATE SET data = excluded.data, version = excluded.version$$,
	'40001', NULL, 'ON CONFLICT DO UPDATE with an old version fails');
SELECT throws_ok($$UPDATE t SET version = NULL$$, '22004', 'version "version" of a row of table "t" is null');
CREATE FUNCTION advice(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	EXECUTE sql;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' ', nullif(detail, ''), hint);
END $$;
SELECT is(advice('UPDATE t SET version = 3'),
	'It has version 4, but the update expects 3. Read the row again, and repeat the transaction.', 'detail and hint for an old version');
SELECT is(advice('UPDATE t SET version = 5'),
	'It has version 4, but the update expects 5. An update must contain the version that was read; the trigger increments it.',
	'detail and hint for a future version');
SELECT is(advice('UPDATE t SET version = NULL'), 'Set it to the version that was read.', 'hint for a null version');
CREATE TABLE unversioned (version int);
CREATE TRIGGER guard BEFORE UPDATE ON unversioned FOR EACH ROW EXECUTE FUNCTION version_guard();
INSERT INTO unversioned VALUES (NULL);
SELECT is(advice('UPDATE unversioned SET version = 1'), 'Make the column NOT NULL DEFAULT 1.', 'hint for a row with a null version');

CREATE TABLE small (v smallint, w int, x bigint, "Größe" bigint DEFAULT 1, n numeric, g int GENERATED ALWAYS AS (w) STORED, gone int);
ALTER TABLE small DROP COLUMN gone;
INSERT INTO small VALUES (32766, 2147483646, 9223372036854775806);
CREATE FUNCTION with_guard(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'CREATE TRIGGER guard BEFORE UPDATE ON small FOR EACH ROW EXECUTE FUNCTION ' || call;
	UPDATE small SET n = 1;
	UPDATE small SET n = 2;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SELECT is(with_guard($$version_guard('v')$$), '22003 version "v" is out of range', 'a smallint version overflows');
SELECT is(with_guard($$version_guard('w')$$), '22003 version "w" is out of range', 'an integer version overflows');
SELECT is(with_guard($$version_guard('x')$$), '22003 version "x" is out of range', 'a bigint version overflows');
SELECT is((v, w, x)::text, '(32766,2147483646,9223372036854775806)', 'an overflow changes nothing') FROM small;
SELECT is(with_guard($$version_guard('Größe')$$), 'none', 'a column with another name can be the version');
SELECT is("Größe", 3::bigint, 'that version is incremented') FROM small;
DROP TRIGGER guard ON small;

-- --- OIDs of roles ---

-- { C edition: functions that its tables need
SELECT is(lock_election.role_oid(NULL), NULL, 'role_oid() of null is null');
SELECT is(lock_election.role_oid('nobody has this name'), 0::oid, 'role_oid() of an unknown role is 0');
-- }

-- --- wrong use of version_guard() ---

SELECT is(with_guard('version_guard()'), '42703 column "version" of table "small" does not exist', 'a missing column is rejected');
SELECT is(with_guard($$version_guard('gone')$$), '42703 column "gone" of table "small" does not exist', 'a dropped column is rejected');
SELECT is(with_guard($$version_guard('xmin')$$), '42703 column "xmin" of table "small" does not exist', 'a system column is rejected');
SELECT is(with_guard($$version_guard('')$$), '42703 column "" of table "small" does not exist', 'an empty column name is rejected');
SELECT is(with_guard($$version_guard('n')$$), '42804 column "n" of table "small" cannot be a version', 'a column of another type is rejected');
SELECT is(with_guard($$version_guard('g')$$), '428C9 column "g" of table "small" cannot be a version', 'a generated column is rejected');
SELECT is(with_guard($$version_guard('v', 'w')$$), '22023 trigger "guard" must call version_guard with at most one argument, the name of a column', 'two arguments are rejected');
-- { C edition: PostgreSQL refuses a trigger function in PL/pgSQL by itself
SELECT throws_ok('SELECT ' || s || '.' || f || '()', '39P01', 'function "' || f || '" was not called by trigger manager')
FROM (VALUES ('public', 'version_guard'), ('public', 'fence_guard'), ('lock_election', 'refuse_write'),
	('lock_election', 'floor_written')) AS v(s, f);
-- }
CREATE FUNCTION wrong_guard(event text, statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TRIGGER wrong %s EXECUTE FUNCTION version_guard()', event);
	EXECUTE statement;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT is(wrong_guard(event, statement), '39P01', 'wrong trigger: ' || event)
FROM (VALUES ('AFTER UPDATE ON t FOR EACH ROW', 'UPDATE t SET data = data'), ('BEFORE UPDATE ON t FOR EACH STATEMENT', 'UPDATE t SET data = data'),
	('BEFORE INSERT ON t FOR EACH ROW', 'INSERT INTO t VALUES (2)'), ('BEFORE DELETE ON t FOR EACH ROW', 'DELETE FROM t'),
	('BEFORE TRUNCATE ON t FOR EACH STATEMENT', 'TRUNCATE t')) e(event, statement);

-- --- partitions with different column numbers ---

CREATE TABLE parted (id int, part int, version bigint NOT NULL DEFAULT 1) PARTITION BY LIST (part);
CREATE TABLE part1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE part2 (version bigint NOT NULL DEFAULT 1, gone int, part int, id int);
ALTER TABLE part2 DROP COLUMN gone;
ALTER TABLE parted ATTACH PARTITION part2 FOR VALUES IN (2);
CREATE TRIGGER guard BEFORE UPDATE ON parted FOR EACH ROW EXECUTE FUNCTION version_guard('version');
INSERT INTO parted VALUES (1, 1), (2, 2);
UPDATE parted SET version = 1, id = id + 10;
SELECT is(array_agg((id, version)::text ORDER BY id), '{"(11,2)","(12,2)"}', 'an update works in each partition') FROM parted;
UPDATE parted SET part = 3 - part, version = 2;
SELECT is(array_agg((id, part, version)::text ORDER BY id), '{"(11,2,3)","(12,1,3)"}', 'an update can move rows to another partition') FROM parted;
SELECT throws_ok('UPDATE parted SET part = 3 - part, version = 2', '40001', 'row of table "part1" was changed since it was read');

-- --- read only ---

COMMIT;
BEGIN READ ONLY;
SELECT state_of($$SELECT compare_and_set('a', 5, 'x')$$) AS ro \gset
SELECT version AS ro_version FROM read_versioned('a') \gset
COMMIT;

-- --- a hostile search_path ---

CREATE ROLE trapper;
CREATE SCHEMA trap AUTHORIZATION trapper;
GRANT USAGE ON SCHEMA public TO trapper;
SET ROLE trapper;
CREATE FUNCTION trap.sprung(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trap'; END $$;
CREATE FUNCTION trap.sprung(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trap'; END $$;
CREATE FUNCTION trap.sprung2(bigint, integer) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trap'; END $$;
CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.sprung);
CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.sprung);
CREATE OPERATOR trap.+ (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = trap.sprung2);
CREATE TABLE trap.versioned (fake int);
RESET ROLE;
SET search_path = trap, pg_temp, pg_catalog, public;
CREATE TEMP TABLE versioned (fake int);
SELECT public.compare_and_set('trap', 0, 'x') AS trap1 \gset
SELECT public.compare_and_set('trap', 1, 'y') AS trap2 \gset
SELECT value AS trap3 FROM public.read_versioned('trap') \gset
RESET search_path;

-- --- statements are prepared once ---

CREATE VIEW plans AS SELECT count(*) AS n FROM pg_backend_memory_contexts WHERE name = 'SPI Plan';
SELECT n AS plans FROM plans \gset
SELECT sum(compare_and_set('trap', (read_versioned('trap')).version, 'z')) AS trap4 FROM generate_series(1, 20) \gset
SELECT n - :plans AS more_plans FROM plans \gset
DROP VIEW plans;

BEGIN;
SELECT is(:'ro'::text, '25006 cannot execute compare_and_set() in a read-only transaction', 'a READ ONLY transaction cannot set a key');
SELECT is(:'ro_version'::text, '5', 'a READ ONLY transaction can read a key');
SELECT is(:'trap1'::text, '1', 'compare_and_set() creates a key with a hostile search_path');
SELECT is(:'trap2'::text, '2', 'compare_and_set() sets a key with a hostile search_path');
SELECT is(:'trap3'::text, 'y', 'read_versioned() works with a hostile search_path');
SELECT is(:'trap4'::text, '250', 'twenty calls set versions 3 to 22');
SELECT cmp_ok(:plans, '>', 0, 'the functions prepare their statements');
SELECT is(:'more_plans'::text, '0', 'repeated calls prepare no further statements');
SELECT * FROM finish();
ROLLBACK;
