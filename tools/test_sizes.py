"""Long files and functions are named."""

from __future__ import annotations

import pytest

from tools.sizes import list_long_parts

pytestmark = pytest.mark.repository


def test_a_long_function_in_a_long_file_is_named_as_the_file_is() -> None:
    text = "x = 1\n" * 540 + "def f():\n" + "    x = 1\n" * 60
    assert list(list_long_parts("app/a.py", text)) == [
        "app/a.py has 601 lines (limit 600)",
        "app/a.py:541 f has 61 lines (limit 60)",
    ]


def test_a_file_at_the_limits_is_not_named() -> None:
    text = "x = 1\n" * 540 + "def f():\n" + "    x = 1\n" * 59
    assert list(list_long_parts("app/a.py", text)) == []
