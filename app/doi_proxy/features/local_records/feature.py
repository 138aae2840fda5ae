"""Local records: what the operator says about names and prefixes, before the cache and the upstream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from doi_proxy.features.feature import Feature
from doi_proxy.system.options import SettingsGroup

if TYPE_CHECKING:
    from doi_proxy.features.feature import Core, Others, Part
    from doi_proxy.features.local_records.files import LocalFiles
    from doi_proxy.features.local_records.records import LocalRecords
    from doi_proxy.system.check import Finding, Inspection


class LocalRecordSettings(SettingsGroup):
    """Local records."""

    local_records: Path | None = Field(
        None,
        description="TOML file, or folder of TOML files, with records that win over the cache and the upstream. A "
        "change takes effect without a reload. Set it to correct, add or withdraw names.",
    )


class LocalRecordFiles(Feature):
    """The records of the operator's files."""

    name = "local_records"
    summary = "what the operator says about names and prefixes, before the cache and the upstream"
    settings = LocalRecordSettings

    _files: LocalFiles | None = None

    @classmethod
    def check(cls, inspection: Inspection) -> Iterator[Finding]:
        """Every problem in the files, with its line and column."""
        from doi_proxy.features.local_records.files import (
            FileBounds,
            last_good_records,
            read_files,
            read_last_good_records,
        )
        from doi_proxy.system.check import Finding

        path, bounds, now = inspection.settings.group(LocalRecordSettings).local_records, FileBounds(), time.time()
        if path is None:
            return
        reading, last_good = read_files(path, bounds, now), last_good_records(inspection.settings.store_url)
        if reading.errors and inspection.is_start and read_last_good_records(last_good, path, bounds, now):
            return
        remedy = "correct the file; until then the last good records are in force, and without any a start fails"
        for problem in reading.problems:
            advice = remedy if problem.severity == "error" else ""
            yield Finding(problem.severity, inspection.source("local_records"), str(problem), advice)

    def add_sources(self, core: Core) -> None:
        """Put the records in force. Raises ConfigurationError if a file has an error."""
        from doi_proxy.features.local_records.files import FileBounds, LocalFiles, last_good_records

        path = self.context.settings.group(LocalRecordSettings).local_records
        if path is None:
            return

        def use(records: LocalRecords) -> None:
            core.upstream.use_routes(records.routes())
            core.resolver.local_records = records if len(records) else None

        last_good = last_good_records(self.context.settings.store_url)
        self._files = LocalFiles(path, FileBounds(), self.context.clock, use, last_good)
        self._files.load()

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Watch the files."""
        from doi_proxy.system.meter import GaugeData

        files, about = self._files, "Problems found in the files of local records by the last reading."
        core.meter.gauge(
            GaugeData("local_records", "Local records in force.", "livemostrecent"),
            lambda: 0 if files is None else files.records,
        )
        core.meter.gauge(
            GaugeData("local_record_problems", about, "livemostrecent"),
            lambda: 0 if files is None else len(files.problems),
        )
        if files is None:
            return ()
        self.context.reloads.on_reload(files.request_reload)
        return (files,)
