"""A real proxy before the fake upstream, and a small metadata service: what clients that others wrote talk to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from anyio.from_thread import start_blocking_portal

from tests.clients.installed import install_npm_clients, install_python_clients
from tests.clients.network import Network, institution
from tests.cluster.processes import proxy_before
from tests.fake_upstream import FakeUpstream

BIBTEX: Final = "@article{Wei_2020, title={A title}, DOI={10.5555/article}, year={2020} }\n"
#: The metadata service answers these types.
FORMATS: Final = {
    "application/x-bibtex": BIBTEX,
    "application/vnd.citationstyles.csl+json": '{"type":"article-journal","title":"A title","DOI":"10.5555/article"}',
    "text/x-bibliography": "Wei (2020). A title.\n",
    "application/x-research-info-systems": "TY  - JOUR\nDO  - 10.5555/article\nER  - \n",
    "text/turtle": "<http://dx.doi.org/10.5555/article> a <http://purl.org/ontology/bibo/Article> .\n",
}


@dataclass
class Site:
    """The proxy's base URL, its upstream, the URL to which names lead, and the paths requested there."""

    url: str
    target: str
    upstream: FakeUpstream
    metadata_paths: list[str]


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """The clients block, so the servers run in another thread and another process."""
    paths: list[str] = []
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(FakeUpstream()) as upstream,
        portal.wrap_async_context_manager(_metadata_service(paths)) as metadata_url,
        portal.wrap_async_context_manager(proxy_before(upstream.url)) as url,
    ):
        _fill(upstream, metadata_url)
        yield Site(url, metadata_url, upstream, paths)


@pytest.fixture(scope="session")
def network(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network in which doi.org is the proxy of `site`."""
    folder = tmp_path_factory.mktemp("network")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(institution(site.url, folder)) as opened,
    ):
        yield opened


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter that has the clients from PyPI."""
    return install_python_clients()


@pytest.fixture(scope="session")
def node() -> Path:
    """The folder of the clients from the npm registry."""
    return install_npm_clients()


def value(index: int, type_: str, text: str) -> dict[str, Any]:
    """A handle value that is a string."""
    return {
        "index": index,
        "type": type_,
        "data": {"format": "string", "value": text},
        "ttl": 86400,
        "timestamp": "2020-01-01T00:00:00Z",
    }


def _fill(upstream: FakeUpstream, metadata_url: str) -> None:
    admin = {"handle": "10.SERV/AGENCY", "index": 200, "permissions": "111111111111"}
    article = [value(1, "URL", f"{metadata_url}/page"), value(2, "EMAIL", "someone@example.org")]
    article.append({"index": 100, "type": "HS_ADMIN", "data": {"format": "admin", "value": admin}, "ttl": 86400})
    upstream.put("10.5555/article", article)
    upstream.put("10/abc12", [value(1, "HS_ALIAS", "10.5555/article")])
    upstream.put("10.5281/zenodo.1234", url=f"{metadata_url}/records/1234")
    upstream.put("10.5555", [value(20, "HS_NAMESPACE", "<HS_NAMESPACE><locs>10.SERV/AGENCY</locs></HS_NAMESPACE>")])
    locations = (
        '<locations http_sc="302"><location weight="0" http_role="conneg" '
        f'href_template="{metadata_url}/{{hdl}}"/></locations>'
    )
    upstream.put("10.SERV/AGENCY", [value(3, "10320/ra_name", "Agency"), value(4, "10320/loc", locations)])


@asynccontextmanager
async def _metadata_service(paths: list[str]) -> AsyncIterator[str]:
    """Answers each path in the first of FORMATS that Accept names, else with a page; 406 for other types.

    The Link of an answer names the DOI, as publishers do (signposting.org).
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        paths.append(request.split(" ")[1])
        accept = next((field[7:].strip() for field in fields if field.lower().startswith("accept:")), "")
        kind = next((kind for kind in FORMATS if accept.startswith(kind)), "text/html")
        body = FORMATS.get(kind, "<!doctype html><title>A title</title>").encode()
        is_page = "%2F" not in paths[-1] or "*" in accept or "html" in accept
        status = "200 OK" if is_page or kind != "text/html" else "406 Not Acceptable"
        link = 'Link: <https://doi.org/10.5555/article>; rel="cite-as"\r\n'
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{link}"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + (b"" if request.startswith("HEAD") else body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
