"""Who refuses a query about a name now, why, and for how long."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from doi_names.name import HandleName
from doi_proxy.assembly import core
from doi_proxy.assembly.core import Parts, assemble
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError, CouldNotVerify, PrefixDenied
from doi_proxy.features.local_records.records import Denial, LocalRecord, LocalRecords
from doi_proxy.upstream.source import Refusal
from tests.fake_upstream import FakeUpstream

pytestmark = pytest.mark.anyio

NAME = HandleName("10.1000/182")


def assembled(**settings: Any) -> Parts:
    return assemble(Settings(store_url="memory:", **settings))


async def test_nothing_refuses_a_query_to_a_new_upstream() -> None:
    assert assembled().resolver.find_refusal(NAME) is None
    assert assembled(upstream_url="http://127.0.0.1:1,http://127.0.0.1:2").resolver.find_refusal(NAME) is None


async def test_an_open_breaker_refuses_until_its_cooldown_ends() -> None:
    parts = assembled(upstream_breaker_cooldown=15)
    guard = next(iter(parts.upstream.guards.values()))
    guard.breaker.open(guard._clock())
    refusal = parts.resolver.find_refusal(NAME)
    assert refusal is not None
    assert (refusal.by, refusal.reason) == ("breaker", "breaker-open")
    assert 0 < refusal.seconds <= 15


async def test_of_several_upstreams_that_refuse_the_first_to_admit_a_query_counts() -> None:
    parts = assembled(upstream_url="http://127.0.0.1:1,http://127.0.0.1:2")
    first, second = parts.upstream.guards.values()
    first.breaker.open(first._clock())
    assert parts.resolver.find_refusal(NAME) is None
    second.pause.begin(second._clock(), 5.0)
    refusal = parts.resolver.find_refusal(NAME)
    assert refusal is not None
    assert (refusal.by, refusal.reason) == ("pause", "upstream-paused")


async def test_a_failure_that_concerns_the_name_alone_refuses_it_alone() -> None:
    async with FakeUpstream() as upstream:
        upstream.fault("10.1000/182", "garbage")
        parts = assembled(upstream_url=upstream.url)
        with pytest.raises(CouldNotVerify):
            await parts.resolver.resolve(NAME)
        refusal = parts.resolver.find_refusal(NAME)
        await parts.upstream.source.aclose()
    assert refusal is not None
    assert (refusal.by, refusal.reason) == ("failure", "upstream-bad-answer")
    assert parts.resolver.find_refusal(HandleName("10.1000/183")) is None


async def test_a_sealed_resolver_and_a_denied_prefix_refuse_for_ever() -> None:
    parts = assembled(mode="sealed")
    assert parts.resolver.find_refusal(NAME) == Refusal("sealed", "sealed", inf)
    denial = LocalRecord("10.1000", True, Denial("Not here."), inf, "records.toml", 1)
    parts.resolver.local_records = LocalRecords([denial])
    assert parts.resolver.find_refusal(NAME) == Refusal("local record", PrefixDenied.token, inf)


def test_without_the_feature_native_an_hdl_url_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "upstream_kinds", dict)
    with pytest.raises(ConfigurationError, match="hdl: needs a feature that is not part of"):
        assembled(upstream_url="hdl://127.0.0.1:2641")
