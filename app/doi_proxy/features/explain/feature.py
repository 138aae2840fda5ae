"""`/admin/explain` and `doi-proxy explain`: why a client gets its answer about a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from doi_proxy.features.feature import Feature, Opened

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.web.redirect import Face

EXPLAIN_PATH: Final = "/admin/explain"


class Explain(Feature):
    """The route behind the gate of operators, if there is one."""

    name = "explain"
    summary = "why a client gets its answer about a name: each decision in order"
    needs = ("admin",)

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add the route to the admin API."""
        if not opened.gates:
            return
        from doi_proxy.features.explain.http import add_explain

        for gate in opened.gates:
            gate.add_path(EXPLAIN_PATH.encode())
            add_explain(gate.app, self.context, opened.core, face)
