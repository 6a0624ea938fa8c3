"""A management command that one machine runs at a time: put it into management/commands of an application."""

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction
from psycopg.conninfo import make_conninfo

import lock_election


class Command(BaseCommand):
    help = "Closes the books. Only one machine does it at a time."

    def handle(self, *args, **options):
        try:
            session = lock_election.connect(conninfo())
            with session, session.lock("books", wait=10) as hold, transaction.atomic():
                hold.fence(connection)  # what follows is written by the holder, or not at all
                self.close_books(hold)
        except lock_election.NotAcquired as error:
            raise CommandError("another machine closes the books") from error

    def close_books(self, hold):
        self.stdout.write(f"closed under token {hold.token}")


def conninfo():
    """Django's database, as psycopg wants it. A session has a connection of its own."""
    settings = connection.settings_dict
    parts = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "NAME"}
    return make_conninfo("", **{key: settings[name] for key, name in parts.items() if settings[name]})
