"""Ends and beginnings: SIGTERM, a restart without the upstream, and one proxy as the upstream of another."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.held_query import NAME, SETTINGS, URL, ask_another, begin_query
from tests.cluster.processes import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.process]


NAMES: Final = {f"10.1234/kept{number}": f"https://www.example.org/{number}" for number in range(100)}
#: Names that a path can hold only in one way; each is one name, however often it is handed on.
ODD_NAMES: Final = {
    name: f"https://www.example.org/odd{number}"
    for number, name in enumerate(("10.1234/a/b//c", "10.1234/a%2Fb", "10.1234/./x/../y", "10.1234/ü+ß;v=1?#"))
}
#: These, as the path of a URL.
ODD_PATHS: Final = {
    "10.1234/a/b//c": "/10.1234/a%2Fb//c",
    "10.1234/a%2Fb": "/10.1234/a%252Fb",
    "10.1234/./x/../y": "/10.1234/./x/../y",
    "10.1234/ü+ß;v=1?#": "/10.1234/%C3%BC+%C3%9F;v=1%3F%23",
}


async def expect_all(proxy: Proxy, names: dict[str, str]) -> None:
    answers = await asyncio.gather(*(proxy.ask(f"/{name}") for name in names))
    wrong = [(name, answer) for name, answer in zip(names, answers, strict=True) if answer.location != names[name]]
    assert wrong == [], f"{len(wrong)} of {len(names)} wrong or lost: {wrong[:3]}"


async def test_after_sigterm_every_answer_is_in_the_store(
    start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str
) -> None:
    upstream = start_upstream(NAMES)
    proxy = start_proxy(upstream.url, store_file)
    await asyncio.gather(upstream.ready(), proxy.ready())
    await expect_all(proxy, NAMES)
    proxy.process.terminate()
    upstream.process.kill()
    proxy.restart()
    await proxy.ready()
    await expect_all(proxy, NAMES)


@pytest.mark.nightly
async def test_sigterm_ends_a_proxy_whose_upstream_does_not_answer(
    start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str
) -> None:
    upstream = start_upstream(NAMES)
    proxy = start_proxy(upstream.url, store_file, upstream_timeout=60)
    await asyncio.gather(upstream.ready(), proxy.ready())
    await expect_all(proxy, NAMES)
    await upstream.tell("fault", kind="hang")
    waiting = asyncio.create_task(proxy.ask("/10.1234/never-answered", deadline=30.0))
    while not await upstream.queries("10.1234/never-answered"):
        assert not waiting.done()
    seconds = await asyncio.to_thread(proxy.process.terminate)
    # The client got "could not verify", or no answer.
    with suppress(OSError, EOFError):
        assert (await waiting).status >= 500
    print(f"ended {seconds:.2f} s after SIGTERM with a query in progress")
    upstream.process.kill()
    proxy.restart()
    await proxy.ready()
    await expect_all(proxy, NAMES)


@pytest.mark.nightly
async def test_one_proxy_is_the_upstream_of_another(start_upstream: StartUpstream, start_proxy: StartProxy) -> None:
    upstream = start_upstream({**NAMES, **ODD_NAMES})
    parent = start_proxy(upstream.url, "memory:")
    child = start_proxy(parent.url, "memory:")
    await asyncio.gather(upstream.ready(), parent.ready(), child.ready())
    await expect_all(child, dict(list(NAMES.items())[:10]))
    for name, path in ODD_PATHS.items():
        assert (await child.ask(path)).location == ODD_NAMES[name]
        assert await upstream.queries(name) == 1
    assert (await child.ask("/10.1234/unknown")).status == 404
    upstream.process.kill()
    await expect_all(child, dict(list(NAMES.items())[:10]))
    answer = await child.ask("/api/handles/10.1234/never-seen")
    assert (answer.status in (502, 503, 504), answer.json["responseCode"]) == (True, 2)


# --- A process with a query under way is killed: the other processes do not wait for the end of its query ------------


@pytest.mark.nightly
@pytest.mark.valkey
async def test_another_proxy_queries_the_upstream_itself(
    valkey: Any, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream({NAME: URL})
    holder, other = (start_proxy(upstream.url, f"valkey://127.0.0.1:{valkey.port}/0", **SETTINGS) for _ in range(2))
    await asyncio.gather(upstream.ready(), holder.ready(), other.ready())
    lost = await begin_query(holder, upstream)
    holder.process.kill()
    answer, seconds = await ask_another(other)
    print(f"another process answered {seconds:.2f} s after the kill")
    assert (answer.status, answer.location, await upstream.queries(NAME)) == (302, URL, 2)
    with pytest.raises((OSError, EOFError)):
        await lost
