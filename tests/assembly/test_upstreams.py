"""Which queries share three quarters of the places: those of a prefix, or of the server of a route."""

from __future__ import annotations

import resource
import time

import pytest

from doi_proxy.assembly.core import RESERVED, UNLIMITED, open_connections, open_upstream
from doi_proxy.assembly.settings import Settings
from doi_proxy.features.feature import Observers
from doi_proxy.upstream.source import Priority
from handle_protocol.referral import Answer, ResponseCode
from tests.parts import usual_cache, usual_ttl_policy
from tests.table import table

DEFAULT = "http://127.0.0.1:1"
ROUTED = "http://127.0.0.2:1"


@pytest.mark.anyio
async def test_the_queries_of_a_route_share_their_places_and_those_of_a_default_upstream_by_their_prefix() -> None:
    settings = Settings(
        store_url="memory:", upstream_url=DEFAULT, upstream_routes=f"10.1={ROUTED},10.2={ROUTED},10.3={DEFAULT}"
    )
    cache = usual_cache("memory:", clock=time.time)
    upstream = open_upstream(settings, cache, usual_ttl_policy(), time.time, observers=Observers())
    seen: list[tuple[str, str]] = []

    async def fetch() -> Answer:
        seen.extend((url, query.prefix) for query in upstream.budget._open)
        return Answer(ResponseCode.HANDLE_NOT_FOUND)

    try:
        for url, name in ((ROUTED, "10.1/A"), (ROUTED, "10.2/A"), (DEFAULT, "10.3/A"), (DEFAULT, "10.4/A")):
            await upstream.guards[url].run(name, Priority.PERSON, fetch)
        assert seen == [(ROUTED, ROUTED), (ROUTED, ROUTED), (DEFAULT, "10.3"), (DEFAULT, "10.4")]
    finally:
        await upstream.source.aclose()
        await cache.close()


# --- The limit of open files decides how many client connections are served ------------------------------------------


@table(
    "limit, connections",
    [
        (resource.RLIM_INFINITY, UNLIMITED - RESERVED - 32),
        (65_536, 65_536 - RESERVED - 32),
        (1_024, 1_024 - RESERVED - 32),
        # With a small limit, clients get half of it, and the program 64.
        (200, 100),
        (96, 32),
        (64, 8),
    ],
)
def test_clients_get_the_descriptors_that_are_left(
    monkeypatch: pytest.MonkeyPatch, limit: int, connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))
    assert open_connections(Settings(upstream_max_concurrency=16))._limits.total == connections
