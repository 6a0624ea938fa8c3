"""One of several replicas leads: leader.py NAME [TTL]."""

import sys

import lock_election


def lead(term, lost):
    print(f"leads {term.token}", flush=True)
    while not lost.wait(0.1):
        pass  # a step of the work
    print("lost", flush=True)


with lock_election.connect(ttl=float(sys.argv[2]) if len(sys.argv) > 2 else 15) as session:
    session.election("scheduler", sys.argv[1]).run(lead)
