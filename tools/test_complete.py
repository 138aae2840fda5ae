"""A run of the tests that lacks some says which."""

from __future__ import annotations

import pytest

from tools.complete import FLOOR, find_missing

pytestmark = pytest.mark.repository


def test_a_run_of_all_tests_lacks_nothing() -> None:
    assert list(find_missing(f"==== {FLOOR} passed, 1882 deselected in 240.1s ====")) == []


def test_a_run_that_lost_tests_and_skipped_one_says_so() -> None:
    log = "SKIPPED [1] tests/test_a.py:7: nginx is not installed\n==== 12 passed, 1 skipped in 1.0s ===="
    assert list(find_missing(log)) == [
        f"12 tests passed; {FLOOR} are the floor (tools/complete.py).",
        "tests/test_a.py:7 was skipped: nginx is not installed",
    ]
