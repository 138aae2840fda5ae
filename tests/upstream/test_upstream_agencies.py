"""Answers of the Which RA service."""

from __future__ import annotations

import pytest

from doi_proxy.errors import InvalidAnswer
from doi_proxy.upstream.source import read_agencies
from tests.table import table


def test_rows_are_read_in_order_without_unknown_members() -> None:
    body = b'[{"DOI": "10.5240", "RA": "EIDR", "more": 1}, {"DOI": "notadoi", "status": "Invalid DOI"}]'
    assert read_agencies(body, ["10.5240", "notADoi"]) == [
        {"DOI": "10.5240", "RA": "EIDR"},
        {"DOI": "notadoi", "status": "Invalid DOI"},
    ]


@table(
    "body",
    [
        b"",
        b"<html>",
        b"{}",
        b"[]",
        b"[1]",
        b'[{"DOI":"10.5240"}]',
        b'[{"DOI":"10.5240","RA":""}]',
        b'[{"DOI":"10.5240","RA":1}]',
        b'[{"DOI":"10.9999","RA":"EIDR"}]',
        b'[{"DOI":"10.5240","RA":"EIDR"},{"DOI":"10.5240","RA":"EIDR"}]',
        b"[" * 20_000,
        b'[{"DOI":"\xff","RA":"EIDR"}]',
    ],
)
def test_anything_else_is_no_valid_answer(body: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        read_agencies(body, ["10.5240"])
