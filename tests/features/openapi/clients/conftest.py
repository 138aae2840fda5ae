"""A real proxy before the fake upstream, for generated clients and small apps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from anyio.from_thread import start_blocking_portal

from tests.clients.installed import ROOT, install, install_from_npm
from tests.cluster.processes import proxy_before
from tests.fake_upstream import FakeUpstream
from tests.features.openapi.clients.strings import REGISTERED

TOKEN: Final = "a" * 40


@dataclass
class Site:
    """The proxy's base URL, and its upstream."""

    url: str
    upstream: FakeUpstream


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """The clients block, so the servers run in another thread and another process."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(FakeUpstream()) as upstream,
        portal.wrap_async_context_manager(proxy_before(upstream.url, admin_token=TOKEN)) as url,
    ):
        upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        upstream.agency("10.1000", "Example")
        for name, target in REGISTERED.items():
            upstream.put(name, url=target)
        yield Site(url, upstream)


@pytest.fixture(scope="session")
def python_programs() -> Path:
    """The folder with the generator of the Python client, and with its interpreter."""
    install("build/openapi/.locked", "openapi-python-client, httpx")
    return ROOT / "build" / "openapi" / "bin"


@pytest.fixture(scope="session")
def node() -> Path:
    """The folder from which Node finds the generator, the compiler and the library of the TypeScript client."""
    packages = "@hey-api/openapi-ts, openapi-fetch, openapi-typescript, typescript"
    return install_from_npm(Path(__file__).resolve().parent, packages)
