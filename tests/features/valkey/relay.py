"""A server in front of a real one: it answers one command itself, and passes all others on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.accepting import accept_into, close_server


class Relay:
    """Answers `command` by `reply`, both bytes, and anything if `command` is empty and `reply` is not.

    The next `unanswered` commands of that kind get no answer. `seen` counts all commands.
    """

    def __init__(self, port: int) -> None:
        self._behind = port
        self.port = 0
        self.command = b""
        self.reply = b""
        self.unanswered = 0
        self.seen: Counter[bytes] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client. It sends one command after another."""
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        back = asyncio.create_task(_copy(behind_reader, writer))
        try:
            while head := await reader.readline():
                lines = [head]
                for _ in range(int(head[1:])):
                    length = await reader.readline()
                    lines += [length, await reader.readexactly(int(length[1:]) + 2)]
                word = lines[2].strip()
                self.seen[word] += 1
                if self.unanswered and self.command in (b"", word):
                    self.unanswered -= 1
                elif self.reply and self.command in (b"", word):
                    writer.write(self.reply)
                else:
                    behind_writer.writelines(lines)
        finally:
            back.cancel()
            behind_writer.close()
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)


@asynccontextmanager
async def running_relay(port: int) -> AsyncIterator[Relay]:
    """A relay in front of a server on loopback."""
    relay = Relay(port)
    tasks, writers = set[asyncio.Task[None]](), list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            await relay.serve(reader, writer)

    server = await asyncio.start_server(accept_into(tasks, writers, serve), "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        await close_server(server, tasks, writers)
