"""Which registration agency: read from service handles, and the rows of Which RA."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Sequence

import pytest

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import UpstreamTimeout
from doi_proxy.resolver.prefix_chain import PrefixChain, WhichRa
from doi_proxy.resolver.resolution import (
    DEFAULT_OPTIONS,
    KNOWN_SERVICES,
    Action,
    Conditions,
    Origin,
    Resolution,
    ResolveOptions,
    name_media_type,
    needs_proof,
    next_alias_target,
    read_agency,
)
from doi_proxy.upstream.source import ClientNetwork, Verification
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.parts import usual_api, usual_cache, usual_resolver
from tests.table import table

Service = tuple[str, list[tuple[str, object]]]


def resolution(name: HandleName, *values: tuple[str, object]) -> Resolution:
    found = json.dumps(
        [{"index": 1, "type": type_, "data": {"format": "string", "value": text}} for type_, text in values]
    )
    return Resolution(name, Entry(name.key, Answer(ResponseCode.SUCCESS, found.encode()), 0, 1, 1), Origin.HIT)


@table(
    ("services", "expected"),
    [
        ([("10.SERV/X", [("10320/ra_name", "Some Agency")])], "Some Agency"),
        ([("10.SERV/X", [("10320/RA_NAME", " Some Agency\n")])], "Some Agency"),
        # What a record says goes before what is known of its handle.
        ([("10.SERV/CROSSREF", [("10320/ra_name", "Renamed")])], "Renamed"),
        ([("10.SERV/CROSSREF", []), ("10.SERV/X", [("10320/ra_name", "Some Agency")])], "Some Agency"),
        ([("10.SERV/CROSSREF", [])], "Crossref"),
        ([("10.serv/default", [])], "Crossref"),
        ([("10.SERV/DataCite", [])], "DataCite"),
        ([("10.SERV/ETH", [])], "DataCite"),
        ([("10.SERV/X", []), ("10.SERV/MEDRA", [])], "mEDRA"),
        ([("10.SERV/X", [("10320/ra_name", "")]), ("10.SERV/JALC", [])], "JaLC"),
        ([("10.SERV/OP", [("10320/ra_name", 7)])], "OP"),
        ([("10.SERV/X", [])], None),
        ([], None),
    ],
)
def test_the_agency_is_named_by_a_service_handle(services: list[Service], expected: str | None) -> None:
    assert read_agency([resolution(HandleName(name), *values) for name, values in services]) == expected


def test_known_service_handles_are_keys() -> None:
    assert all(HandleName(handle).key == handle for handle in KNOWN_SERVICES)


class LateAgencies:
    """A Which RA service that fails at a time of the event loop."""

    def __init__(self, end: float) -> None:
        self.end = end

    async def registration_agencies(self, names: Sequence[str], client: ClientNetwork = None) -> list[dict[str, str]]:
        try:
            async with asyncio.timeout_at(self.end):
                await asyncio.Event().wait()
        except TimeoutError:
            raise UpstreamTimeout from None
        return []


@pytest.mark.anyio
async def test_a_query_that_fails_when_its_request_ends_leaves_no_exception_behind() -> None:
    gc.freeze()  # the collection below looks at nothing older
    found, loop, clock = list[str](), asyncio.get_running_loop(), Clock()
    loop.set_exception_handler(lambda _, context: found.append(context["message"]))
    async with FakeUpstream() as upstream:
        cache, source = usual_cache("memory:", clock=clock), usual_api(upstream.url, clock=clock)
        resolver = usual_resolver(cache, source, clock)
        upstream.put("10.5555/a", url="http://a/")
        upstream.put("10.5555", [])
        end = loop.time() + 1
        which_ra = WhichRa(resolver, PrefixChain(resolver), LateAgencies(end))
        rows = await which_ra.rows([("10.5555/a", HandleName("10.5555/a"))], Conditions(due=end))
        assert (rows, loop.time()) == ([{"DOI": "10.5555/a", "status": "Could not verify"}], end)
        gc.collect()
        assert [message for message in found if "never retrieved" in message] == []
        await resolver.close()
        await source.aclose()


# --- Aliases: which name is next, and where following ends -----------------------------------------------------------


def values(*given: tuple[str, object]) -> bytes:
    return json.dumps(
        [
            {"index": index, "type": type_, "data": {"format": "string", "value": text}}
            for index, (type_, text) in enumerate(given, 1)
        ]
    ).encode()


def resolution_alias(name: str, *given: tuple[str, object], code: ResponseCode = ResponseCode.SUCCESS) -> Resolution:
    entry = Entry(
        key=name.upper(), answer=Answer(code, values(*given)), fetched_at=0.0, fresh_until=1.0, stale_until=1.0
    )
    return Resolution(HandleName(name), entry, Origin.HIT)


def follow(chain: Resolution, options: ResolveOptions) -> HandleName | None:
    return next_alias_target(chain, chain.record.select(options.types, options.indexes), options)


@table(
    ("given", "options", "expected"),
    [
        ([("HS_ALIAS", "10.1000/182")], DEFAULT_OPTIONS, "10.1000/182"),
        ([("hs_alias", " 10.1000/182\n")], DEFAULT_OPTIONS, "10.1000/182"),
        ([("HS_ALIAS.x", "10.1000/182")], DEFAULT_OPTIONS, "10.1000/182"),
        # An alias goes before a URL, wherever it stands; of several aliases the first counts.
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], DEFAULT_OPTIONS, "10.1000/182"),
        ([("HS_ALIAS", "10.1000/1"), ("HS_ALIAS", "10.1000/2")], DEFAULT_OPTIONS, "10.1000/1"),
        ([("HS_ALIAS", "20.500.12345/x")], DEFAULT_OPTIONS, "20.500.12345/x"),
        ([("URL", "http://a/")], DEFAULT_OPTIONS, None),
        ([("HS_ALIASES", "10.1000/182")], DEFAULT_OPTIONS, None),
        # Only the requested values count.
        ([("HS_ALIAS", "10.1000/182")], ResolveOptions(ignore_aliases=True), None),
        ([("HS_ALIAS", "10.1000/182")], ResolveOptions(types=("URL",)), None),
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], ResolveOptions(types=("url",)), None),
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], ResolveOptions(types=("hs_alias",)), "10.1000/182"),
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], ResolveOptions(indexes=(1,)), None),
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], ResolveOptions(indexes=(2,)), "10.1000/182"),
        ([("HS_ALIAS", "10.1000/182")], ResolveOptions(action=Action.SHOW_VALUES), "10.1000/182"),
        # What can be no name leads nowhere.
        ([("HS_ALIAS", "")], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", " \n")], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", "10.1000/a\r\nb")], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", "10.1000/\x00")], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", "x" * 100_000)], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", 7)], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", None)], DEFAULT_OPTIONS, None),
    ],
)  # fmt: skip
def test_the_next_name_is_in_the_first_alias_value_asked_for(
    given: list[tuple[str, object]], options: ResolveOptions, expected: str | None
) -> None:
    found = follow(resolution_alias("10.5555/0", *given), options)
    assert (None if found is None else found.text) == expected


def test_a_missing_name_is_no_alias() -> None:
    missing = resolution_alias("10.5555/0", code=ResponseCode.HANDLE_NOT_FOUND)
    assert follow(missing, DEFAULT_OPTIONS) is None


# --- The addresses that deliver metadata in a format without an `Accept` header --------------------------------------


BIBTEX = "application/x-bibtex"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        # What the location of Crossref's service handle becomes for a name, and the address with a media type.
        (
            "https://api.crossref.org/v1/works/10.1126%2Fscience.169.3946.635/transform",
            "https://api.crossref.org/v1/works/10.1126%2Fscience.169.3946.635/transform/application/x-bibtex",
        ),
        (
            "https://api.crossref.org/works/10.5555/1/transform",
            "https://api.crossref.org/works/10.5555/1/transform/application/x-bibtex",
        ),
        # The same of DataCite's.
        (
            "https://data.datacite.org/10.5281%2FZENODO.21430",
            "https://data.datacite.org/application/x-bibtex/10.5281%2FZENODO.21430",
        ),
        (
            "https://data.crosscite.org/10.5281/zenodo.21430",
            "https://data.crosscite.org/application/x-bibtex/10.5281/zenodo.21430",
        ),
    ],
)
def test_the_address_of_an_agency_gets_the_media_type(url: str, expected: str) -> None:
    assert name_media_type(url, BIBTEX) == expected


@pytest.mark.parametrize(
    "url",
    [
        "https://data.medra.org/10.1430/1",
        "https://publisher.example/article",
        "https://api.crossref.org/works/10.5555/1",
        "https://api.crossref.org/works/10.5555/1/transform?mailto=a@example.org",
        "https://api.crossref.org/works/10.5555/1/transform/text/turtle",
        "https://api.crossref.org.evil.example/works/10.5555/1/transform",
        "https://data.datacite.org/application/x-bibtex/10.5281/1",
        "https://data.datacite.org/",
        "https://data.datacite.org@evil.example/10.5281/1",
    ],
)
def test_any_other_address_stays_as_it_is(url: str) -> None:
    assert name_media_type(url, BIBTEX) == url


# --- What a signature proves, and for how long -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verification", "certified", "needed"),
    [
        ("never", False, False),
        ("never", True, False),
        ("when-asked", False, False),
        ("when-asked", True, True),
        ("lookups", False, False),
        ("lookups", True, True),
        ("always", False, True),
        ("always", True, True),
    ],
)
def test_the_setting_and_the_request_say_whether_a_proof_is_needed(
    verification: Verification, certified: bool, needed: bool
) -> None:
    assert needs_proof(certified, verification) is needed
