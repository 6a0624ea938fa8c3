"""APScheduler in every replica, with a job store that all share: the leader's scheduler runs, and no other one.

apscheduler_leader.py URL [TTL]: SQLAlchemy's URL of the job store, which may be in another database.
"""

import sys
import time

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

import lock_election

url, ttl = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 15.0


def report():
    print(f"run {time.time():.1f}", flush=True)


def lead(term, lost):
    """Runs the scheduler until the term is lost. Jobs that run then go on: fence what they write."""
    scheduler = BackgroundScheduler(jobstores={"default": SQLAlchemyJobStore(url=url)})
    scheduler.add_job(report, "interval", seconds=1, id="report", replace_existing=True)
    scheduler.start()
    print(f"leads {term.token}", flush=True)
    lost.wait()
    scheduler.shutdown()  # waits for the jobs that run: the next term begins after them
    print("lost", flush=True)


with lock_election.connect(ttl=ttl) as session:
    session.election("apscheduler").run(lead)
