"""The gauges of local records."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.feature import GaugeData

RECORDS: Final = GaugeData("local_records", "Local records in force.", "livemostrecent")
PROBLEMS: Final = GaugeData(
    "local_record_problems", "Problems found in the files of local records by the last reading.", "livemostrecent"
)
