"""The nearest registered names: which slips are undone, from which sources, and what a reader cannot learn by them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from string import ascii_letters
from threading import Event

import pytest

from doi_names.name import HandleName
from doi_proxy.cache.store import NearKeys
from doi_proxy.features.registry import answers
from doi_proxy.features.suggestions.nearest import (
    MAX_CACHED,
    MAX_CHARACTERS,
    list_edited_keys,
    select_neighbours,
    spell_like,
)
from tests.clock import Clock
from tests.registry_records import write_registry
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
REAL = "10.5555/amajethics.2021.550"
QUERIES = "doi_proxy.features.suggestions.suggested_names.QUERIES"


def shown(got: Reply, section: str) -> list[str]:
    _, _, part = got.text.partition(f'aria-labelledby="{section}"')
    return [unescape(name) for name in re.findall(r"<bdi[^>]*>([^<]+)</bdi>", part.partition("</section>")[0])]


async def get_page(proxy: Proxy, name: str) -> Reply:
    got = await proxy.get(f"/{name}", accept=BROWSER)
    assert got.status == 404
    return got


@pytest.mark.parametrize(
    "slip",
    [
        "10.5555/amajethics.2021.5500",
        "10.5555/amajethics.2021.55O",
        "10.5555/amajethics2021.550",
        "10.5555/amajethlcs.2021.550",
        "10.5555/amajehtics.2021.550",
        "10.5555/maajethics.2021.550",
    ],
)
def test_one_slip_has_the_right_name_among_its_candidates(slip: str) -> None:
    assert HandleName(REAL).key in list_edited_keys(HandleName(slip))


def test_a_digit_can_have_been_dropped_between_marks() -> None:
    assert "10.5555/A.1-B" in list_edited_keys(HandleName("10.5555/a.-b"))


def test_candidates_are_as_many_as_the_name_is_long() -> None:
    long = HandleName("10.5555/" + "a1" * ((MAX_CHARACTERS - 8) // 2))
    assert len(list_edited_keys(long)) < 60 * MAX_CHARACTERS
    assert list_edited_keys(HandleName(long.text + "x" * 8)) == []
    assert list_edited_keys(HandleName("0.NA/10.5555")) == [] == list_edited_keys(HandleName("10/abcde"))


def test_a_found_name_has_the_letter_case_of_the_written_one() -> None:
    found = HandleName("10.5555/JOURNAL.PONE.0036790")
    assert spell_like(HandleName("10.5555/journal.pone.003679"), found).text == found.text.lower()
    assert spell_like(HandleName("10.5555/Journal.PONE.003679"), found).text == "10.5555/Journal.PONE.0036790"
    assert spell_like(HandleName("10.5555/JOURNAL.PONE.003679"), found).text == found.text


def test_neighbours_share_the_prefix_and_half_of_the_suffix() -> None:
    before, after = ["10.5555/ABCDEE", "10.5555/AAAA"], ["10.5555/ABCDEG", "10.5556/A"]
    assert select_neighbours("10.5555/ABCDEF", before, after) == ["10.5555/ABCDEE", "10.5555/ABCDEG"]


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_a_cached_name_is_found_after_its_first_answer(store: str, tmp_path: Path) -> None:
    url = store if store == "memory:" else f"sqlite:///{tmp_path / 'store.db'}"
    async with Proxy(store_url=url) as proxy:
        proxy.upstream.put(REAL, url="https://example.org/")
        assert shown(await get_page(proxy, REAL + "0"), "suggestions") == []
        await proxy.get(f"/{REAL}")
        proxy.clock.advance(1)
        page = await get_page(proxy, REAL + "0")
        assert shown(page, "suggestions") == [REAL] and "It is registered." in page.text
        assert proxy.upstream.queries(REAL) == 1


async def test_a_name_that_the_upstream_does_not_know_is_not_shown() -> None:
    async with Proxy() as proxy:
        await get_page(proxy, REAL)
        assert shown(await get_page(proxy, REAL + "0"), "suggestions") == []


async def test_few_cached_names_are_shown() -> None:
    async with Proxy() as proxy:
        for last in "abcdefgh":
            proxy.upstream.put(f"10.5555/list.{last}", url="https://example.org/")
            await proxy.get(f"/10.5555/list.{last}")
        assert len(shown(await get_page(proxy, "10.5555/list."), "suggestions")) <= MAX_CACHED
        assert shown(await get_page(proxy, "10.5555/list."), "around") == []


async def test_local_records_are_shown_with_their_neighbours(tmp_path: Path) -> None:
    path = tmp_path / "local.toml"
    record = '[[record]]\ndoi = "10.5555/no.{}"\ntarget = "https://example.org/"\n'
    path.write_text("".join(record.format(number) for number in range(10, 20)))
    async with Proxy(local_records=path) as proxy:
        page = await get_page(proxy, "10.5555/no.15x")
        assert shown(page, "suggestions") == ["10.5555/no.15"]
        assert shown(page, "around") == ["10.5555/no.14", "10.5555/no.16", "10.5555/no.17"]
        # The page offers the name without the slashes at its end already.
        page = await get_page(proxy, "10.5555/no.15//")
        assert shown(page, "around") == ["10.5555/no.14", "10.5555/no.16", "10.5555/no.17"]


async def test_registry_records_are_shown_with_their_neighbours(tmp_path: Path) -> None:
    store, clock = tmp_path / "store.db", Clock()
    names = [f"10.5555/journal.{number:07}" for number in range(0, 2000, 2)]
    write_registry(store, clock, dict.fromkeys(names, "https://example.org/"))
    async with Proxy(store_url=f"sqlite:///{store}") as proxy:
        page = await get_page(proxy, "10.5555/journal.0001000x")
        assert shown(page, "suggestions") == ["10.5555/journal.0001000"]
        page = await get_page(proxy, "10.5555/journal.0001001")
        assert shown(page, "around") == [f"10.5555/journal.{number:07}" for number in (998, 1000, 1002, 1004)]
        page = await get_page(proxy, "10.5555/jurnal.0000334")
        assert shown(page, "suggestions") == ["10.5555/journal.0000334"]
        assert [proxy.upstream.queries(name) for name in names[:600]] == [0] * 600


# It holds a thread of the program.
@pytest.mark.real_time
async def test_a_flood_of_missing_names_leaves_the_threads_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, find, searches = Event(), answers.find_near_keys, 0

    def find_slowly(store: Path, key: str, candidates: Sequence[str]) -> NearKeys:
        nonlocal searches
        searches += 1
        may_end.wait()
        return find(store, key, candidates)

    monkeypatch.setattr(answers, "find_near_keys", find_slowly)
    timeout = "doi_proxy.features.suggestions.suggested_names.QUERY_TIMEOUT"
    patient = {"upstream_timeout": 60.0, "doi_proxy.upstream.budget.SLOW_AFTER": 600.0}
    async with Proxy(**{"store_url": f"sqlite:///{tmp_path / 'store.db'}", QUERIES: 0, **patient}) as proxy:
        asyncio.get_running_loop().set_default_executor(threads := ThreadPoolExecutor(2))
        proxy.upstream.put(REAL, url="https://example.org/")
        await proxy.get(f"/{REAL}")
        try:
            monkeypatch.setattr(timeout, 0.01)
            pages = await asyncio.gather(*(get_page(proxy, f"{REAL}{number:03}") for number in range(80)))
            assert [page for page in pages if shown(page, "suggestions")] == []
            async with asyncio.timeout(30):
                assert (await asyncio.to_thread(str, "free"), searches) == ("free", 1)
        finally:
            may_end.set()
        # The searches that wait end, and later pages have the section again.
        monkeypatch.setattr(timeout, 60)
        shows = [shown(await get_page(proxy, REAL + last), "suggestions") for last in ascii_letters]
        assert shows[-1] == [REAL]
    threads.shutdown()
