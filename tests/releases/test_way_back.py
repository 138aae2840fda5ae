"""The way back to an earlier release, with its real program from the history of this repository, the upstream down.

The program runs with the libraries of this release. docs/releases.md has the results as a table.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from app.cache.entry import Entry
from app.doi.name import fold
from app.handle.answer import Answer, ResponseCode
from tests.cache.conftest import valkey_url
from tests.cluster.processes import ROOT, Process, until
from tests.cluster.raw_http import ask
from tests.parts import usual_cache
from tests.ports import free_port
from tests.releases.stores import ANSWERS, HERE

__all__ = ["valkey_url"]

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.slow]

COMMITS: Final = {"0.1.0": "8f1e347", "0.2.0": "028f7e3"}
#: Nothing listens there.
DOWN: Final = {"DOI_PROXY_UPSTREAM_URL": "http://127.0.0.1:9"}
DAY: Final = 86_400.0


@pytest.fixture(params=COMMITS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """An earlier release, and a folder with its program."""
    packed = subprocess.run(
        ["git", "archive", COMMITS[request.param], "app"], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip("this checkout has no history")
    folder = tmp_path / "old"
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return request.param, folder


def value(target: str) -> dict[str, object]:
    """A value that redirects to a target."""
    return {"index": 1, "type": "URL", "data": {"format": "string", "value": target}, "ttl": 86400}


async def fill(url: str, target: str = "") -> None:
    """Write the records of ANSWERS into a store by this release, fresh, or with another target."""
    cache, now = usual_cache(url, clock=time.time), time.time()
    for line in (HERE / "records.ndjson").read_text().splitlines():
        record = json.loads(line)
        values = [value(target)] if target else record["values"]
        answer = Answer(ResponseCode.SUCCESS, json.dumps(values).encode())
        await cache.put(Entry(fold(record["handle"]), answer, now, now + DAY, now + 2 * DAY))
    await cache.flush()
    await cache.close()


def run(folder: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the program in a folder on a store."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}
    command = [sys.executable, "-m", "app", *words, "--store-url", url]
    return subprocess.run(
        command, cwd=folder, env={**environment, **DOWN}, capture_output=True, text=True, timeout=120, check=False
    )


async def answers_of(folder: Path, url: str, log: Path) -> dict[str, int]:
    """The status of each answer of the program in a folder that serves a store."""
    port = free_port()
    words = ["-m", "app", "serve", "--host", "127.0.0.1", "--port", str(port), "--store-url", url]
    process = Process([sys.executable, *words], log, DOWN, folder=folder)

    async def is_up() -> bool:
        assert process.runs, process.log
        try:
            return (await ask(port, "/healthz", deadline=5.0)).status == 200
        except (OSError, EOFError, TimeoutError):
            return False

    try:
        await until(is_up, 60.0, "the earlier release answers")
        return {name: (await ask(port, f"/{name}", deadline=30.0)).status for name, _, _ in KEPT}
    finally:
        process.kill()


#: What a store has: "not found" is not exported, and not written here.
KEPT: Final = [one for one in ANSWERS if one[1] != 404]
ALL: Final = {name: status for name, status, _ in KEPT}


async def test_a_file_of_this_release_is_refused_and_not_changed(old: tuple[str, Path], tmp_path: Path) -> None:
    release, folder = old
    file = tmp_path / "store.sqlite3"
    await fill(f"sqlite:///{file}")
    before = file.read_bytes()
    refused = await asyncio.to_thread(run, folder, f"sqlite:///{file}", "serve", "--port", str(free_port()))
    assert refused.returncode == 2, release
    assert "is a database of another program" in refused.stderr
    assert file.read_bytes() == before


async def test_bundles_keep_every_answer_both_ways(old: tuple[str, Path], tmp_path: Path) -> None:
    release, folder = old
    urls = [f"sqlite:///{tmp_path}/{name}.sqlite3" for name in ("new", "old", "again")]
    await fill(urls[0])
    programs, bundle = (ROOT, folder, ROOT), str(tmp_path / "backup.ndjson.gz")
    for number in (0, 1):
        exported = await asyncio.to_thread(run, programs[number], urls[number], "cache", "export", "--output", bundle)
        assert exported.returncode == 0, (release, exported.stderr)
        imported = await asyncio.to_thread(run, programs[number + 1], urls[number + 1], "cache", "import", bundle)
        assert "refused 0; checksum right" in imported.stdout, (release, imported.stderr)
        shown = await answers_of(programs[number + 1], urls[number + 1], tmp_path / f"log-{number}")
        assert shown == ALL, release


@pytest.mark.valkey
async def test_a_server_keeps_the_answers_for_0_2_0_and_has_misses_for_0_1_0(
    old: tuple[str, Path], tmp_path: Path, valkey_url: str
) -> None:
    release, folder = old
    await fill(valkey_url)
    shown = await answers_of(folder, valkey_url, tmp_path / "log")
    if release == "0.2.0":
        assert shown == ALL
    else:
        assert set(shown.values()) <= {502, 503, 504}
    assert await answers_of(ROOT, valkey_url, tmp_path / "log-again") == ALL
