"""The page about a link that works and a page that does not: what it shows, and what it does not do."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from doi_proxy.features.help import page as help_page
from doi_proxy.features.sqlite.writer import EarlierTarget
from tests.cluster.processes import until
from tests.table import table
from tests.values import BROWSER
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

NAME = "10.5555/work"
OLD, NEW = "https://old.example.org/work", "https://new.example.org/work"
LOCAL = '[[record]]\ndoi = "10.5555/gone"\ntombstone = { reason = "Withdrawn.", date = 2026-03-01 }\n'


async def test_the_page_shows_where_the_name_leads_and_a_mail_about_it(tmp_path: Path) -> None:
    (tmp_path / "branding.toml").write_text('contact = "library@example.org"\n')
    async with Proxy(branding_folder=tmp_path) as proxy:
        proxy.upstream.put(NAME, url=NEW)
        await proxy.get(f"/{NAME}")
        queries = proxy.upstream.queries()
        page = await proxy.get(f"/help/{NAME}", accept=BROWSER)
        assert page.status == 200 and page["cache-control"] == "no-store"
        assert f'<a href="{NEW}" rel="noreferrer">' in page.text and "new.example.org" in page.text
        assert f"https://web.archive.org/web/*/{NEW}" in page.text
        assert "mailto:library@example.org?subject=DOI%20leads%20to%20a%20page%20that%20does%20not%20work" in page.text
        assert '<meta name="robots" content="noindex">' in page.text
        assert proxy.upstream.queries() == queries


async def test_the_record_page_links_it() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url=NEW)
        assert f'href="/help/{NAME}"' in (await proxy.get(f"/{NAME}?noredirect", accept=BROWSER)).text


async def test_a_registered_name_that_nobody_asked_for_is_looked_up_for_a_browser() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url=NEW)
        page = await proxy.get(f"/help/{NAME}", accept=BROWSER)
        assert page.status == 200 and "This DOI leads to" in page.text and NEW in page.text
        assert proxy.upstream.queries() == 1


async def test_a_program_that_follows_the_link_spends_no_query() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url=NEW)
        page = await proxy.get(f"/help/{NAME}")
        assert page.status == 200 and "We do not know whether it exists." in page.text
        assert proxy.upstream.queries() == 0


async def test_a_name_that_is_not_registered_leads_to_its_own_page() -> None:
    async with Proxy() as proxy:
        page = await proxy.get(f"/help/{NAME}", accept=BROWSER)
        assert (page.status, page["location"]) == (302, f"/{NAME}")
        assert (await proxy.get(f"/{NAME}", accept=BROWSER)).status == 404


async def test_a_name_that_cannot_be_looked_up_is_called_unknown() -> None:
    async with Proxy() as proxy:
        proxy.upstream.fault(NAME, "reset")
        page = await proxy.get(f"/help/{NAME}", accept=BROWSER)
        assert page.status == 200 and "We do not know whether it exists." in page.text
        assert "The registry could not be reached." in page.text
        assert "This DOI leads" not in page.text


async def test_the_address_of_a_local_record_is_not_called_that_of_a_publisher(tmp_path: Path) -> None:
    path = tmp_path / "local.toml"
    path.write_text(f'[[record]]\ndoi = "{NAME}"\ntarget = "{NEW}"\n')
    async with Proxy(local_records=path) as proxy:
        page = await proxy.get(f"/help/{NAME}", accept=BROWSER)
        assert page.status == 200 and NEW in page.text
        assert "The people who run this resolver have set that address." in page.text
        assert "publisher can correct it" not in page.text


async def test_a_program_is_not_told_that_the_registry_could_not_be_queried() -> None:
    async with Proxy() as proxy:
        page = await proxy.get(f"/help/{NAME}")
        assert "could not be queried" not in page.text and "did not let it query the registry" in page.text


async def test_the_page_counts_for_the_rate_of_its_client() -> None:
    async with Proxy(client_rate=1) as proxy:
        proxy.upstream.put(NAME, url=NEW)
        got = [(await proxy.get(f"/help/{NAME}", accept=BROWSER)).status for _ in range(200)]
        assert got[0] == 200 and got[-1] == 429


async def test_an_expired_record_helps_during_an_outage() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url=NEW, ttl=60)
        await proxy.get(f"/{NAME}")
        proxy.clock.advance(3600)
        proxy.upstream.fault(NAME, "reset")
        page = await proxy.get(f"/help/{NAME}", accept=BROWSER)
        assert page.status == 200 and NEW in page.text
        assert (
            "This record may be out of date" in page.text and "It could not be confirmed again just now." in page.text
        )


@pytest.mark.parametrize("times", [{}, {"fetched": "2020-01-01T12:00:00Z"}])
async def test_an_earlier_address_of_a_seed_has_the_time_that_the_seed_has(
    tmp_path: Path, times: dict[str, str]
) -> None:
    value = {"index": 1, "type": "URL", "data": {"format": "string", "value": OLD}}
    seed = tmp_path / "seed.ndjson"
    seed.write_text(json.dumps({"handle": NAME, "responseCode": 1, "values": [value], **times}))
    async with Proxy(seed=seed, store_url=f"sqlite:///{tmp_path}/store.db") as proxy:

        async def has_seed() -> bool:
            with closing(sqlite3.connect(tmp_path / "store.db")) as file:
                return file.execute("SELECT key FROM entries").fetchone() is not None

        await until(has_seed, 30.0, "the store has the seed")
        proxy.upstream.put(NAME, url=NEW)
        await proxy.get(f"/{NAME}")

        async def shows_both() -> bool:
            return OLD in (await proxy.get(f"/help/{NAME}", accept=BROWSER)).text

        await until(shows_both, 30.0, "the store has the earlier address")
        page = await proxy.get(f"/help/{NAME}", accept=BROWSER)
        assert NEW in page.text and ("last seen 1 January 2020, 12:00 UTC" in page.text) == bool(times)
        assert "1970" not in page.text and "last seen <" not in page.text


async def test_the_address_without_a_name_is_a_form() -> None:
    async with Proxy() as proxy:
        form = await proxy.get("/help/", accept=BROWSER)
        assert form.status == 200 and '<form class="resolve" method="get" action="/help/">' in form.text
        typed = await proxy.get("/help/?doi=https%3A%2F%2Fdoi.org%2F10.5555%2Fa%3Fb", accept=BROWSER)
        assert (typed.status, typed["location"]) == (303, "/help/10.5555/a%3Fb")
        wrong = await proxy.get("/help/?doi=%3Cb%3Ehello", accept=BROWSER)
        assert wrong.status == 400 and "This is not a DOI." in wrong.text and "<b>hello" not in wrong.text


async def test_a_target_that_a_browser_must_not_open_is_not_shown() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url="javascript:alert(1)")
        page = await proxy.get(f"/help/{NAME}", accept=BROWSER)
        assert page.status == 200 and "javascript:" not in page.text and "no address of its own" in page.text


@table("target", ["http://[x/", "https://[::1", "http://a]b/", "http://ex\u2047ample/"])
async def test_a_target_with_a_broken_host_is_shown_as_it_is(target: str) -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url=target)
        await proxy.get(f"/{NAME}", accept=BROWSER)
        page = await proxy.get(f"/help/{NAME}", accept=BROWSER)
        assert page.status == 200 and target in page.text


async def test_a_withdrawn_name_leads_to_its_tombstone(tmp_path: Path) -> None:
    path = tmp_path / "local.toml"
    path.write_text(LOCAL)
    async with Proxy(local_records=path) as proxy:
        page = await proxy.get("/help/10.5555/gone", accept=BROWSER)
        assert (page.status, page["location"]) == (302, "/10.5555/gone")


# It holds a thread of the program.
@pytest.mark.real_time
async def test_slow_reads_of_one_client_hold_one_thread_and_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = threading.Semaphore(0), threading.Event()

    def read(path: Path, key: str) -> tuple[EarlierTarget, ...]:
        begun.release()
        assert release.wait(60)
        return (EarlierTarget(OLD, 0.0, 1.0),)

    monkeypatch.setattr(help_page, "read_earlier_targets", read)
    monkeypatch.setattr(help_page, "_READ_SECONDS", 0.0)
    async with Proxy(store_url=f"sqlite:///{tmp_path}/store.sqlite3") as proxy:
        proxy.upstream.put(NAME, url=NEW)
        await proxy.get(f"/{NAME}")
        answers = await asyncio.gather(*(proxy.get(f"/help/{NAME}", accept=BROWSER) for _ in range(40)))
        assert {answer.status for answer in answers} == {200}
        assert not any(OLD in answer.text for answer in answers)
        assert begun.acquire(timeout=60)
        assert not begun.acquire(blocking=False)
        monkeypatch.setattr(help_page, "_READ_SECONDS", 60.0)
        other = asyncio.create_task(proxy.get(f"/help/{NAME}", accept=BROWSER, client="127.0.66.1"))
        await asyncio.sleep(0)
        release.set()
        assert OLD in (await other).text
