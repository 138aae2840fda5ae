"""Stories of a whole service in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fake_upstream import EVERY_NAME
from tests.world.world import World

NAME = "10.1000/182"
TARGET = "https://example.org/a"


def test_a_stale_answer_during_an_outage() -> None:
    with World(cache_ttl_ceiling=60) as world:
        world.upstream.put(NAME, url=TARGET)
        world.get(f"/{NAME}")
        world.upstream.fault(EVERY_NAME, "reset")
        world.sleep(90)
        assert world.get(f"/{NAME}").location == TARGET


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


def test_an_outage_begins_and_ends_with_a_line_of_the_log() -> None:
    with World() as world:
        world.upstream.fault(EVERY_NAME, "reset")
        for number in range(8):
            world.get(f"/10.1000/{number}")
        world.upstream.heal(EVERY_NAME)
        world.sleep(90)
        world.get("/10.1000/182")
        lines = [line for line in world.log if "upstream_log" in line]
        assert [word for line in lines for word in ("is down", "is up again") if word in line] == [
            "is down",
            "is up again",
        ]


def test_a_clock_that_is_set_forward_ends_a_lifetime_without_time_passing() -> None:
    with World(cache_ttl_ceiling=3_600) as world:
        world.upstream.put(NAME, url=TARGET)
        world.get(f"/{NAME}")
        world.set_clock(7_200)
        world.get(f"/{NAME}")
        assert world.upstream.queries(NAME) == 2


def test_a_restart_keeps_what_was_answered_in_a_file(tmp_path: Path) -> None:
    with World(store_url=f"sqlite:///{tmp_path}/store.sqlite") as world:
        world.upstream.put(NAME, url=TARGET)
        world.get(f"/{NAME}")
        world.restart()
        world.upstream.fault(EVERY_NAME, "reset")
        assert world.get(f"/{NAME}").location == TARGET
        assert world.upstream.queries(NAME) == 1


def test_a_crash_loses_only_what_was_answered_in_the_last_second(tmp_path: Path) -> None:
    with World(store_url=f"sqlite:///{tmp_path}/store.sqlite") as world:
        world.upstream.put(NAME, url=TARGET)
        world.get(f"/{NAME}")
        world.sleep(1)
        world.crash()
        world.upstream.fault(EVERY_NAME, "reset")
        assert world.get(f"/{NAME}").location == TARGET
