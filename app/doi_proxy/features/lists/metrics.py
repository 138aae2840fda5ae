"""The counter of rows."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.lists.verdict import Verdict
from doi_proxy.system.meter import CounterData

ROWS: Final = CounterData(
    "batch_rows",
    "Rows of lists (POST /api/resolve), by verdict.",
    "verdict",
    tuple(verdict.value for verdict in Verdict),
)
