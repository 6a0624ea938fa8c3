"""Servers for the scenarios: copies of a cluster with the extension, each on its own port."""

import asyncio
import os
import shutil
import signal
import socket
import struct
import subprocess

import psycopg

from . import edition
from .agent import Failure, now

CONF = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_preload_libraries = 'lock_election'
max_connections = 300
shared_buffers = 16MB
fsync = off
max_wal_size = 64MB
dynamic_shared_memory_type = mmap
log_min_messages = warning
log_line_prefix = '%m [%p] %b %u '
"""
# A role with a password, and a database without the extension.
PASSWORD_ROLE, PASSWORD, BARE_DATABASE = "le_password", "right", "bare"
START_LIMIT = 30000


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


async def run(*command, check=True):
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output = (await process.communicate())[0].decode(errors="replace")
    if check and process.returncode != 0:
        raise Failure(f"{' '.join(command)}: {output}")
    return output


class Clock:
    """Shifts the time of day of the programs that start with `env`: see test/lib/clock.c."""

    def __init__(self, path):
        self.path = path
        self.env = {"LD_PRELOAD": os.path.abspath("build/clock.so"), "LE_CLOCK": path}
        with open(path, "wb") as f:
            f.write(bytes(8))

    def set(self, seconds):
        with open(self.path, "r+b") as f:
            f.write(struct.pack("q", seconds))


class Server:
    def __init__(self, directory, port=None):
        self.dir = directory
        self.port = port or free_port()
        self.process = None
        self.connection = None
        self.lock = asyncio.Lock()
        self.env = {}

    @property
    def target(self):
        return "127.0.0.1", self.port

    def dsn(self, user="postgres", database="postgres"):
        return f"host=127.0.0.1 port={self.port} dbname={database} user={user}"

    def configure(self, text):
        with open(f"{self.dir}/postgresql.auto.conf", "a", encoding="utf-8") as f:
            f.write(text + "\n")

    async def start(self):
        """Starts the server. Retries if processes of a killed postmaster have not ended yet."""
        end = now() + START_LIMIT
        with open(f"{self.dir}/server.log", "ab") as log:
            while True:
                self.process = await asyncio.create_subprocess_exec(
                    *("postgres", "-D", self.dir, "-p", str(self.port)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self.env},
                )
                while self.process.returncode is None and now() < end:
                    try:
                        await self.connect()
                        return
                    except psycopg.OperationalError:
                        await asyncio.sleep(0.03)
                if now() >= end:
                    raise Failure(f"the server does not start: {self.log_tail()}")
                await asyncio.sleep(0.1)

    def log_tail(self, lines=15):
        with open(f"{self.dir}/server.log", encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    async def connect(self):
        if self.connection is not None and not self.connection.closed:
            await self.connection.close()
        self.connection = await psycopg.AsyncConnection.connect(
            self.dsn(), autocommit=True, connect_timeout=5, application_name="suite"
        )

    async def sql(self, text):
        """Returns the first column of the first row; None if there is no row."""
        async with self.lock:
            for last in (False, True):
                try:
                    if self.connection is None or self.connection.closed:
                        await self.connect()
                    cursor = await self.connection.execute(text)
                    row = await cursor.fetchone() if cursor.description else None
                    return row[0] if row else None
                except psycopg.OperationalError:
                    await self.connection.close()
                    if last:
                        raise

    async def stop(self, mode="fast"):
        if self.connection is not None:
            await self.connection.close()
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])
        try:
            await asyncio.wait_for(self.process.wait(), START_LIMIT / 1000)
        except asyncio.TimeoutError:
            raise Failure("the server does not stop") from None

    async def kill(self):
        """Kills only the postmaster; its children notice."""
        self.process.kill()
        await self.process.wait()

    def processes(self):
        """Kills the postmaster and its children."""
        children = open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii").read()
        return [self.process.pid, *map(int, children.split())]

    def freeze(self, number=signal.SIGSTOP):
        """Signals all processes of the server, twice, because new ones may have started meanwhile."""
        for _ in range(2):
            for pid in self.processes():
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass

    def own_clock(self):
        self.clock = Clock(f"{self.dir}/clock")
        self.env = self.clock.env

    def thaw(self):
        self.freeze(signal.SIGCONT)

    async def end(self):
        """Stops the server, whatever its state."""
        if self.connection is not None:
            await self.connection.close()
        if self.process is not None and self.process.returncode is None:
            self.thaw()
            await self.stop("immediate")
        await asyncio.to_thread(shutil.rmtree, self.dir, ignore_errors=True)


class Template:
    """A stopped cluster to copy, because initdb takes as long as some scenarios."""

    def __init__(self, directory):
        self.directory = directory
        self.copies = 0

    async def make(self):
        os.makedirs(self.directory)
        data = f"{self.directory}/template"
        await run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C.UTF-8",
                  "--wal-segsize=1")
        with open(f"{data}/pg_hba.conf", "r+", encoding="utf-8") as f:
            old = f.read()
            f.seek(0)
            f.write(f"host all {PASSWORD_ROLE} 127.0.0.1/32 scram-sha-256\n{old}")
        with open(f"{data}/postgresql.conf", "a", encoding="utf-8") as f:
            f.write(edition.configuration(CONF))
        server = Server(data)
        await server.start()
        await server.sql(f"CREATE ROLE {PASSWORD_ROLE} LOGIN PASSWORD '{PASSWORD}'")
        await server.sql(f"CREATE DATABASE {BARE_DATABASE}")
        for sql in [*edition.prepare(), edition.install()]:
            await server.sql(sql)
        await server.stop()

    async def copy(self):
        self.copies += 1
        target = f"{self.directory}/{self.copies}"
        await run("cp", "-a", f"{self.directory}/template", target)
        return Server(target)

    async def standby_of(self, primary):
        """A synchronous standby: it has everything that the primary confirms."""
        standby = await self.copy()
        standby.configure(f"primary_conninfo = 'host=127.0.0.1 port={primary.port} user=postgres'")
        open(f"{standby.dir}/standby.signal", "w", encoding="ascii").close()
        await standby.start()
        await primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await primary.sql("SELECT pg_reload_conf()")
        end = now() + START_LIMIT
        while await primary.sql("SELECT sync_state FROM pg_stat_replication") != "sync":
            if now() > end:
                raise Failure("the standby does not follow")
            await asyncio.sleep(0.05)
        return standby


def find_pooler():
    return shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")


class Pooler:
    """PgBouncer in transaction mode in front of a server; all clients log in as one role."""

    def __init__(self, directory, server, role):
        self.dir = directory
        self.port = free_port()
        self.process = None
        os.makedirs(directory)
        with open(f"{directory}/pgbouncer.ini", "w", encoding="ascii") as f:
            f.write(
                f"[databases]\npostgres = host=127.0.0.1 port={server.port} dbname=postgres user={role}\n"
                f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
                "auth_type = any\npool_mode = transaction\ndefault_pool_size = 10\nmax_client_conn = 100\n"
                "ignore_startup_parameters = extra_float_digits,options\n"
            )

    @property
    def target(self):
        return "127.0.0.1", self.port

    async def start(self):
        with open(f"{self.dir}/log", "ab") as log:
            self.process = subprocess.Popen([find_pooler(), f"{self.dir}/pgbouncer.ini"], stdout=log, stderr=log)
        end = now() + START_LIMIT
        while True:
            try:
                _, writer = await asyncio.open_connection(*self.target)
                writer.close()
                return
            except OSError:
                if self.process.poll() is not None or now() > end:
                    raise Failure(f"no pooler: {open(f'{self.dir}/log', encoding='utf-8').read()}") from None
                await asyncio.sleep(0.03)

    async def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
