"""gzip data in pieces: any borders, several members, padding, and limits."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from doi_proxy.system.files import Gunzip, GzipLimits

pytestmark = pytest.mark.parametrize("library", [zlib, isal_zlib])


def opened(limits: GzipLimits, library: Any) -> Gunzip:
    return Gunzip(limits, ValueError, library)


@given(st.binary(max_size=2_000), st.integers(1, 50), st.booleans(), st.booleans())
def test_gzip_is_read_in_any_pieces(library: Any, data: bytes, step: int, in_two: bool, is_padded: bool) -> None:
    packed = gzip.compress(data) if not in_two else gzip.compress(data[:5]) + gzip.compress(data[5:])
    packed += b"\0" * 99 * is_padded
    gunzip = opened(GzipLimits(ratio=100.0), library)
    found = [piece for start in range(0, len(packed), step) for piece in gunzip.feed(packed[start : start + step])]
    gunzip.end()
    assert b"".join(found) == data


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (GzipLimits(ratio=100.0), "gzip data decompresses to more than 100 times its size"),
        (GzipLimits(total_bytes=200_000), "gzip data decompresses to more than 200000 bytes"),
    ],
)
def test_a_gzip_bomb_is_refused_after_its_first_pieces(library: Any, limits: GzipLimits, reason: str) -> None:
    bomb, found = gzip.compress(b"10.5555/a\n" * 5_000_000), 0
    gunzip = opened(limits, library)
    with pytest.raises(ValueError, match=reason):
        for piece in gunzip.feed(bomb):
            assert len(piece) <= limits.piece_bytes
            found += len(piece)
    assert found <= min(limits.total_bytes, 100 * len(bomb))


def test_gzip_that_is_damaged_or_cut_short_is_an_error(library: Any) -> None:
    with pytest.raises(ValueError, match="gzip data is damaged"):
        list(opened(GzipLimits(), library).feed(b"10.5555/a\n"))
    gunzip = opened(GzipLimits(), library)
    list(gunzip.feed(gzip.compress(b"10.5555/a\n")[:-4]))
    with pytest.raises(ValueError, match="ends too early"):
        gunzip.end()
