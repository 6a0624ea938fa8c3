"""No error has a piece of a connection string: neither its text, nor its causes, nor what is logged."""

import logging
import traceback

import pytest

import lock_election
from lock_election import aio
from lock_election._protocol import Protocol
from lock_election._wire import PgWire

STRINGS = {
    "postgres://u:S3cr3t%ZZ@h/db": "%25",
    "postgres://u:S3cr3t%00@h/db": "%00",
    "postgres//u:S3cr3t@h/db": "keyword",
    "password=my S3cr3t dbname=app": "quotes",
    "password='S3cr3t dbname=app": "quote",
    "pasword=S3cr3t": "keyword",
    "password=x S3cr3t=1": "keyword",
    "postgres://u:S3cr3t@h/db?S3cr3t=1": "parameter",
    "postgres://u:a@h/db?S3cr3t": "parameter",
    "postgres://u:S3cr3t@[::1/db": "IPv6",
    "postgres://u:S3cr3t@[::1]x/db": "followed",
    "postgres://u:a@S3cr3t@h/db": "%40",
    "postgres://u:12/S3cr3t@h/db": "%2F",
    "postgres://u:S3cr3t/a@h/db": "%2F",
    "host=a@S3cr3t": "host",
    "host=h port=S3cr3t": "port",
    "host=h connect_timeout=S3cr3t": "connect_timeout",
    "password=S3cr3t\0": "NUL",
    "password=S3cr3t\udc80": "Unicode",
    b"password=S3cr3t": "bytes",
    ("password=S3cr3t",): "tuple",
}


def shown(error):
    """All that can be shown of it, and of what it came from."""
    texts = []
    while error is not None:
        texts += [repr(error), *traceback.format_exception(type(error), error, error.__traceback__)]
        error = error.__cause__ or error.__context__
    return "".join(texts)


@pytest.mark.parametrize("conninfo", STRINGS)
async def test_a_connection_string_that_cannot_be_parsed(conninfo, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(lock_election.InvalidRequest, match="connection string") as of_threads:
        lock_election.connect(conninfo)
    with pytest.raises(lock_election.InvalidRequest, match="connection string") as of_asyncio:
        await aio.connect(conninfo)
    for error in (of_threads.value, of_asyncio.value):
        assert STRINGS[conninfo] in str(error)
        assert "S3cr3t" not in shown(error)
    assert "S3cr3t" not in caplog.text


@pytest.mark.parametrize(
    "conninfo",
    [
        "",
        "host=/tmp port=5432",
        "host=@abstract",
        "host=a,b-c.d_e,10.0.0.1,::1 port=1,2,,4 connect_timeout=' 5 '",
        "host=bücher.example",
        "hostaddr=fe80::1%eth0",
        "postgres://u:p%40%2F@h1:1,h2/db?application_name=me@there",
        "postgresql://[::1]:5432/db",
        "postgres://%2Ftmp/db",
        "postgres:///db?host=/tmp",
        "password='with space @ / ? #'",
        "dbname=a@b/c",
    ],
)
async def test_those_that_can(conninfo):
    PgWire(conninfo, Protocol(10.0, "test", lambda: 0.0))


async def test_a_host_that_is_avoided_comes_last():
    wire = PgWire("host=a,b,c", Protocol(10.0, "test", lambda: 0.0))
    wire.avoid_host()
    assert [host["host"] for host in wire.hosts] == ["a", "b", "c"]
    wire.used = wire.hosts[0]
    wire.avoid_host()
    wire.avoid_host()
    assert [host["host"] for host in wire.hosts] == ["b", "c", "a"]
