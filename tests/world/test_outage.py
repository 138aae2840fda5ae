"""Stories of an outage, in every store and with one or two instances: when answers from memory end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.assembly.core import RECHECK
from tests.fake_upstream import EVERY_NAME
from tests.world.answer import Reply
from tests.world.valkey import URL
from tests.world.world import World

NAME = "10.1000/182"
TARGET, OTHER = "https://example.org/a", "https://example.org/b"
BIBTEX = "application/x-bibtex"
TOKEN = "a-token-of-an-administrator"
#: Processes read the announcements of others each second.
ANNOUNCED = 3.0


@pytest.fixture(params=[("memory", 1), ("sqlite", 1), ("sqlite", 2), ("valkey", 1), ("valkey", 2)], ids=str)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A service with a hot record, 90 s after its TTL, whose upstream is down."""
    store, instances = request.param
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/store.sqlite3", "valkey": URL}
    settings: dict[str, Any] = {"store_url": urls[store], "instances": instances, "cache_ttl_ceiling": 60}
    with World(admin_token=TOKEN, **settings) as world:
        world.upstream.put(NAME, url=TARGET)
        ask_all(world)
        world.upstream.fault(EVERY_NAME, "reset")
        world.sleep(150)
        yield world


def ask_all(world: World, target: str = f"/{NAME}") -> list[Reply]:
    return [world.get(target, world.client(instance=number)) for number in range(len(world.instances))]


def are_stale(replies: list[Reply], target: str = TARGET) -> bool:
    found = [(reply.location, (reply["cache-status"] or "").partition("=")[0]) for reply in replies]
    return set(found) == {(target, "doi-proxy; hit; ttl")} and all("ttl=-" in str(r["cache-status"]) for r in replies)


def purge(world: World) -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "content_type": "application/json"}
    asked = world.client().ask("/admin/purge", headers, method="POST", body=json.dumps({"doi": NAME}).encode())
    assert world.finish(asked).status == 200


def test_one_query_in_a_while_finds_out_whether_the_upstream_is_back(world: World) -> None:
    assert are_stale(ask_all(world))
    asked = world.upstream.queries(NAME)
    for _ in range(int(RECHECK) - 2):
        world.sleep(1)
        assert are_stale(ask_all(world))
    assert world.upstream.queries(NAME) == asked
    world.upstream.heal(EVERY_NAME)
    world.upstream.put(NAME, url=OTHER)
    world.sleep(RECHECK)
    ask_all(world)
    world.sleep(ANNOUNCED)
    for reply in ask_all(world):
        assert reply.location == OTHER and "; hit; ttl=5" in str(reply["cache-status"])
    assert world.upstream.queries(NAME) <= asked + len(world.instances)


def test_an_answer_about_any_name_ends_the_wait_of_the_others(world: World) -> None:
    assert are_stale(ask_all(world))
    world.upstream.heal(EVERY_NAME)
    world.sleep(1)
    assert world.get("/10.1000/another").status == 404
    world.sleep(ANNOUNCED)
    assert not are_stale(ask_all(world))


def test_an_answer_about_another_name_does_not_end_the_wait_of_one_whose_server_hangs(world: World) -> None:
    world.upstream.heal(EVERY_NAME)
    world.upstream.fault(NAME, "hang")
    world.sleep(RECHECK)
    assert are_stale(ask_all(world))
    asked = world.upstream.queries(NAME)
    assert world.get("/10.1000/another").status == 404
    world.sleep(ANNOUNCED)
    assert are_stale(ask_all(world))
    assert world.upstream.queries(NAME) == asked


def test_a_purge_ends_a_stale_answer_in_every_instance(world: World) -> None:
    for _ in range(3):
        assert are_stale(ask_all(world))
    purge(world)
    world.sleep(ANNOUNCED)
    assert [reply.status for reply in ask_all(world)] == [502] * len(world.instances)


def test_a_failure_ends_with_the_outage(world: World) -> None:
    world.upstream.put("10.1000/new", url=OTHER)
    for _ in range(3):
        assert {reply.status for reply in ask_all(world, "/10.1000/new")} <= {502, 503}
    world.upstream.heal(EVERY_NAME)
    world.sleep(RECHECK)
    assert [reply.location for reply in ask_all(world, "/10.1000/new")] == [OTHER] * len(world.instances)


def test_a_name_whose_prefix_has_no_record_keeps_its_target_after_a_restart(tmp_path: Path) -> None:
    for url, instances in ((f"sqlite:///{tmp_path}/store.sqlite3", 1), (URL, 2)):
        with World(store_url=url, instances=instances) as world:
            world.upstream.put(NAME, url=TARGET)
            assert world.get(f"/{NAME}", accept=BIBTEX).location == TARGET
            world.upstream.fault(EVERY_NAME, "reset")
            world.sleep(150)
            world.restart()
            for number in range(instances):
                client = world.client(instance=number)
                assert world.get(f"/{NAME}", client, accept=BIBTEX).location == TARGET
                # An answer about the prefix itself needs a recent one.
                assert world.get("/10.1000", client).status in (502, 503)


def test_a_store_that_stands_still_for_a_moment_is_not_down() -> None:
    """At any turn of a query: within 0.2 s, each command that may be sent twice is answered."""
    with World(store_url=URL) as world:
        for turns in range(40):
            world.loop.interrupt(turns, partial(stand_still, world, 0.15))
            assert world.get(f"/10.1000/{turns}").status == 404
            world.sleep(1)
        assert [line for line in world.log if "store" in line] == []


def test_a_store_that_stands_still_for_longer_is_down_once() -> None:
    with World(store_url=URL) as world:
        for turns in range(40):
            world.loop.interrupt(turns, partial(stand_still, world, 1.5))
            assert world.get(f"/10.1000/{turns}").status == 404
            world.sleep(10)
        lines = [line.split(": ")[1].partition(" after")[0] for line in world.log if "store" in line]
        assert lines == ["The store is down", "The store is up again"] * 40


def stand_still(world: World, seconds: float) -> None:
    world.valkey.hang()
    world.loop.call_later(seconds, world.valkey.resume)


def test_names_that_were_refused_are_verified_within_a_second_of_the_first_answer() -> None:
    names = [f"/10.1000/refused{number}" for number in range(3)]
    with World(upstream_breaker_failures=1, upstream_breaker_cooldown=0.2) as world:
        world.upstream.fault(EVERY_NAME, "reset")
        assert {world.get(name).status for name in names} == {502, 503}
        world.upstream.heal(EVERY_NAME)
        world.sleep(0.2)
        assert world.get("/10.1000/other").status == 404
        world.sleep(1)
        assert {world.get(name).status for name in names} == {404}
