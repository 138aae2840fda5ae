"""Stories of processes that are killed in the middle of their work, and of two machines with one Valkey."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_upstream import EVERY_NAME
from tests.world.client import Asked
from tests.world.valkey import URL
from tests.world.world import World

NAME = "10.1000/182"
TARGET = "https://example.org/a"


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
