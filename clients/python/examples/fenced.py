"""Fenced writes: fenced.py [TTL]. A process that has lost its lock cannot commit a late write."""

import sys

import psycopg

import lock_election

with lock_election.connect(ttl=float(sys.argv[1]) if len(sys.argv) > 1 else 30) as session:
    while True:
        try:
            session.reopen()  # if it has ended
            with psycopg.connect() as db, session.lock("balance") as hold, db.transaction():
                hold.fence(db)
                db.execute("UPDATE balance SET amount = amount + 1, token = %s", (hold.token,))
        except (lock_election.Error, psycopg.Error) as error:
            print(error, file=sys.stderr)
