"""The items of the references of a text. A long text keeps no other request waiting."""

from __future__ import annotations

import time
from contextlib import nullcontext

import pytest

from doi_proxy.list_formats.entries import Item, ListItem
from doi_proxy.list_formats.extraction import locate_references, read_reference_items
from doi_proxy.list_formats.reference_list import find_references
from tests.hostile.turns import slowness

pytestmark = pytest.mark.anyio

#: Seconds of processor time. Each of these texts took more than 10 when its time was quadratic.
_MAX_SECONDS = 3.0


async def read_items(text: str) -> list[Item]:
    return [
        item async for item in read_reference_items(text, await locate_references(text, is_document=True), nullcontext)
    ]


@pytest.mark.parametrize("line", ["References\n", "References\nx\n", "Anhang\n", "\n", "x\n"])
def test_the_time_of_a_text_with_many_headings_is_linear(line: str) -> None:
    text = line * (600_000 // len(line))
    began = time.thread_time()
    find_references(text, is_document=True)
    assert time.thread_time() - began < _MAX_SECONDS * slowness()


async def test_a_paragraph_with_thousands_of_names_has_them_all_in_their_order() -> None:
    names = [f"10.1000/{number}" for number in range(3_000)]
    items = await read_items("References\nSmith. 10.1000/first.1\n" + "\v".join(names) + "\nJones\n")
    assert [item.text for item in items] == ["10.1000/first.1", *names, "Jones"]
    assert [item.line for item in items[:1] + items[-1:]] == [2, 4]
    assert {item.line for item in items[1:-1]} == {3}


async def test_the_lines_of_names_inside_a_reference_are_counted() -> None:
    text = "References\n[1] Smith.\n  See 10.1000/1 and\n  10.1000/2.\n\n\n [2] Jones, no name.\n[3] 10.1000/3\n"
    items = await read_items(text)
    assert [(item.line, isinstance(item, ListItem)) for item in items] == [(3, True), (4, True), (7, False), (8, True)]
