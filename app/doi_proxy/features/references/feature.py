"""`/references`: a page that checks the DOIs of a bibliography."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

from doi_proxy.features.feature import Context, Feature, Opened, required
from doi_proxy.features.lists.answer import BatchService
from doi_proxy.features.references.page import PATH, ReferencesPage
from doi_proxy.features.references.result import CheckedReference, Result
from doi_proxy.web.client_network import client_of
from doi_proxy.web.date import write_date
from doi_proxy.web.operations import Face
from doi_proxy.web.pages import PageLink


def open_references(context: Context) -> Opened:
    """The page, and its link in the footer of every page."""
    service = required(context.find(BatchService))

    def add(app: FastAPI, face: Face) -> None:
        face.pages.links.append(PageLink("footer", PATH, "references.title"))
        ReferencesPage(service, face, client_of, context.admit).add_to(app)

    return Opened(routes=(add,))


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the page, by its template."""
    rows = (CheckedReference("smith2020", 3, "10.1000/182.", "10.1000/182.", "corrected", "", "10.1000/182"),)
    result = Result(rows, "10.1000/182", "references.txt")
    return {"references": {"result": result, "problem": None, "wait": None, "write_date": write_date}}


FEATURE: Final = Feature(
    "references",
    "/references: a page that checks the DOIs of a bibliography",
    needs=("texts", "lists"),
    open=open_references,
    samples=_sample_facts,
)
