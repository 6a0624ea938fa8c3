"""The library without what Windows lacks, on a system that has it."""

import os
import pathlib
import subprocess
import sys

SOURCES = pathlib.Path(__file__).parents[1] / "src"

# Everything that the library may import is loaded first, because the standard library itself uses what is then removed.
ON_WINDOWS = r"""
import asyncio, builtins, os, select, selectors, signal, subprocess, sys, tempfile, threading, time
import psycopg

MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = {
    os: "chown fork geteuid getppid getuid killpg register_at_fork setgid setgroups setsid setuid waitid P_ALL WEXITED",
    select: "epoll poll",
    selectors: "EpollSelector PollSelector",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGUSR1 pthread_kill pthread_sigmask",
    time: "clock_gettime CLOCK_BOOTTIME CLOCK_MONOTONIC",
}
original = builtins.__import__

def without(name, globals=None, *rest):
    if name in MODULES and (globals or {}).get("__name__", "").startswith("lock_election"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return original(name, globals, *rest)

builtins.__import__ = without
for module, names in NAMES.items():
    for name in names.split():
        delattr(module, name)
selectors.DefaultSelector = selectors.SelectSelector

import lock_election
from lock_election import aio, embedded, _demo, _goodbye, _keeper

async def asynchronous():
    async with aio.connect() as session, session.lock(sys.argv[1], wait=0) as hold:
        return hold.valid

with lock_election.connect() as session:
    with session.lock(sys.argv[1], wait=0) as hold:
        print("threads", hold.valid)
    with session.election(sys.argv[1]).campaign() as term:
        print("election", term.valid)
print("asyncio", asyncio.run(asynchronous()))
with lock_election.connect() as session, session.lock(sys.argv[1], wait=0) as hold:
    _goodbye._at_exit()  # cannot tell whether there are children, so it says none
    print("the end", hold.valid)
"""


def test_nothing_that_windows_lacks_is_used(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", ON_WINDOWS, name],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert (done.stderr, done.stdout) == ("", "threads True\nelection True\nasyncio True\nthe end True\n")
