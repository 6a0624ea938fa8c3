"""Shared by all scenarios of a run: clients, the server that most of them use, and a loop that runs many at once."""

import asyncio
import json
import os
import shlex
import subprocess
import threading
import time
import tomllib
from pathlib import Path

from .agent import Failure, Violation
from .scenario import TTL, Scenario, needs_of
from .server import Template, find_pooler, run
from . import edition, language, record

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
# Scenarios spend most of their time waiting.
AT_ONCE = int(os.environ.get("LE_AT_ONCE", "12"))
OWN_AT_ONCE = 4
# Fraction of the TTL: a machine that wakes a sleeping thread later than this may have made a scenario too slow.
LATE = 0.05
RESULTS = ROOT / "build/conformance"


class Client:
    """A client in one of its modes."""

    def __init__(self, name, mode, command, features, version, root=ROOT):
        self.name = name
        self.root = root  # working directory of its command
        self.mode = mode
        self.tag = f"{name}-{mode}" if mode else name
        self.command = f"{command} --mode {mode}" if mode else command
        self.features = features
        self.version = version


def read_agents():
    return tomllib.loads((HERE / "agents.toml").read_text(encoding="utf-8"))


def absent(name, entry):
    """Returns the reason why there is no agent of this client; None if there is one."""
    if not (ROOT / entry["needs"]).exists():
        return f"there is no {entry['needs']}"
    if name == "go" and not os.environ.get("LE_GO"):
        return "there is no Go that is new enough"
    if name == "java" and not os.environ.get("LE_MAVEN"):
        return "there is no JDK and Maven"
    if name == "ruby" and not os.environ.get("LE_RUBY"):
        return "there is no Ruby with pg"
    if name == "rust" and not os.environ.get("LE_RUST"):
        return "there is no Rust that is new enough"
    return None


def find_clients(wanted, say):
    """Builds the agents of these clients, and reads their features."""
    table = read_agents()
    found = []
    for name in wanted:
        if name not in table:
            raise Failure(f"agents.toml knows no client {name}")
        entry = table[name]
        why = absent(name, entry)
        if why is not None:
            say(f"{name} is skipped: {why}")
            continue
        if "build" in entry:
            build(entry["build"], ROOT)
        found += capabilities(name, entry["run"])
    return found


def build(command, root):
    (root / "build/conformance").mkdir(parents=True, exist_ok=True)
    built = subprocess.run(shlex.split(command), cwd=root, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise Failure(f"{command}: {built.stdout}{built.stderr}")


def capabilities(name, command, root=ROOT):
    told = subprocess.run([*shlex.split(command), "--capabilities"], cwd=root, capture_output=True, text=True,
                          check=False, timeout=60)
    if told.returncode != 0:
        raise Failure(f"{command} --capabilities: {told.stderr}")
    told = json.loads(told.stdout)
    modes = told.get("modes") or []
    return [Client(name, mode, command, set(told["features"]), told["version"], root)
            for mode in (modes if len(modes) > 1 else [None])]


def read_scenarios():
    """Returns all scenarios by name. Each file has one theme."""
    scenarios = {}
    for path in sorted((HERE / "scenarios").glob("*.toml")):
        for name, text in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in scenarios:
                raise Failure(f"scenario {name} is in {scenarios[name]['file']} and in {path.name}")
            scenarios[name] = {**text, "file": path.name, "uses": needs_of(language.parse(text["steps"]))}
    return scenarios


def missing(scenario, client):
    """Returns the reason why this client cannot run the scenario; None if it can."""
    lacks = (scenario["uses"] | set(scenario.get("needs", []))) - client.features - {"pooler"}
    if lacks:
        return ", ".join(sorted(lacks))
    if edition.PORTABLE and "c_only" in scenario:
        return f"the portable edition: {scenario['c_only']}"
    if "pooler" in scenario.get("needs", []) and find_pooler() is None:
        return "pgbouncer, which is not installed here"
    return None


class Machine:
    """Measures how late a sleeping thread is woken up: a slow machine may be the reason for a failure."""

    def __init__(self, nap=0.02):
        self.nap = nap
        self.late = []  # (time, ms) of each notable delay
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            begin = time.monotonic()
            time.sleep(self.nap)
            late = (time.monotonic() - begin - self.nap) * 1000
            if late > 10:
                self.late.append((time.monotonic(), late))

    def worst(self, since):
        """Returns the delay in milliseconds."""
        return max((late for when, late in self.late if when >= since), default=0)


class Arena:
    """Runs coroutines in a separate thread, and owns the servers."""

    def __init__(self, directory):
        self.directory = directory
        self.template = Template(f"{directory}/servers")
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.number = 0
        self.shared = None
        self.results = []
        self.late = []
        self.again = {}  # reasons for which scenarios were run twice
        self.machine = Machine()
        self.do(self.begin())

    def do(self, what):
        return asyncio.run_coroutine_threadsafe(what, self.loop).result()

    async def begin(self):
        asyncio.get_running_loop().slow_callback_duration = 1
        self.room = asyncio.Semaphore(AT_ONCE)
        self.again_room = asyncio.Semaphore(2)
        self.own_room = asyncio.Semaphore(OWN_AT_ONCE)
        self.watcher = asyncio.create_task(self.watch())
        await run("make", "-s", "build/clock.so")
        await self.template.make()
        self.shared = await self.template.copy()
        await self.shared.start()

    async def watch(self):
        """Measures how late a task is woken up, which shows how busy the machine is."""
        while True:
            begin = time.monotonic()
            await asyncio.sleep(0.05)
            self.late = [*self.late[-100:], (time.monotonic() - begin - 0.05) * 1000]

    def ttl(self):
        """Returns a longer limit on a busy machine, where each step of a reply waits for a processor."""
        return round(TTL * min(4, 1 + max(self.late, default=0) / 100))

    def next_number(self):
        self.number += 1
        return self.number

    def start(self, name, text, client, once=False):
        """Returns a future of the scenario's run."""
        return asyncio.run_coroutine_threadsafe(self.run(name, text, client, once), self.loop)

    async def run(self, name, text, client, once):
        """Runs a scenario. If it was too slow on a busy machine, repeats it with fewer others and more time."""
        own = text.get("server", "shared") == "own"
        began = time.monotonic()
        for again in (False, True):
            async with self.again_room if again else self.own_room if own else self.room:
                ttl, since = self.ttl() * (1 + again) * text.get("slower", 1), time.monotonic()
                try:
                    await Scenario(self, name, text, client, ttl).run()
                    self.result(name, client, "passed", began, again=again)
                    return
                except BaseException as e:
                    late = self.machine.worst(since)
                    excused = isinstance(e, Failure) and not isinstance(e, Violation) and late > LATE * ttl
                    if again or once or not excused:
                        self.result(name, client, "failed", began, str(e).split("\n", maxsplit=1)[0])
                        raise
                    self.again[name] = f"the machine was {late:.0f} ms late: {e}"

    def result(self, name, client, what, began=None, why=None, again=False):
        self.results.append({
            "client": client.name, "mode": client.mode, "version": client.version, "scenario": name, "result": what,
            "seconds": round(time.monotonic() - began, 2) if began else None, "why": why, "again": again,
        })

    def random_result(self, clients, seed, what, why):
        """Returns a future of a random run, which uses all clients together."""
        for client in clients:
            self.result(f"random {seed}", client, what, why=why)

    def save(self, name, text):
        path = RESULTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path.relative_to(ROOT)

    def write_record(self):
        """Updates the recorded run with the clients that have passed all their scenarios."""
        name = "recorded-portable.json" if edition.PORTABLE else "recorded.json"
        old = json.loads((HERE / name).read_text(encoding="utf-8")) if (HERE / name).exists() else {}
        postgresql = self.do(self.shared.sql("SELECT split_part(current_setting('server_version'), ' ', 1)"))
        self.save(name, record.text_of(record.merge(old, self.results, read_scenarios(), postgresql)))

    def close(self):
        self.save("results.json", json.dumps(self.results, indent=1) + "\n")
        if os.environ.get("RECORD"):
            self.write_record()
        self.loop.call_soon_threadsafe(self.watcher.cancel)
        self.do(self.shared.end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
