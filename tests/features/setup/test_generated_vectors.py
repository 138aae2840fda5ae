"""The request vectors through generated front proxies: the same answers as from a proxy alone.

Each front proxy stands before two proxies on one Valkey. Rows over HTTP/1.0 are left out, because a front proxy speaks
HTTP/1.1 to the proxies behind it.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.front_proxy import program
from tests.cluster.processes import Proxy, UpstreamProcess
from tests.features.setup.generated_front import GeneratedFront
from tests.features.valkey.valkey_server import start_valkey
from tests.web.proxy import Got
from tests.web.test_vectors import VECTORS, Row, differences, rows

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.valkey, pytest.mark.process]

ROWS: Final = [row for row in VECTORS if row["opts"].get("ver", "HTTP/1.1") == "HTTP/1.1"]
#: Seconds by which an Expires may differ: it is counted from the first request for its record.
TOLERANCE: Final = 30.0


@pytest.fixture(scope="module")
async def ports(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[int, int]]:
    """Two proxies on one Valkey, with an upstream that has the records of the vectors."""
    folder = tmp_path_factory.mktemp("proxies")
    valkey = start_valkey()
    upstream = UpstreamProcess(folder, {})
    settings = {"upstream_rate": 100_000}
    store = f"valkey://127.0.0.1:{valkey.port}/0"
    proxies = [Proxy(folder, upstream.url, store, **settings) for _ in range(2)]
    try:
        await asyncio.gather(upstream.ready(), *(one.ready() for one in proxies))
        for record in rows("records.jsonl"):
            await upstream.tell("put", handle=record["handle"], values=record["values"])
        yield proxies[0].port, proxies[1].port
    finally:
        for process in (upstream.process, *(one.process for one in proxies)):
            process.kill()
        valkey.stop()


@pytest.mark.parametrize("kind", ["nginx", "apache", "caddy"])
async def test_every_vector_holds_through_a_generated_configuration(
    kind: str, ports: tuple[int, int], tmp_path: Path
) -> None:
    program({"apache": "apache2"}.get(kind, kind))
    # Caddy answers for the names of its sites alone.
    front = GeneratedFront(
        tmp_path / "front", kind, ports, change=lambda text: text.replace("http://127.0.0.1 {", "http:// {")
    )
    try:
        await front.ready()
        wrong = {row["id"]: found for row in ROWS if (found := await asyncio.to_thread(_differences, front, row))}
    finally:
        front.process.kill()
    assert wrong == {}


def _differences(front: GeneratedFront, row: Row) -> list[str]:
    got = _ask(front.port, row)
    now = time.time()
    expires, wanted = got.expires, row["expect"].get("expires_in")
    if expires is not None and wanted is not None and abs(expires - now - wanted) < TOLERANCE:
        now = expires - wanted
    return differences(row["expect"], got, now)


def _ask(port: int, row: Row) -> Got:
    """Send a row as it is. The answer has every header line."""
    body = (row["body"] or "").encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(row["method"], row["target"], skip_host=True, skip_accept_encoding=True)
        length = {"Content-Length": str(len(body))} if body else {}
        for name, value in (*{"Host": "doi.example.org", **length}.items(), *row["headers"]):
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return Got(answer.status, tuple((name.lower(), value) for name, value in answer.getheaders()), answer.read())
    finally:
        connection.close()
