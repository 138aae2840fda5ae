"""Compression of records: round trips, what is refused, and the dictionary that stores depend on."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.store.stored_entry import MAX_BYTES, compress, decompress, read_dictionary_1
from tests.cache.entries import values


@given(st.binary(max_size=2_000))
def test_decompress_returns_what_was_compressed(data: bytes) -> None:
    assert decompress(compress(data)) == data


def test_an_ordinary_url_takes_less_than_half_and_a_record_less_than_a_quarter() -> None:
    url = b"https://link.springer.com/10.1007/s00339-006-3642-2"
    assert len(compress(url)) < len(url) / 2
    record = values("https://onlinelibrary.wiley.com/doi/abs/10.1002/anie.201804551")
    assert len(compress(record)) < len(record) / 4


@given(st.binary(max_size=100))
def test_other_data_raises_value_error_alone(data: bytes) -> None:
    try:
        decompress(data)
    except ValueError:
        return


def test_data_that_is_cut_or_followed_by_more_is_refused() -> None:
    data = compress(b"https://publisher.example/1")
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(ValueError, match=r".+"):
            decompress(wrong)


def test_no_more_than_the_limit_is_decompressed() -> None:
    work = zlib.compressobj(9, zlib.DEFLATED, -14, 8, zlib.Z_DEFAULT_STRATEGY, read_dictionary_1())
    bomb = work.compress(bytes(MAX_BYTES + 1)) + work.flush()
    with pytest.raises(ValueError, match="no end"):
        decompress(bomb)
