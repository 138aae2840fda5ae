"""Where a name leads: without waiting if records in memory decide it, a short DOI, and this resolver's own address."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.resolver.destination import Destination, DestinationQuery, Destinations, Kind
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolution import Conditions, ResolveOptions
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.system.eager import Rest, begin
from doi_proxy.upstream.source import SealedSource
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock
from tests.parts import usual_cache, usual_resolver

pytestmark = pytest.mark.anyio

URL = {"index": 1, "type": "URL", "data": "http://a.example/"}
ALIAS = {"index": 1, "type": "HS_ALIAS", "data": "10.1000/end"}
#: A record of more bytes than the way without waiting reads.
LARGE = [URL, {"index": 2, "type": "DESC", "data": "x" * 20_000}]


class Bench:
    """Destinations of a resolver with a cache in memory and without an upstream."""

    def __init__(self, clock: Clock, cache: TieredStore, resolver: Resolver) -> None:
        self.clock, self._cache = clock, cache
        self._destinations = Destinations(resolver, PrefixChain(resolver), resolves="any")
        self._resolver = resolver

    async def put(self, name: str, *values: dict[str, object], code: ResponseCode = ResponseCode.SUCCESS) -> None:
        answer = Answer(code, msgspec.json.encode(values))
        now = self.clock()
        await self._cache.put(Entry(HandleName(name).key, answer, now, now + 100, now + 1_000))

    def find(self, name: str, options: ResolveOptions | None = None) -> Destination | None:
        """Where a name leads, if that takes no waiting."""
        query = DestinationQuery(HandleName(name), options or ResolveOptions())
        found = begin(self._destinations.find(query, Conditions()))
        if not isinstance(found, Rest):
            return found
        found.work.close()
        return None

    async def find_doi(self, name: str, own_url: str = "https://x.example/doi") -> Destination:
        """Where a name leads in a resolver of DOI names alone."""
        of_dois = Destinations(self._resolver, PrefixChain(self._resolver), resolves="doi", own_url=own_url)
        return await of_dois.find(DestinationQuery(HandleName(name)), Conditions())


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = Clock()
    cache = usual_cache("memory:", clock=clock)
    resolver = usual_resolver(cache, SealedSource(), clock)
    yield Bench(clock, cache, resolver)
    await resolver.close()
    await cache.close()


async def test_an_alias_whose_target_is_in_memory_is_followed(bench: Bench) -> None:
    await bench.put("10.1000/alias", ALIAS)
    assert bench.find("10.1000/alias") is None
    await bench.put("10.1000/end", URL)
    found = bench.find("10.1000/alias")
    assert found is not None and found.target is not None
    assert (found.kind, found.target.location) == (Kind.TARGET, "http://a.example/")
    assert [one.name.text for one in found.resolution.chain] == ["10.1000/alias", "10.1000/end"]


async def test_a_large_record_is_read_in_a_turn_of_its_own(bench: Bench) -> None:
    await bench.put("10.1000/large", *LARGE)
    await bench.put("10.1000/alias", ALIAS)
    await bench.put("10.1000/end", *LARGE)
    assert bench.find("10.1000/large") is None
    assert bench.find("10.1000/alias") is None


@pytest.mark.parametrize(
    "url",
    [
        "https://x.example/doi/10.1000/182",
        "http://x.example/doi//doi:10.1000/182",
        "https://X.example:443/doi/10.1000/182",
        "http://x.example./doi/10.1000/182?x=1#top",
        "https://reader@x.example/doi/10.1000%2F182",
    ],
)
async def test_a_record_whose_target_is_its_own_address_here_leads_to_its_values(bench: Bench, url: str) -> None:
    await bench.put("10.1000/182", {"index": 1, "type": "URL", "data": url})
    await bench.put("10.1000/other", {"index": 1, "type": "URL", "data": url})
    found = await bench.find_doi("10.1000/182")
    assert (found.kind, found.target, found.leads_here) == (Kind.VALUES, None, True)
    other = await bench.find_doi("10.1000/other")
    assert other.target is not None and other.target.location == url


@pytest.mark.parametrize(
    ("own_url", "url", "is_own"),
    [
        ("https://doi.org", "http://dx.doi.org/10.1000/182", True),
        ("https://doi.org", "https://www.doi.org:443/10.1000/182?x=1", True),
        ("https://doi.org", "https://doi.org.example/10.1000/182", False),
        ("https://doi.org", "https://doi.org:8443/10.1000/182", False),
        ("https://x.example:8443/doi", "https://x.example:8443/doi/10.1000/182", True),
        ("https://x.example:8443/doi", "https://x.example/doi/10.1000/182", False),
        ("https://x.example/doi", "https://x.example/other/10.1000/182", False),
        ("http://[::1]:8000", "http://[::1]:8000/10.1000/182", True),
    ],
)
async def test_the_own_address_is_compared_as_an_address(bench: Bench, own_url: str, url: str, is_own: bool) -> None:
    await bench.put("10.1000/182", {"index": 1, "type": "URL", "data": url})
    assert (await bench.find_doi("10.1000/182", own_url)).leads_here is is_own


async def test_names_that_lead_to_each_other_end(bench: Bench) -> None:
    for name, other in (("10.1000/1", "10.1000/2"), ("10.1000/2", "10.1000/3"), ("10.1000/3", "10.1000/1")):
        await bench.put(name, {"index": 1, "type": "URL", "data": f"https://x.example/doi/{other}"})
    await bench.put("10.1000/0", {"index": 1, "type": "URL", "data": "https://x.example/doi/10.1000/1"})
    for number in (1, 2, 3):
        assert (await bench.find_doi(f"10.1000/{number}")).leads_here
    # It is not in the circle, and a redirect from it ends at the page of the first name.
    assert not (await bench.find_doi("10.1000/0")).leads_here
