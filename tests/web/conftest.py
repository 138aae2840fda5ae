"""What the tests of many paths share: a service whose upstream knows one name, and fails for another."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.web.proxy import Proxy


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    """A service. Its upstream knows 10.1000/182, and what it answers about 10.5555/broken cannot be read."""
    async with Proxy() as proxy:
        proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        proxy.upstream.fault("10.5555/broken", "html")
        yield proxy
