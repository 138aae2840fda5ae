"""What compresses the blocks of an import gives what every proxy reads, with isal and without it."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.features.registry import import_files
from doi_proxy.features.registry.import_files import choose_compress
from doi_proxy.features.registry.sqlite_blocks import MAX_BYTES
from doi_proxy.store.stored_entry import compress, decompress


@given(st.binary(max_size=200), st.integers(1, 2 * MAX_BYTES))
def test_what_an_import_compresses_is_decompressed(piece: bytes, length: int) -> None:
    text = (piece * (length // max(1, len(piece)) + 1))[:length]
    assert decompress(choose_compress()(text)) == text


def test_far_repetitions_stay_in_the_window() -> None:
    texts = [bytes(range(256)) * 8 + b"\n" + bytes([number]) * 15_000 for number in range(2)]
    text = texts[0] + texts[1] + texts[0]
    assert decompress(choose_compress()(text)) == text


def test_without_isal_the_compression_is_that_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "library", zlib)
    assert choose_compress() is compress
