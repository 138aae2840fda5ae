"""HTTP/2: many questions on one connection, and a connection that says goodbye."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import httpx
import pytest

from app.doi.name import HandleName
from app.errors import UpstreamUnreachable
from app.handle.answer import ResponseCode
from app.upstream.client import HandleClient
from app.upstream.source import UpstreamQuery
from tests.parts import usual_api

pytestmark = pytest.mark.anyio


class GoodbyeServer:
    """Answers "not found" over HTTP/2 without TLS; the first `goodbyes` requests get GOAWAY instead."""

    def __init__(self, goodbyes: int = 0) -> None:
        self.goodbyes = goodbyes
        self.asked = self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        try:
            while data := await reader.read(65536):
                going = [self._react(connection, event) for event in connection.receive_data(data)]
                writer.write(connection.data_to_send())
                await writer.drain()
                if not all(going):
                    break
        except OSError:
            pass
        finally:
            writer.close()

    def _react(self, connection: h2.connection.H2Connection, event: h2.events.Event) -> bool:
        if not isinstance(event, h2.events.RequestReceived):
            return True
        self.asked += 1
        if self.goodbyes:
            self.goodbyes -= 1
            # RFC 9113, section 6.8: requests above the last stream were not and will not be processed.
            connection.close_connection(last_stream_id=0)
            return False
        path = dict(event.headers)[b":path"].decode()
        body = json.dumps({"responseCode": 100, "handle": unquote(path.removeprefix("/api/handles/"))}).encode()
        connection.send_headers(event.stream_id, [(":status", "404"), ("content-length", str(len(body)))])
        connection.send_data(event.stream_id, body, end_stream=True)
        return True


@asynccontextmanager
async def asking(server: GoodbyeServer) -> AsyncIterator[HandleClient]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    # Without TLS there is no ALPN, so client and server must agree on HTTP/2 beforehand.
    transport = httpx.AsyncHTTPTransport(http1=False, http2=True)
    api = usual_api(f"http://127.0.0.1:{port}", transport=transport)
    try:
        yield api
    finally:
        await api.aclose()
        listening.close()
        await listening.wait_closed()


async def test_many_questions_share_one_connection() -> None:
    server = GoodbyeServer()
    async with asking(server) as api:
        names = [HandleName(f"10.1234/{number}") for number in range(50)]
        await api.fetch(UpstreamQuery(names[0]))
        answers = await asyncio.gather(*(api.fetch(UpstreamQuery(name)) for name in names))
    assert {answer.code for answer in answers} == {ResponseCode.HANDLE_NOT_FOUND}
    assert (server.asked, server.connections) == (51, 1)


async def test_a_question_that_met_goaway_is_asked_once_more() -> None:
    server = GoodbyeServer(goodbyes=1)
    async with asking(server) as api:
        assert (await api.fetch(UpstreamQuery(HandleName("10.1234/x")))).code is ResponseCode.HANDLE_NOT_FOUND
    assert (server.asked, server.connections) == (2, 2)


async def test_an_upstream_that_always_says_goodbye_is_unreachable() -> None:
    server = GoodbyeServer(goodbyes=100)
    async with asking(server) as api:
        with pytest.raises(UpstreamUnreachable):
            await api.fetch(UpstreamQuery(HandleName("10.1234/x")))
    assert server.asked == 2
