"""Connections of a small server of the tests. Each is closed at the end, also one whose task has not begun."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable


def accept_into(
    tasks: set[asyncio.Task[None]],
    writers: list[StreamWriter],
    serve: Callable[[StreamReader, StreamWriter], Awaitable[None]],
) -> Callable[[StreamReader, StreamWriter], None]:
    """The callback of asyncio.start_server that serves each connection in a task of the set, and lists its writer.

    A coroutine that is cancelled before it begins runs no `finally`, so the connection is closed by its task.
    """

    async def run(reader: StreamReader, writer: StreamWriter) -> None:
        await serve(reader, writer)

    def accept(reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(run(reader, writer))
        tasks.add(task)
        writers.append(writer)

        def end(_: asyncio.Task[None]) -> None:
            tasks.discard(task)
            writer.close()

        task.add_done_callback(end)

    return accept


def abort_all(writers: list[StreamWriter]) -> None:
    """End the connections at once. With TLS, one that is only closed waits 30 s for the other side."""
    for writer in writers:
        writer.transport.abort()


async def stop_accepting(server: asyncio.Server) -> None:
    """Close a listening socket. A connection that was just accepted is made in the next turns of the loop."""
    server.close()
    for _ in range(3):
        await asyncio.sleep(0)


async def close_server(server: asyncio.Server, tasks: set[asyncio.Task[None]], writers: list[StreamWriter]) -> None:
    """End a server of `accept_into` with all its connections, whatever their tasks wait for."""
    await stop_accepting(server)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    abort_all(writers)
    await server.wait_closed()
