"""`/references` under attack: many uploads, a slow and a silent upstream, long lists, while another client resolves."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.constants import MAX_OPEN
from tests.fake_upstream import EVERY_NAME
from tests.features.lists.test_references import FORM, PATH, document, form, many_parts, paragraphs, results, typed
from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

STORED: Final = "10.5555/stored"
URL: Final = "https://example.org/work"
READER: Final = "198.51.100.7"
#: Seconds between two requests of the reader, and those that each may wait: what needs no upstream waits for nothing.
INTERVAL: Final = 0.5
QUICK: Final = 0.1
#: The longest list that is accepted, and uploads at once, each from a network of its own.
LONGEST: Final = 2_000
UPLOADS: Final = 40
_HEAD_SECONDS: Final = 1.0
_CHECK_SECONDS: Final = 300.0


@asynccontextmanager
async def resolving(proxy: Proxy) -> AsyncIterator[list[float]]:
    """Resolve a stored name again and again as another client. Gives the seconds of each redirect."""
    assert (await proxy.get(f"/{STORED}", client=READER)).status == 302
    loop, waits, is_over = asyncio.get_running_loop(), list[float](), asyncio.Event()

    async def resolve() -> None:
        while not is_over.is_set():
            began = loop.time()
            assert (await proxy.get(f"/{STORED}", client=READER)).location == URL
            waits.append(loop.time() - began)
            await asyncio.sleep(INTERVAL)

    reader = asyncio.create_task(resolve())
    try:
        yield waits
    finally:
        is_over.set()
        await reader


async def upload(proxy: Proxy, number: int, data: bytes | str, file_name: str = "a.txt", *, text: str = "") -> Reply:
    """Send a form from a network of its own."""
    body = form(data, file_name, text)
    return await proxy.ask("POST", PATH, body=body, client=f"10.{number}.0.1", content_type=FORM)


def names(count: int, kind: str = "new") -> str:
    return "\n".join(f"Author {number} (2020). A title. 10.5555/{kind}-{number}" for number in range(count))


#: Documents that are small to send and dear to read.
HOSTILE_DOCUMENTS: Final[dict[str, Callable[[], bytes]]] = {
    "16 MiB of elements": lambda: document("<a/>" * 4_190_000),
    "nested elements": lambda: document("<w:p>" * 100_000),
    "an entity": lambda: document("", head='<!DOCTYPE d [<!ENTITY a "aaaa">]>'),
    "many parts": many_parts,
    "a truncated archive": lambda: document(paragraphs("10.5555/a"))[:-9],
}


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy(**{MAX_OPEN: 3}) as started:
        started.upstream.put(STORED, url=URL)
        yield started


async def test_a_flood_of_uploads_that_wait_for_the_upstream_leaves_the_reader_alone(proxy: Proxy) -> None:
    proxy.upstream.hold("10.5555/new-0")
    async with resolving(proxy) as waits:
        floods = [asyncio.create_task(upload(proxy, number, "", "", text=names(1))) for number in range(UPLOADS)]
        await proxy.upstream.arrived("10.5555/new-0")
        await asyncio.sleep(20.0)
        proxy.upstream.release("10.5555/new-0")
        got = await asyncio.gather(*floods)
    assert max(waits) < QUICK and len(waits) > 20
    counts = Counter(reply.status for reply in got)
    assert set(counts) == {200, 429} and counts[429] > counts[200], counts
    for reply in got:
        # A refusal keeps the text and names the time of the next try.
        assert reply.status == 200 or (typed(reply) == names(1) and reply["retry-after"])
    assert proxy.upstream.queries("10.5555/new-0") == 1


@table("create", HOSTILE_DOCUMENTS.values(), ids=list(HOSTILE_DOCUMENTS))
async def test_a_flood_of_hostile_documents_leaves_the_reader_alone(proxy: Proxy, create: Callable[[], bytes]) -> None:
    data = create()
    async with resolving(proxy) as waits:
        got = await asyncio.gather(*(upload(proxy, number, data, "thesis.docx") for number in range(UPLOADS)))
        await asyncio.sleep(INTERVAL)
    assert max(waits) < QUICK
    # The document was read at least once.
    assert 400 in (found := {reply.status for reply in got}) and found <= {400, 429}
    # The place of an upload that was refused is free again.
    assert (await upload(proxy, 200, "10.5555/stored")).status == 200
    assert proxy.upstream.queries() == 1


long_lists = pytest.mark.parametrize("many", [500, pytest.param(LONGEST, marks=pytest.mark.nightly)])


@long_lists
async def test_a_long_list_at_a_silent_upstream_ends_in_time_and_calls_nothing_unregistered(many: int) -> None:
    async with Proxy(upstream_breaker_failures=5) as proxy:
        proxy.upstream.put(STORED, url=URL)
        loop = asyncio.get_running_loop()
        async with resolving(proxy) as waits:
            proxy.upstream.fault(EVERY_NAME, "hang")
            began = loop.time()
            got = await upload(proxy, 1, names(many))
            seconds = loop.time() - began
        rows = results(got)
    assert max(waits) < QUICK
    assert seconds < _CHECK_SECONDS + _HEAD_SECONDS
    assert len(rows) == many
    assert {words[:24] for _, _, words in rows} == {"Could not be checked now"}


@long_lists
async def test_a_long_list_at_a_slow_upstream_is_complete_and_shows_its_progress(many: int) -> None:
    async with Proxy(upstream_rate=20, upstream_burst=20) as proxy:
        proxy.upstream.put(STORED, url=URL)
        for number in range(0, many, 2):
            proxy.upstream.put(f"10.5555/new-{number}", url=URL)
        async with resolving(proxy) as waits:
            proxy.upstream.fault(EVERY_NAME, "delay", seconds=1.0)
            got = await upload(proxy, 1, names(many))
        rows = results(got)
    assert max(waits) < QUICK
    progress = [int(done) for done in re.findall(rf"Checked: (\d+) of {many}<", got.text)]
    assert progress == sorted(progress) and progress[-1] == many and len(set(progress)) > 20
    kinds = Counter(words.split(" 10.")[0] for _, _, words in rows)
    assert kinds["Registered"] == many / 2, kinds
    assert sum(kinds.values()) == many
