"""Random runs: sessions of all clients on a few names, and faults, both chosen by a seed; and their histories.

Each session does one thing at a time, so that its history can be read by those who judge: judge.py, the checker of the
torture test (test/torture/check.c), and Porcupine.
"""

import asyncio
import random
from dataclasses import dataclass, field

from . import judge
from .agent import Agent, Failure, Violation, now
from .proxy import Proxy
from .scenario import TTL

NAMES = ("n1", "n2", "n3")
PERMITS = 2
AGENTS = 4
SESSIONS = 2
PATIENCE = 6 * TTL
# A client's deadline is earlier than the end of its lease by this; rule 3.1.
MARGIN = min(TTL / 20, 1000)
# Deadlines are reported in whole milliseconds.
ROUNDING = 2


@dataclass
class Entry:
    """A call of a session, for the judges."""

    op: str
    sent: float
    at: float
    status: str
    name: str = ""
    mode: str = ""
    wait: object = None
    token: str = None
    lease: str = None


@dataclass
class History:
    """The history of one session."""

    who: str
    entries: list = field(default_factory=list)
    holds: list = field(default_factory=list)
    lease: str = None
    agent: object = None


class Session:
    """Opens a session, then acquires, holds for a while, and releases, in turn. Reopens a lost session."""

    def __init__(self, world, agent, name, dice):
        self.world = world
        self.agent = agent
        self.name = name
        self.dice = dice
        self.history = None

    async def ask(self, **command):
        return await asyncio.wait_for(self.agent.give(**command).answer, PATIENCE / 1000 + 30)

    async def run(self):
        while not self.world.over and not self.agent.dead_at:
            if await self.open():
                while not self.world.over and await self.turn():
                    pass
                await self.close()
            else:
                await asyncio.sleep(0.05)

    async def open(self):
        answer = await self.ask(do="open", session=self.name, dsn=self.world.dsn(self.agent), ttl=TTL, name="chance")
        if answer["status"] != "ok":
            return False
        self.history = History(f"{self.agent.name}-{self.name}-{len(self.world.histories)}", lease=answer["lease"],
                               agent=self.agent)
        self.world.histories.append(self.history)
        self.history.entries.append(Entry("grant_lease", answer["sent"], answer["at"], "ok", lease=answer["lease"]))
        return True

    async def close(self):
        answer = await self.ask(do="close", session=self.name, limit=500)
        self.history.entries.append(
            Entry("revoke_lease", answer["sent"], answer["at"], answer["status"], lease=self.history.lease)
        )

    async def turn(self):
        """Returns False if the session has ended."""
        name = self.dice.choice(NAMES)
        mode = "permit" if name == NAMES[-1] else self.dice.choice(("exclusive", "exclusive", "shared"))
        wait = self.dice.choice((0, 100, 500, 1500, None))
        self.world.number += 1
        hold = f"h{self.world.number}"
        more = {"permits": PERMITS} if mode == "permit" else {}
        call = self.agent.give(do="acquire", session=self.name, hold=hold, names=[name], mode=mode, wait=wait, **more)
        if self.dice.random() < 0.2 and "cancel" in self.agent.features:
            await asyncio.sleep(self.dice.random() * 0.3)
            self.agent.give(do="cancel", of=call.command["id"])
        answer = await asyncio.wait_for(call.answer, None if wait is None else (wait + PATIENCE) / 1000 + 30)
        token = answer.get("token")
        self.history.entries.append(Entry("acquire", answer["sent"], answer["at"], answer["status"], name, mode, wait,
                                          token))
        if answer["status"] != "ok":
            return answer["status"] in ("not_acquired", "canceled", "unavailable", "unknown")
        held = judge.Hold(self.agent, hold, [name], mode, PERMITS, answer)
        self.history.holds.append(held)
        await self.hold(held)
        return held.lost is None and await self.release(held)

    async def hold(self, held):
        """Checks from time to time whether the lock is still held, and until when."""
        end = now() + self.dice.choice((0, 20, 100, 400, 0.8 * TTL, 1.5 * TTL))
        while True:
            answer = await self.ask(do="valid", hold=held.hold)
            self.world.take_losses(self.agent, held)
            held.sample(answer)
            if answer.get("valid"):
                # the renewal that this deadline comes from, or a little earlier
                sent = answer["sent"] + answer["deadline"] - ROUNDING - TTL + MARGIN
                self.history.entries.append(Entry("keep_alive", sent, answer["at"], "ok", lease=self.history.lease))
            if not answer.get("valid") or now() >= end or self.world.over:
                return
            await asyncio.sleep(0.03 + 0.1 * self.dice.random())

    async def release(self, held):
        answer = await self.ask(do="release", hold=held.hold)
        held.ended = answer["sent"]
        self.world.take_losses(self.agent, held)
        self.history.entries.append(Entry("release", answer["sent"], answer["at"], answer["status"], held.names[0],
                                          held.mode, token=held.token))
        return answer["status"] in ("ok", "unknown", "not_acquired")


class World:
    """A server, agents, and the faults."""

    def __init__(self, arena, clients, seed, seconds):
        self.arena = arena
        self.clients = clients
        self.seed = seed
        self.seconds = seconds
        self.dice = random.Random(seed)
        self.histories = []
        self.agents = []
        self.proxies = {}
        self.lines = []
        self.over = False
        self.number = 0
        self.faults = {}

    def log(self, line):
        self.lines.append(f"{now():.1f} {line[:300]}")

    def dsn(self, agent):
        return f"host=127.0.0.1 port={self.proxies[agent].port} dbname=postgres user=postgres"

    def take_losses(self, agent, held):
        for event in agent.events:
            if event.get("event") == "lost" and event["hold"] == held.hold and held.lost is None:
                held.lost, held.why = event["at"], event.get("why")

    async def begin_agent(self):
        client = self.clients[len(self.agents) % len(self.clients)]
        agent = Agent(f"{client.tag}-{len(self.agents)}", client, self.log)
        agent.features = client.features
        self.proxies[agent] = Proxy(self.server.target)
        await self.proxies[agent].start()
        await agent.start()
        self.agents.append(agent)
        tasks = [asyncio.create_task(Session(self, agent, f"s{i}", random.Random(self.dice.random())).run())
                 for i in range(SESSIONS)]
        self.sessions += tasks

    async def run(self):
        self.server = await self.arena.template.copy()
        self.sessions = []
        try:
            await self.server.start()
            for _ in range(AGENTS):
                await self.begin_agent()
            await self.harm()
            await self.finish()
            self.judge()
        except (Failure, asyncio.TimeoutError) as e:
            log = self.arena.save(f"random-{self.seed}.log", "\n".join(self.lines) + "\n")
            raise type(e)(f"seed {self.seed}: {e}; the whole story is in {log}") from None
        finally:
            for task in self.sessions:
                task.cancel()
            await asyncio.gather(*self.sessions, return_exceptions=True)
            for agent in self.agents:
                await agent.reap()
            for proxy in self.proxies.values():
                await proxy.close()
            await self.server.end()

    def judge(self):
        held = [hold for history in self.histories for hold in history.holds]
        judge.check_exclusion(held)
        judge.check_tokens(held)
        judge.check_kept(held)

    async def finish(self):
        """Continues all agents, and ends their work."""
        self.over = True
        for agent in self.agents:
            self.proxies[agent].heal()
            if agent.is_stopped():
                agent.go_on()
        quit_at = {}
        for agent in self.agents:
            if not agent.dead_at:
                quit_at[agent] = now()
                await agent.quit(20000)
        _, pending = await asyncio.wait(self.sessions, timeout=PATIENCE / 1000 + 30)
        if pending:
            raise Failure("a call has never answered")
        for task in self.sessions:
            task.result()
        for history in self.histories:
            self.quit(history, quit_at.get(history.agent))

    @staticmethod
    def quit(history, when):
        """Checks that an agent whose input was closed releases everything, and revokes its leases."""
        if when is None:
            return
        history.entries.append(Entry("revoke_lease", when, when, "unknown", lease=history.lease))
        for hold in history.holds:
            hold.ended = min(hold.ended or when, when)

    # --- faults ---

    async def harm(self):
        kinds = {
            "reset": 4, "short cut": 3, "long cut": 2, "drop": 2, "stall up": 2, "stall down": 2,
            "stop short": 2, "stop long": 2, "kill": 1, "restart": 1, "crash": 1, "terminate": 2,
        }  # fmt: skip
        end = now() + 1000 * self.seconds
        while now() < end:
            await asyncio.sleep(self.dice.random() * 0.5)
            kind = self.dice.choices(list(kinds), list(kinds.values()))[0]
            living = [agent for agent in self.agents if not agent.dead_at]
            agent = self.dice.choice(living)
            self.log(f"-- {kind} {agent.name}")
            self.faults[kind] = self.faults.get(kind, 0) + 1
            await self.fault(kind, agent, self.proxies[agent])

    async def fault(self, kind, agent, proxy):
        moment = self.dice.random()
        if kind == "reset":
            proxy.reset()
        elif kind == "terminate":
            await self.server.sql("SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity"
                                  " WHERE backend_type = 'client backend' AND application_name <> 'suite'"
                                  f" ORDER BY pid LIMIT {1 + int(3 * moment)}) AS s")
        elif kind in ("restart", "crash"):
            await self.server.stop("fast" if kind == "restart" else "immediate")
            await asyncio.sleep(0.3 * moment)
            await self.server.start()
        elif kind == "kill":
            agent.kill()
            await self.begin_agent()
        elif kind.startswith("stop"):
            agent.stop()
            await asyncio.sleep((1.2 * TTL if kind == "stop long" else 0.4 * TTL * moment) / 1000)
            agent.go_on()
        else:
            if kind.startswith("stall"):
                proxy.stall(kind.split()[1])
            elif kind == "drop":
                proxy.drop()
            else:
                proxy.cut()
            long = kind == "long cut" or (kind != "short cut" and moment > 0.7)
            await asyncio.sleep((1.3 * TTL if long else 0.4 * TTL * moment) / 1000)
            proxy.heal()


# --- the histories in the formats of other programs ---


def torture_files(histories):
    """Writes a file for each session, in the format of test/torture/record.c; times are nanoseconds."""
    return {history.who: torture_text(history) for history in histories}


def torture_text(history):
    lines = [(0, f"P 0 1 {history.who}"), (0, "S 0 1 1")]
    entries = sorted(history.entries, key=lambda e: e.sent)
    # each renewal appears many times
    entries = [e for e, before in zip(entries, [None, *entries])
               if not (before and e.op == before.op == "keep_alive" and e.sent - before.sent < ROUNDING)]
    for number, e in enumerate(entries, 1):
        sent, at = round(e.sent * 1e6), round(e.at * 1e6)
        mode = {"exclusive": "x", "shared": "s", "permit": f"p{PERMITS}"}.get(e.mode)
        status, value = torture_answer(e)
        what = {
            "grant_lease": f"grant_lease - ttl={TTL}",
            "keep_alive": f"keep_alive - lease={e.lease}",
            "revoke_lease": f"revoke_lease - lease={e.lease}",
            "acquire": f"acquire {e.name} mode={mode} lease={history.lease} wait={-1 if e.wait is None else e.wait} owner=-",
            "release": f"release {e.name} token={e.token}",
        }[e.op]
        lines.append((sent, f"C {sent} {number} 1 {what}"))
        # the agent died during this call, which may have reached the server, or may still reach it
        if e.status != "dead":
            lines.append((at, f"A {at} {number} {status} {value}"))
    lines.sort(key=lambda line: line[0])
    return "".join(f"{text}\n" for _, text in lines)


def torture_answer(e):
    """Returns the server's reply, as far as the client's reply shows it."""
    if e.status == "ok":
        return "ok", {"acquire": e.token, "grant_lease": e.lease}.get(e.op, "t")
    if e.op == "acquire" and e.status == "not_acquired" and e.wait == 0:
        return "null", "-"
    return "unknown", "08006"


def porcupine_calls(histories):
    """See porcupine/main.go."""
    calls = []
    for history in histories:
        ends = {e.token: e for e in history.entries if e.op == "release"}
        for hold in history.holds:
            base = {"name": hold.names[0], "id": f"{history.who}/{hold.hold}", "mode": hold.mode, "limit": PERMITS,
                    "token": int(hold.token)}
            entry = next(e for e in history.entries if e.op == "acquire" and e.token == hold.token)
            calls.append({**base, "op": "acquire", "call": round(entry.sent * 1e6), "return": round(entry.at * 1e6)})
            end = ends.get(hold.token)
            if end is not None and end.status == "ok":
                calls.append({**base, "op": "release", "call": round(end.sent * 1e6), "return": round(end.at * 1e6)})
            else:
                calls.append({**base, "op": "end", "call": round(hold.until() * 1e6)})
    return calls
