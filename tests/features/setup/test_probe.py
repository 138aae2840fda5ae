"""Probes of the doctor are answered only with a fresh token, and tell strangers nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from doi_proxy.features.setup.probe import TOKEN_SECONDS, Probe, sign_token
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

KEY = "a-token-for-the-tests-of-probes"
PATH = "/.well-known/doi-proxy/probe/nonce/10.1234%2Fa//b"


def is_valid_token(key: str, token: str, now: float) -> bool:
    return Probe(key, lambda: now).is_valid(token)


def test_a_token_counts_for_its_time_and_with_its_key_alone() -> None:
    token = sign_token(KEY, 1_000)
    assert is_valid_token(KEY, token, 1_000) and is_valid_token(KEY, token, 1_000 - TOKEN_SECONDS)
    assert not is_valid_token(KEY, token, 1_001)
    assert not is_valid_token(KEY, token, 1_000 - TOKEN_SECONDS - 1)
    assert not is_valid_token("another key of a stranger", token, 1_000)


@pytest.mark.parametrize("token", ["", ".", "1000", "1000.x.", "1000.x.ü", "9" * 5_000 + ".x.y"])
def test_a_text_that_is_not_a_token_does_not_count(token: str) -> None:
    assert not is_valid_token(KEY, token, 1_000)


def test_a_changed_token_does_not_count() -> None:
    token = sign_token(KEY, 1_000)
    assert not is_valid_token(KEY, "9" + token, 1_000)
    assert not is_valid_token(KEY, token[:-1], 1_000)


def test_a_reloaded_admin_token_signs_from_then_on() -> None:
    probe, token = Probe(KEY, lambda: 1_000.0), sign_token("another-admin-token", 1_000)
    assert not probe.is_valid(token)
    probe.set_key("another-admin-token")
    assert probe.is_valid(token)
    probe.set_key(None)
    assert not probe.is_valid(token)


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy(admin_token=KEY) as proxy:
        yield proxy


def fresh_token(proxy: Proxy) -> str:
    return sign_token(KEY, int(proxy.clock()) + 60)


async def test_a_probe_is_told_what_arrived(proxy: Proxy) -> None:
    answer = await proxy.get(f"{PATH}?a=%2F+b", doi_proxy_probe=fresh_token(proxy), x_forwarded_for="192.0.2.9")
    assert answer.status == 200
    described = {key: answer.json[key] for key in ("method", "path", "query", "scheme", "client", "forwarded_for")}
    assert described == {
        "method": "GET",
        "path": PATH,
        "query": "a=%2F+b",
        "scheme": "http",
        "client": "192.0.2.7",
        "forwarded_for": "192.0.2.9",
    }
    assert answer["cache-control"] == "no-store"


async def test_a_stranger_gets_the_answer_of_a_missing_file(proxy: Proxy) -> None:
    missing = await proxy.get("/static/nothing")
    for token in (
        "",
        "1000.x.y",
        sign_token(KEY, int(proxy.clock()) - 1),
        sign_token("x" * 16, int(proxy.clock()) + 9),
    ):
        answer = await proxy.get(PATH, doi_proxy_probe=token)
        assert (answer.status, answer.body) == (404, missing.body)


async def test_an_answer_that_a_cache_may_keep_describes_no_client(proxy: Proxy) -> None:
    for caching in ("public", "vary", "private"):
        answer = await proxy.get(f"{PATH}?cache={caching}", doi_proxy_probe=fresh_token(proxy))
        assert list(answer.json) == ["id"]
        assert answer["cache-control"] == f"{'private' if caching == 'private' else 'public'}, max-age=60"


@pytest.mark.parametrize("status", [302, 404, 502])
async def test_a_probe_gets_the_status_that_it_wants(proxy: Proxy, status: int) -> None:
    assert (await proxy.get(f"{PATH}?status={status}", doi_proxy_probe=fresh_token(proxy))).status == status


@pytest.mark.parametrize("status", ["500", "x", "9" * 5_000])
async def test_a_probe_gets_no_other_status(proxy: Proxy, status: str) -> None:
    assert (await proxy.get(f"{PATH}?status={status}", doi_proxy_probe=fresh_token(proxy))).status == 200


async def test_without_a_key_the_path_is_a_name_like_any_other() -> None:
    async with Proxy() as proxy:
        answer = await proxy.get(PATH, doi_proxy_probe=fresh_token(proxy))
        assert answer.status == (await proxy.get("/.well-known/x")).status == 400
