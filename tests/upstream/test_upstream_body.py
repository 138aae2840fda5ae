"""Bodies that are bounded while they arrive."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import httpx
import pytest

from doi_proxy.errors import InvalidAnswer
from doi_proxy.upstream.client import read_body

pytestmark = pytest.mark.anyio

TEXT = b'{"responseCode":100}' * 50


async def read(coding: str, most: int, *pieces: bytes) -> bytes:
    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return await read_body(httpx.Response(200, headers={"content-encoding": coding}, content=stream()), most)


def cut(data: bytes, size: int = 7) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("coding", ["", "identity", " Identity "])
async def test_a_body_as_long_as_the_cap_is_taken(coding: str) -> None:
    assert await read(coding, len(TEXT), *cut(TEXT)) == TEXT


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
async def test_a_compressed_body_that_unfolds_to_the_cap_is_taken(coding: str) -> None:
    assert await read(coding, len(TEXT), *cut(gzip.compress(TEXT))) == TEXT


async def test_a_longer_body_is_refused() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 99 bytes"):
        await read("", 99, *cut(b" " * 100))


async def test_a_compressed_body_is_refused_as_soon_as_it_unfolds_too_far() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 1000 bytes"):
        await read("gzip", 1000, gzip.compress(b" " * 10_000_000))


async def test_a_compressed_body_that_never_unfolds_is_refused_by_its_own_length() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 100 bytes"):
        await read("gzip", 100, *cut(gzip.compress(b"") + b"\x00" * 200))


@pytest.mark.parametrize(
    ("coding", "data"),
    [("br", b"x"), ("gzip, gzip", b"x"), ("gzip", b"not gzip"), ("gzip", gzip.compress(TEXT)[:-4])],
    ids=["never offered", "twice", "not gzip", "cut off"],
)
async def test_what_cannot_be_decompressed_is_no_valid_answer(coding: str, data: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        await read(coding, 10_000, *cut(data))


async def test_an_empty_body_needs_no_gzip_header() -> None:
    assert await read("gzip", 10) == b""
