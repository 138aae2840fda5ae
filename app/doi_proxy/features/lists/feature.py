"""Lists of names: the verdict on each of up to a million."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from doi_proxy.errors import TooManyRequests
from doi_proxy.features.feature import Feature

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.features.feature import Core, Opened, Others
    from doi_proxy.features.lists.answer import BatchService
    from doi_proxy.web.operations import Face

#: Long lists that one worker process answers at a time, beside twice as many short ones. 16 clients that send all they
#: may, and never read, take less than 100 MB (`python -m bench.attacks unread`).
MAX_OPEN: Final = 16
#: Names in one list. At 10 queries a second, a million new names take a day.
MAX_NAMES: Final = 1_000_000
RESOLVE_PATH: Final = "/api/resolve"


class TooManyBatches(TooManyRequests):
    """Too many lists are being answered; wait for one of them."""

    token = "too-many-batches"
    title = "Too many lists are being answered"


class Lists(Feature):
    """The endpoint /api/resolve."""

    name = "lists"
    summary = "lists of up to a million names, by HTTP and as a command"
    needs = ("suggestions", "metadata")
    own_api = {RESOLVE_PATH.encode(): "batch"}

    #: Answers lists.
    batches: BatchService

    def open(self, core: Core, others: Others) -> tuple[()]:
        """Open what answers lists."""
        from doi_proxy.features.lists.answer import BatchService, OpenBatches
        from doi_proxy.features.lists.batch import build_batches
        from doi_proxy.features.lists.metrics import ROWS
        from doi_proxy.features.metadata.feature import Metadata
        from doi_proxy.features.suggestions.feature import Suggestions
        from doi_proxy.list_formats.body import ListLimits
        from doi_proxy.system.meter import REFUSED

        names, compare = others[Suggestions].names, others[Metadata].compare
        count = core.meter.counter(ROWS)
        batches = build_batches(self.context.settings, core, names, self.context.clock, count, compare)
        self.batches = BatchService(
            batches, OpenBatches(MAX_OPEN, core.meter.counter(REFUSED)), ListLimits(names=MAX_NAMES)
        )
        return ()

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add the endpoint."""
        from doi_proxy.features.lists.http import add_resolve
        from doi_proxy.web.client_network import client_of

        add_resolve(app, self.batches, client_of)
