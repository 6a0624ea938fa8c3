"""A server and a wire for the tests of the protocol alone: the clock is a number, and waiting sets it forward."""

import asyncio
import re
from collections import deque

from lock_election import _errors as errors
from lock_election._protocol import Broken, Protocol


class Server:
    """Answers a session's statements as the real one would, for locks and elections without time."""

    def __init__(self):
        self.leases, self.rows, self.revision = {}, [], 100  # a row: lease, kind, name, token, granted, owner
        self.ended = []  # backends that were terminated
        self.schema, self.standby = "s", False
        self.validity = None  # milliseconds that a renewal returns; None: the TTL

    def number(self):
        self.revision += 1
        return self.revision

    def settle(self, kind, name):
        """Grants a name to the first of its queue."""
        rows = [row for row in self.rows if row["kind"] == kind and row["name"] == name]
        if rows and not rows[0]["granted"]:
            rows[0]["granted"] = True
            return rows[0]
        return None

    def take(self, kind, name, owner, lease):
        row = {"lease": lease, "kind": kind, "name": name, "token": str(self.number()), "owner": owner}
        row["granted"] = not any(other["kind"] == kind and other["name"] == name for other in self.rows)
        self.rows.append(row)
        return row

    def drop(self, name, token):
        for row in self.rows:
            if row["name"] == name and row["token"] == token:
                self.rows.remove(row)
                self.settle(row["kind"], name)
                return "t"
        return "f"

    def end(self, lease):
        names = [(row["kind"], row["name"]) for row in self.rows if row["lease"] == lease]
        self.rows = [row for row in self.rows if row["lease"] != lease]
        for kind, name in names:
            self.settle(kind, name)
        return "t" if self.leases.pop(lease, None) else "f"

    def answer(self, sql, params):
        called = re.search(r"\b(?!pg_catalog\b)(\w+)\.(\w+)\(", sql)
        schema, function = called.groups() if called else ("", "")
        if "pg_extension" in sql:
            return [[self.schema, "db", "t" if self.standby else "f", "7", "all", "then"]]
        if schema not in ("", self.schema):
            raise errors.of_server("3F000", f'schema "{schema}" does not exist')
        if "pg_terminate_backend" in sql:
            gone = tuple(params[:2]) in self.ended
            self.ended.append(tuple(params[:2]))
            return [] if gone else [["t"]]
        if function == "grant_lease":
            lease = str(self.number())
            self.leases[lease] = params[0].partition(" ")[0]
            return [[lease]]
        if function == "keep_alive":
            ttl = self.leases.get(params[0])
            return [[ttl if ttl is None or self.validity is None else str(self.validity)]]
        if function == "revoke_lease":
            return [[self.end(params[0])]]
        if function == "lease_holds":
            if params[0] not in self.leases:
                raise errors.of_server("LE001", "no such lease")
            return [
                [row["kind"], row["name"], row["token"], "t" if row["granted"] else "f", "le_x", row["owner"]]
                for row in self.rows
                if row["lease"] == params[0]
            ]
        if function in ("acquire_lock", "enqueue_lock", "enqueue_candidate"):
            if params[2] not in self.leases:
                raise errors.of_server("LE001", "no such lease")
            row = self.take("election" if function[-1] == "e" else "lock", params[0], *params[1:3])
            if function == "acquire_lock":
                if not row["granted"]:
                    self.rows.remove(row)
                return [[row["token"] if row["granted"] else None]]
            return [[row["token"], "t" if row["granted"] else "f", "1", "le_x"]]
        if function == "enqueue_each":
            return [self.answer(f"{schema}.enqueue_lock(", [name, *params[1:]])[0] for name in unquote(params[0])]
        if function in ("release_lock", "resign"):
            return [[self.drop(*params[:2])]]
        if function == "release_each":
            return [[self.drop(*pair)] for pair in zip(unquote(params[0]), unquote(params[1]))]
        if function in ("is_leader", "is_held"):
            tokens = unquote(params[1])
            return [[row["token"]] for row in self.rows if row["token"] in tokens and row["granted"]]
        assert "LISTEN" in sql, sql
        return []


def unquote(array):
    return [item.strip('"') for item in array.strip("{}").split(",")]


class Wire:
    """Faults are functions that are called in place of a statement: one for each, the next ones first."""

    def __init__(self, server, clock):
        self.server, self.clock = server, clock
        self.protocol = None
        self.asked = []  # (time, statement)
        self.faults = deque()
        self.connects = self.avoided = 0
        self.refuse = False
        self.woken = False
        self.steps = deque()  # what the test does when there is nothing else to do

    def wake(self):
        self.woken = True

    def close(self):
        pass

    def avoid_host(self):
        self.avoided += 1

    async def connect(self, host_limit):
        self.clock.now += 0.001
        if self.refuse:
            raise Broken(errors.Unavailable("refused"))
        self.connects += 1
        return "7"

    async def query(self, sql, params, until):
        self.asked.append((self.clock.now, sql))
        self.clock.now += 0.001
        for fault in list(self.faults):
            if fault.pattern in sql:
                self.faults.remove(fault)
                return fault.strike(self, sql, params, until)
        if sql.startswith("LISTEN le_self"):
            self.protocol.notified(self.protocol.test_channel, "")
        return self.server.answer(sql, params or [])

    async def idle(self, until):
        await asyncio.sleep(0)  # the callers' turn
        if self.woken:
            self.woken = False
            return
        if self.steps and (self.steps[0].at is None or self.steps[0].at <= until):
            step = self.steps.popleft()
            self.clock.now = max(self.clock.now, step.at or 0)
            step.do()
            return
        assert until != float("inf"), "there is nothing to wait for"
        self.clock.now = max(self.clock.now, until)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Step:
    def __init__(self, do, at=None):
        self.do, self.at = do, at


class Fault:
    def __init__(self, pattern, strike):
        self.pattern, self.strike = pattern, strike


def lost_answer(pattern):
    """The statement takes effect, and the connection breaks before the answer."""

    def strike(wire, sql, params, until):
        wire.server.answer(sql, params)
        raise Broken(errors.Unavailable("the connection broke"))

    return Fault(pattern, strike)


def lost_question(pattern):
    """The connection breaks before the statement has arrived."""

    def strike(wire, sql, params, until):
        raise Broken(errors.Unavailable("the connection broke"))

    return Fault(pattern, strike)


def late(pattern, seconds):
    """An answer that takes so long."""

    def strike(wire, sql, params, until):
        wire.clock.now += seconds
        return wire.server.answer(sql, params)

    return Fault(pattern, strike)


def fails(pattern, sqlstate):
    def strike(wire, sql, params, until):
        raise errors.of_server(sqlstate, "no")

    return Fault(pattern, strike)


class World:
    """A session's protocol on a fake server."""

    def __init__(self, ttl=10.0, server=None):
        self.clock = Clock()
        self.server = server or Server()
        self.wire = Wire(self.server, self.clock)
        self.protocol = self.wire.protocol = Protocol(ttl, "test", self.clock)
        self.protocol.wire = self.wire

    def at(self, seconds, do):
        """Do it so many seconds after the beginning."""
        self.wire.steps.append(Step(do, 1000.0 + seconds))

    def ask(self, name="n", kind="lock", attempt=False, last="exclusive", ttl=None):
        return self.protocol.ask(kind, [name], ttl, attempt, last)

    async def live(self, seconds):
        """Until so many seconds after the beginning."""
        self.at(seconds, lambda: self.protocol.close(0))
        await self.protocol.run()
        assert not self.wire.steps

    def asked(self, pattern):
        return [time - 1000.0 for time, sql in self.wire.asked if pattern in sql]
