"""APScheduler in every replica, with a shared job store: only the leader's scheduler runs.

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
    """Runs the scheduler until the term is lost. Jobs that are running then continue, so fence their writes."""
    scheduler = BackgroundScheduler(jobstores={"default": SQLAlchemyJobStore(url=url)})
    scheduler.add_job(report, "interval", seconds=1, id="report", replace_existing=True)
    scheduler.start()
    print(f"leads {term.token}", flush=True)
    lost.wait()
    scheduler.shutdown()  # waits for the running jobs, so that this replica campaigns again only after them
    print("lost", flush=True)


with lock_election.connect(ttl=ttl) as session:
    session.election("apscheduler").run(lead)
