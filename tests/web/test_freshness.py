"""How long an answer may be kept, and by whom; docs/caching.md says the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs
from msgspec.structs import replace

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import UpstreamTimeout
from doi_proxy.resolver.resolution import NO_FACTS, ClientFact, Origin, Resolution
from doi_proxy.web.freshness import VARY_ACCEPT, VARY_LANGUAGE, Freshness, cache_status, entity_tag, vary
from doi_proxy.web.request_path import Header, http_date
from handle_protocol.referral import Answer, ResponseCode

NOW: Final = 1_800_000_000
MAX_AGE: Final = 300.0
NAME: Final = HandleName("10.1000/182")
CACHING: Final = Path(__file__).parents[2].joinpath("docs/caching.md").read_text(encoding="utf-8")


def resolution(left: float, origin: Origin = Origin.HIT, age: float = 1_000.0) -> Resolution:
    """A record that is fresh for `left` seconds, `age` seconds after the upstream answered."""
    entry = Entry(NAME.key, Answer(ResponseCode.SUCCESS, b"[]"), NOW - age, NOW + left, NOW + 10**6)
    return Resolution(NAME, entry, origin, UpstreamTimeout() if origin is Origin.STALE else None)


def chain(*lefts: float, origin: Origin = Origin.HIT) -> Resolution:
    *aliases, last = (resolution(left, origin) for left in lefts)
    return structs.replace(last, aliases=tuple(aliases))


def fields(headers: tuple[Header, ...]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}


def test_a_redirect_expires_with_its_record() -> None:
    assert fields(Freshness(MAX_AGE).of_redirect(chain(3_600), NOW)) == {
        "expires": http_date(NOW + 3_600).decode(),
        "cache-control": "public, max-age=300",
        "cache-status": "doi-proxy; hit; ttl=3600",
    }


def test_a_record_whose_end_is_not_known_has_no_ttl() -> None:
    undated = resolution(-NOW, Origin.STALE, age=NOW)
    for headers in (Freshness().of_redirect(undated, NOW), Freshness().of_json(undated, NOW)):
        assert fields(headers)["cache-status"] == "doi-proxy; hit; detail=upstream-timeout"


def test_of_a_chain_the_record_that_ends_first_counts() -> None:
    headers = fields(Freshness(MAX_AGE).of_redirect(chain(60, 3_600), NOW))
    assert (headers["expires"], headers["cache-control"]) == (http_date(NOW + 60).decode(), "public, max-age=60")
    assert headers["cache-status"] == "doi-proxy; hit; ttl=3600"
    assert fields(Freshness(MAX_AGE).of_page(chain(60, 3_600), NOW))["cache-control"] == "public, max-age=60"


@pytest.mark.parametrize(("ends_at", "left"), [(NOW + 60.0, 60), (NOW - 60.0, 0), (NOW + 10**5, 3_600)])
def test_other_records_that_a_redirect_depends_on_count_too(ends_at: float, left: int) -> None:
    headers = fields(Freshness(MAX_AGE).of_redirect(chain(3_600), NOW, NO_FACTS, ends_at))
    assert headers["expires"] == http_date(NOW + left).decode()
    assert headers["cache-control"] == f"public, max-age={min(left, 300)}"


def test_max_age_of_json_counts_from_the_answer_of_the_upstream() -> None:
    assert fields(Freshness(MAX_AGE).of_json(resolution(3_600), NOW)) == {
        "cache-control": "public, max-age=1300",
        "expires": http_date(NOW + 300).decode(),
        "age": "1000",
        "cache-status": "doi-proxy; hit; ttl=3600",
    }


@pytest.mark.parametrize("left", [0.0, -5.0])
def test_a_record_without_time_left_expires_now(left: float) -> None:
    freshness = Freshness(MAX_AGE)
    for headers in (freshness.of_redirect(chain(left), NOW), freshness.of_json(resolution(left, age=0.0), NOW)):
        assert fields(headers)["expires"] == http_date(NOW).decode()
        assert fields(headers)["cache-control"] == "public, max-age=0"


def test_a_stale_answer_may_be_kept_for_half_a_minute() -> None:
    freshness = Freshness(MAX_AGE)
    stale = chain(-37, origin=Origin.STALE)
    for headers in (
        freshness.of_redirect(stale, NOW),
        freshness.of_page(stale, NOW),
        freshness.of_json(stale, NOW),
    ):
        assert fields(headers)["cache-control"] == "public, max-age=30"


def test_two_bodies_have_two_tags() -> None:
    assert entity_tag(b"a") == entity_tag(b"a") != entity_tag(b"b")
    assert re.fullmatch(rb'"[0-9a-f]{32}"', entity_tag(b"a")[1])


def test_what_a_cookie_decides_is_kept_by_no_cache() -> None:
    facts = ClientFact.COOKIE | ClientFact.ADDRESS
    headers = fields(Freshness(MAX_AGE).of_redirect(chain(3_600), NOW, facts, None, "library-copy"))
    assert headers["cache-control"] == "private, no-store"
    assert headers["expires"] == http_date(NOW).decode()
    assert headers["cache-status"] == "doi-proxy; hit; ttl=3600; detail=library-copy"
    assert vary(facts) == (b"vary", b"Accept, Cookie")


def test_the_reason_for_a_stale_answer_comes_before_another_detail() -> None:
    headers = fields(Freshness(MAX_AGE).of_redirect(chain(-1, origin=Origin.STALE), NOW, NO_FACTS, None, "x"))
    assert headers["cache-status"] == "doi-proxy; hit; ttl=-1; detail=upstream-timeout"


VERIFIED: Final = "doi-proxy; hit; ttl=60; detail=verified"


def verified(left: float, origin: Origin = Origin.HIT) -> Resolution:
    """A record whose signature was verified."""
    one = resolution(left, origin)
    return replace(one, entry=replace(one.entry, answer=replace(one.entry.answer, is_verified=True)))


def test_a_verified_record_from_the_cache_says_so() -> None:
    freshness, one = Freshness(MAX_AGE), verified(60)
    for headers in (
        freshness.redirect_terms(one, NOW).headers(NOW),
        freshness.of_redirect(one, NOW),
        freshness.of_page(one, NOW),
        freshness.of_json(one, NOW),
    ):
        assert fields(headers)["cache-status"] == VERIFIED


@pytest.mark.parametrize("others", [(resolution(60),), (resolution(60), verified(60))])
def test_an_alias_that_is_not_verified_makes_the_answer_unverified(others: tuple[Resolution, ...]) -> None:
    headers = fields(Freshness(MAX_AGE).of_redirect(structs.replace(verified(60), aliases=tuple(others)), NOW))
    assert headers["cache-status"] == "doi-proxy; hit; ttl=60"


def test_a_stale_record_is_not_verified() -> None:
    one = verified(-1, Origin.STALE)
    for headers in (Freshness(MAX_AGE).of_redirect(one, NOW), Freshness(MAX_AGE).of_json(one, NOW)):
        assert fields(headers)["cache-status"] == "doi-proxy; hit; ttl=-1; detail=upstream-timeout"


def test_a_redirect_is_as_stale_as_the_alias_that_led_to_it() -> None:
    headers = fields(
        Freshness(MAX_AGE).of_redirect(structs.replace(verified(60), aliases=(verified(-1, Origin.STALE),)), NOW)
    )
    assert headers["cache-status"] == "doi-proxy; hit; ttl=-1; detail=upstream-timeout"


def test_a_target_that_is_not_in_the_record_is_not_verified() -> None:
    headers = fields(Freshness(MAX_AGE).of_redirect(verified(60), NOW, NO_FACTS, None, "library-copy"))
    assert headers["cache-status"] == "doi-proxy; hit; ttl=60; detail=library-copy"


# --- docs/caching.md ------------------------------------------------------------------------------------------------


def table(first_cell: str) -> list[list[str]]:
    """The rows of the table whose head begins with a cell."""
    body = CACHING.partition(f"| {first_cell} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()[2:]]


def test_the_table_of_headers_names_what_each_kind_of_answer_has() -> None:
    freshness = Freshness(MAX_AGE)
    sent = [
        fields((*freshness.of_redirect(chain(60), NOW), VARY_ACCEPT)),
        fields((*freshness.of_json(resolution(60), NOW), entity_tag(b""))),
        fields((*freshness.of_page(chain(60), NOW), VARY_LANGUAGE)),
    ]
    rows = {name: cells for name, *cells in table("header")}
    for header in ("Expires", "Cache-Control", "Vary", "Age", "Cache-Status", "ETag"):
        cells = next(cells for name, cells in rows.items() if name.startswith(f"`{header}"))
        assert [cell != "not sent" for cell in cells] == [header.lower() in fields for fields in sent], header


@pytest.mark.parametrize(
    ("origin", "left"),
    [
        (Origin.HIT, 3_600),
        (Origin.STALE, -37),
        (Origin.ASKED, 86_400),
        (Origin.RENEWED, 86_400),
        (Origin.JOINED, 86_400),
        (Origin.BYPASSED, 86_400),
        (Origin.LOCAL, 0),
        (Origin.REGISTRY, 0),
    ],
)
def test_every_value_of_cache_status_is_documented(origin: Origin, left: float) -> None:
    value = cache_status(resolution(left, origin), NOW, is_verified=False)[1].decode()
    assert f"`{value}`" in [row[0] for row in table("value")]


@pytest.mark.parametrize(("origin", "left"), [(Origin.HIT, 3_600), (Origin.BYPASSED, 86_400)])
def test_every_value_about_a_verified_answer_is_documented(origin: Origin, left: float) -> None:
    value = cache_status(verified(left, origin), NOW, is_verified=True)[1].decode()
    assert f"`{value}`" in [row[0] for row in table("value")]
