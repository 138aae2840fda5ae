"""Bodies that are bounded while they arrive."""

from __future__ import annotations

import gzip

import pytest

from app.errors import InvalidAnswer
from app.upstream.engine import BoundedBody

TEXT = b'{"responseCode":100}' * 50


def read(body: BoundedBody, data: bytes, piece: int = 7) -> bytes:
    for start in range(0, len(data), piece):
        body.feed(data[start : start + piece])
    return body.finish()


@pytest.mark.parametrize("coding", ["", "identity", " Identity "])
def test_a_body_as_long_as_the_cap_is_taken(coding: str) -> None:
    assert read(BoundedBody(coding, len(TEXT)), TEXT) == TEXT


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
def test_a_compressed_body_that_unfolds_to_the_cap_is_taken(coding: str) -> None:
    assert read(BoundedBody(coding, len(TEXT)), gzip.compress(TEXT)) == TEXT


def test_a_longer_body_is_refused() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 99 bytes"):
        read(BoundedBody("", 99), b" " * 100)


def test_a_compressed_body_is_refused_as_soon_as_it_unfolds_too_far() -> None:
    body = BoundedBody("gzip", 1000)
    with pytest.raises(InvalidAnswer, match="longer than 1000 bytes"):
        body.feed(gzip.compress(b" " * 10_000_000))


def test_a_compressed_body_that_never_unfolds_is_refused_by_its_own_length() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 100 bytes"):
        read(BoundedBody("gzip", 100), gzip.compress(b"") + b"\x00" * 200)


@pytest.mark.parametrize(
    ("coding", "data"),
    [("br", b"x"), ("gzip, gzip", b"x"), ("gzip", b"not gzip"), ("gzip", gzip.compress(TEXT)[:-4])],
    ids=["never offered", "twice", "not gzip", "cut off"],
)
def test_what_cannot_be_decompressed_is_no_valid_answer(coding: str, data: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        read(BoundedBody(coding, 10_000), data)


def test_an_empty_body_needs_no_gzip_header() -> None:
    assert BoundedBody("gzip", 10).finish() == b""
