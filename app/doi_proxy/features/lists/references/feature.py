"""`/references`: a page that checks the DOIs of a bibliography."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from doi_proxy.features.feature import Feature

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.features.feature import Core, Opened, Others
    from doi_proxy.features.lists.answer import BatchService
    from doi_proxy.web.operations import Face


class References(Feature):
    """The page, and its link in the footer of every page."""

    name = "references"
    summary = "/references: a page that checks the DOIs of a bibliography"
    needs = ("lists",)

    _batches: BatchService

    @classmethod
    def samples(cls) -> dict[str, dict[str, Any]]:
        """See Feature."""
        from doi_proxy.features.references.result import CheckedReference, Result
        from doi_proxy.web.date import write_date

        rows = (CheckedReference("smith2020", 3, "10.1000/182.", "10.1000/182.", "corrected", "", "10.1000/182"),)
        result = Result(rows, "10.1000/182", "references.txt")
        return {"references": {"result": result, "problem": None, "wait": None, "write_date": write_date}}

    def open(self, core: Core, others: Others) -> tuple[()]:
        """Find what answers lists."""
        from doi_proxy.features.lists.feature import Lists

        self._batches = others[Lists].batches
        return ()

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add the page."""
        from doi_proxy.features.references.page import PATH, ReferencesPage
        from doi_proxy.web.client_network import client_of
        from doi_proxy.web.pages import PageLink

        def admit(address: str) -> None:
            for gate in opened.stages.gates:
                gate.admit(address)

        face.pages.links.append(PageLink("footer", PATH, "references.title"))
        ReferencesPage(self._batches, face, client_of, admit).add_to(app)
