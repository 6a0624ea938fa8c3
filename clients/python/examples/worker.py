"""A worker for a queue of jobs. It ends when all jobs are done; several workers share them."""

import time

import psycopg

import lock_election

while True:
    try:
        with psycopg.connect(autocommit=True) as db, lock_election.connect(ttl=3) as session:
            while jobs := db.execute("SELECT id FROM job WHERE done_at IS NULL ORDER BY random() LIMIT 10").fetchall():
                for (id,), hold in zip(jobs, session.try_acquire_each([f"job {id}" for (id,) in jobs])):
                    if hold is not None:
                        with hold, db.transaction():
                            hold.fence(db)
                            db.execute("UPDATE job SET done_at = now() WHERE id = %s AND done_at IS NULL", (id,))
            break
    except (lock_election.Error, psycopg.Error):
        time.sleep(1)  # the lock was lost, or the server is not available: start again
