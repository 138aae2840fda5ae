"""A small store of each kind, and a bundle: written by a release, and opened by every later one."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any, Final

from doi_proxy.commands.main import main
from tests.registry_records import write_registry
from tests.world.valkey import URL
from tests.world.valkey_data import Data
from tests.world.world import World

#: A part of the keys of records. Other keys are of a running service.
ENTRY: Final = b":entry:"
TARGET: Final = "https://example.org/a"
REGISTERED: Final = {"10.5555/registered": "https://example.org/r", "10.5555/registered-2": "https://example.org/s"}


def fill(world: World, now: float) -> None:
    """Let a service fetch what its store shall keep."""
    world.set_clock(now - world.now())
    world.upstream.put("10.5555/record", url=TARGET)
    world.upstream.put("10.5555/alias", values=[_value("HS_ALIAS", "10.5555/record")])
    for name in ("record", "alias", "missing"):
        world.get(f"/10.5555/{name}")
    world.sleep(5)


def _value(kind: str, text: str) -> dict[str, Any]:
    return {"index": 1, "type": kind, "data": {"format": "string", "value": text}, "ttl": 86400}


def write_stores(folder: Path) -> None:
    """Write the SQLite file, the keys of a Valkey server, and the bundle."""
    # In a world, the clock of this process shows another time.
    path, now = folder / "store.sqlite3", time.time()
    url = f"sqlite:///{path}"
    for old in (path, folder / "bundle.ndjson.gz"):
        old.unlink(missing_ok=True)
    with World(store_url=url) as world:
        fill(world, now)
    assert main(["cache", "export", "--output", str(folder / "bundle.ndjson.gz"), "--store-url", url]) == 0
    write_registry(path, time.time, REGISTERED)
    with World(store_url=URL) as world:
        fill(world, now)
        keys = {_write(key): _write(text) for key, text in sorted(world.valkey.keys.save()[0].items()) if ENTRY in key}
    (folder / "valkey.json").write_text(json.dumps(keys, indent=1) + "\n", encoding="utf-8")
    (folder / f"{path.name}.lock").unlink(missing_ok=True)
    (folder / "written.json").write_text(json.dumps({"at": round(now)}) + "\n", encoding="utf-8")


def read_keys(file: Path) -> Data:
    """The keys that `write_stores` wrote, as the Valkey server in memory loads them. None of them ends."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return {base64.b64decode(key): base64.b64decode(text) for key, text in found.items()}, {}


def _write(data: bytes) -> str:
    return base64.b64encode(data).decode()
