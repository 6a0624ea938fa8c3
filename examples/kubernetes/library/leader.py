"""One of the replicas leads and works; /live on port 8080 says whether this one is well."""

import http.server
import os
import signal
import sys
import threading
import time

import lock_election
import psycopg

NAME, TTL = os.environ["POD_NAME"], float(os.environ["TTL"])
STUCK = 60  # seconds; no step takes so long
began = None  # when the step that is under way began


class Probe(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        since = began
        self.send_response(200 if since is None or time.monotonic() - since < STUCK else 503)
        self.end_headers()

    def log_message(self, *unused):
        pass


def step(db, term):
    """The fence comes first: all later writes of the transaction are the leader's, or fail."""
    with db.transaction():
        db.execute("SET LOCAL idle_in_transaction_session_timeout = '5 s'")
        term.fence(db)
        db.execute("UPDATE work SET done = done + 1, term = %s, worker = %s WHERE id = 1", (term.token, NAME))


def lead(term, lost):
    """Called when elected. When the term is lost this returns, and run() stands for election again."""
    global began
    while not lost.wait(0.2):
        try:
            with psycopg.connect(autocommit=True) as db:
                while not lost.wait(0.2):
                    began = time.monotonic()
                    step(db, term)
                    began = None
        except psycopg.Error as error:  # no server now; the term goes on until its deadline
            print(error)
            began = None


# Process 1 of a container gets no SIGTERM without a handler. This one ends the blocks below, which resign the term.
signal.signal(signal.SIGTERM, lambda *unused: sys.exit())
threading.Thread(target=http.server.ThreadingHTTPServer(("", 8080), Probe).serve_forever, daemon=True).start()
with lock_election.connect(ttl=TTL, name=NAME) as session:
    session.election("pool", NAME).run(lead)
