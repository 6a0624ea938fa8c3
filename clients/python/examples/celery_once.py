"""A Celery task that runs once, however many workers and beats have sent it: celery -A celery_once worker."""

import celery
from celery import signals

import lock_election

app = celery.Celery("celery_once", broker="memory://")
sessions = []


@signals.worker_process_init.connect  # after the fork: a child does not inherit a session
def open_session(**_):
    sessions.append(lock_election.connect(ttl=30))


@signals.worker_process_shutdown.connect
def close_session(**_):
    sessions.pop().close()


@app.task
def report(day):
    """None: another worker makes this report, or has made it within the last hour."""
    return sessions[0].once(f"report {day}", hold_for=3600)(make_report)(day)


def make_report(day):
    return f"the report of {day}"
