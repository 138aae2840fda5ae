"""The metrics of the access log. See docs/metrics.md."""

from __future__ import annotations

from typing import Final

from doi_proxy.system.meter import CounterData

LOST_LINES: Final = CounterData(
    "access_log_lost_lines",
    "Lines of the access log that were not written: standard output was full, closed or not read in time.",
)
