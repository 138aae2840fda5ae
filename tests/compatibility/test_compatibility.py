"""What a release promised still holds: its stores open, and its shapes are there."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.system.version import VERSION
from tests.compatibility.__main__ import name_folder, write_shapes
from tests.compatibility.shapes import describe_json, list_losses, read_shapes
from tests.compatibility.stores import REGISTERED, TARGET, read_keys
from tests.world.valkey import URL
from tests.world.world import World

#: A folder for each minor release, the oldest first. The last one is that of the version in this checkout.
FOLDERS = sorted(
    (path for path in Path(__file__).parent.iterdir() if (path / "written.json").exists()),
    key=lambda path: [int(number) for number in path.name.split(".")],
)
NO_SHAPES = ("deprecated", "valkey", "written")
SHAPES = [path for folder in FOLDERS for path in folder.glob("*.json") if path.stem not in NO_SHAPES]

read_current = cache(read_shapes)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def was_announced(loss: str, folders: Sequence[Path]) -> bool:
    """Whether a release of these announced that the next one removes it. A histogram has several names."""
    return any(
        re.fullmatch(rf"{kind}\.{name}(?:_bucket|_sum|_count)? is gone", loss)
        for folder in folders
        for kind, names in read(folder, "deprecated").items()
        for name in names
    )


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_release_promised_to_programs_is_there(path: Path) -> None:
    later = FOLDERS[FOLDERS.index(path.parent) : -1]
    losses = [
        loss
        for loss in list_losses(read(path.parent, path.stem), read_current()[path.stem], path.stem)
        if not was_announced(loss, later)
    ]
    assert losses == [], (
        f"release {path.parent.name} promised these: keep them for a minor release, with a warning (docs/releases.md). "
        f"Before the release itself, remove the file, and write it anew: python -m tests.compatibility"
    )


def test_every_shape_of_today_is_written_down() -> None:
    current, newest = read_current(), FOLDERS[-1]
    written = {name: read(newest, name) for name in current}
    new = [loss for name in current for loss in list_losses(current[name], written[name], name)]
    assert new == [], "write them down: python -m tests.compatibility"


def test_the_newest_folder_is_that_of_the_version() -> None:
    assert FOLDERS[-1].name == name_folder(VERSION)


def test_a_shape_that_lost_something_does_not_replace_the_written_one(tmp_path: Path) -> None:
    for name, shape in read_current().items():
        (tmp_path / f"{name}.json").write_text(json.dumps(shape))
    (tmp_path / "settings.json").write_text('{"old": "server.old"}')
    with pytest.raises(SystemExit, match=r"settings\.json: settings\.old is gone; .* remove the file"):
        write_shapes(tmp_path)
    assert read(tmp_path, "settings") == {"old": "server.old"}


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("settings.upstream_rate is gone", True),
        ("settings.upstream_rate_x is gone", False),
        ("metrics.upstream_rate is gone", False),
        ("metrics.doi_proxy_seconds_bucket is gone", True),
        ("settings.upstream_rate is 'server.rate', and was 'upstream.rate'", False),
    ],
)
def test_what_a_release_deprecated_can_be_gone_in_a_later_one(loss: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "deprecated.json").write_text('{"settings": ["upstream_rate"], "metrics": ["doi_proxy_seconds"]}')
    assert was_announced(loss, [tmp_path]) is expected
    assert not was_announced(loss, [])


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
