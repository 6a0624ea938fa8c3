"""The connection of a session, on psycopg's binding of libpq. Its methods are generators that yield the events to wait
for.

Every wait has a deadline. If a statement gets no reply by then, the connection is closed, because there is no other
way to find out that no reply will arrive.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import struct
from typing import Callable, Dict, Generator, Iterator, List, Optional, Sequence

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from . import _errors as errors
from . import _goodbye
from ._protocol import Broken, Job, Params, Protocol, Rows, Wait

CONNECT_LIMIT = 5.0
TEXT_OID = 25
# target_session_attrs for a single host, and for a service, where libpq chooses the host. libpq before version 14 does
# not support "primary".
TARGET, TARGET_OF_SERVICE = ("primary", "primary") if pq.version() >= 140000 else ("any", "read-write")

# Words of libpq's errors about connection strings, and their meaning. The errors themselves are not shown: they quote
# the string, which may contain a password.
_MISTAKES = (
    ('missing "="', "a value needs a keyword and an = before it; a value with a space needs quotes"),
    ("unterminated quoted", "a quote is not closed"),
    ("forbidden value %00", "%00 is not allowed"),
    ("percent-encoded", "after a % two hexadecimal digits are needed; a % itself is %25"),
    ("invalid connection option", "a keyword is unknown"),
    ("invalid URI query parameter", "a parameter of the URL is unknown"),
    ('key/value separator "="', "a parameter of the URL needs one ="),
    ("IPv6 host address", "an IPv6 address in a URL needs [ and ]"),
    ("unexpected character", "a host or a port in the URL is followed by something else"),
)
# A URL with at most one @, which comes before the path. A second @, or one after a /, shows that the special characters
# of a password were not encoded.
_URL = re.compile(r"postgres(ql)?://([^@/]*@)?[^@/?]*(/[^@?]*)?(\?.*)?", re.DOTALL)
_HOST = re.compile(r"[^\s@/?#&=;:'\"]*")
_ENCODE = "in a URL, special characters of a password are percent-encoded, such as @ as %40 and / as %2F"

# SQLSTATEs by words of the message, because libpq does not report the SQLSTATE of a failed connection.
_REFUSALS = (
    ("authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("pg_hba.conf rejects", "28000"),
    ("is not permitted to log in", "28000"),
    ("permission denied for database", "42501"),
)


def array(texts: Sequence[Optional[str]]) -> bytes:
    """Returns an array of texts in the binary format. In an array literal, NULL depends on the setting array_nulls."""
    parts = [struct.pack("!5i", 1, 1, TEXT_OID, len(texts), 1) if texts else struct.pack("!3i", 0, 0, TEXT_OID)]
    for encoded in [None if text is None else text.encode() for text in texts]:
        parts.append(b"\xff\xff\xff\xff" if encoded is None else struct.pack("!i", len(encoded)) + encoded)
    return b"".join(parts)


@contextlib.contextmanager
def libpq() -> Iterator[None]:
    """Turns errors of libpq into Broken."""
    try:
        yield
    except psycopg.Error as error:
        raise Broken(errors.Unavailable(f"the connection broke: {str(error).strip()}")) from error


def refusal(message: str) -> errors.Error:
    """Returns the error for a failed connection, by libpq's message."""
    for words, sqlstate in _REFUSALS:
        if words in message:
            return errors.of_server(sqlstate, message)
    if 'role "' in message and "does not exist" in message:
        return errors.of_server("28000", message)
    if 'database "' in message and "does not exist" in message:
        return errors.of_server("3D000", message)
    return errors.Unavailable(message)


def parsed(conninfo: object) -> Dict[str, str]:
    """Returns the keywords and values of a connection string. No error, nor its context, shows any part of it."""
    if not isinstance(conninfo, str):
        raise errors.InvalidRequest(f"the connection string is of type {type(conninfo).__name__}: a str is needed")
    mistake = ""
    try:
        conninfo.encode()
        given = {key: str(value) for key, value in conninfo_to_dict(conninfo).items() if value is not None}
    except UnicodeEncodeError:
        mistake = "it is not Unicode"
    except psycopg.Error as error:
        mistake = next((means for words, means in _MISTAKES if words in str(error)), "libpq does not understand it")
    if "\0" in conninfo:
        mistake = "it contains a NUL"
    elif not mistake and re.match("postgres(ql)?://", conninfo) and not _URL.fullmatch(conninfo):
        mistake = _ENCODE
    elif not mistake:
        mistake = _mistake_in(given)
    if mistake:
        raise errors.InvalidRequest(f"the connection string cannot be parsed: {mistake}")
    return given


def _mistake_in(given: Dict[str, str]) -> str:
    """Returns the mistake in the values, or ''. A password with a special character can look like a host or port."""
    hosts = [host for key in ("host", "hostaddr") for host in given.get(key, "").split(",")]
    if not all(host[:1] in ("/", "@") or _is_address(host) or _HOST.fullmatch(host) for host in hosts):
        return f"a host has a character that no host has; {_ENCODE}"
    if not all(re.fullmatch("[0-9]*", port.strip()) for port in given.get("port", "").split(",")):
        return f"a port is not a number; {_ENCODE}"
    if not re.fullmatch(r"(\s*[+-]?[0-9]+\s*)?", given.get("connect_timeout", "")):
        return "connect_timeout is not a whole number of seconds"
    return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class PgWire:
    def __init__(self, conninfo: str, protocol: Protocol, wake: Callable[[], object] = lambda: None) -> None:
        """wake: ends a wait without a descriptor; may be called in any thread."""
        self.given = parsed(conninfo)
        self.patience = max(int(self.given.get("connect_timeout") or 0), 0)
        self.protocol, self.clock, self.wake = protocol, protocol.clock, wake
        self.before_close: Callable[[], object] = lambda: None  # called before the descriptor is closed
        self.conn: Optional[pq.abc.PGconn] = None
        self.target = TARGET
        self.hosts = self._hosts()
        self.used: Optional[Dict[str, str]] = None  # the host of the current connection
        self.last: Optional[Dict[str, str]] = None  # the same host, with its address

    @property
    def fd(self) -> int:
        return -1 if self.conn is None else self.conn.socket

    def avoid_host(self) -> None:
        if self.used is not None:
            self.hosts.remove(self.used)
            self.hosts.append(self.used)
            self.used = None

    def close(self) -> None:
        if self.conn is not None and os.getpid() == self.protocol.pid:
            self.before_close()
            self.conn.finish()
        self.conn = None  # a forked child drops its copy without a message to the server

    def shut(self) -> None:
        """Ends another thread's wait for the server."""
        if self.conn is not None and self.conn.status != pq.ConnStatus.BAD:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.conn.socket)) as copy:
                copy.shutdown(socket.SHUT_RDWR)

    def _limit(self, until: float) -> float:
        """Returns the end of a wait: nothing waits beyond the limit of close()."""
        return until if self.protocol.close_until is None else min(until, self.protocol.close_until)

    def _ready(self, fd: int, read: bool, write: bool, until: float, what: str) -> Job:
        while not (yield fd, read, write, self._limit(until)):
            if self.clock() >= self._limit(until):
                raise Broken(errors.Unavailable(what))

    # --- connecting -------------------------------------------------------------------------------------------------

    def _hosts(self) -> List[Dict[str, str]]:
        """Splits the connection string by hosts. libpq, given all hosts, would wait for a silent one without end."""
        keys = ("host", "hostaddr", "port")
        given = {key: self.given.get(key) or os.environ.get("PG" + key.upper(), "") for key in keys}
        if "service" in self.given or "PGSERVICE" in os.environ:
            self.target = TARGET_OF_SERVICE
            return [{}]  # the service file may name the hosts; libpq then tries them in turn
        hosts, addresses, ports = (given[key].split(",") for key in keys)
        count = len(addresses) if given["hostaddr"] else len(hosts)
        result = []
        for i in range(count):
            parts = {"host": hosts, "hostaddr": addresses, "port": ports}
            one = {key: items[i] if len(items) == count else items[0] for key, items in parts.items()}
            result.append({key: value for key, value in one.items() if value})
        return result

    def connect(self, host_limit: Optional[float]) -> Generator[Wait, bool, str]:
        self.close()
        limit = host_limit or float(self.patience) or CONNECT_LIMIT
        failure: errors.Error = errors.Unavailable("no host")
        for host in list(self.hosts):
            until = self.clock() + limit
            try:
                for target in (yield from self._resolve(host, until)):
                    try:
                        with libpq():
                            told: str = yield from self._connect_one(target, until)
                        self.used, self.last = host, target
                        return told
                    except Broken as broken:
                        failure = broken.error
            except Broken as broken:
                failure = broken.error
            if self.clock() >= until:  # the host is silent: try it last from now on
                self.hosts.remove(host)
                self.hosts.append(host)
        self.close()
        raise Broken(failure)

    def _resolve(self, host: Dict[str, str], until: float) -> Generator[Wait, bool, List[Dict[str, str]]]:
        """Returns one set of parameters for each address of a host.

        The name is resolved in a separate thread, because nothing can limit or stop getaddrinfo().
        """
        name = host.get("host", "")
        if not name or "hostaddr" in host or name[0] in "/@" or "\\" in name or _is_address(name):
            return [host]
        found: List[str] = []
        failed: List[OSError] = []

        def resolve() -> None:
            try:
                found.extend(str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
            except OSError as error:
                failed.append(error)
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self.wake()

        try:
            _goodbye.Thread(target=resolve, name="lock_election-resolve", daemon=True).start()
        except RuntimeError as error:  # no thread can be started, as when the process ends
            raise Broken(errors.Unavailable(str(error))) from None
        while not found and not failed and self.clock() < self._limit(until):
            yield -1, False, False, self._limit(until)
        if not found:
            raise Broken(errors.Unavailable(f'could not resolve "{name}": {failed[0] if failed else "no answer"}'))
        return [{**host, "hostaddr": address} for address in dict.fromkeys(found)]

    def _connect_one(self, target: Dict[str, str], until: float) -> Generator[Wait, bool, str]:
        params = {
            "tcp_user_timeout": str(int(self.protocol.call * 1000)),
            "fallback_application_name": "lock_election",
            **({} if "PGTARGETSESSIONATTRS" in os.environ else {"target_session_attrs": self.target}),
            **self.given,
            **target,
            "client_encoding": "UTF8",
        }
        self.close()
        conn = self.conn = pq.PGconn.connect_start(make_conninfo("", **params).encode())
        status = int(pq.PollingStatus.WRITING if conn.status != pq.ConnStatus.BAD else pq.PollingStatus.FAILED)
        silent = f"no answer from {target.get('host', 'the server')} in time"
        while status != pq.PollingStatus.OK:
            if status == pq.PollingStatus.FAILED:
                raise Broken(refusal(conn.error_message.decode(errors="replace").strip()))
            write = status == pq.PollingStatus.WRITING
            yield from self._ready(conn.socket, not write, write, until, silent)
            status = conn.connect_poll()
        conn.nonblocking = 1
        return str(conn.backend_pid)

    # --- statements -------------------------------------------------------------------------------------------------

    def prepare(self, name: str, sql: str, until: float) -> Job:
        conn = self._open()
        with libpq():
            conn.send_prepare(name.encode(), sql.encode())
            yield from self._answer(conn, until)

    def query(self, sql: str, params: Optional[Params], until: float, name: str = "") -> Generator[Wait, bool, Rows]:
        conn = self._open()
        with libpq():
            if params is None:
                conn.send_query(sql.encode())
            else:
                values = [None if p is None else p.encode() if isinstance(p, str) else array(p) for p in params]
                formats = [int(isinstance(p, list)) for p in params]
                if name:
                    conn.send_query_prepared(name.encode(), values, formats)
                else:
                    conn.send_query_params(sql.encode(), values, param_formats=formats)
            return (yield from self._answer(conn, until))

    def _open(self) -> pq.abc.PGconn:
        if self.conn is None:
            raise Broken(errors.Unavailable("there is no connection"))
        return self.conn

    def _answer(self, conn: pq.abc.PGconn, until: float) -> Generator[Wait, bool, Rows]:
        rows: Rows = []
        failure: Optional[errors.Error] = None
        while True:
            unsent = conn.flush()
            if unsent or conn.is_busy():
                yield from self._ready(conn.socket, True, bool(unsent), until, "the server did not answer in time")
                conn.consume_input()
                continue
            result = conn.get_result()
            if result is None:
                break
            if result.status == pq.ExecStatus.FATAL_ERROR:
                failure = failure or self._failure(result)
            else:
                columns, value = range(result.nfields), result.get_value
                rows = [
                    [None if (found := value(row, column)) is None else found.decode() for column in columns]
                    for row in range(result.ntuples)
                ]
        self._notified(conn)
        if conn.status != pq.ConnStatus.OK:
            raise Broken(failure or errors.Unavailable(conn.error_message.decode(errors="replace").strip()))
        if failure is not None:
            raise failure
        return rows

    @staticmethod
    def _failure(result: pq.abc.PGresult) -> errors.Error:
        fields = (pq.DiagnosticField.SQLSTATE, pq.DiagnosticField.MESSAGE_PRIMARY, pq.DiagnosticField.MESSAGE_HINT)
        sqlstate, message, hint = ((result.error_field(f) or b"").decode(errors="replace") for f in fields)
        if not sqlstate:  # an error of libpq, not of the server
            return errors.OutcomeUnknown(result.error_message.decode(errors="replace").strip())
        return errors.of_server(sqlstate, message, hint)

    def take_notifications(self) -> None:
        conn = self._open()
        with libpq():
            conn.consume_input()
            self._notified(conn)

    def _notified(self, conn: pq.abc.PGconn) -> None:
        notify = conn.notifies()
        while notify is not None:
            self.protocol.notified(notify.relname.decode())
            notify = conn.notifies()
