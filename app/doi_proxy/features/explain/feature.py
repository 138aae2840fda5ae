"""`/admin/explain` and `doi-proxy explain`: why a client gets its answer about a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from doi_proxy.features.feature import Context, Feature, Opened

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.web.operations import Face

EXPLAIN_PATH: Final = "/admin/explain"


def open_explain(context: Context) -> Opened:
    """The route behind the gate of operators, if there is one."""

    def add(app: FastAPI, face: Face) -> None:
        from doi_proxy.features.explain.http import add_explain  # noqa: PLC0415 - only for the admin API

        add_explain(app, context, face)

    return Opened(operator_routes={EXPLAIN_PATH.encode(): add})


FEATURE: Final = Feature(
    "explain",
    "why a client gets its answer about a name: each decision in order",
    needs=("admin",),
    open=open_explain,
)
