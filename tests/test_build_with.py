"""The three calls of docs/build-with.md work as they stand, in each of its languages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from anyio.from_thread import start_blocking_portal

from tests.cluster.processes import proxy_before
from tests.fake_upstream import FakeUpstream

ROOT: Final = Path(__file__).resolve().parents[1]
BLOCKS: Final = dict(
    re.findall(r"^```(sh|python|js)\n(.*?)^```$", (ROOT / "docs/build-with.md").read_text("utf-8"), re.M | re.S)
)
COMMANDS: Final = {
    "sh": ["bash", "-euc"],
    "python": [sys.executable, "-c"],
    "js": ["node", "--input-type=module", "-e"],
}
TARGET: Final = "http://www.doi.org/hb.html"
_RUN: Final = 60


@pytest.fixture(scope="module")
def resolver() -> Iterator[str]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(FakeUpstream()) as upstream,
        portal.wrap_async_context_manager(proxy_before(upstream.url)) as url,
    ):
        upstream.put("10.1000/182", url=TARGET)
        yield url


@pytest.mark.process
@pytest.mark.parametrize("language", COMMANDS)
def test_the_three_calls_work_as_they_stand(resolver: str, language: str, tmp_path: Path) -> None:
    code = BLOCKS[language].replace("http://127.0.0.1:8000", resolver)
    done = subprocess.run(
        [*COMMANDS[language], code], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=_RUN
    )
    assert done.returncode == 0, done.stderr
    if language == "sh":
        assert done.stdout.startswith(f"{TARGET}\n")
        assert re.search(r'"best":{"doi":"10.1000/182".*"resolved".*"not_found"', done.stdout, re.S)
    else:
        assert done.stdout.splitlines() == [TARGET, "10.1000/182", "resolved not_found"]
