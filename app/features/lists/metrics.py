"""The counter of rows."""

from __future__ import annotations

from typing import Final

from app.features.feature import CounterData
from app.features.lists.verdict import Verdict

ROWS: Final = CounterData(
    "batch_rows",
    "Rows of lists (POST /api/resolve), by verdict.",
    "verdict",
    tuple(verdict.value for verdict in Verdict),
)
