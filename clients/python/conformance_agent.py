"""The agent of the conformance suite (clients/conformance/README.md): conformance_agent.py [--mode sync|asyncio].

A command is a generator that yields what the library answers. In mode asyncio that is something to await, and each
command is a task; in mode sync it is the answer, and each command is a thread.
"""

import argparse
import asyncio
import contextlib
import inspect
import json
import logging
import os
import sys
import threading
import time
import traceback
import weakref

import psycopg

import lock_election
from lock_election import _errors as errors

FEATURES = [
    "shared", "permits", "several", "each", "election", "observe", "fence", "cancel", "fork", "hold_for", "own_ttl",
    "once", "abandon", "block", "threads",
]  # fmt: skip
STATUS = [
    (errors.NotAcquired, "not_acquired"),
    (errors.LockLost, "lost"),
    (errors.Canceled, "canceled"),
    (asyncio.CancelledError, "canceled"),
    (errors.DeadlockDetected, "deadlock"),
    (errors.LimitExceeded, "limit"),
    (errors.AccessDenied, "denied"),
    (errors.InvalidRequest, "invalid"),
    (KeyError, "invalid"),  # a name of the suite's that nothing has
    (errors.NotInstalled, "not_installed"),
    (errors.Unavailable, "unavailable"),
    (errors.OutcomeUnknown, "unknown"),
]


def now():
    return time.monotonic() * 1000


def seconds(ms):
    return None if ms is None else ms / 1000


def failure(error):
    """Returns the fields of a reply that describe an error."""
    if isinstance(error, psycopg.Error):
        error = errors.of_server(error.sqlstate or "08006", str(error))
    status = next((status for kind, status in STATUS if isinstance(error, kind)), "failed")
    fields = {"status": status, "message": str(error) or type(error).__name__}
    if getattr(error, "sqlstate", ""):
        fields["sqlstate"] = error.sqlstate
    return fields


class Agent:
    def __init__(self, mode):
        self.mode = mode
        self.library = lock_election if mode == "sync" else lock_election.aio
        self.mutex = threading.RLock()
        self.sessions, self.holds, self.watches, self.running = {}, {}, {}, {}
        self.wires = []
        self.stdout = os.fdopen(os.dup(1), "w", buffering=1)

    def say(self, **fields):
        with self.mutex:
            self.stdout.write(json.dumps(fields) + "\n")

    # --- holds: each is reported as lost once, and not after its release -----------------------------------------

    def keep(self, name, hold):
        with self.mutex:
            self.holds.setdefault(name, {"told": False})["hold"] = hold

    def new_hold(self, name):
        """Returns the callback for its loss."""
        entry = {"told": False, "hold": None}
        with self.mutex:
            self.holds[name] = entry
        return lambda hold: self.tell_lost(name, entry, "told by the library")

    def tell_lost(self, name, entry, why):
        with self.mutex:
            if not entry["told"]:
                entry["told"] = True
                self.say(event="lost", hold=name, why=why, at=now())

    def hold(self, name):
        """Returns a hold. First reports its loss, if it is lost."""
        entry = self.holds[name]
        if not entry["hold"].valid:
            self.tell_lost(name, entry, "the local test")
        return entry["hold"]

    def forget(self, name):
        with self.mutex:
            entry = self.holds.pop(name)
            entry["told"] = True
            return entry.pop("hold")

    # --- commands -----------------------------------------------------------------------------------------------------

    def do_open(self, c):
        work = self.library.connect(c["dsn"], ttl=c["ttl"] / 1000, name=c.get("name"))
        session = self.sessions[c["session"]] = yield work
        self.wires.append(weakref.ref(session._protocol.wire))
        return {"lease": str(session.lease)}

    def do_acquire(self, c):
        session, names, ttl = self.sessions[c["session"]], c["names"], seconds(c.get("ttl"))
        on_lost = self.new_hold(c["hold"])
        if c["mode"] == "permit":
            lock = session.permit(names[0], c["permits"], ttl=ttl, on_lost=on_lost)
        else:
            lock = session.lock(names, ttl=ttl, shared=c["mode"] == "shared", on_lost=on_lost)
        self.running[c["id"]]["lock"] = lock
        hold = yield lock.acquire(seconds(c["wait"]))
        self.keep(c["hold"], hold)
        return {"token": str(hold.token)}

    def do_try_each(self, c):
        session = self.sessions[c["session"]]
        holds = yield session.try_acquire_each(c["names"], shared=c["mode"] == "shared")
        for name, hold in zip(c["holds"], holds):
            if hold is not None:
                self.new_hold(name)
                self.keep(name, hold)
        return {"tokens": [None if hold is None else str(hold.token) for hold in holds]}

    def do_campaign(self, c):
        election = self.sessions[c["session"]].election(c["election"], c["value"])
        self.running[c["id"]]["lock"] = election
        hold = yield election.campaign(seconds(c["wait"]), on_lost=self.new_hold(c["hold"]))
        self.keep(c["hold"], hold)
        return {"token": str(hold.token)}

    def do_once(self, c):
        def work():
            return (time if self.mode == "sync" else asyncio).sleep((c.get("ms") or 0) / 1000)

        elsewhere = object()
        once = self.sessions[c["session"]].once(c["names"][0], c["hold_for"] / 1000, otherwise=elsewhere)
        result = yield once(work)()
        return {"ran": result is not elsewhere}

    def do_valid(self, c):
        hold = self.hold(c["hold"])
        return {"valid": hold.valid, "deadline": hold.time_left * 1000}
        yield

    def do_fence(self, c):
        hold = self.hold(c["hold"])
        kind = psycopg.Connection if self.mode == "sync" else psycopg.AsyncConnection
        connection = yield kind.connect(c["dsn"])
        try:
            yield hold.fence(connection)
            yield connection.execute(c["sql"])
            yield connection.commit()
        except BaseException:
            yield connection.rollback()
            raise
        finally:
            yield connection.close()

    def do_proclaim(self, c):
        yield self.hold(c["hold"]).proclaim(c["value"])

    def do_release(self, c):
        hold = self.hold(c["hold"])
        released = yield hold.release((c.get("hold_for") or 0) / 1000)
        if released is False:
            self.tell_lost(c["hold"], self.holds[c["hold"]], "the release")
        self.forget(c["hold"])
        return {"status": {True: "ok", False: "lost", None: "unknown"}[released]}

    do_resign = do_release

    def do_leader(self, c):
        leader = yield self.sessions[c["session"]].election(c["election"]).leader()
        return {"value": leader and leader.value, "term": leader and str(leader.term)}

    def do_observe(self, c):
        watch = self.watches[c["observer"]] = self.sessions[c["session"]].election(c["election"]).observe()
        if self.mode == "sync":
            threading.Thread(target=lambda: [self.say_leader(c, x) for x in watch], daemon=True).start()
        else:

            async def observe():
                async for leader in watch:
                    self.say_leader(c, leader)

            watch.task = asyncio.get_running_loop().create_task(observe())
        return {}
        yield

    def say_leader(self, c, leader):
        value, term = (leader.value, str(leader.term)) if leader else (None, None)
        self.say(event="leader", observer=c["observer"], value=value, term=term, at=now())

    def do_unobserve(self, c):
        self.watches.pop(c["observer"]).close()
        return {}
        yield

    def do_state(self, c):
        return {"state": self.sessions[c["session"]].state}
        yield

    def do_abandon(self, c):
        self.forget(c["hold"])
        return {}
        yield

    def do_close(self, c):
        session = self.sessions[c["session"]]
        with self.mutex:
            for name, entry in self.holds.items():
                if entry["hold"] is not None and entry["hold"]._session is session:
                    self.hold(name)
                    entry["told"] = True
        yield session.close(seconds(c.get("limit")))

    def do_fork(self, c):
        session, hold = self.sessions[c["session"]], self.hold(c["hold"])
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            status = "ok"
            try:
                self.at_once(lambda: session.lock("fork").acquire(0))
            except BaseException as error:
                status = failure(error)["status"]
            os.write(write, status.encode())
            try:
                self.at_once(hold.release)
                self.at_once(
                    lambda: getattr(hold, "__exit__" if self.mode == "sync" else "__aexit__")(None, None, None)
                )
                self.at_once(session.close)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            status = answer.read()
        return {"child": status, "exit": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}
        yield

    @staticmethod
    def at_once(function):
        """Calls the method in a child, where nothing may wait."""
        work = function()
        if inspect.iscoroutine(work):
            try:
                work.send(None)
            except StopIteration:
                return
            raise RuntimeError("it waits")

    def do_block(self, c):
        end = now() + c["ms"]
        while now() < end:
            pass
        return {}
        yield

    def do_threads(self, c):
        count = sum(thread.name.startswith("lock_election") for thread in threading.enumerate())
        if self.mode == "asyncio":
            count += sum(task.get_name().startswith("lock_election") for task in asyncio.all_tasks())
        wires = [wire() for wire in self.wires]
        return {"threads": count, "connections": sum(wire is not None and wire.conn is not None for wire in wires)}
        yield

    def cancel(self, c):
        self.say(id=c["id"], status="ok", sent=now(), at=now())
        running = self.running.get(c["of"])
        if running is None:
            return
        if self.mode == "asyncio":
            # after its first step, because a task that has not started would end without a reply
            asyncio.get_running_loop().call_soon(running["task"].cancel)
            return

        def cancel():
            while self.running.get(c["of"]) is running:  # it may not have come to its wait yet
                if running["lock"] is not None:
                    running["lock"].cancel()
                time.sleep(0.002)

        threading.Thread(target=cancel, daemon=True).start()

    # --- running them -------------------------------------------------------------------------------------------------

    def finish(self, c, sent, result, error):
        at = now()
        self.running.pop(c["id"], None)
        fields = {"status": "ok", **(result or {})} if error is None else failure(error)
        if error is not None and c["do"] in ("acquire", "campaign"):
            with self.mutex:
                self.holds.pop(c["hold"], None)
        if error is not None and c["do"] == "open":
            fields["shown"] = "".join([repr(error), *traceback.format_exception(error)])
        if error is not None and fields["status"] == "failed":
            sys.stderr.write(f"{c}: {error!r}\n")
        self.say(id=c["id"], sent=sent, at=at, **fields)

    def run(self, c):
        """Runs a command in a thread, for mode sync."""
        sent = now()
        steps, value, result, failed = getattr(self, "do_" + c["do"])(c), None, None, None
        try:
            while True:
                value = steps.send(value)
        except StopIteration as stop:
            result = stop.value
        except BaseException as error:
            failed = error
        self.finish(c, sent, result, failed)

    async def run_task(self, c):
        """Runs a command in a task, for mode asyncio."""
        sent = now()
        steps, value, result, failed = getattr(self, "do_" + c["do"])(c), None, None, None
        try:
            value = steps.send(None)
            while True:
                try:
                    value = await value
                except BaseException as error:
                    value = steps.throw(error)
                else:
                    value = steps.send(value)
        except StopIteration as stop:
            result = stop.value
        except BaseException as error:
            failed = error
        self.finish(c, sent, result, failed)

    def start(self, line):
        c = json.loads(line)
        if c["do"] == "cancel":
            self.cancel(c)
        elif not hasattr(self, "do_" + c["do"]):
            self.say(id=c["id"], status="unsupported", sent=now(), at=now())
        else:
            running = self.running[c["id"]] = {"lock": None, "task": None}
            if self.mode == "asyncio":
                running["task"] = asyncio.get_running_loop().create_task(self.run_task(c))
            elif c["do"] == "block":
                self.run(c)
            else:
                threading.Thread(target=self.run, args=(c,), daemon=True).start()

    def main_sync(self):
        for line in sys.stdin:
            self.start(line)
        for session in self.sessions.values():
            session.close(1.0)

    async def main_asyncio(self):
        loop = asyncio.get_running_loop()
        lines = asyncio.Queue()

        def read():
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

        threading.Thread(target=read, daemon=True).start()
        while True:
            line = await lines.get()
            if line is None:
                break
            self.start(line)
        await asyncio.gather(*(session.close(1.0) for session in self.sessions.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["sync", "asyncio"], default="sync")
    parser.add_argument("--capabilities", action="store_true")
    arguments = parser.parse_args()
    if arguments.capabilities:
        capabilities = {"client": "python", "version": lock_election.__version__, "modes": ["sync", "asyncio"]}
        print(json.dumps({**capabilities, "features": FEATURES}))
        return
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    agent = Agent(arguments.mode)
    with contextlib.suppress(KeyboardInterrupt):
        if arguments.mode == "sync":
            agent.main_sync()
        else:
            asyncio.run(agent.main_asyncio())
    agent.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
