"""What the audit makes of a report, of a lock, and of licences."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tools.audit.__main__ import find_refused, read_advisories, read_lock, summarise

pytestmark = pytest.mark.repository

_LOCKS = Path(__file__).resolve().parents[2] / "requirements"
#: The form of pip-audit 2.10: a package without advisories, one with, and one that it could not compare.
_REPORT = {
    "dependencies": [
        {"name": "a", "version": "1", "vulns": []},
        {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"], "aliases": []}]},
        {"name": "c", "skip_reason": "Dependency not found"},
    ],
    "fixes": [],
}


def test_a_package_that_was_not_compared_is_not_counted() -> None:
    assert read_advisories(_REPORT) == (2, ["b 2: PYSEC-1, fixed in 3"])


def test_the_summary_says_what_is_not_known() -> None:
    day = date(2026, 11, 26)
    assert "nothing is known about the locked versions" in summarise(0, 3, day)
    assert summarise(2, 3, day).endswith("of 2026-11-26; nothing is known about the others.")
    assert summarise(3, 3, day) == "3 of 3 locked packages were compared with the advisories of 2026-11-26."


def test_a_licence_that_is_unknown_or_not_permitted_is_refused() -> None:
    licences = {"a": "MIT License", "b": "UNKNOWN", "c": "MIT AND GPL-3.0", "d": "Apache-2.0 AND MIT"}
    assert find_refused(["d", "c", "b", "a", "not-installed"], licences) == ["b: UNKNOWN", "c: MIT AND GPL-3.0"]


def test_the_locks_have_every_package_of_the_program() -> None:
    runtime, everything = (read_lock((_LOCKS / name).read_text("utf-8")) for name in ("runtime.lock", "dev.lock"))
    assert runtime["fastapi"] and runtime.items() <= everything.items()
