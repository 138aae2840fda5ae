"""Checks of the files of local records."""

from __future__ import annotations

import time
from collections.abc import Iterator

from doi_proxy.features.check import Finding, Inspection
from doi_proxy.features.local_records.files import FileBounds, last_good_records, read_files, read_last_good_records
from doi_proxy.features.local_records.settings import LocalRecordSettings


def find_record_problems(inspection: Inspection) -> Iterator[Finding]:
    """Every problem in the files, with its line and column."""
    settings = inspection.settings.group(LocalRecordSettings)
    if settings.local_records is None:
        return
    source = inspection.source("local_records")
    bounds = FileBounds()
    reading = read_files(settings.local_records, bounds, time.time())
    last_good = last_good_records(inspection.settings.store_url)
    if (
        reading.errors
        and inspection.is_start
        and read_last_good_records(last_good, settings.local_records, bounds, time.time())
    ):
        return
    remedy = "correct the file; until then the last good records are in force, and without any a start fails"
    for problem in reading.problems:
        yield Finding(problem.severity, source, str(problem), remedy if problem.severity == "error" else "")
