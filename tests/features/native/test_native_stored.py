"""Services are records of the cache: they survive a restart, and processes share them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from handle_protocol.errors import ServerUnreachable, SignatureInvalid
from handle_protocol.json_sites import read_service_values, write_json_values
from handle_protocol.referral import Answer, ResponseCode
from handle_protocol.value import read_values
from handle_protocol.wire.site_value import TtlType, Value
from tests.clock import Clock
from tests.features.native.world import POLICY, ROOT, Bench, Content, serv_value, site_value
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.parts import usual_cache
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

_URL: Final = Value(1, b"URL", b"https://example.org/")
_PREFIX: Final = b"0.NA/10.5072"
_NAME: Final = b"10.5072/1"
_LOOKUP: Final = (ROOT, _PREFIX)


def _records() -> dict[int, dict[bytes, Content]]:
    return {
        ROOT: {_PREFIX: [serv_value(b"0.SERV/A"), _URL], b"0.NA/0.SERV": [site_value(2)]},
        2: {b"0.SERV/A": [site_value(3)]},
        3: {_NAME: [_URL]},
    }


class _Hosts:
    """Processes over one SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self._url = f"sqlite:///{folder}/store.sqlite3"
        self._caches: list[TieredStore] = []

    def cache(self) -> TieredStore:
        """The cache of another process."""
        cache = usual_cache(self._url, clock=self.clock)
        self._caches.append(cache)
        return cache

    def bench(self, records: dict[int, dict[bytes, Content]] | None = None, **more: Any) -> Bench:
        """The directory of another process."""
        return Bench(records or _records(), cache=self.cache(), clock=self.clock, **more)

    async def flush(self) -> None:
        """Make all writes visible."""
        for cache in self._caches:
            await cache.flush()

    async def close(self) -> None:
        """Close the caches."""
        for cache in self._caches:
            await cache.close()


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[_Hosts]:
    """Processes over one SQLite file."""
    hosts = _Hosts(tmp_path)
    yield hosts
    await hosts.close()


async def test_a_lookup_of_the_cache_counts_no_longer_than_its_ttl(hosts: _Hosts) -> None:
    assert await hosts.bench().codes(_NAME) == [1]
    await hosts.flush()
    hosts.clock.advance(3_599.0)
    later = hosts.bench()
    await later.codes(_NAME)
    assert _LOOKUP not in later.asked
    hosts.clock.advance(1.0)
    await later.codes(_NAME)
    assert _LOOKUP in later.asked


async def test_a_later_lookup_of_another_process_is_used(hosts: _Hosts) -> None:
    first, second = hosts.bench(), hosts.bench()
    await first.codes(_NAME)
    hosts.clock.advance(3_600.0)
    await second.codes(_NAME)
    await hosts.flush()
    before = len(first.asked)
    assert await first.codes(_NAME) == [1]
    assert first.asked[before:] == [(3, _NAME)]


async def test_the_record_of_a_lookup_is_the_whole_record_of_its_name(hosts: _Hosts) -> None:
    await hosts.bench().codes(_NAME)
    await hosts.flush()
    entry = await hosts.cache().get("10.5072")
    assert entry is not None
    assert entry.answer == Answer(ResponseCode.SUCCESS, write_json_values([serv_value(b"0.SERV/A"), _URL]))
    assert entry.fetched_at == hosts.clock()


async def test_known_services_outlive_the_root_across_a_restart(hosts: _Hosts) -> None:
    await hosts.bench().codes(_NAME)
    await hosts.flush()
    hosts.clock.advance(80_000.0)
    restarted = hosts.bench()
    restarted.world.failures[ROOT] = ServerUnreachable()
    assert await restarted.codes(_NAME) == [1]
    hosts.clock.advance(10_000.0)
    late = hosts.bench()
    late.world.failures[ROOT] = ServerUnreachable()
    with pytest.raises(ServerUnreachable):
        await late.codes(_NAME)


async def test_a_server_that_is_not_responsible_makes_the_root_queried_in_place_of_the_cache(hosts: _Hosts) -> None:
    bench = hosts.bench()
    await bench.codes(_NAME)
    await hosts.flush()
    bench.world.services[3][_NAME] = 301
    bench.clock.advance(60.0)
    assert await bench.codes(_NAME) == [301]
    assert bench.asked.count(_LOOKUP) == 2


# --- what the cache is trusted with ------------------------------------------------------------------------------


async def _put(hosts: _Hosts, key: str, *values: Value, **changes: Any) -> None:
    cache = hosts.cache()
    answer = Answer(ResponseCode.SUCCESS, write_json_values(values))
    await cache.put(replace(POLICY.entry(key, answer, hosts.clock()), **changes))
    await cache.flush()


async def test_an_unverified_record_is_not_used_for_certified_questions(hosts: _Hosts) -> None:
    await _put(hosts, "10.5072", site_value(9))
    bench = hosts.bench()
    bench.world.services[9] = {_NAME: [_URL]}
    assert await bench.codes(_NAME) == [1]
    assert bench.asked == [(9, _NAME)]
    assert await bench.codes(_NAME, certified=True) == [1]
    assert bench.asked[-1] == (3, _NAME)
    bench.world.failures[ROOT] = SignatureInvalid()
    other = hosts.bench()
    other.world.failures[ROOT] = SignatureInvalid()
    with pytest.raises(SignatureInvalid):
        await other.codes(b"10.5073/1", certified=True)


async def test_a_verified_record_answers_certified_questions_of_another_process(hosts: _Hosts) -> None:
    await hosts.bench().codes(_NAME, certified=True)
    await hosts.flush()
    second = hosts.bench()
    assert await second.codes(_NAME, certified=True) == [1]
    assert second.asked == [(3, _NAME)]


async def test_after_auth_of_a_prefix_its_names_are_looked_up_again_with_a_signature(hosts: _Hosts) -> None:
    await hosts.bench().codes(_NAME, certified=True)
    await hosts.flush()
    hosts.clock.advance(10.0)
    cache = hosts.cache()
    known = await cache.get("10.5072")
    assert known is not None and known.answer.is_verified
    unsigned = replace(known.answer, is_verified=False)
    await cache.put(replace(known, answer=unsigned, fetched_at=hosts.clock()), announce=True)
    await hosts.flush()
    bench = hosts.bench()
    assert await bench.codes(_NAME, certified=True) == [1]
    assert bench.asked.count(_LOOKUP) == 1


async def test_a_later_signed_lookup_replaces_a_verified_record(hosts: _Hosts) -> None:
    await hosts.bench().codes(_NAME, certified=True)
    await hosts.flush()
    hosts.clock.advance(3_600.0)
    await hosts.bench().codes(_NAME, certified=True)
    await hosts.flush()
    entry = await hosts.cache().get("10.5072")
    assert entry is not None
    assert (entry.answer.is_verified, entry.fetched_at) == (True, hosts.clock())


async def test_not_found_is_neither_put_nor_believed(hosts: _Hosts) -> None:
    bench = hosts.bench({ROOT: {}})
    assert await bench.codes(_NAME) == [None]
    assert await hosts.cache().get("10.5072") is None
    cache = hosts.cache()
    await cache.put(POLICY.entry("10.5072", Answer(ResponseCode.HANDLE_NOT_FOUND), hosts.clock()))
    await cache.flush()
    assert await hosts.bench().codes(_NAME) == [1]


@pytest.mark.parametrize(
    "values",
    [
        b"[]",
        b"not JSON",
        b'[{"index":1,"type":"HS_SITE","data":{"format":"string","value":"x"}}]',
        b'[{"index":1,"type":"HS_SERV","data":{"format":"string","value":" "}}]',
        b'[{"index":1,"type":"URL","data":{"format":"string","value":"https://example.org/"}}]',
    ],
)
async def test_a_record_that_names_no_service_is_looked_up(hosts: _Hosts, values: bytes) -> None:
    cache, now = hosts.cache(), hosts.clock()
    await cache.put(Entry("10.5072", Answer(ResponseCode.SUCCESS, values), now, now + 60.0, now + 60.0))
    await cache.flush()
    bench = hosts.bench()
    assert await bench.codes(_NAME) == [1]
    assert bench.asked.count(_LOOKUP) == 1


async def test_a_record_that_is_too_long_is_remembered_by_this_process_alone(hosts: _Hosts) -> None:
    records = _records()
    records[ROOT][_PREFIX] = [site_value(3), Value(9, b"DESC", b"x" * 300_000)]
    first, second = hosts.bench(records), hosts.bench(records)
    assert await first.codes(_NAME, _NAME) == [1, 1]
    await hosts.flush()
    assert await second.codes(_NAME) == [1]
    assert [bench.asked.count(_LOOKUP) for bench in (first, second)] == [1, 1]


async def test_a_service_handle_that_is_no_name_is_looked_up_without_the_cache(hosts: _Hosts) -> None:
    records = _records()
    records[ROOT] |= {_PREFIX: [serv_value(b"0.NA/\xff")], b"0.NA/\xff": [site_value(3)]}
    assert await hosts.bench(records).codes(_NAME) == [1]


async def test_a_store_that_fails_costs_a_lookup(hosts: _Hosts) -> None:
    bench = hosts.bench()
    await hosts.close()
    assert await bench.codes(_NAME, _NAME) == [1, 1]
    assert bench.asked.count(_LOOKUP) == 1


def test_service_values_survive_their_json() -> None:
    absolute = Value(3, b"hs_serv", b"0.SERV/B", ttl=2_000_000, ttl_type=TtlType.ABSOLUTE)
    values = [_URL, site_value(2), serv_value(b"0.SERV/A"), absolute, site_value(4, b"HS_SITE.6")]
    found = read_service_values(read_values(write_json_values(values)))
    assert [(one.type, one.data, one.ttl, one.ttl_type) for one in found] == [
        (one.type.upper(), one.data, one.ttl, one.ttl_type) for one in values[1:]
    ]


@pytest.mark.parametrize(
    "part",
    [
        '"port":-2147483649',
        '"port":4294967296',
        '"serverId":-2147483649',
        '"hashOption":256',
        '"version":-32769',
        '"version":65536',
        '"serialNumber":65536',
        '"serverId":1e9',
    ],
)
def test_a_number_that_no_site_value_can_have_hides_no_other_site(part: str) -> None:
    name = part.partition(":")[0]
    text = write_json_values([site_value(2)]).decode().replace('"version":1', '"hashOption":2,"version":1')
    start = text.index(name)
    end = min(text.find(mark, start) for mark in ",}" if text.find(mark, start) > 0)
    damaged = (text[:start] + part + text[end:])[1:-1]
    both = f"[{damaged},{write_json_values([site_value(4)]).decode()[1:-1]}]"
    assert [one.data for one in read_service_values(read_values(both.encode()))] == [site_value(4).data]


# --- with a proxy ------------------------------------------------------------------------------------------------


async def test_a_restarted_proxy_resolves_known_prefixes_without_the_root(tmp_path: Path) -> None:
    async with HandleServer(serial=2) as home:
        home.put("10.1000/1", url="http://one.example/")
        home.put("10.1000/2", url="http://two.example/")
        async with HandleServer() as root:
            file = tmp_path / "root.json"
            file.write_bytes(write_bootstrap(root))
            root.put_values("0.NA/10.1000", home.site_value())
            settings = {
                "upstream_url": "hdl:",
                "upstream_bootstrap": file,
                "upstream_private_servers": True,
                "store_url": f"sqlite:///{tmp_path}/store.sqlite3",
            }
            async with Proxy(**settings) as proxy:
                assert (await proxy.ask("GET", "/10.1000/1"))["location"] == "http://one.example/"
            assert (root.queries("0.NA/10.1000"), root.queries("10.1000")) == (1, 0)
            async with Proxy(**settings) as proxy:
                assert (await proxy.ask("GET", "/10.1000/2"))["location"] == "http://two.example/"
                got = await proxy.ask("GET", "/api/handles/10.1000")
                assert [value["type"] for value in got.json["values"]] == ["HS_SITE"]
                assert (got["cache-status"] or "").startswith("doi-proxy; hit")
            assert (root.queries("0.NA/10.1000"), root.queries("10.1000")) == (1, 0)


async def test_the_namespace_of_a_prefix_needs_no_query(tmp_path: Path) -> None:
    text = b"<namespace><status>inactive</status></namespace>"
    async with HandleServer(serial=2) as home, HandleServer() as root:
        file = tmp_path / "root.json"
        file.write_bytes(write_bootstrap(root))
        root.put_values("0.NA/10.1000", home.site_value(), Value(2, b"HS_NAMESPACE", text))
        home.put("10.1000/1", url="http://one.example/")
        async with Proxy(upstream_url="hdl:", upstream_bootstrap=file, upstream_private_servers=True) as proxy:
            got = await proxy.ask("GET", "/10.1000/1", accept="application/vnd.citationstyles.csl+json")
            assert (got.status, got.json["title"]) == (404, "The prefix is out of use")
        assert (root.queries("0.NA/10.1000"), root.queries("10.1000")) == (1, 0)
