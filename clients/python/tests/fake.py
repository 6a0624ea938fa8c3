"""A server and a wire for the tests of the protocol alone: the clock is a number, and waiting sets it forward."""

import re
from collections import deque

from lock_election import _errors as errors
from lock_election._protocol import Broken, Protocol

COLUMNS = ["item", "event", "token", "name", "owner", "kind", "reason", "sqlstate", "message", "hint"]
COLUMNS += ["validity", "incarnation", "news", "complete", "channel"]


class Server:
    """Answers a session's statements as the real one would, for locks, permits and elections without time."""

    def __init__(self):
        self.leases = {}  # a lease: its TTL in milliseconds, the number of its last call, its losses
        self.rows = []  # of all leases: lease, kind, name, token, granted, owner, news
        self.revision, self.incarnation = 100, 1
        self.schema, self.standby = "s", False
        self.validity = None  # milliseconds that a renewal returns; None: the TTL
        self.durable = True
        self.refused = {}  # the SQLSTATE of an item, by its name
        self.permits = 1

    def number(self):
        self.revision += 1
        return self.revision

    def settle(self, kind, name):
        """Grants a name to the first of its queue."""
        rows = [row for row in self.rows if row["kind"] == kind and row["name"] == name]
        for row in rows[: self.permits]:
            if not row["granted"]:
                row["granted"], row["news"] = True, self.number()

    def take(self, kind, name, owner, lease):
        beside = [other for other in self.rows if other["kind"] == kind and other["name"] == name]
        row = {"lease": lease, "kind": kind, "name": name, "token": str(self.number()), "owner": owner}
        row["granted"] = len(beside) < self.permits
        row["news"] = int(row["token"])
        self.rows.append(row)
        return row

    def drop(self, name, token):
        for row in self.rows:
            if row["name"] == name and row["token"] == token:
                self.rows.remove(row)
                self.settle(row["kind"], name)
                return True
        return False

    def evict(self, name):
        self.revision += 1
        for row in self.rows:
            if row["name"] == name and row["granted"]:
                row.update(news=self.revision, told="evicted")

    def force(self, name):
        """Takes what is held away."""
        row = next(row for row in self.rows if row["name"] == name)
        if row["lease"] in self.leases:
            self.leases[row["lease"]]["lost"].append((self.number(), row["token"]))
        self.drop(name, row["token"])

    def restart(self, forgets=()):
        """Another manager, which knows no losses; what it forgets was not durable."""
        self.incarnation += 1
        self.rows = [row for row in self.rows if row["name"] not in forgets]
        for lease in self.leases.values():
            lease["lost"] = []

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
            return [[self.schema, "db", "t" if self.standby else "f", "7", "all"]]
        if schema not in ("", self.schema):
            raise errors.of_server("3F000", f'schema "{schema}" does not exist')
        if function == "grant_lease":
            lease = str(self.number())
            self.leases[lease] = {"ttl": params[0].partition(" ")[0], "call": 0, "lost": []}
            return [[lease]]
        if function == "revoke_lease":
            return [[self.end(params[0])]]
        if function == "lease_sync":
            return [[row.get(column) for column in COLUMNS] for row in self.sync(*params)]
        if function == "current_leader":
            return [["me", "7"]]
        assert "LISTEN" in sql, sql
        return []

    # --- lease_sync() ---

    def sync(self, lease, call, incarnation, news, items, wait):
        if lease not in self.leases:
            return [{"event": "gone", "reason": "expired"}]
        told = self.leases[lease]
        fresh = int(call) > told["call"] and incarnation in (None, str(self.incarnation))
        told["call"] = max(told["call"], int(call))
        if wait is None:
            assert fresh
            return [{"event": "lease"}, *self.carry_out(lease, items)]
        results = self.carry_out(lease, items) if fresh else []
        tokens = {row.get("token") for row in results}
        if not self.durable:
            for row in results:
                if row["event"] in ("granted", "queued", "proclaimed"):
                    row.update(event="pending", token=None)
        known = incarnation == str(self.incarnation)
        seen = int(news or 0) if known else 0
        first = {
            "event": "lease", "validity": self.validity or told["ttl"], "incarnation": str(self.incarnation),
            "news": str(self.revision), "complete": "f" if seen else "t", "channel": "le_x",
        }  # fmt: skip
        if not self.durable:
            first.update(news=str(seen), complete=None)
            return [first, *results]
        more = [
            {**row, "event": row.get("told") or ("granted" if row["granted"] else "queued")}
            for row in self.rows
            if row["lease"] == lease and row["news"] > seen and row["token"] not in tokens
        ]
        lost = [{"event": "lost", "token": t, "reason": "forced"} for number, t in told["lost"] if number > seen]
        return [first, *results, *more, *lost]

    def carry_out(self, lease, items):
        asked = []
        for item in requests(items):
            if asked and asked[-1][0] == item[0]:
                asked[-1][2].append(item[2])  # another name of the same request
            else:
                asked.append([*item[:2], [item[2]], *item[3:]])
        released = [self.one(lease, *item) for item in asked if item[1] in ("release", "resign")]
        return released + [self.one(lease, *item) for item in asked if item[1] not in ("release", "resign")]

    def one(self, lease, item, action, names, number, owner, value):
        name = names[0]
        row = {"item": item, "name": name, "owner": owner}
        if name in self.refused:
            return {**row, "event": "error", "sqlstate": self.refused[name], "message": "no"}
        if action in ("release", "resign"):
            return {**row, "event": "released" if self.drop(name, number) else "not_held"}
        if action == "proclaim":
            return {**row, "event": "proclaimed"}
        kind = "election" if action.endswith("candidate") else "lock"
        taken = None
        if not action.endswith("permit"):  # a permit is taken each time
            taken = next((r for r in self.rows if r["lease"] == lease and r["owner"] == owner), None)
        taken = taken or self.take(kind, name, owner, lease)
        for other in names[1:]:
            self.rows.append({**taken, "name": other})
        if action.startswith("try_") and not taken["granted"]:
            self.rows.remove(taken)
            return {**row, "event": "not_granted"}
        return {**row, "event": "granted" if taken["granted"] else "queued", "kind": kind, "token": taken["token"]}


def literal(texts):
    return "{" + ",".join("NULL" if text is None else f'"{text}"' for text in texts) + "}"


def requests(texts):
    """The items, of a list of texts or of what literal() makes of it."""
    if isinstance(texts, str):
        texts = [text.strip('"') if text != "NULL" else None for text in texts.strip("{}").split(",") if text]
    return [texts[i : i + 6] for i in range(0, len(texts), 6)]


class Wire:
    """Faults are functions that are called in place of a statement: one for each, the next ones first."""

    fd = 3

    def __init__(self, server, clock):
        self.server, self.clock = server, clock
        self.protocol = None
        self.asked = []  # (time, statement), behind that of lease_sync() its items and wait
        self.prepared = []
        self.faults = deque()
        self.connects = self.avoided = 0
        self.refuse = self.deaf = False
        self.pid = "7"

    def close(self):
        pass

    def shut(self):
        pass

    def avoid_host(self):
        self.avoided += 1

    def take_notifications(self):
        pass

    def connect(self, host_limit):
        self.clock.now += 0.001
        if self.refuse:
            raise Broken(errors.Unavailable("refused"))
        self.connects += 1
        return self.pid
        yield

    def prepare(self, name, sql, until):
        self.prepared.append(name)
        return
        yield

    def query(self, sql, params, until, name=""):
        text = f"{sql} {literal(params[4])} wait {params[5]} {name}" if "lease_sync(" in sql else sql
        self.asked.append((self.clock.now, text))
        self.clock.now += 0.001
        for fault in list(self.faults):
            if fault.pattern in text:
                self.faults.remove(fault)
                return fault.strike(self, sql, params, until)
        if "NOTIFY" in sql and not self.deaf:
            self.protocol.notified(self.protocol.test_channel)
        return self.server.answer(sql, params or [])
        yield


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


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
        self.steps = deque()  # (time, what the test does then)

    def at(self, seconds, do):
        """Do it so many seconds after the beginning."""
        self.steps.append((1000.0 + seconds, do))
        self.steps = deque(sorted(self.steps, key=lambda step: step[0]))

    def ask(self, name="n", kind="lock", attempt=False, last=None, ttl=None):
        return self.protocol.ask(kind, [name] if isinstance(name, str) else name, ttl, attempt, last)

    def live(self, seconds):
        """Until so many seconds after the beginning."""
        self.at(seconds, lambda: self.protocol.close(0))
        self.run()
        assert not self.steps

    def run(self):
        while not self.protocol.finished:
            while self.steps and self.steps[0][0] <= self.clock.now:
                self.wait(0.0)
            self.protocol.tick()
            job = self.protocol.next_job()
            if job is None:
                self.wait(self.protocol.due())
                continue
            ready = None
            try:
                while True:
                    self.wait(job.send(ready)[3])
                    ready = False
            except StopIteration:
                pass

    def wait(self, until):
        """Until that time, or the next step."""
        if self.steps and self.steps[0][0] <= max(until, self.clock.now):
            at, do = self.steps.popleft()
            self.clock.now = max(self.clock.now, at)
            do()
            return
        assert until != float("inf"), "there is nothing to wait for"
        self.clock.now = max(self.clock.now, until)

    def asked(self, pattern):
        return [time - 1000.0 for time, sql in self.wire.asked if pattern in sql]
