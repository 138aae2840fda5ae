"""A handle server in front of a fake HTTP API: black-box drills then test a resolver that speaks the native protocol.

`python -m tests.features.native.bridge --upstream http://127.0.0.1:N -- COMMAND …` runs a command with the environment
variables DOI_PROXY_UPSTREAM_URL and DOI_PROXY_UPSTREAM_BOOTSTRAP, and ends with it. Each query becomes a request to the
HTTP API. A packet that repeats a query gets the answer to that request: a client repeats packets on a busy machine, and
drills count queries. An answer that lies or fails becomes a lie or failure of the native protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
from pathlib import Path
from urllib.parse import quote, urlsplit

from handle_protocol.wire.message import Query
from tests.handle_protocol.records import to_values
from tests.handle_protocol.server import Content, HandleServer, Referral, write_bootstrap

_MAX_BYTES = 2 * 1024 * 1024
_REMEMBERED_QUERIES = 1_000
_SUCCESS = 200
_REDIRECT = 302


class Bridge(HandleServer):
    """See the module."""

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self._upstream = urlsplit(upstream)
        #: The newest requests to the HTTP API, by the id of the query. A repeated packet can be read after the answer.
        self._requests: dict[int, asyncio.Task[tuple[Content, str | None]]] = {}

    async def find(self, name: str, query: Query) -> tuple[Content, str | None]:
        """What the HTTP API says about a name."""
        number = query.request_id
        if number not in self._requests:
            self._requests[number] = asyncio.create_task(self._ask(name))
            if len(self._requests) > _REMEMBERED_QUERIES:
                self._requests.pop(next(iter(self._requests)))
        return await asyncio.shield(self._requests[number])

    async def _ask(self, name: str) -> tuple[Content, str | None]:
        try:
            status, body = await self._get(f"/api/handles/{quote(name, safe='')}")
        except asyncio.IncompleteReadError:
            return 100, "cut"
        except OSError:
            return 100, "empty"
        if len(body) >= _MAX_BYTES:
            return 100, "message-length"
        if status == _REDIRECT:
            return Referral((self.site_value(b"HS_SITE.PREFIX"),)), None
        return self._read(status, body, name)

    def _read(self, status: int, body: bytes, name: str) -> tuple[Content, str | None]:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            if status != _SUCCESS:
                return 100, "server-error"
            return 100, "garbage" if body else "empty"
        if answer["responseCode"] != 1:
            return int(answer["responseCode"]), None
        if not isinstance(answer["values"], list):
            return 100, "value-count"
        if answer["handle"].upper() != name.upper():
            return 100, "other-name"
        return to_values(answer["values"]), None

    async def _get(self, path: str) -> tuple[int, bytes]:
        """Raises IncompleteReadError if the body ends early, and OSError if there is no answer."""
        reader, writer = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        try:
            host = self._upstream.netloc
            fields = f"Host: {host}\r\nUser-Agent: doi-proxy-bridge\r\nConnection: close\r\n"
            writer.write(f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode())
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            except asyncio.IncompleteReadError as error:
                raise ConnectionResetError from error
            length = next(int(line[15:]) for line in head.splitlines() if line.startswith("content-length:"))
            body = await reader.readexactly(min(length, _MAX_BYTES))
            if length < _MAX_BYTES:
                # The stand-in counts a request as running for a moment after its last byte.
                await reader.read(1)
            return int(head.split()[1]), body
        finally:
            writer.close()


async def _serve(upstream: str, answers: int, life: int) -> None:
    """Serve until the other end of the pipe `life` is closed. Write the environment of the command to `answers`."""
    # The process group gets the signals. The command decides when it ends.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    async with Bridge(upstream) as bridge:
        with tempfile.TemporaryDirectory() as folder:
            bootstrap = Path(folder) / "bootstrap.json"
            bootstrap.write_bytes(write_bootstrap(bridge))
            names = {"DOI_PROXY_UPSTREAM_URL": bridge.url, "DOI_PROXY_UPSTREAM_BOOTSTRAP": str(bootstrap)}
            os.write(answers, json.dumps(names).encode())
            os.close(answers)
            ended = asyncio.Event()
            asyncio.get_running_loop().add_reader(life, ended.set)
            await ended.wait()


def _run(upstream: str, command: list[str]) -> None:
    """Become the command, with the bridge as a child. A killed command is then gone when its starter has waited."""
    (asked, answers), (life, lifeline) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(asked)
        os.close(lifeline)
        asyncio.run(_serve(upstream, answers, life))
        return
    os.close(answers)
    os.close(life)
    with os.fdopen(asked, "rb") as reading:
        names = json.load(reading)
    os.set_inheritable(lifeline, True)
    os.execvpe(command[0], command, {**os.environ, **names})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A handle server in front of a fake HTTP API.")
    parser.add_argument("--upstream", required=True)
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args()
    _run(chosen.upstream, chosen.command)
