"""Addresses of readers, and what they alone send, are not in the memory of a process with limits."""

from __future__ import annotations

import re
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.cluster.processes import Proxy, UpstreamProcess, until

pytestmark = [pytest.mark.anyio, pytest.mark.process]

#: Readers, and requests of another client after theirs.
MARKED, OTHERS = 100, 4_200
_MARK = re.compile(rb"127\.77\.1\.1[0-9]{2}(?![0-9])")
#: Freed buffers that nothing has overwritten yet hold some, with and without limits.
MOST_LEFT = 5
DEADLINE = 30.0
#: The headers in which a front proxy names the client, as usual programs send them.
#: And those that have the session of a reader, or where it comes from, and with what.
HEADERS = (
    "X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP", "true-client-ip", "X-Envoy-External-Address",
    "cookie", "Referer", "User-Agent",
)  # fmt: skip
_VALUES = {  # of headers that have more than the address
    "Forwarded": "for={}",
    "cookie": "a=1; session={}",
    "Referer": "https://catalogue.example/search?q={}",
    "User-Agent": "Reader/{}",
}


def find_marks(process: int) -> set[bytes]:
    """The marked addresses in the memory that a process can write."""
    found: set[bytes] = set()
    with Path(f"/proc/{process}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            area, rights = line.split()[:2]
            if rights.startswith("rw"):
                begin, end = (int(number, 16) for number in area.split("-"))
                with suppress(OSError, ValueError):
                    memory.seek(begin)
                    found |= set(_MARK.findall(memory.read(end - begin)))
    return found


def send(url: str, client: str, requests: int, names: tuple[str, ...]) -> None:
    """Send requests of a client on one connection: its own, or that of a front proxy with headers of these names."""
    connection = HTTPConnection(urlsplit(url).netloc, source_address=("127.0.0.1" if names else client, 0))
    headers = {name: _VALUES.get(name, "{}").format(client) for name in names}
    for _ in range(requests):
        connection.request("GET", "/10.1000/182", headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 302
    connection.close()


@pytest.mark.parametrize(
    "names",
    [pytest.param((), id="direct", marks=pytest.mark.nightly), pytest.param(HEADERS, id="front proxy")],
)
async def test_a_process_with_limits_forgets_the_addresses_of_readers(tmp_path: Path, names: tuple[str, ...]) -> None:
    records = {"10.1000/182": "https://publisher.example/"}
    limits = {"client_rate": 100_000, "client_burst": 100_000}
    async with (
        UpstreamProcess(tmp_path, records) as upstream,
        Proxy(tmp_path, upstream.url, "memory:", **limits) as proxy,
        httpx.AsyncClient() as client,
    ):
        for number in range(MARKED):
            send(proxy.url, f"127.77.1.{100 + number}", 2, names)
        send(proxy.url, "127.0.2.1", OTHERS, names)

        async def has_forgotten() -> bool:
            # Large answers overwrite buffers that are free.
            for path in ("/openapi.json", "/status"):
                assert (await client.get(proxy.url + path)).status_code == 200
            return len(find_marks(proxy.process.id)) <= MOST_LEFT

        await until(has_forgotten, DEADLINE, "no address in memory")
