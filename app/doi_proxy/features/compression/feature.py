"""Compressed answers."""

from __future__ import annotations

from collections.abc import Iterable

from doi_proxy.features.feature import Core, Feature, Others, Part


class CompressedAnswers(Feature):
    """The stage that encodes answers."""

    name = "compression"
    summary = "Zstandard or gzip for large answers"

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Encode answers for the clients that accept it."""
        from doi_proxy.features.compression.compression import Compression

        return (Compression(),)
