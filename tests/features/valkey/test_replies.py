"""The reply to a command has the shape that the command's replies have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from doi_proxy.features.valkey.replies import WrongShape, interpret, read_anything, read_data, read_number
from tests.table import table


@table(
    "read, reply, value",
    [
        (read_data, b"text", b"text"),
        (read_data, None, None),
        (read_number, 7, 7),
        (read_number, b"7", 7),
        (read_anything, [None], [None]),
    ],
)
def test_a_reply_of_the_right_shape_is_read(read: Callable[[Any], Any], reply: Any, value: object) -> None:
    assert interpret(read, reply) == value


@table(
    "read, reply",
    [
        (read_data, 7),
        (read_data, "text"),
        (read_data, [b"text"]),
        (read_number, None),
        (read_number, b"text"),
        (read_number, [b"7"]),
    ],
)
def test_a_reply_of_another_shape_is_refused(read: Callable[[Any], Any], reply: Any) -> None:
    with pytest.raises(WrongShape, match="its reply to this command has another shape"):
        interpret(read, reply)
