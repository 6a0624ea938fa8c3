"""APScheduler in every replica: each job runs in one of them."""

import apscheduler.schedulers.background

import lock_election


def start(session, job, seconds):
    """A scheduler that calls the job every so many seconds, unless another replica does."""
    scheduler = apscheduler.schedulers.background.BackgroundScheduler()
    once = session.once(f"job {job.__name__}", hold_for=seconds * 0.8)
    scheduler.add_job(once(job), "interval", seconds=seconds)
    scheduler.start()
    return scheduler


if __name__ == "__main__":
    import time

    with lock_election.connect() as session:
        start(session, lambda: print("run", flush=True), 60)
        while True:
            time.sleep(60)
