"""Runs every client with settings of roles and databases: each alone by ALTER ROLE, many by ALTER DATABASE."""

import pytest

from conftest import SEEDS, SHARE, clients_of
from harness import edition
from harness.agent import Failure

# Names and values that not every encoding contains.
NAME = "naïve-名"

# Open; acquire, and wait; renew beyond a TTL; fence; be notified of the grant; lead, and observe; close.
STEPS = f"""
a open s
b open s
a acquire s x {NAME}
w: b acquire s y {NAME}
until "SELECT count(*) FROM lock_election.waiters WHERE name = {{name:{NAME}}}" -> 1
a acquire s z plain
a keeps x 1.3T
a fence z "SELECT 1"
w pending
mark released
a release x
w -> ok since.released<1500 within 3000
b observe s o e
a campaign s l e value={NAME}
b tells leader value={NAME} within 3000
b leader s e -> ok value={NAME} term={{token:a.l}}
b release y
a resign l
b acquire s y {NAME} wait=0
a close s
b close s
"""

# A schema before pg_catalog that shadows each function of the extension, and some functions and operators of
# PostgreSQL.
OURS = (f"pronamespace = 'public'::regnamespace AND proowner = '{edition.INSTALLER}'::regrole" if edition.PORTABLE
        else "extname = 'lock_election'")
HOSTILE_SQL = [
    "CREATE SCHEMA hostile_{role:id}",
    "GRANT USAGE ON SCHEMA hostile_{role:id} TO PUBLIC",
    """
DO $$
DECLARE f record;
BEGIN
    FOR f IN SELECT proname, oidvectortypes(proargtypes) AS args, prorettype::regtype AS result
        FROM pg_proc p
        LEFT JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
        LEFT JOIN pg_extension e ON e.oid = d.refobjid
        WHERE prokind = 'f' AND provariadic = 0 AND NOT proretset AND prorettype <> 'trigger'::regtype
            AND (@OURS@ OR pronamespace = 'pg_catalog'::regnamespace AND proname IN ('now',
                'pg_is_in_recovery', 'current_setting', 'set_config', 'clock_timestamp', 'pg_backend_pid',
                'quote_ident', 'make_interval', 'date_part', 'extract', 'to_regproc', 'to_regclass',
                'current_database'))
    LOOP
        EXECUTE format('CREATE FUNCTION hostile_{role:id}.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', f.proname, f.args,
            f.result, 'BEGIN RAISE EXCEPTION ''hostile''; END');
    END LOOP;
END $$
""",
    """
DO $$
DECLARE t text; o text;
BEGIN
    FOREACH t IN ARRAY '{oid, name, int4, int8, text, bool, timestamptz, interval}'::text[] LOOP
        EXECUTE format('CREATE FUNCTION hostile_{role:id}.never(%s, %s) RETURNS boolean LANGUAGE plpgsql AS %L', t, t,
            'BEGIN RAISE EXCEPTION ''hostile''; END');
        FOREACH o IN ARRAY '{=, <>}'::text[] LOOP
            EXECUTE format('CREATE OPERATOR hostile_{role:id}.%s (LEFTARG = %s, RIGHTARG = %s,
                FUNCTION = hostile_{role:id}.never)', o, t, t);
        END LOOP;
    END LOOP;
END $$
""",
    "ALTER ROLE {role:id} SET search_path = hostile_{role:id}, pg_catalog, public",
]
HOSTILE = "\n" + "\n".join(f'sql "{" ".join(sql.replace("@OURS@", OURS).split())}"' for sql in HOSTILE_SQL)

# By the text after ALTER ROLE .. SET, or with their own steps.
SETTINGS = {
    "none": "",
    "statement_timeout": "statement_timeout = '700ms'",
    "idle_in_transaction": "idle_in_transaction_session_timeout = '200ms'",
    "idle_session": "idle_session_timeout = '2500ms'",
    "transaction_timeout": "transaction_timeout = '700ms'",
    "lock_timeout": "lock_timeout = '50ms'",
    "search_path_empty": "search_path = ''",
    "search_path_hostile": HOSTILE,
    "serializable": "default_transaction_isolation = 'serializable'",
    "repeatable_read": "default_transaction_isolation = 'repeatable read'",
    "read_only": "default_transaction_read_only = on",
    "deferrable": """
sql "ALTER ROLE {role:id} SET default_transaction_deferrable = on"
sql "ALTER ROLE {role:id} SET default_transaction_read_only = on"
sql "ALTER ROLE {role:id} SET default_transaction_isolation = 'serializable'"
""",
    "another_role": """
sql "CREATE ROLE other_{role:id}"
sql "GRANT other_{role:id} TO {role:id}"
sql "ALTER ROLE {role:id} SET role = 'other_{role:id}'"
""",
    "LATIN1": "client_encoding = 'LATIN1'",
    "SJIS": "client_encoding = 'SJIS'",
    "SQL_ASCII": "client_encoding = 'SQL_ASCII'",
    "DateStyle": "DateStyle = 'SQL, DMY'",
    "DateStyle_German": "DateStyle = 'German'",
    "IntervalStyle_iso": "IntervalStyle = 'iso_8601'",
    "IntervalStyle_sql": "IntervalStyle = 'sql_standard'",
    "IntervalStyle_verbose": "IntervalStyle = 'postgres_verbose'",
    "TimeZone": "TimeZone = 'Asia/Kathmandu'",
    "bytea_output": "bytea_output = 'escape'",
    "nonconforming_strings": "standard_conforming_strings = off",
    "backslash_quote": "backslash_quote = off",
    "extra_float_digits": "extra_float_digits = -15",
    "quote_all_identifiers": "quote_all_identifiers = on",
    "array_nulls": "array_nulls = off",
    "transform_null_equals": "transform_null_equals = on",
    "event_triggers": "event_triggers = off",
    "row_security": "row_security = off",
    "replication_role": "session_replication_role = 'replica'",
    "application_name": f"application_name = '{NAME}'",
    "log_statement": "log_statement = 'all'",
    "messages": "client_min_messages = 'debug5'",
    "no_messages": "client_min_messages = 'error'",
    "track_activities": "track_activities = off",
    "jit": """
sql "ALTER ROLE {role:id} SET jit = on"
sql "ALTER ROLE {role:id} SET jit_above_cost = 0"
""",
    "generic_plan": "plan_cache_mode = 'force_generic_plan'",
    "custom_plan": "plan_cache_mode = 'force_custom_plan'",
    "synchronous_commit": "synchronous_commit = 'off'",
    "remote_apply": "synchronous_commit = 'remote_apply'",
    "parallel": """
sql "ALTER ROLE {role:id} SET parallel_tuple_cost = 0"
sql "ALTER ROLE {role:id} SET parallel_setup_cost = 0"
""",
}

# Settings of a database apply to every role in it, including the suite's own.
OF_DATABASE = {
    "database_formats": ["IntervalStyle = 'iso_8601'", "DateStyle = 'SQL, DMY'", "TimeZone = 'Asia/Kathmandu'",
                         "client_encoding = 'LATIN1'", "bytea_output = 'escape'",
                         "extra_float_digits = -15", "search_path = ''", "array_nulls = off", "row_security = off"],
    "database_limits": ["statement_timeout = '700ms'", "lock_timeout = '50ms'",
                        "idle_in_transaction_session_timeout = '200ms'", "plan_cache_mode = 'force_generic_plan'"],
    "database_transactions": ["default_transaction_isolation = 'serializable'", "default_transaction_read_only = on",
                              "default_transaction_deferrable = on", "synchronous_commit = off",
                              "session_replication_role = 'replica'"],
}


def scenario_of(name):
    """Returns the scenario in the format of a scenario file."""
    if name in OF_DATABASE:
        lines = [f'sql "ALTER DATABASE postgres SET {setting}"' for setting in OF_DATABASE[name]]
    elif name == "none" or SETTINGS[name].startswith("\n"):
        lines = [SETTINGS[name]]
    else:
        lines = [f'sql "ALTER ROLE {{role:id}} SET {SETTINGS[name]}"']
    # an idle session is ended before it is renewed, and after a slow program has sent its first statement
    return {"steps": "\n".join(lines) + STEPS, "server": "own" if name in OF_DATABASE else "shared",
            "slower": 3 if name == "idle_session" else 1}


def pytest_generate_tests(metafunc):
    """Returns all settings, or a few that a seed selects."""
    if "setting" in metafunc.fixturenames:
        few = 1 if SHARE == 1 else 4 * SHARE
        cases = [(client, name) for client in clients_of(metafunc.config) for name in [*SETTINGS, *OF_DATABASE]]
        cases = cases[SEEDS[0] % few :: few]
        metafunc.parametrize(("user", "setting"), cases, ids=[f"{client.tag}-{name}" for client, name in cases])


@pytest.fixture(scope="session")
def runs(arena, request):
    """All selected settings, already started."""
    begun = {}
    for item in request.session.items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if "setting" not in params or absent(arena, params["setting"]) or lacks(params["user"]):
            continue
        name = params["setting"]
        begun[item.name] = arena.start(f"setting-{name}", scenario_of(name), params["user"])
    return begun


def absent(arena, name):
    """Returns whether this server lacks the setting, or cannot change it."""
    if name == "nonconforming_strings":
        return arena.do(arena.shared.sql("SELECT current_setting('server_version_num')::int >= 190000"))
    words = SETTINGS.get(name, "").split()
    if name in OF_DATABASE or len(words) < 2 or words[1] != "=":
        return False
    return arena.do(arena.shared.sql(f"SELECT current_setting('{words[0]}', true) IS NULL"))


def lacks(client):
    return {"election", "observe", "fence"} - client.features


def test_setting(arena, runs, user, setting, request):
    if absent(arena, setting):
        pytest.skip(f"this server has no {setting}")
    if lacks(user):
        pytest.skip(f"not supported: {lacks(user)}")
    try:
        runs[request.node.name].result()
    except Failure as e:
        pytest.fail(str(e), pytrace=False)
