"""`/admin/explain` and `doi-proxy explain`: why a client gets its answer about a name."""

from __future__ import annotations

from typing import Final

from app.features.explain.http import EXPLAIN_PATH, add_explain
from app.features.feature import Context, Feature, Opened


def open_explain(context: Context) -> Opened:
    """The route behind the gate of operators, if there is one."""
    return Opened(operator_routes={EXPLAIN_PATH.encode(): lambda app, face: add_explain(app, context, face)})


FEATURE: Final = Feature(
    "explain",
    "why a client gets its answer about a name: each decision in order",
    needs=("admin", "proxy_client"),
    open=open_explain,
)
