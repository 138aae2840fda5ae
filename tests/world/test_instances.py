"""Stories of a service with two instances: what one of them learns or is told, the other one knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fake_upstream import EVERY_NAME
from tests.registry_records import FILE_DATE, write_registry
from tests.world.answer import Reply
from tests.world.valkey import URL
from tests.world.world import World

NAME = "10.1000/182"
TARGET, OTHER = "https://example.org/a", "https://example.org/b"
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
        write_registry(path, world.now, {NAME: TARGET})
        world.sleep(30)
        assert locations(world) == {TARGET}
        write_registry(path, world.now, {NAME: OTHER}, date=FILE_DATE + 1)
        world.sleep(30)
        assert locations(world) == {OTHER}
        act(world, "purge", {"doi": NAME})
        world.sleep(30)
        assert [reply.status for reply in ask_both(world)] == [504, 504]


def test_a_changed_record_is_answered_after_the_store_has_lost_it() -> None:
    with World(store_url=URL, instances=1, cache_ttl_ceiling=60) as world:
        for target in (TARGET, OTHER):
            world.upstream.put(NAME, url=target)
            assert world.get(f"/{NAME}").location == target
            world.sleep(90)
        world.valkey.stop()
        world.upstream.fault(EVERY_NAME, "reset")
        assert world.get(f"/{NAME}").location == OTHER


def test_names_to_forget_from_before_the_servers_clock_was_set_back_cost_no_target() -> None:
    with two_instances(Path(), store_url=URL) as world:
        world.upstream.put(NAME, url=TARGET)
        assert locations(world) == {TARGET}
        world.valkey.ahead = 1_000.0
        act(world, "purge", {"doi": "10.1000/other"})
        world.valkey.ahead = 0.0
        world.sleep(5)
        world.upstream.fault(EVERY_NAME, "reset")
        assert locations(world) == {TARGET}


def test_local_records_are_those_of_the_last_good_file_in_both_instances(tmp_path: Path) -> None:
    path = tmp_path / "local.toml"
    record = '[[record]]\ndoi = "{}"\ntarget = "{}"\n'
    path.write_text(record.format(NAME, TARGET))
    with two_instances(tmp_path, local_records=path) as world:
        assert locations(world) == {TARGET}
        path.write_text(record.format(NAME, OTHER))
        world.sleep(30)
        assert locations(world) == {OTHER}
        path.write_text("[[record]]\ndoi = ")
        world.sleep(30)
        assert locations(world) == {OTHER}
        ready = [reply.json["local_records"]["state"] for reply in ask_both(world, "/readyz")]
        assert ready == ["broken", "broken"]
