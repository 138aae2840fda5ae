"""A QR code on the page of a record, for paper and slides."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from app.features.feature import Context, Extra, Feature, Opened
from app.features.qr.section import QRSection

_LIBRARY: Final = "segno"


def open_qr(context: Context) -> Opened:
    """The section of the page of a record."""
    return Opened(sections=(QRSection(),))


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the block, by its template."""
    return {"qr": {"qr": {"url": "https://doi.org/10.1000/182", "size": 25, "path": "M0 0h7"}}}


FEATURE: Final = Feature(
    "qr",
    "a QR code on the page of a record, for paper and slides",
    extra=Extra("qr", (_LIBRARY,)),
    is_on=lambda settings: find_spec(_LIBRARY) is not None,
    open=open_qr,
    samples=_sample_facts,
)
