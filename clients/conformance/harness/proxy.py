"""A proxy between a client and its server that can cause failures.

Understands as much of PostgreSQL's protocol as is needed to know which statement is under way: a fault can wait for the
statement of a kind, such as the renewal, and then hold, lose or delay the request or its answer.
"""

import asyncio
import re
import socket
import struct

# Kinds of statements: the function that it calls, or an item of lease_sync().  A call without items only renews the
# lease, and reads its news.
KINDS = {
    "open": r"grant_lease\(",
    "ask": r"item: (try|enqueue)_",
    "enqueue": r"item: enqueue_",
    "try": r"item: try_",
    "campaign": r"item: (try|enqueue)_candidate",
    "await": r"no items",
    "renew": r"no items",
    "release": r"item: (release|resign)",
    "close": r"revoke_lease\(",
    "proclaim": r"item: proclaim",
    "leader": r"current_leader\(",
}
ITEM = re.compile(r"(?<!\w)((?:try|enqueue)_(?:lock|shared|permit|candidate)|release|resign|proclaim)(?!\w)")
LISTEN = re.compile(r'\b(UN)?LISTEN\s+("[^"]+"|\w+|\*)', re.I)
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102


def with_items(sql, arguments):
    """Returns the text of a statement; for lease_sync(), with the actions of its items."""
    if sql is None or "lease_sync(" not in sql:
        return sql
    return " ".join([sql, *([f"item: {action}" for action in ITEM.findall(arguments)] or ["no items"])])


class Fault:
    """A fault for the next statements of a kind."""

    def __init__(self, kind, what, times=1, delay=0, code=""):
        self.pattern = re.compile(KINDS[kind])
        self.kind = kind
        self.what = what  # "delay" or "lose answer"; "lose request"; "silence": neither a reply nor an end; "refuse": an error
        self.times = times
        self.delay = delay
        self.code = code
        self.hits = 0

    def meets(self, sql, executes):
        """Returns whether the fault applies: an error can also be the reply to the preparation of a statement."""
        return (executes or self.what == "refuse") and self.hits < self.times and self.pattern.search(sql) is not None

    def error(self):
        fields = b"SERROR\0VERROR\0C" + self.code.encode() + b"\0Minjected by the suite\0\0"
        return b"E" + struct.pack("!I", len(fields) + 4) + fields


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy, client_reader, client_writer):
        self.proxy = proxy
        self.client = (client_reader, client_writer)
        self.server = None
        self.statements = {}
        self.channels = set()  # channels that it listens to
        self.fault = None  # fault of the current statement
        self.dropped = False  # nothing passes any longer
        self.closed = False

    async def run(self):
        try:
            self.server = await asyncio.open_connection(*self.proxy.target)
        except OSError:
            self.end()
            return
        if self.closed:  # meanwhile: end() has not seen the server's side
            self.server[1].close()
            return
        tasks = [asyncio.create_task(self.half(self.requests())), asyncio.create_task(self.half(self.answers()))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # the half that has ended ends the other one, when the network transfers again
            if not self.dropped:
                await self.proxy.passable("up")
                await self.proxy.passable("down")
            if self.dropped:
                await self.proxy.closing.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.end()

    async def half(self, what):
        """Copies one direction, until one of the ends has closed."""
        try:
            await what
        except (OSError, EOFError):
            pass

    def end(self, reset=False):
        """Ends both sides. reset: immediately, by RST."""
        if self.closed:
            return
        self.closed = True
        for _, writer in filter(None, (self.client, self.server)):
            if reset:
                sock = writer.get_extra_info("socket")
                if sock is not None and sock.fileno() >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()
        self.proxy.links.discard(self)

    async def send(self, direction, writer, data):
        await self.proxy.passable(direction)
        if self.dropped:
            await self.proxy.closing.wait()
        writer.write(data)
        await writer.drain()

    def sql_of(self, kind, body):
        """The text of the statement that this message prepares or executes, or None; and whether it executes it."""
        if kind == b"Q":
            sql = body[:-1].decode(errors="replace")
            return with_items(sql, sql), True
        if kind == b"P":
            name, text = body.split(b"\0")[:2]
            self.statements[name] = text.decode(errors="replace")
            return self.statements[name], False
        if kind == b"B":
            _, name, arguments = body.split(b"\0", 2)
            return with_items(self.statements.get(name), arguments.decode(errors="replace")), True
        return None, False

    def note(self, sql):
        self.proxy.seen.append(sql)
        for no, channel in LISTEN.findall(sql):
            if channel == "*":
                self.channels.clear()
            elif no:
                self.channels.discard(channel)
            else:
                self.channels.add(channel)

    async def requests(self):
        reader, server = self.client[0], self.server[1]
        while True:  # first messages, which have no type
            size = await reader.readexactly(4)
            body = await reader.readexactly(struct.unpack("!I", size)[0] - 4)
            await self.send("up", server, size + body)
            code = struct.unpack("!I", body[:4])[0]
            if code == CANCEL_REQUEST:
                return
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
        swallowing = False  # up to the next Sync
        while True:
            head = await reader.readexactly(5)
            body = await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
            if swallowing and head[:1] != b"S":
                continue
            swallowing = False
            sql, executes = self.sql_of(head[:1], body)
            if sql is not None and executes:
                self.note(sql)
            fault = self.proxy.fault_for(sql, executes) if sql is not None else None
            if fault:
                self.fault = fault
                if fault.what == "lose request":
                    self.end(reset=True)
                    return
                if fault.what == "refuse" and head[:1] == b"Q":
                    head, body = b"Q" + struct.pack("!I", 5), b"\0"
                elif fault.what == "refuse":
                    swallowing = True
                    continue
            await self.send("up", server, head + body)

    async def answers(self):
        reader, client = self.server[0], self.client[1]
        started = False
        held = b""
        while True:
            if not started:
                # "N" to a request for encryption, or the first message
                first = await reader.readexactly(1)
                if first in (b"N", b"S"):
                    await self.send("down", client, first)
                    continue
                started = True
                head = first + await reader.readexactly(4)
            else:
                head = await reader.readexactly(5)
            data = head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
            fault = self.fault
            if fault is None:
                await self.send("down", client, data)
                continue
            # the whole reply, up to ReadyForQuery
            held += data
            if head[:1] != b"Z":
                continue
            self.fault = None
            if fault.what == "lose answer":
                self.end(reset=True)
                return
            if fault.what == "silence":
                self.dropped = True
            elif fault.what == "delay":
                await asyncio.sleep(fault.delay / 1000)
            data, held = (fault.error() + data if fault.what == "refuse" else held), b""
            await self.send("down", client, data)


class Proxy:
    """Listens on its own port, and connects to the target for each client."""

    def __init__(self, target):
        self.target = target
        self.links = set()
        self.accepted = 0
        self.tasks = set()
        self.faults = []
        self.seen = []
        self.closing = asyncio.Event()
        self.refusing = False
        self.silent = False
        self.open = {"up": asyncio.Event(), "down": asyncio.Event()}
        for event in self.open.values():
            event.set()

    async def start(self):
        self.listener = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def accept(self, reader, writer):
        if self.refusing:
            writer.transport.abort()
            return
        link = Link(self, reader, writer)
        self.links.add(link)
        self.accepted += 1
        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            if self.silent:
                link.dropped = True
                await self.closing.wait()
            await link.run()
        except (OSError, EOFError):
            pass
        finally:
            link.end()
            self.tasks.discard(task)

    def fault_for(self, sql, executes):
        for fault in self.faults:
            if fault.meets(sql, executes):
                fault.hits += 1
                return fault
        return None

    def listening(self):
        return sum(len(link.channels) for link in self.links)

    async def passable(self, direction):
        await self.open[direction].wait()

    # --- faults ---

    def cut(self):
        """Ends connections, and refuses new ones."""
        self.refusing = True
        self.reset()

    def reset(self):
        """Ends connections, and accepts new ones."""
        for link in list(self.links):
            link.end(reset=True)

    def drop(self):
        """A half-open network: connections stay open, but never transfer anything, nor do new ones."""
        self.silent = True
        for link in self.links:
            link.dropped = True

    def stall(self, direction=None):
        """Holds everything back until heal(), and loses nothing. One direction: up is to the server."""
        for name in [direction] if direction else list(self.open):
            self.open[name].clear()

    def heal(self):
        self.refusing = self.silent = False
        for event in self.open.values():
            event.set()

    async def close(self):
        self.heal()
        self.closing.set()
        self.listener.close()
        self.reset()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
