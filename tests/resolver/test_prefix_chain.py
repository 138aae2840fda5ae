"""The driver for what a prefix says of its names: who is asked, how often, and what becomes of silence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from doi_names.name import HandleName
from doi_proxy.errors import CouldNotVerify
from doi_proxy.resolver.prefix_chain import NO_REPORT_CONTACT, PrefixChain, ReportContact
from doi_proxy.resolver.resolution import DEFAULT_OPTIONS, ORDINARY, Negotiation, ResolveOptions
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.resolver.target import NameLocations
from handle_protocol.value import Record
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.parts import usual_api, usual_cache, usual_resolver
from tests.values import value

pytestmark = pytest.mark.anyio

NAME = "10.5555/name"
CONNEG = Negotiation(True, (("http_role", "conneg"),))
READER = Negotiation()


class Bench:
    def __init__(self, upstream: FakeUpstream, clock: Clock, resolver: Resolver) -> None:
        self.upstream = upstream
        self.clock = clock
        self.resolver = resolver
        self.prefixes = PrefixChain(resolver)

    def put(self, name: str, *values: tuple[str, str], ttl: int = 86400) -> None:
        self.upstream.put(name, [value(index, *one, ttl=ttl) for index, one in enumerate(values, 1)])

    def loc(self, name: str, root: str = "", *ids: str, ttl: int = 86400) -> None:
        """A record whose 10320/loc value has locations of these ids."""
        self.put(name, ("10320/loc", xml(root, *ids)), ttl=ttl)

    async def find_locations(
        self,
        *values: tuple[str, str],
        name: str = NAME,
        options: ResolveOptions = DEFAULT_OPTIONS,
        negotiation: Negotiation = CONNEG,
    ) -> NameLocations:
        self.put(name, *values)
        return await self.prefixes.find_locations(
            HandleName(name), await self.record(name), options, negotiation, ORDINARY
        )

    async def record(self, name: str) -> Record:
        return (await self.resolver.resolve(HandleName(name))).record

    def queries(self) -> list[str]:
        """The names that were resolved in addition to NAME, in order."""
        names = [target.rpartition("/api/handles/")[2] for target in self.upstream.targets]
        return [name for name in names if name != NAME]


def xml(root: str, *ids: str) -> str:
    return (
        f"<locations {root}>"
        + "".join(f'<location id="{one}" href="http://{one}.example/"/>' for one in ids)
        + "</locations>"
    )


def of_name(locations: NameLocations) -> list[str | None]:
    return [one.get("id") for one in locations.of_name.items]


def of_prefix(locations: NameLocations) -> list[str | None]:
    return [one.get("id") for one in locations.of_prefix.items]


URL = ("URL", "http://a.example/")


def loc(root: str = "", *ids: str) -> tuple[str, str]:
    return "10320/loc", xml(root, *ids)


def namespace(inner: str) -> tuple[str, str]:
    return "HS_NAMESPACE", f"<namespace>{inner}</namespace>"


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with FakeUpstream() as upstream:
        clock = Clock()
        cache = usual_cache("memory:", clock=clock)
        source = usual_api(upstream.url, clock=clock)
        resolver = usual_resolver(cache, source, clock)
        try:
            yield Bench(upstream, clock, resolver)
        finally:
            await resolver.close()
            await source.aclose()
            await cache.close()


class TestPrefix:
    async def test_the_service_handle_of_the_prefix_gives_its_locations(self, bench: Bench) -> None:
        bench.put("10.5555", namespace("<locs>10.SERV/X</locs>"))
        bench.loc("10.SERV/X", "http_sc='303'", "data")
        locations = await bench.find_locations(URL)
        assert (of_name(locations), of_prefix(locations), locations.setting("http_sc")) == ([], ["data"], "303")
        assert bench.queries() == ["10.5555", "10.SERV/X"]

    async def test_prefixes_of_one_agency_share_its_service_handle(self, bench: Bench) -> None:
        bench.loc("10.SERV/X", "", "data")
        for prefix in ("10.5555", "10.5556"):
            bench.put(prefix, namespace("<locs>10.SERV/X</locs>"))
            assert of_prefix(await bench.find_locations(URL, name=f"{prefix}/a")) == ["data"]
        assert bench.upstream.queries("10.SERV/X") == 1

    async def test_a_sub_divided_prefix_has_the_locations_of_those_above_it(self, bench: Bench) -> None:
        bench.put("10.5555.1.2", namespace("<locs>10.SERV/A</locs>"))
        bench.put("10.5555", namespace("<locs>10.SERV/B</locs>"))
        bench.loc("10.SERV/A", "", "a")
        bench.loc("10.SERV/B", "", "b")
        assert of_prefix(await bench.find_locations(URL, name="10.5555.1.2/x")) == ["a", "b"]
        assert [name for name in bench.queries() if "/" not in name] == ["10.5555.1.2", "10.5555.1", "10.5555"]

    async def test_no_nslocs_ends_the_way_up(self, bench: Bench) -> None:
        bench.put("10.5555.1", namespace("<locs no_nslocs='true'>10.SERV/A</locs>"))
        bench.loc("10.SERV/A", "", "a")
        assert of_prefix(await bench.find_locations(URL, name="10.5555.1/x")) == ["a"]
        assert "10.5555" not in bench.queries()

    @pytest.mark.parametrize("garbage", ["<", "inactive", "<n><locs>\x7f/</locs></n>", "<n><locs>  </locs></n>"])
    async def test_garbage_in_the_prefix_record_counts_as_not_there(self, bench: Bench, garbage: str) -> None:
        bench.put("10.5555", ("HS_NAMESPACE", garbage))
        assert of_prefix(await bench.find_locations(URL)) == []

    async def test_handles_that_do_not_exist_are_passed_over(self, bench: Bench) -> None:
        bench.put("10.5555", namespace("<locs>10.SERV/NONE 10.SERV/X</locs>"))
        bench.loc("10.SERV/X", "", "data")
        assert of_prefix(await bench.find_locations(URL)) == ["data"]

    async def test_no_more_than_the_most_service_handles_are_asked(self, bench: Bench) -> None:
        bench.put("10.5555", namespace(f"<locs>{' '.join(f'10.SERV/{n}' for n in range(1000))}</locs>"))
        await bench.find_locations(URL)
        assert len(bench.queries()) == 1 + 20

    async def test_links_of_the_service_handle_hold_for_the_name(self, bench: Bench) -> None:
        bench.put("10.5555", namespace("<locs>10.SERV/X</locs>"))
        bench.put("10.SERV/X", ("10320/links", "<l><location href='http://l/' rel='license'/></l>"))
        locations = await bench.find_locations(URL)
        assert [one.get("rel") for one in locations.links_of_prefix] == ["license"]


class TestSettings:
    async def test_a_record_may_name_another_prefix(self, bench: Bench) -> None:
        bench.put("10.9999", namespace("<locs>10.SERV/X</locs>"))
        bench.loc("10.SERV/X", "", "data")
        for number, named in enumerate(("10.9999", "0.NA/10.9999", "0.na/10.9999", "10.9999/some-name", " 10.9999 ")):
            locations = await bench.find_locations(loc(f"overridePrefix='{named}'", "own"), name=f"10.5555/{number}")
            assert of_prefix(locations) == ["data"], named
        assert bench.upstream.queries("10.5555") == 0 and bench.upstream.queries("10.9999") == 1

    @pytest.mark.parametrize("named", ["", " ", "/", "&#x85;", "a&#10;b", "x" * 9000])
    async def test_what_can_be_no_prefix_is_ignored(self, bench: Bench, named: str) -> None:
        bench.put("10.5555", namespace("<locs>10.SERV/X</locs>"))
        bench.loc("10.SERV/X", "", "data")
        assert of_prefix(await bench.find_locations(loc(f"overridePrefix='{named}'", "own"))) == ["data"]

    async def test_nshdl_stands_in_where_the_prefix_has_no_locations(self, bench: Bench) -> None:
        bench.loc("10.SERV/X", "", "stand-in")
        locations = await bench.find_locations(loc("nshdl='10.SERV/NONE 10.SERV/X'", "own"), negotiation=READER)
        assert (of_name(locations), of_prefix(locations)) == (["own"], ["stand-in"])

    async def test_nshdl_is_not_asked_for_where_the_prefix_has_locations(self, bench: Bench) -> None:
        bench.put("10.5555", namespace("<locs>10.SERV/Y</locs>"))
        bench.loc("10.SERV/Y", "", "data")
        assert of_prefix(await bench.find_locations(loc("nshdl='10.SERV/X'"))) == ["data"]
        assert bench.upstream.queries("10.SERV/X") == 0


class TestIncludes:
    async def test_included_locations_follow_the_record_s_own(self, bench: Bench) -> None:
        bench.loc("10.5555/a", "http_sc='303' include='10.5555/c'", "a")
        bench.loc("10.5555/b", "http_sc='301' no_legacy='true'", "b")
        bench.loc("10.5555/c", "", "c")
        locations = await bench.find_locations(loc("include='10.5555/a 10.5555/b'", "own"), negotiation=READER)
        assert of_name(locations) == ["own", "a", "b", "c"]
        assert locations.setting("http_sc") == "303" and locations.is_set("no_legacy")

    @pytest.mark.parametrize("named", ["10.9999", "0.NA/10.9999"])
    async def test_an_included_prefix_gives_the_locations_of_its_service_handles(
        self, bench: Bench, named: str
    ) -> None:
        bench.put("10.9999", namespace("<locs>10.SERV/X</locs>"), loc("", "of-the-record"))
        bench.loc("10.SERV/X", "", "of-the-service")
        locations = await bench.find_locations(loc(f"includeNamespace='{named}'", "own"), negotiation=READER)
        assert of_name(locations) == ["own", "of-the-record", "of-the-service"]

    async def test_an_include_of_a_prefix_record_takes_its_own_locations_only(self, bench: Bench) -> None:
        bench.put("10.9999", namespace("<locs>10.SERV/X</locs>"), loc("", "of-the-record"))
        assert of_name(await bench.find_locations(loc("include='10.9999'"), negotiation=READER)) == ["of-the-record"]
        assert bench.upstream.queries("10.SERV/X") == 0

    @pytest.mark.parametrize("kind", ["include", "includeNamespace"])
    async def test_a_loop_is_read_once(self, bench: Bench, kind: str) -> None:
        bench.loc("10.5555/a", f"{kind}='10.5555/B'", "a")
        bench.loc("10.5555/b", f"{kind}='10.5555/A 10.5555/b {NAME.upper()}'", "b")
        locations = await bench.find_locations(loc(f"{kind}='10.5555/a {NAME}'", "own"), negotiation=READER)
        assert of_name(locations) == ["own", "a", "b"]
        assert bench.upstream.queries(NAME) == 1

    async def test_a_chain_of_twenty_is_followed_and_no_longer_one(self, bench: Bench) -> None:
        for number in range(30):
            bench.loc(f"10.5555/{number}", f"include='10.5555/{number + 1}'", str(number))
        locations = await bench.find_locations(loc("include='10.5555/0'"), negotiation=READER)
        assert of_name(locations) == [str(number) for number in range(20)]

    async def test_a_thousand_includes_are_twenty_questions(self, bench: Bench) -> None:
        await bench.find_locations(
            loc(f"include='{' '.join(f'10.5555/{n}' for n in range(1000))}'"), negotiation=READER
        )
        assert len(bench.queries()) == 20

    async def test_handles_that_are_none_are_passed_over(self, bench: Bench) -> None:
        bench.loc("10.5555/a", "", "a")
        locations = await bench.find_locations(loc("include='10.5555/none &#x85; 10.5555/a'"), negotiation=READER)
        assert of_name(locations) == ["a"]


class TestSilence:
    """A record that is needed and cannot be fetched is never guessed."""

    async def test_own_locations_that_are_no_metadata_do_not_help(self, bench: Bench) -> None:
        bench.upstream.fault("10.5555", "reset")
        with pytest.raises(CouldNotVerify):
            await bench.find_locations(loc("", "page"))

    async def test_own_metadata_do(self, bench: Bench) -> None:
        bench.upstream.fault("10.5555", "reset")
        locations = await bench.find_locations(
            ("10320/loc", "<l><location id='data' href='http://d/' http_role='conneg'/></l>")
        )
        assert of_name(locations) == ["data"]

    async def test_a_reader_is_sent_on_without_what_is_included(self, bench: Bench) -> None:
        bench.upstream.fault("10.5555/a", "reset")
        assert of_name(await bench.find_locations(loc("include='10.5555/a'", "own"), negotiation=READER)) == ["own"]

    async def test_a_record_that_only_includes_could_not_be_verified(self, bench: Bench) -> None:
        bench.upstream.fault("10.5555/a", "reset")
        with pytest.raises(CouldNotVerify):
            await bench.find_locations(loc("include='10.5555/a'"), negotiation=READER)

    async def test_an_older_prefix_record_is_better_than_none(self, bench: Bench) -> None:
        bench.put("10.5555", namespace("<locs>10.SERV/X</locs>"), ttl=60)
        bench.loc("10.SERV/X", "", "data", ttl=60)
        await bench.find_locations(URL)
        bench.clock.advance(3600)
        bench.upstream.fault("10.5555", "reset")
        bench.upstream.fault("10.SERV/X", "reset")
        assert of_prefix(await bench.find_locations(URL)) == ["data"]

    async def test_a_level_that_was_not_registered_does_not_hide_the_others(self, bench: Bench) -> None:
        bench.put("10.5555.1.2", namespace("<locs>10.SERV/X</locs>"), ttl=60)
        bench.loc("10.SERV/X", "", "data", ttl=60)
        assert of_prefix(await bench.find_locations(URL, name="10.5555.1.2/x")) == ["data"]
        bench.clock.advance(3600)
        for silent in ("10.5555.1.2", "10.5555.1", "10.5555", "10.SERV/X"):
            bench.upstream.fault(silent, "reset")
        assert of_prefix(await bench.find_locations(URL, name="10.5555.1.2/x")) == ["data"]

    async def test_a_prefix_that_was_registered_later_is_not_taken_for_an_absent_one(self, bench: Bench) -> None:
        await bench.find_locations(URL)
        bench.put("10.5555", namespace("<locs>10.SERV/X</locs>"), ttl=60)
        bench.clock.advance(3600)
        await bench.find_locations(URL)
        bench.clock.advance(10**9)
        bench.upstream.fault("10.5555", "reset")
        with pytest.raises(CouldNotVerify):
            await bench.find_locations(URL)

    async def test_the_contact_of_a_silent_prefix_is_none(self, bench: Bench) -> None:
        bench.upstream.fault("10.5555", "reset")
        contact = await bench.prefixes.report_contact(HandleName(NAME), ORDINARY)
        assert contact == replace(NO_REPORT_CONTACT, is_complete=False)
        bench.upstream.heal("10.5555")
        bench.put("10.5555", ("EMAIL", "doi@example.org"))
        bench.clock.advance(60)
        contact = await bench.prefixes.report_contact(HandleName(NAME), ORDINARY)
        assert contact == ReportContact("", "doi@example.org")

    async def test_a_missing_name_is_reported_by_the_form_of_the_agency(self, bench: Bench) -> None:
        bench.put("10.5555", ("EMAIL", "doi@example.org"), ("HS_SERV", "10.SERV/X"))
        bench.put("10.SERV/X", ("10320/ra_name", "Example"), ("PROXY_ERROR_URL", "https://agency.example/report"))
        contact = await bench.prefixes.report_contact(HandleName(NAME), ORDINARY)
        assert contact == ReportContact("Example", "https://agency.example/report")
        bench.clock.advance(10**9)
        bench.upstream.fault("10.SERV/X", "reset")
        contact = await bench.prefixes.report_contact(HandleName(NAME), ORDINARY)
        assert contact == ReportContact("", "doi@example.org", is_complete=False)


class TestServices:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([namespace("<locs>10.SERV/A</locs>"), ("HS_SERV", "10.SERV/B")], ["10.SERV/A"]),
            ([("HS_SERV", "10.SERV/B")], ["10.SERV/B"]),
            ([("EMAIL", "a@example.org")], []),
            ([namespace("<locs>10.SERV/NONE</locs>")], []),
        ],
    )
    async def test_they_are_named_by_locs_or_by_hs_serv(
        self, bench: Bench, values: list[tuple[str, str]], expected: list[str]
    ) -> None:
        bench.put("10.5555", *values)
        bench.put("10.SERV/A", ("10320/ra_name", "A"))
        bench.put("10.SERV/B", ("10320/ra_name", "B"))
        assert [one.name.text for one in await bench.prefixes.services("10.5555", ORDINARY)] == expected

    async def test_a_sub_divided_prefix_without_any_has_those_above_it(self, bench: Bench) -> None:
        bench.put("10.5555.1", ("DESC", "a part"))
        bench.put("10.5555", namespace("<locs>10.SERV/A</locs>"))
        bench.put("10.SERV/A", ("10320/ra_name", "A"))
        assert [one.name.text for one in await bench.prefixes.services("10.5555.1", ORDINARY)] == ["10.SERV/A"]
