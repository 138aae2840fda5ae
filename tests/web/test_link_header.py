"""`Link` headers from the locations of a record, and the terms of answers in each second of a record's life."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_names.name import HandleName
from doi_proxy.cache.entry import FOREVER, Entry
from doi_proxy.resolver.resolution import Origin, Resolution
from doi_proxy.web.freshness import Freshness, cache_status
from doi_proxy.web.request_path import http_date
from doi_proxy.web.responses import MAX_CHARACTERS, link_header
from handle_protocol.location import Location
from handle_protocol.referral import Answer, ResponseCode
from tests.table import table
from tests.values import value
from tests.web.proxy import Proxy

HREF = "http://example.org/x"


def written(**attributes: str) -> str:
    pairs = tuple((key.replace("_", "-"), value) for key, value in attributes.items())
    name, value = link_header(Location(pairs), HREF)
    assert name == b"link"
    return value.decode("ascii")


@table(
    ("attributes", "expected", "source"),
    [
        ({"rel": "cite-as"}, 'rel="cite-as"', "RFC 8288, section 3.3"),
        ({"rel": "item describedby"}, 'rel="item describedby"', "RFC 8288, section 3.3"),
        ({"rel": "item", "media_type": "application/json"}, 'rel="item"; type="application/json"', "section 3.4.1"),
        ({"rel": "item", "ctype": "a/b"}, 'rel="item"; type="a/b"', "section 3.4.1"),
        # One `type` only.
        ({"rel": "item", "ctype": "a/b", "media_type": "c/d"}, 'rel="item"; type="c/d"', "section 3.4.1"),
        ({"rel": "item", "anchor": "#foo"}, 'anchor="#foo"; rel="item"', "section 3.2"),
        ({"rel": "item", "media": "tv", "hreflang": "de"}, 'rel="item"; media="tv"; hreflang="de"', "section 3.4.1"),
        ({"rel": "item", "target_type": "a/b"}, 'rel="item"; target-type="a/b"', "the handle system's proxy"),
        ({"rel": "item", "title": "A title"}, 'rel="item"; title="A title"', "RFC 8288, section 3.4.1"),
        ({"rel": "item", "title": "Cité"}, "rel=\"item\"; title*=UTF-8''Cit%C3%A9", "RFC 8187, section 3.2"),
        ({"rel": "x", "title": "€ a", "titlelang": "en"}, "rel=\"x\"; title*=UTF-8'en'%E2%82%AC%20a", "RFC 8187"),
        ({"rel": "item", "title": 'say "a\\b"'}, r'rel="item"; title="say \"a\\b\""', "RFC 9110, section 5.6.4"),
        ({"rel": 'x"; evil="y'}, r'rel="x\"; evil=\"y"', "RFC 9110, section 5.6.4"),
        ({"rel": "a\r\nSet-Cookie: b=c"}, 'rel="aSet-Cookie: b=c"', "RFC 9110, section 5.5"),
        ({"rel": "item", "title": "a\r\nb"}, "rel=\"item\"; title*=UTF-8''a%0D%0Ab", "RFC 8187"),
        ({"rel": "item", "title": "é", "titlelang": "e'n\r\n"}, "rel=\"item\"; title*=UTF-8'en'%C3%A9", "RFC 8187"),
        ({"rel": "item", "title": "\ud800"}, "rel=\"item\"; title*=UTF-8''%3F", "a surrogate is no character"),
        ({"rel": "item", "title": "", "media": ""}, 'rel="item"', "nothing is said of nothing"),
    ],
)  # fmt: skip
def test_attributes_become_parameters(attributes: dict[str, str], expected: str, source: str) -> None:
    assert written(**attributes) == f"<{HREF}>; {expected}"
    assert source


def test_a_target_does_not_end_early() -> None:
    assert link_header(Location((("rel", "x"),)), "http://a/>; rel=y")[1] == b'<http://a/%3E; rel=y>; rel="x"'


def test_long_parameters_are_cut() -> None:
    long = "x" * 100_000
    assert len(written(rel=long, title=long, media=long)) < 3 * MAX_CHARACTERS + 100
    assert len(written(rel="x", title="é" * 100_000, titlelang=long)) < 6 * MAX_CHARACTERS + 100


@given(st.text(), st.text(), st.text())
def test_any_attributes_make_a_header(rel: str, title: str, language: str) -> None:
    value = written(rel=rel, title=title, titlelang=language, anchor=title)
    assert value.isprintable() and value.startswith(f"<{HREF}>")


@pytest.mark.anyio
async def test_links_stand_on_every_redirect_of_a_record(proxy: Proxy) -> None:
    name = proxy.name()
    links = (
        '<links><location href="http://example.org/cite" rel="cite-as" title="Cité"/>'
        '<location href_template="http://example.org/{hdl:path}" rel="describedby" media-type="application/json"/>'
        "</links>"
    )
    proxy.upstream.put(name, [value(1, "URL", "http://example.org/"), value(2, "10320/links", links)])
    for _ in range(3):  # from the upstream, from the cache, and once more
        got = await proxy.get(f"/{name}")
        assert got.all("link") == [
            "<http://example.org/cite>; rel=\"cite-as\"; title*=UTF-8''Cit%C3%A9",
            f'<http://example.org/{name}>; rel="describedby"; type="application/json"',
        ]
        assert (got.status, got["location"]) == (302, "http://example.org/")


@pytest.mark.anyio
async def test_a_location_may_be_a_link_as_well(proxy: Proxy) -> None:
    name = proxy.name()
    xml = '<l><location href="http://a/" weight="1"/><location href="http://b/" weight="0" rel="dul"/></l>'
    proxy.upstream.put(name, [value(1, "10320/loc", xml)])
    got = await proxy.get(f"/{name}")
    assert (got["location"], got.all("link")) == ("http://a/", ['<http://b/>; rel="dul"'])


@pytest.mark.anyio
async def test_a_page_has_none_of_the_record(proxy: Proxy) -> None:
    name = proxy.name()
    links = '<links><location href="http://example.org/cite" rel="cite-as"/></links>'
    proxy.upstream.put(name, [value(1, "10320/links", links)])
    assert (await proxy.get(f"/{name}")).all("link") == [f'<https://doi.org/{name}>; rel="cite-as"']


# --- The numbers that follow from the time are those of an answer that is sent once, and its dates are correct -------


NAME = HandleName("10.1000/182")
NOW = 1_700_000_000


@given(st.integers(0, int(FOREVER)))
def test_a_date_is_that_of_the_standard_library(seconds: int) -> None:
    assert http_date(seconds) == formatdate(seconds, usegmt=True).encode()


@given(
    # An entry from further ahead is of a clock that was set back, and has no such terms.
    age=st.floats(-1, 100_000),
    left=st.floats(0, 10**8),
    max_age=st.integers(0, 10**6).map(lambda halves: halves / 2),
    is_verified=st.booleans(),
    later=st.integers(0, 100),
)
def test_the_terms_of_a_record_are_right_in_each_second_of_its_life(
    age: float, left: float, max_age: float, is_verified: bool, later: int
) -> None:
    answer = Answer(ResponseCode.SUCCESS, b"[]", is_verified=is_verified)
    fresh_until = NOW + later + left
    entry = Entry(NAME.key, answer, NOW - age, fresh_until, fresh_until + 60)
    chain, freshness = Resolution(NAME, entry, Origin.HIT), Freshness(max_age)
    redirect, page, json = (
        terms(chain, NOW) for terms in (freshness.redirect_terms, freshness.page_terms, freshness.json_terms)
    )
    for now in (NOW, NOW + later):
        assert redirect.headers(now) == freshness.of_redirect(chain, now)
        assert page.headers(now) == freshness.of_page(chain, now)
        kept, old = min(fresh_until - now, max_age), int(max(0.0, now - entry.fetched_at))
        assert json.headers(now) == (
            (b"cache-control", b"public, max-age=%d" % (old + int(kept))),
            (b"expires", http_date(int(min(fresh_until, now + max_age)))),
            (b"age", b"%d" % old),
            cache_status(chain, now, is_verified=is_verified),
        )
