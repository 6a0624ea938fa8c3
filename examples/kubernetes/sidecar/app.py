"""Works while the lockctl beside it says that this pod leads."""

import json
import os
import pathlib
import signal
import sys
import time
import urllib.request

import psycopg

NAME, LOCKCTL = os.environ["POD_NAME"], "http://127.0.0.1:4040/"
alive = pathlib.Path("/run/pool/alive")  # for the liveness probe


def leads():
    """The term that this pod leads in; None: it does not lead, or nobody says so."""
    try:
        with urllib.request.urlopen(LOCKCTL, timeout=1) as answer:
            return json.load(answer)["term"]
    except OSError:  # also 503
        return None


def step(db, term):
    """The fence first: the term may have ended since lockctl was asked."""
    with db.transaction():
        db.execute("SET LOCAL idle_in_transaction_session_timeout = '5 s'")
        db.execute("SELECT fence_leader('pool', %s)", (term,))
        db.execute("UPDATE work SET done = done + 1, term = %s, worker = %s WHERE id = 1", (term, NAME))


# Process 1 of a container gets no SIGTERM without a handler.
signal.signal(signal.SIGTERM, lambda *unused: sys.exit())
while True:
    alive.touch()
    try:
        with psycopg.connect(autocommit=True) as db:
            while True:
                alive.touch()
                term = leads()
                if term is not None:
                    step(db, term)
                time.sleep(0.2)
    except psycopg.Error as error:  # no server, or LE001: this pod does not lead any more
        print(error)
        time.sleep(0.2)
