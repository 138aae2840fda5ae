"""A hostile record is answered or refused, at every door that shows it, and another name still resolves.

The failures of an upstream are in tests/web/test_truthful_errors.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.hostile.records import ASKED_FOR, PREFIX
from tests.hostile.upstream import ORDINARY, HostileUpstream, url_of
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

#: The statuses of an answer, of "not found" and of "could not verify", in docs/errors.md.
_DOCUMENTED: Final = {200, 302, 404, 502, 503, 504}


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy(upstream=HostileUpstream, upstream_timeout=2) as proxy:
        yield proxy


@table("face", ["", "?noredirect", "?action=showurls", "?locatt=id:1"])
@table("record", ASKED_FOR)
async def test_a_hostile_record_is_answered_or_refused_and_another_name_resolves(
    proxy: Proxy, record: str, face: str
) -> None:
    assert (await proxy.get(f"/{PREFIX}/{record}{face}")).status in _DOCUMENTED
    name = f"{ORDINARY}/{record}{len(face)}"
    assert (await proxy.get(f"/{name}")).location == url_of(name)
