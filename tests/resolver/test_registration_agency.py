"""Which registration agency: read from service handles, and the rows of Which RA."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Sequence

import pytest

from doi_names.name import HandleName, InvalidName
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import UpstreamTimeout
from doi_proxy.resolver.prefix_chain import PrefixChain, WhichRa
from doi_proxy.resolver.resolution import KNOWN_SERVICES, ORDINARY, Conditions, Origin, Resolution, read_agency
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.source import AgencySource, ClientNetwork
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
