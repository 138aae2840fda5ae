"""The counters of pages of changes."""

from __future__ import annotations

from typing import Final

from app.features.feature import CounterData, GaugeData

#: The results of a request for a page: a page, too many pages under way, and a cursor that cannot be used.
RESULTS: Final = ("sent", "busy", "refused")
PAGES: Final = CounterData("change_pages", "Requests of replicas for a page of changes, by result.", "result", RESULTS)
PAGE_BYTES: Final = CounterData("change_page_bytes", "Bytes of the pages of changes, compressed.")
PULLED: Final = GaugeData(
    "primary_pull_timestamp_seconds",
    "Time of the last complete pull from the primary, in seconds since the epoch; 0 without a primary.",
    "livemostrecent",
)
#: The name of PULLED in release 0.2. It goes with the release after 0.3.
PULLED_OLD_NAME: Final = GaugeData(
    "parent_pull_timestamp_seconds", "The old name of primary_pull_timestamp_seconds.", "livemostrecent"
)
