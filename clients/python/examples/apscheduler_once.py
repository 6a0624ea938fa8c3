"""APScheduler in every replica; each run of a job is done by one of them: apscheduler_once.py [SECONDS]"""

import sys
import time

from apscheduler.schedulers.blocking import BlockingScheduler

import lock_election


def add_once(session, scheduler, job, hold_for, trigger, **how):
    """Adds a job that no replica runs again until hold_for seconds after its start. `how` is passed to add_job().

    Let hold_for be somewhat shorter than the period, and longer than the clocks of the replicas differ. Use no job
    store, which cannot store such a job: each replica adds the job when it starts.
    """
    return scheduler.add_job(session.once(f"job {job.__name__}", hold_for=hold_for)(job), trigger, **how)


def report():
    print(f"run {time.time():.1f}", flush=True)


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with lock_election.connect(ttl=min(30, seconds / 2)) as session:
        scheduler = BlockingScheduler()
        add_once(session, scheduler, report, seconds * 0.8, "interval", seconds=seconds)
        scheduler.start()
