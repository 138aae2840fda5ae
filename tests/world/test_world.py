"""Stories of a whole service in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fake_upstream import EVERY_NAME
from tests.registry_records import FILE_DATE, write_registry
from tests.world.answer import Reply
from tests.world.client import Asked
from tests.world.valkey import URL
from tests.world.world import World

NAME = "10.1000/182"
TARGET = "https://example.org/a"


def test_a_client_that_waits_for_a_silent_upstream_gets_the_stale_answer_within_two_seconds() -> None:
    with World(cache_ttl_ceiling=60) as world:
        world.upstream.put(NAME, url=TARGET)
        world.get(f"/{NAME}")
        world.upstream.fault(EVERY_NAME, "hang")
        world.sleep(90)
        reply = world.get(f"/{NAME}")
        assert (reply.status, reply.location) == (302, TARGET)
        assert 1 < reply.seconds < 2


def test_clients_that_ask_at_once_share_one_query_and_those_who_leave_cancel_nobody_else() -> None:
    with World() as world:
        world.upstream.put(NAME, url=TARGET)
        world.upstream.fault(NAME, "delay", seconds=1.0)
        asked = [world.client(f"192.0.2.{number}").ask(f"/{NAME}") for number in range(1, 50)]
        world.sleep(0.5)
        asked[0].cancel()
        assert {world.finish(other).location for other in asked[1:]} == {TARGET}
        assert world.upstream.queries(NAME) == 1


def test_a_list_whose_client_has_left_leaves_no_look_ups() -> None:
    """A client that has closed its connection may still read: the answer to the next row says that it does not."""
    with World() as world:
        world.upstream.fault(EVERY_NAME, "hang")
        names = "\n".join(f"10.1000/{number}" for number in range(60)).encode()
        asked = world.client().ask("/api/resolve", {"content_type": "text/plain"}, method="POST", body=names)
        world.sleep(8)
        asked.cancel()
        while world.instances[0].connections:
            world.sleep(0.05)
        assert not [task for task in asyncio.all_tasks(world.loop) if "look_up" in str(task.get_coro())]


def test_a_world_ends_with_its_tasks_if_an_instance_does_not_stop(tmp_path: Path) -> None:
    async def fail() -> None:
        raise OSError("it has not started")

    with (
        pytest.raises(OSError, match="it has not started"),
        World(instances=2, store_url=f"sqlite:///{tmp_path}/store.sqlite") as world,
    ):
        world.kill(0)
        world.instances[1].start_up = world.loop.create_task(fail())
    assert asyncio.all_tasks(world.loop) == set()


def test_a_crash_loses_only_what_was_answered_in_the_last_second(tmp_path: Path) -> None:
    with World(store_url=f"sqlite:///{tmp_path}/store.sqlite") as world:
        world.upstream.put(NAME, url=TARGET)
        world.get(f"/{NAME}")
        world.sleep(1)
        world.crash()
        world.upstream.fault(EVERY_NAME, "reset")
        assert world.get(f"/{NAME}").location == TARGET


# --- Stories of a service with two instances: what one of them learns or is told, the other one knows ----------------


TARGET_INSTANCES, OTHER = "https://example.org/a", "https://example.org/b"
TOKEN = "a-token-of-an-administrator"


def two_instances(folder: Path, **settings: Any) -> World:
    usual = {"store_url": f"sqlite:///{folder}/store.sqlite3", "admin_token": TOKEN, "status_networks": "0.0.0.0/0"}
    return World(instances=2, **{**usual, **settings})


def act(world: World, action: str, body: Mapping[str, Any]) -> None:
    """Send a request of the admin API to the first instance."""
    headers = {"authorization": f"Bearer {TOKEN}", "content_type": "application/json"}
    asked = world.client().ask(f"/admin/{action}", headers, method="POST", body=json.dumps(body).encode())
    assert world.finish(asked).status == 200


def ask_both(world: World, target: str = f"/{NAME}", address: str = "192.0.2.7") -> list[Reply]:
    return [world.get(target, world.client(address, instance)) for instance in (0, 1)]


def locations(world: World) -> set[str | None]:
    return {reply.location for reply in ask_both(world)}


def test_an_import_of_registry_records_takes_effect_in_both_instances(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    with two_instances(tmp_path, mode="sealed") as world:
        write_registry(path, world.now, {NAME: TARGET_INSTANCES})
        world.sleep(30)
        assert locations(world) == {TARGET_INSTANCES}
        write_registry(path, world.now, {NAME: OTHER}, date=FILE_DATE + 1)
        world.sleep(30)
        assert locations(world) == {OTHER}
        act(world, "purge", {"doi": NAME})
        world.sleep(30)
        assert [reply.status for reply in ask_both(world)] == [504, 504]


def test_a_changed_record_is_answered_after_the_store_has_lost_it() -> None:
    with World(store_url=URL, instances=1, cache_ttl_ceiling=60) as world:
        for target in (TARGET_INSTANCES, OTHER):
            world.upstream.put(NAME, url=target)
            assert world.get(f"/{NAME}").location == target
            world.sleep(90)
        world.valkey.stop()
        world.upstream.fault(EVERY_NAME, "reset")
        assert world.get(f"/{NAME}").location == OTHER


def test_names_to_forget_from_before_the_servers_clock_was_set_back_cost_no_target() -> None:
    with two_instances(Path(), store_url=URL) as world:
        world.upstream.put(NAME, url=TARGET_INSTANCES)
        assert locations(world) == {TARGET_INSTANCES}
        world.valkey.ahead = 1_000.0
        act(world, "purge", {"doi": "10.1000/other"})
        world.valkey.ahead = 0.0
        world.sleep(5)
        world.upstream.fault(EVERY_NAME, "reset")
        assert locations(world) == {TARGET_INSTANCES}


def test_local_records_are_those_of_the_last_good_file_in_both_instances(tmp_path: Path) -> None:
    path = tmp_path / "local.toml"
    record = '[[record]]\ndoi = "{}"\ntarget = "{}"\n'
    path.write_text(record.format(NAME, TARGET_INSTANCES))
    with two_instances(tmp_path, local_records=path) as world:
        assert locations(world) == {TARGET_INSTANCES}
        path.write_text(record.format(NAME, OTHER))
        world.sleep(30)
        assert locations(world) == {OTHER}
        path.write_text("[[record]]\ndoi = ")
        world.sleep(30)
        assert locations(world) == {OTHER}
        ready = [reply.json["local_records"]["state"] for reply in ask_both(world, "/readyz")]
        assert ready == ["broken", "broken"]


# --- Stories of processes that are killed in the middle of their work, and of two machines with one Valkey -----------


def ask_in_two_instances(world: World) -> list[Asked]:
    return [world.client(instance=instance).ask(f"/{NAME}") for instance in (0, 1)]


def test_a_client_of_a_killed_instance_sees_a_reset_and_the_other_instance_answers(tmp_path: Path) -> None:
    with World(instances=2, store_url=f"sqlite:///{tmp_path}/store.sqlite") as world:
        world.upstream.put(NAME, url=TARGET)
        world.upstream.fault(NAME, "delay", count=1, seconds=1.0)
        first, second = ask_in_two_instances(world)
        world.sleep(0.5)
        world.kill(0)
        with pytest.raises(ConnectionResetError):
            world.finish(first)
        assert world.finish(second).location == TARGET
        assert world.get(f"/{NAME}", world.client(instance=0)).location == TARGET
        assert world.upstream.queries(NAME) == 2


def test_an_instance_may_be_killed_at_any_turn_of_the_loop(tmp_path: Path) -> None:
    with World(instances=2, store_url=f"sqlite:///{tmp_path}/store.sqlite") as world:
        for turns in range(0, 60, 3):
            name = f"10.1000/{turns}"
            world.upstream.put(name, url=TARGET)
            asked = world.client(instance=0).ask(f"/{name}")
            world.loop.interrupt(turns, lambda: world.kill(0))
            world.sleep(30)
            assert asked.answer.done()
            assert world.get(f"/{name}", world.client(instance=1)).location == TARGET


def test_what_one_machine_stored_the_other_one_answers_in_an_outage_of_the_upstream() -> None:
    with World(store_url=URL, instances=2) as world:
        world.upstream.put(NAME, url=TARGET)
        world.get(f"/{NAME}", world.client(instance=0))
        world.upstream.fault(EVERY_NAME, "reset")
        assert world.get(f"/{NAME}", world.client(instance=1)).location == TARGET


# --- A reload of the brakes of an incident, in every instance, while clients are served ------------------------------


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
