"""`habanero` fetches citations through the proxy by content negotiation. Only its base URL is configured."""

from __future__ import annotations

import warnings
from typing import Any

import httpx2
import pytest
from habanero import cn

from tests.clients.conftest import BIBTEX, FORMATS, Site

pytestmark = [pytest.mark.process, pytest.mark.nightly]

NAME = "10.5555/article"


def cite(site: Site, **options: Any) -> Any:
    return cn.content_negotiation(ids=options.pop("ids", NAME), url=site.url, **options)


def test_it_reaches_the_metadata_location_of_the_prefix(site: Site) -> None:
    assert cite(site) == BIBTEX
    assert site.metadata_paths[-1] == "/10.5555%2Farticle"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bibtex", "application/x-bibtex"),
        ("text", "text/x-bibliography"),
        ("ris", "application/x-research-info-systems"),
        ("turtle", "text/turtle"),
    ],
)
def test_it_gets_the_format_it_asks_for(site: Site, kind: str, expected: str) -> None:
    assert cite(site, format=kind) == FORMATS[expected]


def test_names_of_one_prefix_ask_for_it_once(site: Site) -> None:
    for number in range(3):
        site.upstream.put(f"10.5555/{number}", url="http://127.0.0.1:9/")
        assert cite(site, ids=f"10.5555/{number}") == BIBTEX
    assert site.upstream.queries("10.5555") == site.upstream.queries("10.SERV/AGENCY") == 1


def test_a_format_that_the_agency_does_not_have_is_told_by_the_agency(site: Site) -> None:
    with pytest.raises(httpx2.HTTPStatusError, match="406"):
        cite(site, format="datacite-xml")


def test_a_name_that_does_not_exist_is_404(site: Site) -> None:
    with pytest.raises(httpx2.HTTPStatusError, match="404"):
        cite(site, ids="10.5555/no-such-name")


def test_of_several_names_those_that_exist_are_cited(site: Site) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert cite(site, ids=[NAME, "10.5555/no-such-name", NAME]) == [BIBTEX, None, BIBTEX]
    assert any("404" in str(one.message) for one in caught)


def test_silence_is_not_a_missing_name(site: Site) -> None:
    site.upstream.fault("10.5555/silent", "status", status=503)
    with pytest.raises(httpx2.HTTPStatusError, match=r"50[234]"):
        cite(site, ids="10.5555/silent")
