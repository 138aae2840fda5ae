"""How the bytes of a client are cut into parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.server.plain_head import (
    END,
    RequestStream,
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


def test_two_heads_half_a_head_and_a_head_in_a_body_are_not_one_head() -> None:
    assert not RequestStream().is_one_head(HEAD + HEAD)
    assert not RequestStream().is_one_head(HEAD[:-1])
    begun = RequestStream()
    begun.count(HEAD[:5])
    assert not begun.is_one_head(HEAD)
    in_body = RequestStream()
    in_body.end_head(len(HEAD))
    assert not in_body.is_one_head(HEAD)
