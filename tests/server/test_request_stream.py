"""How the bytes of a client are cut into parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.server.plain_head import (
    CHUNKED,
    END,
    MAX_HEAD_BYTES,
    RequestStream,
    body_length,
    end_of_part,
    host_fault,
)

HEAD = b"GET /10.1000/182 HTTP/1.1\r\nHost: a\r\n\r\n"
PIECES = st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", END, b"GET / HTTP/1.1\r\n"]), max_size=30)


def cut_all(stream: RequestStream, reads: list[bytes]) -> list[bytes]:
    parts = []
    for read in reads:
        if read:
            stream.push(read)
        while stream.has_unread:
            parts.append(stream.cut())
            stream.count(parts[-1])
    return parts


@given(PIECES)
def test_the_parts_are_the_stream(reads: list[bytes]) -> None:
    assert b"".join(cut_all(RequestStream(), reads)) == b"".join(reads)


@given(PIECES)
def test_a_part_contains_the_end_of_at_most_one_head_and_ends_there(reads: list[bytes]) -> None:
    whole, at = b"".join(reads), 0
    for part in cut_all(RequestStream(), reads):
        end = at + len(part)
        assert END not in whole[at : end - 1]
        at = end


def test_a_head_that_arrives_whole_is_recognized() -> None:
    assert RequestStream().is_one_head(HEAD)


def test_two_heads_half_a_head_and_a_head_in_a_body_are_not_one_head() -> None:
    assert not RequestStream().is_one_head(HEAD + HEAD)
    assert not RequestStream().is_one_head(HEAD[:-1])
    begun = RequestStream()
    begun.count(HEAD[:5])
    assert not begun.is_one_head(HEAD)
    in_body = RequestStream()
    in_body.end_head(len(HEAD))
    assert not in_body.is_one_head(HEAD)


def test_a_body_ends_where_its_length_says() -> None:
    stream = RequestStream()
    stream.end_head(3)
    assert cut_all(stream, [b"abc" + HEAD]) == [b"abc", HEAD]


def test_a_head_is_never_cut_beyond_its_limit() -> None:
    stream = RequestStream()
    stream.push(b"a" * (MAX_HEAD_BYTES + 10))
    stream.count(stream.cut())
    assert stream.head_bytes == MAX_HEAD_BYTES
    assert stream.is_head_too_large


def test_what_frames_chunks_is_limited_until_data_arrives() -> None:
    stream = RequestStream()
    stream.end_head(CHUNKED)
    stream.count(b"1;" + b"x" * MAX_HEAD_BYTES)
    assert stream.is_head_too_large
    stream.note_data()
    stream.count(b"x" * (MAX_HEAD_BYTES - 1))
    assert not stream.is_head_too_large
    stream.count(b"x")
    assert stream.is_head_too_large


def test_after_a_message_a_new_request_may_begin() -> None:
    stream = RequestStream()
    stream.end_head(CHUNKED)
    assert stream.is_in_request
    stream.end_message()
    assert not stream.is_in_request


# --- Where the parts of a stream end, the length of a body, and the errors in Host -----------------------------------


PIECES_FRAMING = st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", END]), max_size=12).map(b"".join)
HOST = (b"host", b"doi.example:8000")


@given(before=PIECES_FRAMING.map(lambda piece: piece[:3]), ignored=PIECES_FRAMING, data=PIECES_FRAMING)
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
