"""What a values page shows of a record: the bounds of its rows and of their members."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.web.shown_values import (
    MAX_CONTAINERS_SHOWN,
    MAX_DEPTH_SHOWN,
    MAX_MEMBERS_SHOWN,
    MAX_VALUE_BYTES_SHOWN,
    MAX_VALUES_SHOWN,
    Members,
    Outline,
    rows,
)
from handle_protocol.value import HandleValue, read_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=40,
)


def value(data: Any, index: int = 1) -> HandleValue:
    return read_value(json.dumps({"index": index, "type": "X", "data": data}).encode())


def read_back(shown: Any) -> Any:
    """The JSON that members came from, if none was left out."""
    if not isinstance(shown, Members):
        return shown
    assert shown.omitted == 0
    if shown.is_list:
        return [read_back(inner) for _, inner in shown.shown]
    return {key: read_back(inner) for key, inner in shown.shown}


def write_leaves(content: Any) -> Any:
    """The JSON with each number, boolean, null and empty container as its text."""
    if isinstance(content, dict) and content:
        return {key: write_leaves(inner) for key, inner in content.items()}
    if isinstance(content, list) and content:
        return [write_leaves(inner) for inner in content]
    return content if isinstance(content, str) else json.dumps(content)


def count(shown: Any) -> int:
    return sum(1 + count(inner) for _, inner in shown.shown) if isinstance(shown, Members) else 0


def nested(depth: int) -> Any:
    content: Any = "end"
    for _ in range(depth):
        content = [content]
    return content


@given(st.lists(JSON, max_size=4).filter(lambda items: len(str(items)) < 400))
def test_small_and_flat_json_is_shown_whole(items: list[Any]) -> None:
    outline = Outline()
    for item in items:
        if str(item).count("[") + str(item).count("{") <= MAX_DEPTH_SHOWN:
            assert read_back(outline.members(item)) == write_leaves(item)


@given(st.integers(0, 30), st.integers(0, 60))
def test_the_values_of_a_page_share_their_members(lists: int, length: int) -> None:
    outline = Outline()
    shown = [outline.members(["x"] * length) for _ in range(lists)]
    assert sum(map(count, shown)) == min(lists * length, MAX_MEMBERS_SHOWN)
    omitted = sum(one.omitted for one in shown if isinstance(one, Members))
    assert sum(map(count, shown)) + omitted == lists * length


def test_items_of_a_list_come_from_the_same_room() -> None:
    outline = Outline()
    assert outline.items("a" * (MAX_MEMBERS_SHOWN - 1)).omitted == 0
    assert outline.items("abc") == Members(((None, "a"),), 2)
    assert outline.items("abc") == Members((), 3)


def test_the_first_levels_are_shown() -> None:
    shown, levels = Outline().members(nested(MAX_DEPTH_SHOWN + 1)), 0
    while isinstance(shown, Members) and shown.shown:
        ((_, shown),) = shown.shown
        levels += 1
    assert (levels, shown) == (MAX_DEPTH_SHOWN, Members((), 1))


def test_a_page_has_a_limited_number_of_values() -> None:
    values = [value("x", index) for index in range(MAX_VALUES_SHOWN + 1)]
    assert [row.value.index for row in rows(values)] == list(range(MAX_VALUES_SHOWN))
    assert [row.data.value for row in rows(values[:1])] == ["x"]


def test_a_value_that_is_too_long_to_parse_is_shown_by_its_length_and_a_text_is_not() -> None:
    long = value({"format": "key", "value": "x" * MAX_VALUE_BYTES_SHOWN})
    text = value("x" * MAX_VALUE_BYTES_SHOWN)
    first, second = rows([long, text])
    assert (first.data.value, first.omitted_bytes) == (None, len(long.raw))
    assert (second.data.value, second.omitted_bytes) == (text.text, 0)


def test_the_values_of_a_page_share_the_containers_that_are_parsed() -> None:
    half = value({"format": "key", "value": [[]] * (MAX_CONTAINERS_SHOWN // 2)})
    small = value({"format": "key", "value": {"kty": "RSA"}})
    assert [row.omitted_bytes > 0 for row in rows([half, half, small])] == [False, True, False]


def test_a_page_has_a_limited_number_of_bytes() -> None:
    texts = [value("x" * 10_000, index) for index in range(10)]
    assert len(rows(texts)) == 6
