"""Measures one system in the benchmark of libraries: a number of workers acquire and release for some seconds.

    bench.py SYSTEM WORKERS own|hot SECONDS SERVER-PID

Prints the same figures as bench/libraries/go. Libpq's variables name PostgreSQL, and REDIS_URL names Redis. Workers are
tasks in systems whose names end with -asyncio, and threads in the others.
"""

import asyncio
import os
import resource
import sys
import threading
import time

TTL = 10
WARMUP = 0.5
REST = 5  # seconds in which waiting workers can end, so that no lock stays held for the next system
TRY = (
    "INSERT INTO table_lock AS l VALUES (%s, %s, now() + '10 s') ON CONFLICT (name) DO UPDATE"
    " SET owner = excluded.owner, expires_at = excluded.expires_at WHERE l.expires_at < now()"
)


def library(workers):
    import lock_election

    session = lock_election.connect("", ttl=TTL)

    def use(name, took):
        begun = time.perf_counter()
        with session.lock(name):
            took(begun)

    return lambda worker: use


def postgres():
    import psycopg

    connection = psycopg.connect(autocommit=True)
    connection.prepare_threshold = 0
    return connection


def direct(workers):
    def of(worker):
        connection = postgres()

        def use(name, took):
            begun = time.perf_counter()
            token = connection.execute("SELECT acquire_lock(%s)", (name,)).fetchone()[0]
            took(begun)
            connection.execute("SELECT release_lock(%s, %s)", (name, token))

        return use

    return of


def table(workers):
    def of(worker):
        connection, owner = postgres(), f"{os.getpid()} {worker}"

        def use(name, took):
            begun, pause = time.perf_counter(), 0.001
            while connection.execute(TRY, (name, owner)).rowcount == 0:
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
            took(begun)
            connection.execute("DELETE FROM table_lock WHERE name = %s AND owner = %s", (name, owner))

        return use

    return of


def redis_lock(workers):
    import redis

    client = redis.Redis.from_url(os.environ["REDIS_URL"], max_connections=workers)

    def use(name, took):
        begun = time.perf_counter()
        with client.lock(name, timeout=TTL):  # the library's default pause, 100 ms
            took(begun)

    return lambda worker: use


def library_asyncio(workers):
    from lock_election import aio

    async def start():
        session = await aio.connect("", ttl=TTL)

        async def use(name, took):
            begun = time.perf_counter()
            async with session.lock(name):
                took(begun)

        return lambda worker: use

    return start


def direct_asyncio(workers):
    import psycopg

    async def start():
        connections = []
        for _ in range(workers):
            connections.append(await psycopg.AsyncConnection.connect(autocommit=True))
            connections[-1].prepare_threshold = 0

        def of(worker):
            connection = connections[worker]

            async def use(name, took):
                begun = time.perf_counter()
                done = await connection.execute("SELECT acquire_lock(%s)", (name,))
                token = (await done.fetchone())[0]
                took(begun)
                await connection.execute("SELECT release_lock(%s, %s)", (name, token))

            return use

        return of

    return start


THREADS = {"lock_election": library, "direct": direct, "table": table, "redis-py": redis_lock}
TASKS = {"lock_election-asyncio": library_asyncio, "direct-asyncio": direct_asyncio}


def processor_time(pid):
    """Returns the processor time of a process and its children, in microseconds."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = file.read().split()
    except FileNotFoundError:
        return 0  # it has ended
    ticks = int(fields[11]) + int(fields[12])
    return ticks * 1000000 // os.sysconf("SC_CLK_TCK") + sum(map(processor_time, children))


def own_time():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int(1e6 * (used.ru_utime + used.ru_stime))


class Measurement:
    def __init__(self, workers, seconds, server):
        self.workers, self.seconds, self.server = workers, seconds, server
        self.counts = self.over = False
        self.times = []

    def took(self, begun):
        if self.counts:
            self.times.append(time.perf_counter() - begun)

    def begin(self):
        self.used, self.own, self.begun = processor_time(self.server), own_time(), time.perf_counter()
        self.counts = True

    def end(self):
        self.counts, self.over = False, True
        took = time.perf_counter() - self.begun
        used, own = processor_time(self.server) - self.used, own_time() - self.own
        times, n = sorted(self.times), len(self.times)
        if n == 0:  # other processes have held the lock all the time
            print("0 0 0 0 0", flush=True)
            return
        p50, p99 = (int(1e6 * times[n * p // 100]) for p in (50, 99))
        print(int(n / took), p50, p99, own // n, used // n, flush=True)


def names(workers, which):
    return ["hot" if which == "hot" else f"own {os.getpid()} {worker}" for worker in range(workers)]


def with_threads(make, m, which):
    of = make(m.workers)

    def work(use, name):
        while not m.over:
            use(name, m.took)

    threads = [
        threading.Thread(target=work, args=(of(worker), name), daemon=True)
        for worker, name in enumerate(names(m.workers, which))
    ]
    for thread in threads:
        thread.start()
    time.sleep(WARMUP)
    m.begin()
    time.sleep(m.seconds)
    m.end()
    until = time.monotonic() + REST
    for thread in threads:
        thread.join(max(0, until - time.monotonic()))


async def with_tasks(make, m, which):
    of = await make(m.workers)()

    async def work(use, name):
        while not m.over:
            await use(name, m.took)

    tasks = [asyncio.create_task(work(of(worker), name)) for worker, name in enumerate(names(m.workers, which))]
    await asyncio.sleep(WARMUP)
    m.begin()
    await asyncio.sleep(m.seconds)
    m.end()
    await asyncio.wait(tasks, timeout=REST)


def main(system, workers, which, seconds, server):
    m = Measurement(int(workers), float(seconds), server)
    if system in TASKS:
        asyncio.run(with_tasks(TASKS[system], m, which))
    else:
        with_threads(THREADS[system], m, which)
    sys.stdout.flush()
    os._exit(0)


main(*sys.argv[1:])
