"""The programs of examples/, as processes that are killed, and stopped past their TTL."""

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

from conftest import connections, until

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
SOURCES = EXAMPLES.parent / "src"


class Program:
    """One that runs, in a process group of its own; `lines` is what it has said."""

    def __init__(self, *command, cwd=None, **variables):
        path = [str(SOURCES), str(EXAMPLES), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables}
        self.output = os.fdopen(os.memfd_create("output"), "w+b", buffering=0)
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=environment,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=self.output,
            stderr=sys.stderr if command[0] != "-m" else self.output,
            start_new_session=True,
        )

    @property
    def lines(self):
        size = os.fstat(self.output.fileno()).st_size
        return os.pread(self.output.fileno(), size, 0).decode().splitlines()

    def signal(self, number):
        """Also its children get it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.kill()
        print(f"--- {self.process.args}", *self.lines, sep="\n")  # shown with a test that fails
        self.process.stdin.close()
        self.output.close()


@contextlib.contextmanager
def programs(db, *commands):
    """Programs of examples/, which have sessions when this begins."""
    with running() as run:
        until(lambda: connections(db) == 0)
        started = [run(EXAMPLES / command[0], *command[1:]) for command in commands]
        until(lambda: connections(db) == len(commands), 60)
        yield started


@contextlib.contextmanager
def running():
    """A function that starts programs, all of which have ended after this."""
    started = []

    def run(*command, **how):
        started.append(Program(*command, **how))
        return started[-1]

    try:
        yield run
    finally:
        for program in started:
            program.end()


def load(file):
    spec = importlib.util.spec_from_file_location(file, EXAMPLES / f"{file}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def free(db):
    db.execute("SELECT force_release_role(current_user::regrole)")
