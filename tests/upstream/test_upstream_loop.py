"""A service whose upstream is the service itself reports the loop, and does not wait for its own answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest

from doi_names.name import HandleName
from doi_proxy.assembly.core import name_service
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import UpstreamLoop
from doi_proxy.upstream.source import UpstreamQuery
from tests.cluster.processes import proxy_before
from tests.fake_upstream import FakeUpstream
from tests.parts import usual_api
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

NAME: Final = "10.5555/article"


async def test_status_508_of_the_upstream_is_a_loop() -> None:
    async with FakeUpstream() as upstream:
        upstream.fault(NAME, "status", status=508)
        api = usual_api(upstream.url)
        try:
            with pytest.raises(UpstreamLoop):
                await api.fetch(UpstreamQuery(HandleName(NAME)))
        finally:
            await api.aclose()


@pytest.mark.parametrize("target", [f"/api/handles/{NAME}", f"/{NAME}", "/ra/10.5555"])
async def test_a_request_with_the_own_identifier_causes_no_query(target: str) -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url="http://example.org/")
        got = await proxy.get(target, cdn_loop=f"cloudflare, {name_service(proxy.read_settings())}")
        assert (got.status, proxy.upstream.queries()) == (508, 0)
        assert "upstream.url" in got.text


async def test_the_identifier_of_another_service_is_no_loop() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url="http://example.org/")
        got = await proxy.get(f"/api/handles/{NAME}", cdn_loop="doi-proxy-0000000000000000")
        assert (got.status, got.json["responseCode"]) == (200, 1)


async def test_a_cached_answer_needs_no_query_and_is_given() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url="http://example.org/")
        await proxy.get(f"/api/handles/{NAME}")
        got = await proxy.get(f"/api/handles/{NAME}", cdn_loop=name_service(proxy.read_settings()))
        assert got.status == 200


def test_the_instances_of_a_service_have_one_identifier_and_a_service_with_another_upstream_another() -> None:
    one, two = (Settings(store_url="sqlite:///store.sqlite3", instance=name) for name in ("1", "2"))
    other = Settings(store_url="sqlite:///store.sqlite3", upstream_url="https://doi.example.org")
    assert name_service(one) == name_service(two) != name_service(other)


class Relay:
    """A port that leads to another one, as the address of the upstream leads to the proxy in a wrong DNS."""

    def __init__(self) -> None:
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass everything on, in both directions."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        except OSError:
            pass
        finally:
            far_writer.close()
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def proxy_that_is_its_own_upstream(**settings: str) -> AsyncIterator[str]:
    """The base URL of such a proxy."""
    relay = Relay()
    async with await asyncio.start_server(relay.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with proxy_before(f"http://127.0.0.1:{port}", **settings) as url:
            relay.port = httpx.URL(url).port or 0
            yield url


@pytest.mark.process
async def test_a_proxy_that_is_its_own_upstream_says_so() -> None:
    # Without the check, the query would wait for itself until this time.
    waiting = proxy_that_is_its_own_upstream(upstream_timeout="600")
    async with waiting as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        for number in range(2):
            got = await client.get(f"/api/handles/10.5555/{number}")
            assert (got.status_code, json.loads(got.content)["responseCode"]) == (502, 2)
            assert got.headers["proxy-status"] == 'doi-proxy; error=proxy_loop_detected; details="upstream-loop"'
