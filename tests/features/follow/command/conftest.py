"""What the tests of `doi-proxy cache pull` share: an environment without settings, and a place for stores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import app.features.follow.pull
from app.features.options import ENV_PREFIX
from tests.features.follow.command.primaries import TOKEN, Place


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment without settings, no waits between attempts, and the token of the primary in a file."""
    for name in list(os.environ):
        if name.startswith(ENV_PREFIX) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(app.features.follow.pull, "WAITS", (0.0, 0.0))
    (tmp_path / "token").write_text(TOKEN + "\n")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A primary and a replica without stores."""
    return Place(tmp_path)
