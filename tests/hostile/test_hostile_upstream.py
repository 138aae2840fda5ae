"""Whatever an upstream answers, the status is documented, it is never "not found", and another name still resolves."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final

import pytest

from tests.cluster.processes import Proxy, until
from tests.hostile.records import ASKED_FOR, PREFIX
from tests.hostile.upstream import FAULT_PREFIXES, ORDINARY, TOO_MANY, url_of

pytestmark = pytest.mark.process

_NUMBERS: Final = count()
#: The statuses of "could not verify" in docs/errors.md.
_COULD_NOT_VERIFY: Final = {502, 503, 504}


def _resolves(proxy: Proxy) -> bool:
    name = f"{ORDINARY}/{next(_NUMBERS)}"
    return asyncio.run(proxy.ask(f"/{name}")).location == url_of(name)


@pytest.mark.parametrize("prefix", sorted({*FAULT_PREFIXES} - {TOO_MANY}))
def test_a_failing_name_is_not_verified_and_another_one_resolves(proxy: Proxy, prefix: str) -> None:
    for number in range(3):
        answered = asyncio.run(proxy.ask(f"/{prefix}/{number}"))
        assert answered.status in _COULD_NOT_VERIFY
        assert b"Traceback" not in answered.body
    assert _resolves(proxy)


@pytest.mark.parametrize("face", ["", "?noredirect", "?action=showurls", "?locatt=id:1"])
@pytest.mark.parametrize("record", ASKED_FOR)
def test_a_hostile_record_is_answered_or_refused_and_another_name_resolves(
    proxy: Proxy, record: str, face: str
) -> None:
    answered = asyncio.run(proxy.ask(f"/{PREFIX}/{record}{face}", deadline=60.0))
    assert answered.status in {200, 302, 404, *_COULD_NOT_VERIFY}
    assert _resolves(proxy)


def test_after_a_429_with_retry_after_other_names_resolve_again(proxy: Proxy) -> None:
    assert asyncio.run(proxy.ask(f"/{TOO_MANY}/one")).status in _COULD_NOT_VERIFY

    async def resolves() -> bool:
        name = f"{ORDINARY}/{next(_NUMBERS)}"
        return (await proxy.ask(f"/{name}")).location == url_of(name)

    asyncio.run(until(resolves, 20.0, "a name resolves after the second that the upstream wanted"))
