"""A job that runs once each minute, in one of all replicas: minutely.py [SECONDS]."""

import sys
import time

import lock_election

interval = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
with lock_election.connect(ttl=min(30, interval / 2)) as session:
    job = session.once("minutely", hold_for=interval * 0.8)(lambda: print(f"run {time.time():.1f}", flush=True))
    while True:
        time.sleep(interval - time.time() % interval)
        try:
            job()
        except lock_election.Error as error:  # the server is not available: try again in the next minute
            print(error, file=sys.stderr)
