#!/usr/bin/python3
"""A worker for a queue of jobs, with psycopg 3: jobs.py NAME [CONNECTION-STRING].  It ends when all jobs are done."""
import os
import random
import sys
import threading
import time

import psycopg

TTL = float(os.environ.get("JOB_TTL", 30))
CLAIM, AHEAD = 100, 1000  # jobs that a worker asks for, of so many of the oldest
if len(sys.argv) < 2:
    sys.exit("usage: jobs.py NAME [CONNECTION-STRING]")
name, conninfo = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""


def say(text):
    print(f"{name}: {text}", flush=True)


def ask(db, query, *args):
    return db.execute(query, args).fetchone()[0]


def renew(lease, stop):
    """Renews all locks of this worker, on a connection of its own, until it is to stop or the lease is lost."""
    timeout = int(TTL * 250)  # ms
    limits = {"options": f"-c statement_timeout={timeout}", "tcp_user_timeout": timeout, "connect_timeout": 5}
    with psycopg.connect(conninfo, autocommit=True, application_name=f"{name}, renewals", **limits) as db:
        while ask(db, "SELECT keep_alive(%s)", lease) is not None:
            if stop.wait(TTL / 3):
                return
    say("the lease is lost")


def keep(lease, stop):
    while not stop.is_set():
        try:
            return renew(lease, stop)
        except psycopg.Error as error:  # one renewal that fails loses nothing
            say(f"will renew again: {error}")
            stop.wait(TTL / 20)


def claim(db, lease):
    """Some of the oldest jobs: {id: token}."""
    oldest = [row[0] for row in db.execute("SELECT id FROM job WHERE done_at IS NULL ORDER BY id LIMIT %s", (AHEAD,))]
    chosen = random.sample(oldest, min(CLAIM, len(oldest)))
    if not chosen:
        return None
    names = [f"job {id}" for id in chosen]
    rows = db.execute("SELECT name, token FROM try_acquire_each(%s, lease => %s)", (names, lease)).fetchall()
    return {id: token for id, (_, token) in zip(chosen, rows) if token is not None}


def work(id):
    """The job itself: here it takes a few milliseconds."""
    time.sleep(random.random() / 100)


def finish(db, id, token):
    """Writes what has become of a job, which is still ours: LE001 if it is not."""
    with db.transaction():
        db.execute("SELECT fence_lock(%s, %s)", (f"job {id}", token))
        db.execute("UPDATE job SET done_at = now(), token = %s WHERE id = %s", (token, id))


def run(db, lease):
    """False: there are no more jobs."""
    jobs = claim(db, lease)
    if jobs is None:
        return False
    if not jobs:
        time.sleep(0.1)  # all that was chosen is somebody else's
    for id, token in jobs.items():
        # skip jobs that were done before they were claimed
        if ask(db, "SELECT done_at IS NULL FROM job WHERE id = %s", id):
            work(id)
            finish(db, id, token)
    names = [f"job {id}" for id in jobs]
    db.execute("SELECT * FROM release_each(%s, %s)", (names, list(jobs.values())))
    return True


def main():
    while True:
        stop = threading.Event()
        with psycopg.connect(conninfo, autocommit=True) as db:
            lease = ask(db, "SELECT grant_lease(make_interval(secs => %s), owner => %s)", TTL, name)
            keeper = threading.Thread(target=keep, args=(lease, stop), daemon=True)
            keeper.start()
            try:
                while run(db, lease):
                    pass
                say("no more jobs")
                return
            except psycopg.Error as error:
                if error.diag.sqlstate != "LE001":
                    raise
                say(f"lost: {error}")  # nothing of it was written: begin again with a new lease
            finally:
                stop.set()
                keeper.join()
                if not db.closed:
                    db.execute("SELECT revoke_lease(%s)", (lease,))


main()
