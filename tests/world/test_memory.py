"""What a request leaves in memory after its answer."""

from __future__ import annotations

import gc

from doi_proxy.web.request import Request
from tests.fake_upstream import EVERY_NAME
from tests.table import table
from tests.world.world import World

PATHS = ("/{}", "/{}?noredirect", "/api/handles/{}")


def forget_others() -> None:
    """Leave all that there is out of the later collections and counts. A look at all objects takes half a second."""
    gc.collect()
    gc.freeze()


def count_requests() -> int:
    gc.collect()
    return sum(isinstance(thing, Request) for thing in gc.get_objects())


@table("path", PATHS)
@table("kind", ("reset", "hang"))
def test_a_request_that_fails_leaves_nothing(path: str, kind: str) -> None:
    forget_others()
    with World() as world:
        world.upstream.fault(EVERY_NAME, kind)
        for number in range(3):
            assert world.get(path.format(f"10.5555/{number}")).status in (502, 503, 504)
            world.sleep(20)
        assert count_requests() == 0


@table("path", PATHS)
def test_a_stale_answer_leaves_nothing(path: str) -> None:
    forget_others()
    with World(cache_ttl_ceiling=60) as world:
        for number in range(3):
            world.upstream.put(f"10.5555/{number}", url="https://example.org/")
            world.get(path.format(f"10.5555/{number}"))
        world.sleep(90)
        world.upstream.fault(EVERY_NAME, "reset")
        for number in [*range(3), *range(3)]:
            assert world.get(path.format(f"10.5555/{number}")).status in (200, 302)
            world.sleep(20)
        assert count_requests() == 0


@table("path", ("/{}", "/{}?auth", "/api/handles/{}?auth=true"))
@table("kind", ("reset", "hang"))
def test_a_stale_record_that_the_client_refuses_leaves_nothing(path: str, kind: str) -> None:
    forget_others()
    refused = {"Cache-Control": "stale-if-error=0"}
    with World(cache_ttl_ceiling=60) as world:
        world.upstream.put("10.5555/1", url="https://example.org/")
        assert world.get("/10.5555/1").status == 302
        world.sleep(90)
        world.upstream.fault(EVERY_NAME, kind)
        for _ in range(3):
            assert world.get(path.format("10.5555/1"), None, **refused).status in (502, 504)
            world.sleep(20)
        assert count_requests() == 0
