"""A stand-in for the upstream: a handle API that has a record for every name, and a resolver for nginx to cache.

`python -m bench.stand_in --port N`. In a process of its own, or inside a measurement that wants to see what arrives.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Self
from urllib.parse import unquote

import uvloop

from bench.records import LONG_TTL, answer_of, target_of

_API: Final = "/api/handles/"
_MAX_HEAD: Final = 65_536
_FRESH: Final = f"Cache-Control: public, max-age={LONG_TTL}\r\n"
#: Replaces an answer: (name, writer) -> None for the usual answer, else whether the connection stays open.
Answering = Callable[[str, asyncio.StreamWriter], Awaitable[bool | None]]


async def _as_usual(name: str, writer: asyncio.StreamWriter) -> bool | None:
    return None


class StandIn:
    """An HTTP/1.1 server on 127.0.0.1 that generates a record for any name; see `records`."""

    def __init__(self, port: int = 0, *, answering: Answering = _as_usual) -> None:
        self._port = port
        self._answering = answering
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=_MAX_HEAD, backlog=1024)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(await reader.readuntil(b"\r\n\r\n"), writer):
                await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, head: bytes, writer: asyncio.StreamWriter) -> bool:
        path = head.split(b" ", 2)[1].partition(b"?")[0].decode("latin-1")
        if not path.startswith(_API):
            writer.write(_redirect(unquote(path[1:])))
            return True
        name = unquote(path[len(_API) :])
        lives = await self._answering(name, writer)
        if lives is None:
            writer.write(response(200, "application/json;charset=UTF-8", answer_of(name), _FRESH))
        return lives is not False


def response(status: int, kind: str, body: bytes, more: str = "") -> bytes:
    """A whole response. `more` has additional header lines."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode("latin-1") + body


def _redirect(name: str) -> bytes:
    target = target_of(name)
    body = f'<!doctype html><title>Redirect</title><p>This name leads to <a href="{target}">{target}</a>.</p>'
    return response(302, "text/html;charset=utf-8", body.encode(), f"{_FRESH}Location: {target}\r\n")


async def _run(port: int) -> None:
    async with StandIn(port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A stand-in for the upstream on 127.0.0.1.")
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(_run(parser.parse_args().port))
