"""Runs a throw-away PostgreSQL for as long as the pipe to its standard input is open. See embedded.py.

It is a separate process, so that the server stops even if the program that uses it is killed. It is run as a file, and
imports only the standard library. Input: one line of JSON, {"bin": folder, "settings": text}. Output: one line of JSON
with the server's port, password and directory, or {"error": text}.
"""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile

ACCOUNT = "nobody"  # PostgreSQL refuses to run as root
ATTEMPTS = 3  # to find a port that is still free when the server starts
SECONDS = 120  # limit of one command; initdb takes a second or two


class Failed(Exception):
    pass


def is_root() -> bool:
    return os.name == "posix" and os.geteuid() == 0


def temporary() -> str:
    """Returns the folder for temporary files. For root, returns one in which ACCOUNT can remove its files."""
    folder = tempfile.gettempdir()
    return "/tmp" if is_root() and not os.stat(folder).st_mode & stat.S_IWOTH else folder


class Keeper:
    def __init__(self, programs: str, settings: str) -> None:
        self.programs = pathlib.Path(programs)
        self.settings = settings
        self.directory = pathlib.Path(temporary()) / f"lock_election-{secrets.token_hex(6)}"
        self.data = self.directory / "data"
        self.password = secrets.token_urlsafe(18)
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}

    def run(self, program: str, *arguments: str) -> None:
        """Runs a program of PostgreSQL. Its output goes to a file: a server would keep a pipe open."""
        path = self.directory / f"{program}.log"
        with path.open("wb") as out:
            command = [str(self.programs / program), *arguments]
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environment,
                timeout=SECONDS,
                check=False,
            )
        if done.returncode != 0:
            raise Failed(f"{command[0]} failed:\n{path.read_text(errors='replace').strip()}")

    def free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def start(self) -> None:
        # On Windows, only administrators can use a folder of mode 0700, and the server drops administrator rights.
        self.directory.mkdir(0o700 if os.name == "posix" else 0o777)
        if is_root():
            self.drop_root()
        os.chdir(self.directory)
        secret = self.directory / "password"
        secret.write_text(self.password)
        self.run(
            "initdb",
            *["-D", str(self.data), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={secret}"],
            *["-E", "UTF8", "--locale=C", "--no-sync"],
        )
        secret.unlink()
        for attempt in range(ATTEMPTS):
            self.port = self.free_port()
            (self.data / "postgresql.auto.conf").write_text(
                f"listen_addresses = '127.0.0.1'\nport = {self.port}\nunix_socket_directories = ''\n{self.settings}\n"
            )
            log = self.directory / "server.log"
            try:
                self.run("pg_ctl", "-D", str(self.data), "-l", str(log), "-w", "start")
                return
            except Failed as error:
                text = log.read_text(errors="replace") if log.exists() else ""
                if attempt == ATTEMPTS - 1 or "could not bind" not in text:
                    raise Failed(f"{error}\n{text}") from error

    def drop_root(self) -> None:
        """Switches to an account that PostgreSQL accepts. Copies PostgreSQL if this account cannot read it."""
        import pwd

        account = pwd.getpwnam(ACCOUNT)
        reached = False
        with contextlib.suppress(OSError):
            command = [str(self.programs / "initdb"), "--version"]
            probe = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=[],
            )
            reached = probe.wait(SECONDS) == 0
        if not reached:
            self.programs = self.copied()
        for folder, _, files in os.walk(self.directory):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)

    def copied(self) -> pathlib.Path:
        """Copies a Python package that contains PostgreSQL, and the folder with its libraries."""
        package = self.programs.parents[1]
        for path in (package, package.with_name(f"{package.name}.libs")):
            if path.is_dir():
                shutil.copytree(path, self.directory / path.name, symlinks=True)
        return self.directory / package.name / self.programs.relative_to(package)

    def stop(self) -> None:
        with contextlib.suppress(Failed, OSError, subprocess.SubprocessError):
            if (self.data / "postmaster.pid").exists():
                self.run("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")
        os.chdir(tempfile.gettempdir())
        shutil.rmtree(self.directory, ignore_errors=True)


def tell(**values: object) -> None:
    # Ignore an error if the program has exited: main() notices the end of its pipe.
    with contextlib.suppress(OSError):
        print(json.dumps(values), flush=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the program, which then closes the pipe
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    line = sys.stdin.readline()
    if not line:  # the program has found no PostgreSQL
        return
    request = json.loads(line)
    keeper = Keeper(request["bin"], request["settings"])
    try:
        keeper.start()
        tell(port=keeper.port, password=keeper.password, directory=str(keeper.directory))
        sys.stdin.read()
    except (Failed, OSError, KeyError, subprocess.SubprocessError) as error:
        tell(error=str(error))
    finally:
        keeper.stop()


if __name__ == "__main__":
    main()
