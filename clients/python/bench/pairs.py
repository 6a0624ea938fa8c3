"""What a pair of acquire and release costs through the client, beside the bare driver, on the server of PGHOST, ...:

    python clients/python/bench/pairs.py [SECONDS] [ROUNDS]

Each way is measured in turns, ROUNDS times; the median of the rounds is printed. The bare driver makes two statements
a pair, acquire_lock and release_lock, over a connection for each worker.
"""

import asyncio
import statistics
import sys
import threading
import time

import psycopg

import lock_election
from lock_election import aio

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5


def bare(workers):
    """A connection for each worker."""

    def work(i, end):
        with psycopg.connect(autocommit=True) as db:
            pairs, name = 0, f"bench {i}"
            while time.perf_counter() < end:
                token = db.execute("SELECT acquire_lock(%s)", (name,)).fetchone()[0]
                db.execute("SELECT release_lock(%s, %s)", (name, token))
                pairs += 1
            return pairs

    return in_threads(workers, work)


def threads(workers):
    with lock_election.connect() as session:

        def work(i, end):
            pairs, lock = 0, session.lock(f"bench {i}")
            while time.perf_counter() < end:
                with lock:
                    pairs += 1
            return pairs

        return in_threads(workers, work)


def in_threads(workers, work):
    counts = []
    end = time.perf_counter() + SECONDS
    running = [threading.Thread(target=lambda i=i: counts.append(work(i, end))) for i in range(workers)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(counts)


def tasks(workers):
    async def main():
        async with aio.connect() as session:
            end = time.perf_counter() + SECONDS

            async def work(i):
                pairs, lock = 0, session.lock(f"bench {i}")
                while time.perf_counter() < end:
                    async with lock:
                        pairs += 1
                return pairs

            return sum(await asyncio.gather(*(work(i) for i in range(workers))))

    return asyncio.run(main())


def main():
    ways = {"psycopg": bare, "threads": threads, "asyncio": tasks}
    print(f"{'workers':>8}" + "".join(f"{name + ' pairs/s':>18}{'us a pair':>12}{'cpu us':>10}" for name in ways))
    for workers in (1, 8, 64):
        rates, cpu = {name: [] for name in ways}, {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                begin = time.process_time()
                pairs = way(workers)
                rates[name].append(pairs / SECONDS)
                cpu[name].append((time.process_time() - begin) / pairs * 1e6)
        line = f"{workers:8}"
        for name in ways:
            rate = statistics.median(rates[name])
            line += f"{rate:18.0f}{1e6 / rate:12.0f}{statistics.median(cpu[name]):10.0f}"
        print(line)


main()
