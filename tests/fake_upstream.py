"""A fake handle API on loopback: an HTTP/1.1 server that answers, fails or waits, as the test sets it up.

In a test:

    async with FakeUpstream() as upstream:
        upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        upstream.fault("10.1234/x", "reset", count=1)
        upstream.hold("10.1234/slow")        # is answered after release("10.1234/slow")
        ... query upstream.url ...
        assert upstream.queries("10.1000/182") == 1

As a process: `python -m tests.fake_upstream --port N --records FILE.ndjson`, a record {"handle": …, "values": […]}
a line. Its controls are POST /control/put {"handle": …, "values": …}, /control/fault {"name": …, "kind": …, …} and
/control/reset; GET /control/counts has the number of queries. Names match with ASCII letters of either case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import ssl
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from tests.accepting import abort_all, accept_into, stop_accepting
from tests.upstream.faults import FAULTS, Asked, Peer, encoded, send

#: The name for a fault of all names that have no fault of their own.
EVERY_NAME: Final = ""
_MIB: Final = 1024 * 1024
#: Seconds. Longer than the start of a process takes on a busy machine.
_MAX_WAIT: Final = 60.0


@dataclass
class Fault:
    """A fault. `count` is how many more times it occurs, None for always."""

    kind: str
    count: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


class FakeUpstream:
    """See the module."""

    def __init__(self, port: int = 0, *, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self._records: dict[str, list[dict[str, Any]]] = {}
        self._agencies: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.reset()

    def reset(self) -> None:
        """Clear the counts, the faults and the holds. The records stay."""
        self._faults: dict[str, Fault] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._counts: Counter[str] = Counter()
        self._arrival = asyncio.Event()
        self.last_headers: dict[str, str] = {}
        self.targets: deque[str] = deque(maxlen=1000)
        self.in_flight = self.max_in_flight = self.connections = self.agency_queries = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            accept_into(self._tasks, self._writers, self._serve),
            "127.0.0.1",
            self._port,
            limit=_MIB,
            backlog=1024,
            ssl=self._tls,
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await stop_accepting(self._server)
        self.drop_connections()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        abort_all(self._writers)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    # Records

    def put(self, name: str, values: list[dict[str, Any]] | None = None, *, url: str = "", ttl: int = 86400) -> None:
        """Register a name, with all its values or with one URL value."""
        one = {"index": 1, "type": "URL", "data": {"format": "string", "value": url}, "ttl": ttl}
        self._records[_fold(name)] = [one] if values is None else values

    def delete(self, name: str) -> None:
        """Remove the record of a name."""
        self._records.pop(_fold(name), None)

    def agency(self, prefix: str, agency: str) -> None:
        """Set the registration agency of a prefix."""
        self._agencies[_fold(prefix)] = agency

    # Faults

    def fault(self, name: str, kind: str, *, count: int | None = None, **options: Any) -> None:
        """Make queries for a name (or EVERY_NAME) fail, `count` times or always. `kind` is one of FAULTS."""
        if kind not in FAULTS:
            raise ValueError(f"no such fault: {kind}")
        self._faults[_fold(name)] = Fault(kind, count, options)

    def heal(self, name: str) -> None:
        """Remove the fault of a name."""
        self._faults.pop(_fold(name), None)

    def hold(self, name: str) -> None:
        """Make queries for a name wait until `release`."""
        self._held[_fold(name)] = asyncio.Event()

    def release(self, name: str) -> None:
        """Answer the waiting queries for a name."""
        self._held.pop(_fold(name)).set()

    def drop_connections(self) -> None:
        """Close every open connection, as a server does that restarts."""
        for task in self._tasks:
            task.cancel()

    # Counts

    def queries(self, name: str | None = None) -> int:
        """The number of queries for a name, or for all names."""
        return self._counts.total() if name is None else self._counts[_fold(name)]

    async def arrived(self, name: str, count: int = 1) -> None:
        """Wait until `count` queries for a name have arrived."""
        async with asyncio.timeout(_MAX_WAIT):
            while self.queries(name) < count:
                self._arrival.clear()
                await self._arrival.wait()

    # The server

    async def _serve(self, reader: asyncio.StreamReader, writer: Peer) -> None:
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass

    async def _exchange(self, reader: asyncio.StreamReader, writer: Peer) -> bool:
        """Answer one request. Returns True if another may follow on the connection."""
        method, target, headers = _read_head(await reader.readuntil(b"\r\n\r\n"))
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = urlsplit(target).path
        if path.startswith("/control/"):
            send(writer, 200, encoded(self._control(path.removeprefix("/control/"), method, body)))
            return True
        found = re.fullmatch(r"(?:/.*)?/(api/handles|ra)/(.+)", path)
        if found is None:
            send(writer, 404, b"<html>There is no such page.</html>", "text/html")
            return True
        return await self._answer(found[1], Asked(target, unquote(found[2]), headers), writer)

    async def _answer(self, service: str, asked: Asked, writer: Peer) -> bool:
        self._counts[_fold(asked.name)] += 1
        self.targets.append(asked.target)
        self.last_headers = asked.headers
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self._arrival.set()
        try:
            if held := self._held.get(_fold(asked.name)):
                await held.wait()
            fault = self._next_fault(_fold(asked.name))
            if fault is not None and not await FAULTS[fault.kind](asked, writer, fault.options):
                return False
            if fault is None or fault.kind == "delay":
                send(writer, *(self._handle(asked.name) if service != "ra" else self._which_agency(asked)))
            return asked.headers.get("connection", "").lower() != "close"
        finally:
            self.in_flight -= 1

    def _next_fault(self, key: str) -> Fault | None:
        fault = self._faults.get(key) or self._faults.get(EVERY_NAME)
        if fault is None or fault.count is None:
            return fault
        fault.count -= 1
        return fault if fault.count >= 0 else None

    def _handle(self, name: str) -> tuple[int, bytes]:
        values = self._records.get(_fold(name))
        if values is None:
            return 404, encoded({"responseCode": 100, "handle": name})
        if not values:
            return 200, encoded({"responseCode": 200, "values": [], "handle": name})
        return 200, encoded({"responseCode": 1, "handle": name, "values": values})

    def _which_agency(self, asked: Asked) -> tuple[int, bytes]:
        self.agency_queries += 1
        listed = urlsplit(asked.target).path.rpartition("/ra/")[2]
        rows = []
        for name in map(unquote, listed.split(",")):
            agency = self._agencies.get(_fold(name.partition("/")[0]))
            rows.append({"DOI": name, "RA": agency} if agency else {"DOI": name, "status": "DOI does not exist"})
        return 200, encoded(rows)

    def _control(self, what: str, method: str, body: bytes) -> object:
        command = json.loads(body or b"{}")
        if what == "counts":
            return {"asked": self.queries(), "by_name": self._counts, "max_in_flight": self.max_in_flight}
        if what == "put" and method == "POST":
            self.put(command["handle"], command["values"])
        elif what == "fault" and method == "POST":
            self.fault(command.pop("name", EVERY_NAME), command.pop("kind"), **command)
        elif what == "reset" and method == "POST":
            self.reset()
        return {}


def _fold(name: str) -> str:
    return re.sub("[a-z]+", lambda letters: letters[0].upper(), name)


def _read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    fields = (line.partition(":") for line in lines)
    return method, target, {name.strip().lower(): value.strip() for name, _, value in fields}


async def _run(port: int, records: list[Path]) -> None:
    async with FakeUpstream(port) as upstream:
        for path in records:
            for line in filter(str.strip, path.read_text("utf-8").splitlines()):
                record = json.loads(line)
                upstream.put(record["handle"], record["values"])
        print(upstream.url, flush=True)
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A fake upstream on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--records", type=Path, action="append", default=[], help="NDJSON, one record a line")
    chosen = parser.parse_args()
    asyncio.run(_run(chosen.port, chosen.records))
