"""No command succeeds with nothing: exit status 1, one sentence, and no file."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from doi_proxy.commands.main import main
from tests.cache.entries import bundle
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import fill

pytestmark = pytest.mark.process

NOTHING = [
    ("cache export --output OUT", "nothing is exported: the store has none of the records"),
    ("cache export --output OUT --prefix 10.1000", "nothing is exported: the store has none of the records"),
    ("cache export OUT --from EMPTY", "nothing is exported: the store has none of the records"),
    ("cache import EMPTY", "the bundle has no checksum line at its end"),
    ("cache import --no-checksum EMPTY", "the bundle has no records"),
    ("cache import BUNDLE", "the bundle has no records"),
    ("cache import --format csv EMPTY", "no records were found"),
    ("cache import FOLDER", "no records were found"),
    ("cache warm EMPTY", "the lists have no names"),
    ("resolve EMPTY", "the lists are empty"),
]


@pytest.mark.parametrize(("command", "sentence"), NOTHING)
def test_a_command_with_nothing_to_do_fails_with_a_sentence(
    command: str, sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(tmp_path / "store.sqlite3", Clock(time.time()), 0))
    (tmp_path / "EMPTY").touch()
    (tmp_path / "BUNDLE").write_bytes(bundle())
    (tmp_path / "FOLDER").mkdir()
    words = [str(tmp_path / word) if word.isupper() else word for word in command.split()]
    # No upstream has this port.
    outside = ["--store-url", f"sqlite:///{tmp_path}/store.sqlite3", "--upstream-url", "http://127.0.0.1:9"]
    assert main([*words, *outside]) == 1
    assert sentence in capfd.readouterr().err
    assert not (tmp_path / "OUT").exists()
