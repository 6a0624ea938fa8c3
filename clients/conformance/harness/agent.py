"""Agents: processes that run commands with the client under test; see README.md for the protocol."""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import time
from collections import deque

LINE_MAX = 1 << 22


def now():
    """Returns milliseconds of CLOCK_MONOTONIC, the clock of all stamps."""
    return time.clock_gettime(time.CLOCK_MONOTONIC) * 1000


class Failure(Exception):
    """A scenario has failed."""


class Violation(Failure):
    """The client has broken a promise, according to its own stamps. A slow machine cannot cause this."""


class Call:
    """A command that was sent, with its reply when it has arrived."""

    def __init__(self, command):
        self.command = command
        self.given = now()
        self.answer = asyncio.get_running_loop().create_future()

    def __getattr__(self, name):
        return self.command.get(name)


class Agent:
    """One process of the client under test."""

    def __init__(self, name, client, log, secret=None):
        self.name = name
        self.client = client
        self.log = log
        self.secret = secret  # text that it must not write
        self.leaks = []  # lines that contain the secret
        self.calls = {}
        self.events = []
        self.stderr = deque(maxlen=40)
        self.changed = asyncio.Event()
        self.process = None
        self.stopped = []  # [from, to] of each SIGSTOP; the last may be open (to None)
        self.blocked = []  # [from, to] of each command to compute
        self.dead_at = None
        self.number = 0
        self.expected_end = False

    async def start(self, env=None):
        self.process = await asyncio.create_subprocess_exec(
            *shlex.split(self.client.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.client.root,
            env={**os.environ, **(env or {})},
            limit=LINE_MAX,
            start_new_session=True,
        )
        self.readers = [asyncio.create_task(self._read()), asyncio.create_task(self._read_stderr())]

    async def _read(self):
        while line := await self.process.stdout.readline():
            self.log(f"{self.name} > {line.decode().rstrip()}")
            self.look_for_secret(line.decode(errors="replace"))
            try:
                message = json.loads(line)
            except ValueError:
                raise Failure(f"{self.name} wrote what is not JSON: {line!r}") from None
            message["heard"] = now()
            if "id" in message:
                call = self.calls.pop(message["id"], None)
                if call is None:
                    message["event"] = "unasked"
                    self.events.append(message)
                elif not call.answer.done():
                    call.answer.set_result(message)
            else:
                self.events.append(message)
            self.changed.set()
        self.dead_at = self.dead_at or now()
        for call in self.calls.values():
            if not call.answer.done():
                call.answer.set_result({"status": "dead", "message": "the agent has ended", "at": now(), "sent": call.given})
        self.changed.set()

    async def _read_stderr(self):
        while line := await self.process.stderr.readline():
            self.stderr.append(line.decode(errors="replace").rstrip())
            self.log(f"{self.name} ! {self.stderr[-1]}")
            self.look_for_secret(self.stderr[-1])

    def look_for_secret(self, line):
        if self.secret and self.secret in line:
            self.leaks.append(line)

    def give(self, quiet=False, **command):
        """Sends a command. The reply is stored in the returned call."""
        self.number += 1
        command = {"id": self.number, **command}
        call = Call(command)
        line = json.dumps(command)
        if not quiet:
            self.log(f"{self.name} < {line}")
        self.calls[self.number] = call
        if self.dead_at or self.process.stdin.is_closing():
            call.answer.set_result({"status": "dead", "message": "the agent has ended", "at": now(), "sent": call.given})
        else:
            self.process.stdin.write(line.encode() + b"\n")
        return call

    async def event(self, matches, limit):
        """Returns the first event, even an earlier one, for which matches(event) is true; None if it is late."""
        end = now() + limit
        while True:
            for event in self.events:
                if matches(event):
                    return event
            if self.dead_at or now() >= end:
                return None
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), (end - now()) / 1000)
            except asyncio.TimeoutError:
                pass

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        self.stopped.append([now(), None])

    def go_on(self):
        self.stopped[-1][1] = now()
        self.process.send_signal(signal.SIGCONT)

    def is_stopped(self):
        return bool(self.stopped) and self.stopped[-1][1] is None

    def was_stopped(self, start, end):
        """Returns whether the agent could not run during part of this time."""
        return any(s <= end and (e is None or e >= start) for s, e in self.stopped + self.blocked)

    def kill(self):
        self.expected_end = True
        self.dead_at = now()
        self.process.kill()

    async def quit(self, limit=5000):
        """Closes its input, after which it closes its sessions and exits with 0."""
        self.expected_end = True
        self.process.stdin.close()
        try:
            code = await asyncio.wait_for(self.process.wait(), limit / 1000)
        except asyncio.TimeoutError:
            raise Failure(f"{self.name} has not ended {limit} ms after the end of its input") from None
        if code != 0:
            raise Failure(f"{self.name} ended with {code}: " + " | ".join(self.stderr))

    async def reap(self):
        """Kills the process and its children, which also have its pipes."""
        if self.process is None:
            return
        if self.process.returncode != 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        for reader in self.readers:
            reader.cancel()
        await asyncio.gather(*self.readers, return_exceptions=True)
