"""A management command that all replicas start and one runs: put it into management/commands of an application."""

import contextlib

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction
from psycopg.conninfo import make_conninfo

import lock_election


class LockedCommand(BaseCommand):
    """A command that runs on one machine at a time. If that machine dies, a waiting one takes over after the TTL."""

    lock = "command"

    def add_arguments(self, parser):
        parser.add_argument("--wait", type=float, default=10, help="seconds until it gives up (%(default)s)")
        parser.add_argument("--ttl", type=float, default=30, help="seconds after which a dead holder is replaced")

    def handle(self, *args, wait, ttl, **options):
        try:
            with lock_election.connect(conninfo(), ttl=ttl) as session, session.lock(self.lock, wait=wait) as hold:
                self.run(hold, **options)
        except lock_election.NotAcquired as error:
            raise CommandError("another machine runs it") from error
        except lock_election.LockLost as error:
            raise CommandError(f"another machine goes on: {error}") from error

    @contextlib.contextmanager
    def written_by(self, hold):
        """Runs the block in a fenced transaction, whose writes are committed only if the lock was still held."""
        with transaction.atomic():
            hold.fence(connection)
            yield


class Command(LockedCommand):
    help = "Closes past months."
    lock = "books"

    def run(self, hold, **options):
        with connection.cursor() as cursor:
            while True:
                cursor.execute("SELECT id FROM month WHERE closed_by IS NULL ORDER BY id LIMIT 1")
                month = cursor.fetchone()
                if month is None:
                    break
                # do long work here, without an open transaction
                with self.written_by(hold):
                    cursor.execute("UPDATE month SET closed_by = %s WHERE id = %s", (hold.token, *month))
                self.stdout.write(f"closed {month[0]}")


def conninfo():
    """Returns the connection string of Django's database, for the session's own connection."""
    settings = connection.settings_dict
    parts = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "NAME"}
    return make_conninfo("", **{key: settings[name] for key, name in parts.items() if settings[name]})
