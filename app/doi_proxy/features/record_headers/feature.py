"""The headers that a record adds to its redirect, if the operator allows their names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from doi_proxy.features.check import Finding, Inspection
from doi_proxy.features.feature import NOTHING, Context, Feature, Opened
from doi_proxy.features.record_headers.headers import read_allowed, record_headers
from doi_proxy.features.record_headers.settings import RecordHeaderSettings


def open_record_headers(context: Context) -> Opened:
    """Let redirects have the headers that are allowed. Raises ConfigurationError."""
    allowed = read_allowed(context.settings.group(RecordHeaderSettings).record_headers)
    if allowed:
        context.read_headers = partial(record_headers, allowed)
    return NOTHING


def find_forbidden_names(inspection: Inspection) -> Iterator[Finding]:
    """Names that no record may set."""
    setting = inspection.settings.group(RecordHeaderSettings).record_headers
    yield from inspection.find_refusal("record_headers", lambda: read_allowed(setting))


FEATURE: Final = Feature(
    "record_headers",
    "headers that a record adds to its redirect, by 10320/headers",
    open=open_record_headers,
    check=find_forbidden_names,
)
