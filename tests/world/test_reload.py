"""A reload of the brakes of an incident, in every instance, while clients are served."""

from __future__ import annotations

from pathlib import Path

from tests.fake_upstream import EVERY_NAME
from tests.world.world import World


def send_new_names(world: World, first: int, count: int) -> int:
    """Request names that nobody has requested. Returns the number of queries that the upstream got."""
    before = world.upstream.queries()
    asked = [world.client(instance=at % 2).ask(f"/10.1000/{at}") for at in range(first, first + count)]
    for each in asked:
        world.finish(each)
    return world.upstream.queries() - before


def test_the_rate_of_upstream_queries_follows_a_reload(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    with World(store_url=store, instances=2, upstream_rate=1, upstream_burst=10) as world:
        world.reload(upstream_rate=100, upstream_burst=500)
        world.sleep(10)
        assert send_new_names(world, 0, 60) >= 60
        world.reload(upstream_rate=1, upstream_burst=4)
        world.sleep(10)
        assert send_new_names(world, 100, 30) < 15


def test_the_places_of_upstream_queries_follow_a_reload(tmp_path: Path) -> None:
    with World(store_url=f"sqlite:///{tmp_path}/store.sqlite3", instances=2) as world:
        world.upstream.fault(EVERY_NAME, "hang")
        world.reload(upstream_max_concurrency=4)
        world.sleep(10)
        before = world.upstream.queries()
        for at in range(40):
            world.client(f"10.{at}.0.1", at % 2).ask(f"/10.1000/{at}")
        world.sleep(0.5)
        assert world.upstream.queries() - before == 4


def test_a_rate_of_clients_begins_and_ends_with_a_reload(tmp_path: Path) -> None:
    with World(store_url=f"sqlite:///{tmp_path}/store.sqlite3", instances=2) as world:
        world.upstream.put("10.1000/182", url="https://example.org/")

        def send() -> set[int]:
            replies = [world.get("/10.1000/182", world.client(instance=at % 2)) for at in range(20)]
            return {reply.status for reply in replies}

        assert send() == {302}
        world.reload(client_rate=1, client_burst=2)
        assert send() == {302, 429}
        world.reload(client_rate=0)
        assert send() == {302}
