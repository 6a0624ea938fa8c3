"""Celery tasks that take effect once, even if they are sent several times: celery -A celery_once worker."""

import celery
import psycopg
from celery import signals

import lock_election

TTL = 30
app = celery.Celery("celery_once", broker="redis://")  # default of CELERY_BROKER_URL
sessions = []


@signals.worker_process_init.connect  # after the fork: a child does not inherit a session
def open_session(**_):
    sessions.append(lock_election.connect(ttl=TTL))


@signals.worker_process_shutdown.connect
def close_session(**_):
    sessions.pop().close()


@app.task
def report(day):
    """Runs at most once an hour. Returns None if another worker makes this report, or has begun it in the last hour."""
    return sessions[0].once(f"report {day}", hold_for=3600)(make_report)(day)


def make_report(day):
    return f"the report of {day}"


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True, max_retries=None)
def bill(self, order):
    """Writes exactly one row, even if the worker is killed, or is stopped until the broker sends the task again."""
    sessions[0].reopen()  # if it has ended
    try:
        with sessions[0].lock(f"bill {order}", wait=0) as hold, psycopg.connect(autocommit=True) as db:
            if db.execute("SELECT FROM bill WHERE number = %s", (order,)).fetchone() is not None:
                return
            text = make_bill(order)  # long work, without an open transaction
            with db.transaction():
                hold.fence(db)  # raises LockLost if another worker may have the lock
                db.execute("INSERT INTO bill (number, text) VALUES (%s, %s)", (order, text))
    except (lock_election.NotAcquired, lock_election.LockLost, lock_election.Unavailable, psycopg.Error) as error:
        raise self.retry(exc=error, countdown=TTL / 3) from error


def make_bill(order):
    return f"the bill of order {order}"
