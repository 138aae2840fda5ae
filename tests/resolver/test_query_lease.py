"""A query that waits for its turn keeps no other process from asking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.world.valkey import URL
from tests.world.world import World

NAMES = [f"10.1000/{number}" for number in range(20)]
TARGET = "https://www.example.org/"
LEASE = 1.5


@pytest.mark.parametrize(("store", "instance"), [("sqlite:///{}/store.sqlite3", 0), (URL, 1)])
def test_a_person_does_not_wait_for_the_turn_of_a_list(tmp_path: Path, store: str, instance: int) -> None:
    with World(instances=2, store_url=store.format(tmp_path), upstream_rate=1, upstream_burst=8) as world:
        for name in NAMES:
            world.upstream.put(name, url=TARGET)
        listed = world.client("192.0.2.8", 0).ask(
            "/api/resolve", {"content_type": "application/json"}, method="POST", body=json.dumps(NAMES).encode()
        )
        world.sleep(6)
        person = world.client("192.0.2.7", instance)
        # The turn of the first of them comes soon.
        for name in [name for name in NAMES if not world.upstream.queries(name)][4:7]:
            began = world.now()
            assert world.get(f"/{name}", person).location == TARGET
            assert world.now() - began < LEASE + 0.5
        assert world.finish(listed).status == 200
        assert [world.upstream.queries(name) for name in NAMES] == [1] * len(NAMES)
