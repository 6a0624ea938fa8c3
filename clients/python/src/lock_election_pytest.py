"""Fixtures for pytest: a throw-away PostgreSQL with locks in it. pytest finds them if lock-election is installed.

    def test_job(lock_election_database):
        with lock_election.connect(lock_election_database) as session:
            ...

It is a separate module, so that pytest can load it without importing lock_election if no test uses a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

import pytest

if TYPE_CHECKING:
    from lock_election.embedded import Server


@pytest.fixture(scope="session")
def lock_election_server() -> Iterator[Server]:
    """Server that runs until the end of the test run; see lock_election.embedded.Server."""
    from lock_election import embedded

    with embedded.start() as server:
        yield server


@pytest.fixture
def lock_election_database(lock_election_server: Server) -> Iterator[str]:
    """Connection string of a database for one test, in which nothing is locked."""
    with lock_election_server.database() as conninfo:
        yield conninfo
