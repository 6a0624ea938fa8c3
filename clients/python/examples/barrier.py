"""A run that begins when all members have entered, and ends when all have left: barrier.py RUN MEMBER MEMBERS [TTL].

Each line of the input is a step of the work. A member that dies leaves when its TTL expires.
"""

import contextlib
import sys

import psycopg

import lock_election


class DoubleBarrier:
    """The barrier of one run. The name of the run must never have been used before. A killed member can enter again.

    session: an open session; only one thread of the session may enter.
    members: number of members that must have entered before the run begins.
    conninfo: connection string of the session's database, for a second connection while the member waits to begin.
    """

    def __init__(self, session, run, members, conninfo=""):
        self.session, self.run, self.members, self.conninfo = session, run, members, conninfo
        self.connection = None

    def enter(self, member):
        """Waits until enough members have entered, and returns the hold of this member.

        If the hold is lost, the others no longer wait for this member. After an error, this member has not entered.
        """
        with contextlib.ExitStack() as locks:
            # if an earlier process of this member was killed, waits until its TTL expires
            self.identity = locks.enter_context(self.session.lock(f"{self.run}, member {member}"))
            self.hold = locks.enter_context(self.session.lock(self.run, shared=True))
            try:
                while not self._is_open():
                    if self.hold.lost.wait(0.5):
                        raise lock_election.LockLost(f"{member} was lost before {self.run} began")
            finally:
                if self.connection is not None:
                    self.connection.close()
            locks.pop_all()
        return self.hold

    def leave(self):
        """Leaves, and waits until all members have left."""
        self.hold.release()
        self.identity.release()
        self.session.lock(self.run).acquire().release()  # granted when nobody holds it

    def _is_open(self):
        try:
            if self.connection is None or self.connection.closed:
                self.connection = psycopg.connect(self.conninfo, autocommit=True)
            self.connection.execute(
                "SELECT compare_and_set(%(run)s, 0, 'open') FROM lock_election.locks"
                " WHERE kind = 'lock' AND name = %(run)s HAVING count(slot) >= %(members)s",
                {"run": self.run, "members": self.members},
            )
            return self.connection.execute("SELECT version > 0 FROM read_versioned(%s)", (self.run,)).fetchone()[0]
        except psycopg.OperationalError:  # the server is not available
            return False


def main(run, member, members, ttl=30):
    with lock_election.connect(ttl=float(ttl)) as session:
        barrier = DoubleBarrier(session, run, int(members))
        hold = barrier.enter(member)
        print("begins", flush=True)
        for step in sys.stdin:
            if hold.lost.is_set():
                break
            print("did", step.strip(), flush=True)
        if hold.lost.is_set():
            sys.exit("lost: the others may have left")
        barrier.leave()
        print("left", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
