#!/usr/bin/env python3
"""A worker of the pool in Python, with psycopg 3.

    examples/worker.py NAME          the database: PGHOST, PGDATABASE, ... as for psql
"""
import signal
import sys
import time
import uuid

import psycopg

NAME = sys.argv[1]
OWNER = str(uuid.uuid4())  # our identity, whatever connection we use
stop = False


def one(connection, query, *args):
    return connection.execute(query, args).fetchone()[0]


def lead(connection, term):
    """Works for as long as we lead."""
    print(f"{NAME} leads, term {term}", flush=True)
    renewed = time.monotonic()
    while not stop:
        # From the fence to the commit nobody else can be elected.
        with connection.transaction():
            connection.execute("SELECT fence_leader('pool', %s)", (term,))
            connection.execute(
                "INSERT INTO work SELECT coalesce(max(number), 0) + 1, %s, %s FROM work", (term, NAME))
        if time.monotonic() - renewed > 1:
            if one(connection, "SELECT renew_leadership('pool', %s)", term) is None:
                print(f"{NAME} leads no more", flush=True)
                return
            renewed = time.monotonic()
        time.sleep(0.1)
    # The next in order leads at once, and need not wait for our TTL.
    one(connection, "SELECT resign('pool', %s)", term)


def work():
    # Outside of connection.transaction() each statement is its own transaction.
    with psycopg.connect(autocommit=True) as connection:
        while not stop:
            # Waits for a second at most, so that a signal is served.
            # The same owner gets the term that it has already.
            term = one(connection,
                       "SELECT campaign('pool', %s, ttl => '3 s', wait => '1 s', owner => %s)", NAME, OWNER)
            if term is not None:
                lead(connection, term)


def on_signal(*_):
    global stop
    stop = True


signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGINT, on_signal)
while not stop:
    try:
        work()
    except psycopg.Error as error:
        # LE001: somebody else leads. Or the server is gone: another one may have taken over.
        print(f"{NAME}: {error.sqlstate or error}", flush=True)
        time.sleep(0.5)
print(f"{NAME} leaves", flush=True)
