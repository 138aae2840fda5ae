"""What a release promised still holds: its stores open, and its shapes are there."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.shapes import describe_json, read_shapes
from tests.compatibility.stores import REGISTERED, TARGET, read_keys
from tests.world.valkey import URL
from tests.world.world import World

FOLDERS = sorted(path for path in Path(__file__).parent.iterdir() if (path / "written.json").exists())
SHAPES = [path for folder in FOLDERS for path in folder.glob("*.json") if path.stem not in ("valkey", "written")]

read_current = cache(read_shapes)


def list_losses(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """What the old shape has and the new one has not, or otherwise. A new member is no loss."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, inner in old.items():
            if name in new:
                yield from list_losses(inner, new[name], f"{place}.{name}")
            else:
                yield f"{place}.{name} is gone"
    elif isinstance(old, list) and isinstance(new, list):
        yield from (f"{place}: {one} is gone" for one in old if not any(not list(list_losses(one, it)) for it in new))
    elif old != new:
        yield f"{place} is {new!r}, and was {old!r}"


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_release_promised_to_programs_is_there(path: Path) -> None:
    losses = list(list_losses(json.loads(path.read_text(encoding="utf-8")), read_current()[path.stem], path.stem))
    assert losses == [], (
        f"release {path.parent.name} promised these: keep them for a minor release, with a warning. Before "
        f"the release itself, write them anew: python -m tests.compatibility {path.parent.name}"
    )


def test_every_shape_of_today_is_written_down() -> None:
    current, newest = read_current(), FOLDERS[-1]
    written = {name: json.loads((newest / f"{name}.json").read_text(encoding="utf-8")) for name in current}
    new = [loss for name in current for loss in list_losses(current[name], written[name], name)]
    assert new == [], f"write them down: python -m tests.compatibility {newest.name}"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": "int"}, {"a": "int", "b": "str"}, []),
        ({"a": "int"}, {}, [".a is gone"]),
        ({"a": "int"}, {"a": "str"}, [".a is 'str', and was 'int'"]),
        (["x", "y"], ["y", "z"], [": x is gone"]),
        ([{"a": "int"}], [{"a": "int", "b": "str"}], []),
    ],
)
def test_a_loss_is_what_is_gone_or_otherwise(old: Any, new: Any, expected: list[str]) -> None:
    assert list(list_losses(old, new)) == expected


def test_a_shape_has_types_in_place_of_values() -> None:
    assert describe_json({"a": [1, 2, "x"], "b": None}) == {"a": ["int", "str"], "b": "NoneType"}


def set_clock(world: World, folder: Path) -> None:
    """Let it be half a minute after the store was written."""
    world.set_clock(json.loads((folder / "written.json").read_text())["at"] + 30 - world.now())


def check_records(world: World, folder: Path) -> None:
    """Whether a service without an upstream answers from the store as on the day on which it was written."""
    set_clock(world, folder)
    answers = {name: world.get(f"/10.5555/{name}") for name in ("record", "alias", "missing")}
    assert answers["record"].location == TARGET
    assert str(answers["alias"].location).endswith("/10.5555/record")
    assert "hit" in str(answers["record"]["cache-status"])
    assert answers["missing"].status == 404


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_sqlite_file_of_a_release_opens_with_all_its_records(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "store.sqlite3", tmp_path)
    with World(store_url=f"sqlite:///{tmp_path}/store.sqlite3", mode="sealed") as world:
        check_records(world, folder)
        assert {name: world.get(f"/{name}").location for name in REGISTERED} == REGISTERED
    assert [path.name for path in tmp_path.glob("*.1")] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_keys_of_a_release_on_a_valkey_server_are_read(folder: Path) -> None:
    with World(store_url=URL, mode="sealed") as world:
        world.valkey.keys.load(read_keys(folder / "valkey.json"))
        check_records(world, folder)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_bundle_of_a_release_fills_a_store(folder: Path, tmp_path: Path) -> None:
    seed = tmp_path / "bundle.ndjson"
    seed.write_bytes(gzip.decompress((folder / "bundle.ndjson.gz").read_bytes()))
    with World(mode="sealed", seed=seed) as world:
        set_clock(world, folder)
        world.restart()
        check_records(world, folder)
