"""Local records: what the operator says about names and prefixes, before the cache and the upstream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from doi_proxy.features.feature import Core, Feature, Others, Part
from doi_proxy.system.options import SettingsGroup

if TYPE_CHECKING:
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
        from doi_proxy.features.local_records.files import FileBounds, read_files
        from doi_proxy.system.check import Finding

        path = inspection.settings.group(LocalRecordSettings).local_records
        if path is None:
            return
        remedy = "correct the file; until then the last good records are in force, and without any a start fails"
        for problem in read_files(path, FileBounds(), time.time()).problems:
            advice = remedy if problem.severity == "error" else ""
            yield Finding(problem.severity, inspection.source("local_records"), str(problem), advice)

    def add_sources(self, core: Core) -> None:
        """Put the records in force. Raises ConfigurationError if a file has an error."""
        from doi_proxy.features.local_records.files import FileBounds, LocalFiles
        from doi_proxy.store.file import LastGood

        path = self.context.settings.group(LocalRecordSettings).local_records
        if path is None:
            return

        def use(records: LocalRecords) -> None:
            core.upstream.use_routes(records.routes())
            core.resolver.local_records = records if len(records) else None
            core.forget_prepared()  # a new record may be about any name

        last_good = LastGood(self.context.settings.store_url, "local-records")
        self._files = LocalFiles(path, FileBounds(), self.context.clock, use, last_good)
        self._files.load()

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Watch the files."""
        from doi_proxy.system.check import GaugeData

        files, about = self._files, "Problems found in the files of local records by the last reading."
        core.meter.gauge(
            GaugeData("local_records", "Local records in force."),
            lambda: 0 if files is None else files.records,
        )
        core.meter.gauge(
            GaugeData("local_record_problems", about),
            lambda: 0 if files is None else len(files.problems),
        )
        if files is None:
            return ()
        self.context.reloads.on_reload(files.request_reload)
        return (files,)
