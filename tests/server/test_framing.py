"""Where the parts of a stream end, the length of a body, and the errors in Host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.server.plain_head import CHUNKED, END, body_length, end_of_part, host_fault

PIECES = st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", END]), max_size=12).map(b"".join)
HOST = (b"host", b"doi.example:8000")


@given(before=PIECES.map(lambda piece: piece[:3]), ignored=PIECES, data=PIECES)
def test_a_part_ends_after_the_first_blank_line_wherever_the_stream_is_cut(
    before: bytes, ignored: bytes, data: bytes
) -> None:
    rest, start = before + data, len(ignored)
    found = rest.find(END)
    expected = start + (len(data) if found < 0 else found + len(END) - len(before))
    assert end_of_part(before, ignored + data, start) == expected


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ({}, 0),
        ({b"content-length": b"0"}, 0),
        ({b"content-length": b"0017"}, 17),
        ({b"transfer-encoding": b"chunked"}, CHUNKED),
    ],
)
def test_the_length_of_a_body_is_that_of_its_header_and_unknown_for_chunks(
    fields: dict[bytes, bytes], length: int
) -> None:
    assert body_length(fields) == length


@pytest.mark.parametrize(
    ("headers", "version", "fault"),
    [
        # RFC 9112, section 3.2: one Host in HTTP/1.1, and none is needed before.
        ([HOST], "1.1", None),
        ([HOST, (b"accept", b"a"), (b"accept", b"b")], "1.1", None),
        ([], "1.0", None),
        ([], "1.1", "no Host"),
        ([HOST, HOST], "1.1", "more than one Host"),
        ([HOST, HOST], "1.0", "more than one Host"),
        ([(b"host", b"a b")], "1.1", "not a host name"),
        ([(b"host", b"a/b")], "1.0", "not a host name"),
    ],
)
def test_a_request_has_one_host_that_is_a_host(
    headers: list[tuple[bytes, bytes]], version: str, fault: str | None
) -> None:
    found = host_fault(headers, dict(headers), version)
    assert found is None if fault is None else found is not None and fault in found
