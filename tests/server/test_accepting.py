"""Connections that wait are accepted several at a time: in a crowd, a turn of the event loop is long."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import uvloop

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.serve import ACCEPTED_A_TURN, handles_of, server_options
from doi_proxy.main import create
from doi_proxy.server.http_server import Events, HttpServer
from doi_proxy.server.listening import listen
from doi_proxy.server.tls import Certificate

_WAITING: Final = 40


def test_a_crowd_that_waits_is_accepted_in_a_few_turns(tmp_path: Path) -> None:
    settings = Settings(store_url=f"sqlite:///{tmp_path}/store.sqlite3", upstream_url="http://127.0.0.1:9")

    async def count_turns() -> int:
        events = Events(ready=lambda: None, draining=lambda: None)
        server = HttpServer(create(settings), server_options(settings, Certificate(None, None)), events)
        with ExitStack() as stack, closing(listen("127.0.0.1", 0)) as listening:
            listening.listen(_WAITING)
            for _ in range(_WAITING):
                stack.enter_context(closing(socket.create_connection(listening.getsockname())))
            server.lifespan = server.config.lifespan_class(server.config)
            handles = handles_of(listening)
            await server.startup(handles)
            turns = 0
            while len(server.server_state.connections) < _WAITING and turns < 10 * _WAITING:
                await asyncio.sleep(0)
                turns += 1
            await server.shutdown(handles)
        return turns

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(count_turns()) < 2 * _WAITING / ACCEPTED_A_TURN
