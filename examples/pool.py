#!/usr/bin/python3
"""A worker of the pool, with psycopg 3: pool.py NAME [CONNECTION-STRING]"""
import signal
import sys
import time
import uuid

import psycopg

if len(sys.argv) < 2:
    sys.exit("usage: pool.py NAME [CONNECTION-STRING]")
name, conninfo = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
owner = str(uuid.uuid4())  # new for each process: a worker that is started again is another one
stopping = False


def stop(*_):
    global stopping
    stopping = True


def say(text):
    print(f"{name}: {text}", flush=True)


def ask(db, query, *args):
    return db.execute(query, args).fetchone()[0]


def lead(db, term):
    """Works until told to stop, or until the leadership is lost."""
    renewed = float("-inf")  # nobody knows when it was elected during the wait: the first renewal comes at once
    while not stopping:
        if time.monotonic() - renewed > 1:  # a third of the TTL
            renewed = time.monotonic()
            if ask(db, "SELECT renew_leadership('pool', %s)", term) is None:
                say("lost: the renewal came too late")
                return
        with db.transaction():
            # The fence comes first: all later writes of the transaction are the leader's, or fail.
            db.execute("SELECT fence_leader('pool', %s)", (term,))
            db.execute("UPDATE work SET done = done + 1, term = %s, worker = %s WHERE id = 1", (term, name))
        time.sleep(0.2)
    ask(db, "SELECT resign('pool', %s)", term)  # the next one leads immediately, not when the TTL ends
    say("resigned")


def run(db):
    db.execute("SET idle_in_transaction_session_timeout = '5 s'")
    while not stopping:
        try:
            # Waits a few seconds at a time, so that it can be stopped. A current leader gets the same term again.
            term = ask(db, "SELECT campaign('pool', %s, ttl => '3 s', wait => '3 s', owner => %s)", name, owner)
            if term is not None:
                say(f"leads, term {term}")
                lead(db, term)
        except psycopg.Error as error:
            if error.diag.sqlstate != "LE001":
                raise
            say(f"lost: {error}")  # and nothing was written: it campaigns again


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
while not stopping:
    try:
        # autocommit: otherwise all of this would be one transaction, whose rollback undoes the election
        with psycopg.connect(conninfo, autocommit=True) as db:
            run(db)
    except psycopg.Error as error:
        say(f"connects again after: {error}")
        time.sleep(1)
