"""A real proxy before the fake upstream, for generated clients and small apps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from anyio.from_thread import start_blocking_portal

from tests.cluster.processes import proxy_before
from tests.fake_upstream import FakeUpstream
from tests.features.openapi.clients.installed import install_python_generator, install_typescript_generator
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
    return install_python_generator()


@pytest.fixture(scope="session")
def node() -> Path:
    """The folder of the packages for the TypeScript client."""
    return install_typescript_generator()
