"""The dump of a handle server, whose names are then local records."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.feature import Feature

#: The format of `cache import`.
HANDLE_DUMP: Final = "handle-dump"


class HandleDump(Feature):
    """Only the command `cache import` uses it."""

    name = "handle_dump"
    summary = "the dump of a handle server as local records: its names outlive it"
    needs = ("native", "local_records")
