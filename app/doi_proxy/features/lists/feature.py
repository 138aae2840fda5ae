"""Lists of names: the verdict on each of up to a million, and the page that checks the DOIs of a bibliography."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from doi_proxy.errors import TooManyRequests
from doi_proxy.features.feature import Core, Feature, Opened, Others

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.features.lists.answer import BatchService
    from doi_proxy.web.redirect import Face

#: Long lists that one process answers at a time, beside twice as many short ones. 16 clients that send all they
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
    """The endpoint /api/resolve, and the page /references with its link in the footer of every page."""

    name = "lists"
    summary = (
        "lists of up to a million names, by HTTP, as a command, and as a page that checks a bibliography: /references"
    )
    needs = ("suggestions", "metadata")

    _batches: BatchService

    def open(self, core: Core, others: Others) -> tuple[()]:
        """Open what answers lists."""
        from doi_proxy.features.lists.answer import BatchService, OpenBatches
        from doi_proxy.features.lists.batch import build_batches
        from doi_proxy.features.lists.verdict import Verdict
        from doi_proxy.features.metadata.feature import Metadata
        from doi_proxy.features.suggestions.feature import Suggestions
        from doi_proxy.list_formats.body import ListLimits
        from doi_proxy.system.check import REFUSED, CounterData

        names, compare = others[Suggestions].names, others[Metadata].compare
        verdicts = tuple(verdict.value for verdict in Verdict)
        count = core.meter.counter(
            CounterData("batch_rows", "Rows of lists (POST /api/resolve), by verdict.", "verdict", verdicts)
        )
        batches = build_batches(self.context.settings, core, names, self.context.clock, count, compare)
        self._batches = BatchService(
            batches,
            OpenBatches(MAX_OPEN, core.meter.counter(REFUSED)),
            ListLimits(names=MAX_NAMES),
            core.text_turns,
        )
        return ()

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add the endpoint and the page."""
        from doi_proxy.features.lists.answer import add_resolve
        from doi_proxy.features.lists.references.page import PATH, ReferencesPage
        from doi_proxy.web.pages import PageLink

        face.own_api[RESOLVE_PATH.encode()] = "batch"
        add_resolve(app, self._batches, opened.charge)
        face.pages.links.append(PageLink("first", PATH, "references.title", home_key="references.lead"))
        ReferencesPage(self._batches, face, opened).add_to(app)
