"""The demo: a lock and an election whose workers are killed, and a late write that a fence rejects."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Dict, Iterator, List

import psycopg

from . import _errors as errors
from . import embedded
from ._sync import Term, connect

_TTL = 3.0
_PATIENCE = 30.0  # seconds for steps that take up to a TTL, on a busy machine
_WORKER = "import sys; sys.path[:] = {!r}; from lock_election import _demo; _demo.worker(*sys.argv[1:])"


def worker(name: str, task: str) -> None:
    """A worker in a separate process. It works until the pipe to its standard input is closed."""

    def work(what: str, token: int) -> None:
        print(f"{what} {token}", flush=True)
        sys.stdin.read()

    def lead(term: Term, lost: threading.Event) -> None:
        work("leads, term", term.token)

    with connect(ttl=_TTL, name=name) as session:
        if task == "lead":
            session.election("scheduler", f"replica {name}").run(lead)
        else:
            with session.lock("invoices") as hold:
                work("has the lock, token", hold.token)


class Worker:
    def __init__(self, name: str, task: str, environment: Dict[str, str]) -> None:
        self.name = name
        self.lines: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER.format(sys.path), name, task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment,
            encoding="utf-8",
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def wait(self) -> str:
        try:
            return self.lines.get(timeout=_PATIENCE)
        except queue.Empty:
            raise errors.Unavailable(f"worker {self.name} got nothing") from None

    def end(self, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.communicate()


class Demo:
    def __init__(self) -> None:
        self.began = time.monotonic()
        self.workers: List[Worker] = []

    def say(self, text: str) -> None:
        print(f"\n--- {text}", flush=True)

    def line(self, who: str, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {who:1}  {text}", flush=True)

    def run(self) -> None:
        print("Starting a throw-away PostgreSQL ...", flush=True)
        try:
            with embedded.start() as server, psycopg.connect(server.conninfo, autocommit=True) as self.db:
                version = self.db.info.parameter_status("server_version")
                self.line("", f"PostgreSQL {version} runs in {server.directory}, with locks in it.")
                self.environment = server.environment
                with self.two("lock") as (a, b):
                    self.lock(a, b)
                with self.two("lead") as (a, b):
                    self.leader(a, b)
        finally:
            for process in self.workers:
                process.end(kill=True)
        self.line("", "The server and its files are gone.")

    @contextlib.contextmanager
    def two(self, task: str) -> Iterator[List[Worker]]:
        """Starts two workers, of which the second one waits for the first. Ends the second one after the block."""
        self.say(
            f'Workers A and B want the lock "invoices". Its holder renews it; the TTL is {_TTL:.0f} s.'
            if task == "lock"
            else "Replicas A and B campaign."
        )
        pair = []
        for name in "AB":
            pair.append(Worker(name, task, self.environment))
            self.workers.append(pair[-1])
            if name == "A":
                self.line("A", pair[0].wait())
        self.until_waiting()
        self.line("B", "waits")
        yield pair
        pair[1].end()
        self.line("B", "ends: what it has is free at once")

    def until_waiting(self) -> None:
        end = time.monotonic() + _PATIENCE
        while not self.rows("SELECT 1 FROM lock_election.waiters"):
            if time.monotonic() > end:
                raise errors.Unavailable("worker B does not wait")
            time.sleep(0.05)

    def rows(self, statement: str) -> List[psycopg.rows.TupleRow]:
        return self.db.execute(statement.encode()).fetchall()

    def show(self, statement: str) -> None:
        cursor = self.db.execute(statement.encode())
        table = [[str(column.name) for column in cursor.description or []]]
        table += [[str(value) for value in row] for row in cursor.fetchall()]
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        print(f"            {statement}")
        for row in table:
            print("              " + " | ".join(value.ljust(width) for value, width in zip(row, widths)).rstrip())

    def kill(self, victim: Worker, heir: Worker) -> str:
        victim.end(kill=True)
        self.line(victim.name, "kill -9")
        killed = time.monotonic()
        got = heir.wait()
        self.line(heir.name, f"{got}, {time.monotonic() - killed:.1f} s later")
        return got

    def lock(self, a: Worker, b: Worker) -> None:
        self.show("SELECT name, mode, token, waiters FROM lock_election.locks")
        self.say("A is killed, and releases nothing. B gets the lock when A's TTL has passed, not earlier.")
        self.kill(a, b)

    def leader(self, a: Worker, b: Worker) -> None:
        old = self.term()
        self.say("The leader is killed. The other replica leads after its TTL.")
        self.kill(a, b)
        self.say("A write that A sent before it died arrives now. The fence refuses it, and accepts that of B.")
        self.db.execute("CREATE TABLE work (term bigint, done text)")
        self.write("A", old, "late")
        self.write("B", self.term(), "in time")
        self.show("SELECT * FROM work")
        self.show("SELECT how, candidate, term FROM election_history('scheduler') ORDER BY changed_at")

    def term(self) -> int:
        return int(self.rows("SELECT term FROM current_leader('scheduler')")[0][0])

    def write(self, who: str, term: int, what: str) -> None:
        fence = f"SELECT fence_leader('scheduler', {term})"
        insert = f"INSERT INTO work VALUES ({term}, '{what}')"
        self.line(who, f"<- BEGIN; {fence};")
        print(f"{'':15}{insert}; COMMIT")
        try:
            with self.db.transaction():
                self.db.execute(f"{fence}; {insert}".encode())
            self.line(who, "-> COMMIT")
        except psycopg.Error as error:
            self.line(who, f"-> ERROR: {error.diag.message_primary}")


def demo() -> None:
    Demo().run()


def serve() -> None:
    """Runs a server until Ctrl-C or SIGTERM, even if a shell has started it with SIGINT ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with embedded.start() as server:
        print("# Locks in a throw-away PostgreSQL, until Ctrl-C. In another shell:")
        print("export " + " ".join(f"{key}={value}" for key, value in server.environment.items()), flush=True)
        threading.Event().wait()
