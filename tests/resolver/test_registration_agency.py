"""Which registration agency: read from service handles, and the rows of Which RA."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec import structs

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry, expire_unverified
from doi_proxy.errors import AliasChainTooLong, UpstreamTimeout
from doi_proxy.resolver.prefix_chain import PrefixChain, WhichRa
from doi_proxy.resolver.resolution import (
    DEFAULT_OPTIONS,
    KNOWN_SERVICES,
    MAX_ALIASES,
    ORDINARY,
    Action,
    Conditions,
    Origin,
    Resolution,
    ResolveOptions,
    name_media_type,
    needs_proof,
    next_alias_target,
    proves,
    read_agency,
)
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.source import AgencySource, ClientNetwork, Verification
from handle_protocol.referral import Answer, ResponseCode
from tests.cache.entries import NOW, entry, missing, verified
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


class Bench:
    def __init__(self, upstream: FakeUpstream, resolver: Resolver, source: AgencySource) -> None:
        self.upstream = upstream
        self.resolver = resolver
        self.with_upstream, self.alone = self.which_ra(source), self.which_ra(None)

    def which_ra(self, agencies: AgencySource | None) -> WhichRa:
        return WhichRa(self.resolver, PrefixChain(self.resolver), agencies)

    async def rows(self, *names: str, alone: bool = False) -> list[dict[str, str]]:
        which_ra = self.alone if alone else self.with_upstream
        return await which_ra.rows([(name, read(name)) for name in names], ORDINARY)

    def agency(self, prefix: str, agency: str) -> None:
        """The records of a prefix and of its agency."""
        service = f"10.SERV/{agency.upper()}"
        self.upstream.put(prefix, [_value("HS_NAMESPACE", f"<n><locs>{service}</locs></n>")])
        self.upstream.put(service, [_value("10320/ra_name", agency)])


def _value(type_: str, text: str) -> dict[str, object]:
    return {"index": 1, "type": type_, "data": {"format": "string", "value": text}}


def read(name: str) -> HandleName | None:
    try:
        return HandleName(name)
    except InvalidName:
        return None


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with FakeUpstream() as upstream:
        clock = Clock()
        cache = usual_cache("memory:", clock=clock)
        source = usual_api(upstream.url, clock=clock)
        resolver = usual_resolver(cache, source, clock)
        try:
            yield Bench(upstream, resolver, source)
        finally:
            await resolver.close()
            await source.aclose()
            await cache.close()


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
class TestRows:
    async def test_rows_come_in_the_order_asked_spelled_as_asked(self, bench: Bench) -> None:
        bench.agency("10.5555", "Crossref")
        bench.agency("10.6666", "DataCite")
        bench.upstream.put("10.5555/a", url="http://a/")
        bench.upstream.put("10.6666/b", url="http://b/")
        assert await bench.rows("10.6666/B", "nonsense", "10.5555/a", "10.5555/none", "10.6666", "10.6666/B") == [
            {"DOI": "10.6666/B", "RA": "DataCite"},
            {"DOI": "nonsense", "status": "Invalid DOI"},
            {"DOI": "10.5555/a", "RA": "Crossref"},
            {"DOI": "10.5555/none", "status": "DOI does not exist"},
            {"DOI": "10.6666", "RA": "DataCite"},
            {"DOI": "10.6666/B", "RA": "DataCite"},
        ]

    @pytest.mark.parametrize(
        "name", ["", "foo", "10", "10.", "11.5555/a", "20.500.12345/a", "10/abcde", "10.5555/\n", "/"]
    )
    async def test_what_is_neither_doi_nor_prefix_is_invalid_without_a_query(self, bench: Bench, name: str) -> None:
        assert await bench.rows(name) == [{"DOI": name, "status": "Invalid DOI"}]
        assert bench.upstream.queries() == 0

    async def test_an_agency_that_the_records_do_not_tell_is_asked_of_the_upstream(self, bench: Bench) -> None:
        bench.upstream.put("10.5555/a", url="http://a/")
        bench.upstream.put("10.5555", [_value("EMAIL", "a@example.org")])
        assert await bench.rows("10.5555/a", alone=True) == [{"DOI": "10.5555/a", "status": "Unknown"}]
        assert await bench.rows("10.5555/a") == [{"DOI": "10.5555/a", "status": "Unknown"}]
        bench.upstream.agency("10.5555", "mEDRA")
        assert await bench.rows("10.5555/a") == [{"DOI": "10.5555/a", "RA": "mEDRA"}]
        assert bench.upstream.targets[-1] == "/ra/10.5555"

    @pytest.mark.parametrize("silent", ["10.5555/a", "10.5555", "10.SERV/CROSSREF"])
    async def test_silence_is_neither_unknown_nor_missing(self, bench: Bench, silent: str) -> None:
        bench.agency("10.5555", "Crossref")
        bench.agency("10.6666", "DataCite")
        bench.upstream.put("10.5555/a", url="http://a/")
        bench.upstream.put("10.6666/b", url="http://b/")
        bench.upstream.fault(silent, "status", status=503)
        assert await bench.rows("10.5555/a", "10.6666/b") == [
            {"DOI": "10.5555/a", "status": "Could not verify"},
            {"DOI": "10.6666/b", "RA": "DataCite"},
        ]

    async def test_a_silent_which_ra_of_the_upstream_is_no_unknown(self, bench: Bench) -> None:
        bench.upstream.put("10.5555/a", url="http://a/")
        bench.upstream.put("10.5555", [])
        await bench.rows("10.5555/a", alone=True)
        bench.upstream.fault("10.5555", "garbage")
        assert await bench.rows("10.5555/a") == [{"DOI": "10.5555/a", "status": "Could not verify"}]

    async def test_many_names_of_one_prefix_ask_for_it_once(self, bench: Bench) -> None:
        bench.agency("10.5555", "Crossref")
        names = [f"10.5555/{number}" for number in range(50)]
        for name in names:
            bench.upstream.put(name, url="http://a/")
        assert await bench.rows(*names) == [{"DOI": name, "RA": "Crossref"} for name in names]
        assert bench.upstream.queries("10.5555") == bench.upstream.queries("10.SERV/CROSSREF") == 1
        assert bench.upstream.max_in_flight <= 8

    async def test_a_query_that_fails_when_its_request_ends_leaves_no_exception_behind(self, bench: Bench) -> None:
        gc.freeze()  # the collection below looks at nothing older
        found, loop = list[str](), asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: found.append(context["message"]))
        bench.upstream.put("10.5555/a", url="http://a/")
        bench.upstream.put("10.5555", [])
        end = loop.time() + 1
        rows = await bench.which_ra(LateAgencies(end)).rows(
            [("10.5555/a", HandleName("10.5555/a"))], Conditions(due=end)
        )
        assert (rows, loop.time()) == ([{"DOI": "10.5555/a", "status": "Could not verify"}], end)
        gc.collect()
        assert [message for message in found if "never retrieved" in message] == []


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


def chain(*targets: str) -> Resolution:
    """Aliases from 10.5555/0 by these names; the last of them has not been resolved yet."""
    names = ["10.5555/0", *targets[:-1]]
    *aliases, last = (resolution_alias(name, ("HS_ALIAS", target)) for name, target in zip(names, targets, strict=True))
    return structs.replace(last, aliases=tuple(aliases))


def following(count: int) -> Resolution:
    return chain(*(f"10.5555/{number}" for number in range(1, count + 1)))


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


def test_twenty_aliases_are_followed() -> None:
    assert follow(following(MAX_ALIASES), DEFAULT_OPTIONS) == HandleName("10.5555/20")


def test_the_twenty_first_is_not() -> None:
    with pytest.raises(AliasChainTooLong) as raised:
        follow(following(MAX_ALIASES + 1), DEFAULT_OPTIONS)
    assert raised.value.reached == "10.5555/20" and raised.value.status == 404


@pytest.mark.parametrize(
    ("loop", "reached"),
    [
        (chain("10.5555/0"), "10.5555/0"),
        (chain("10.5555/a", "10.5555/0"), "10.5555/a"),
        (chain("10.5555/a", "10.5555/b", "10.5555/a"), "10.5555/b"),
        # Names that differ in the case of ASCII letters are one.
        (chain("10.5555/a", "10.5555/b", "10.5555/A"), "10.5555/b"),
    ],
)
def test_a_loop_ends_where_it_closes(loop: Resolution, reached: str) -> None:
    with pytest.raises(AliasChainTooLong) as raised:
        follow(loop, DEFAULT_OPTIONS)
    assert raised.value.reached == reached


def test_an_answer_knows_its_aliases() -> None:
    start, end = (
        resolution_alias("10.5555/0", ("HS_ALIAS", "10.5555/1")),
        resolution_alias("10.5555/1", ("URL", "http://a/")),
    )
    found = end.after(start)
    assert (found.name, [each.name for each in found.chain]) == (end.name, [start.name, end.name])
    assert [each.name for each in start.after(found).chain] == [start.name, end.name, start.name]


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


@pytest.mark.parametrize(
    ("one", "proof"),
    [
        (None, False),
        (entry(ttl=60), False),
        (verified(entry(ttl=60)), True),
        (verified(missing()), True),
        (verified(entry(ttl=0)), False),
        (verified(entry(fetched_at=NOW - 60, ttl=60)), False),
    ],
)
def test_a_verified_entry_is_a_proof_until_its_ttl_ends(one: Entry | None, proof: bool) -> None:
    assert proves(one, NOW) is proof


@pytest.mark.parametrize(("max_age", "proof"), [(29, False), (30, True), (None, True)])
def test_a_proof_is_as_young_as_the_request_says(max_age: float | None, proof: bool) -> None:
    assert proves(verified(entry(fetched_at=NOW - 30)), NOW, max_age) is proof


def test_an_entry_that_is_not_verified_can_be_stale_from_the_start() -> None:
    expired = expire_unverified(entry())
    assert (expired.is_fresh(NOW), expired.is_usable(NOW), expired.answer) == (False, True, entry().answer)
    assert not expire_unverified(missing()).is_usable(NOW)
    for unchanged in (verified(entry()), verified(missing()), expired):
        assert expire_unverified(unchanged) is unchanged
