"""Celery's beat on every machine; only the leader sends: celery -A APP beat --scheduler celery_beat.LeaderScheduler

The table celery_beat contains the time at which each entry was last sent, so that the next leader continues from there:
it sends a task that became due while there was no leader, once.
"""

import celery.beat
import psycopg
from celery.utils.log import get_logger

import lock_election

log = get_logger(__name__)
NAME, TTL, WAIT = "celery beat", 15, 5


class LeaderScheduler(celery.beat.Scheduler):
    max_interval = WAIT  # seconds between ticks at most, so that a leader that has lost its term soon campaigns again

    def setup_schedule(self):
        super().setup_schedule()
        self.session = lock_election.connect(ttl=TTL)
        self.election = self.session.election(NAME)
        self.term, self.loaded = None, False
        with psycopg.connect() as db:
            db.execute("CREATE TABLE IF NOT EXISTS celery_beat (entry text PRIMARY KEY, sent_at timestamptz NOT NULL)")

    def tick(self, *args, **kwargs):
        """Sends the tasks that are due, if this beat leads. Returns the seconds until the next tick."""
        try:
            if self.term is None or not self.term.valid:
                self.loaded = False
                self.session.reopen()
                self.term = self.election.campaign(wait=WAIT)
                log.info("leads, term %s", self.term.token)
            if not self.loaded:
                self.load()
            return super().tick(*args, **kwargs)
        except lock_election.NotAcquired:
            return 0  # another beat leads
        except (lock_election.Error, psycopg.Error, celery.beat.SchedulingError) as error:
            log.error("nothing is sent: %s", error)
            self.loaded = False
            return 1

    def load(self):
        """Reads the times at which earlier leaders have sent the entries."""
        with psycopg.connect() as db:
            for entry in self.schedule.values():
                new = "INSERT INTO celery_beat VALUES (%s, %s) ON CONFLICT DO NOTHING"
                db.execute(new, (entry.name, entry.last_run_at))
            for name, sent_at in db.execute("SELECT entry, sent_at FROM celery_beat").fetchall():
                if name in self.schedule:
                    self.schedule[name].last_run_at = sent_at
        self.populate_heap()
        self.loaded = True

    def apply_entry(self, entry, producer=None):
        """Sends a task in a fenced transaction, so that a beat that was stopped and no longer leads sends nothing."""
        with psycopg.connect() as db:
            self.term.fence(db)
            sent_at = self.schedule[entry.name].last_run_at
            db.execute("UPDATE celery_beat SET sent_at = %s WHERE entry = %s", (sent_at, entry.name))
            self.apply_async(entry, producer=producer, advance=False)

    def close(self):
        super().close()
        self.session.close()  # so that the next beat leads immediately
