"""The edition that the suite runs on: the C extension or, with ENGINE=portable, the portable edition."""

import os
import re
from pathlib import Path

PORTABLE = os.environ.get("ENGINE", "c") == "portable"
SCRIPT = Path(__file__).resolve().parents[3] / "sql/portable/lock_election.sql"
INSTALLER = "le_installer"  # an ordinary role that owns the portable edition's functions

# Run as a superuser, in the database; creating the role, once for the cluster.
_SCHEMA = "CREATE SCHEMA IF NOT EXISTS {schema}; GRANT CREATE, USAGE ON SCHEMA {schema} TO " + INSTALLER
_DROP = f"DROP OWNED BY {INSTALLER} CASCADE; GRANT CREATE ON DATABASE postgres TO {INSTALLER}"


def configuration(text):
    """Returns lines of postgresql.conf, which do not load the library for the portable edition."""
    return re.sub(r"^shared_preload_libraries.*\n", "", text, flags=re.M) if PORTABLE else text


def install(schema="public"):
    """Returns SQL that installs the edition, in one transaction."""
    if not PORTABLE:
        return "CREATE EXTENSION lock_election" + (f" SCHEMA {schema}" if schema != "public" else "")
    script = SCRIPT.read_text(encoding="utf-8")
    return (f"{_SCHEMA.format(schema=schema)}; SET LOCAL ROLE {INSTALLER}; SET LOCAL search_path = {schema};\n{script};\n"
            "RESET ROLE; RESET search_path; RESET client_min_messages; RESET _lock_election.installing")


def prepare():
    """Returns SQL that creates the role."""
    return [f"CREATE ROLE {INSTALLER}", f"GRANT CREATE ON DATABASE postgres TO {INSTALLER}"] if PORTABLE else []


def setting(line):
    """Converts a setting of a scenario to SQL for the running server; None if it belongs into postgresql.conf."""
    found = re.fullmatch(r"lock_election\.(\w+) = '?(\w+)'?", line)
    return f"SELECT lock_election.configure('{found[1]}', '{found[2]}')" if PORTABLE and found else None


def translate(sql):
    """Adapts a step's SQL, which is written for the extension."""
    if not PORTABLE:
        return sql
    if sql == "DROP EXTENSION lock_election":
        return _DROP
    found = re.fullmatch(r'CREATE EXTENSION lock_election(?: SCHEMA (\w+|".*"))?', sql)
    return install(found[1] or "public") if found else sql
