"""Local records: what the operator says about names and prefixes, before the cache and the upstream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from doi_proxy.features.feature import Core, Feature, Others, Part
from doi_proxy.system.check import GaugeData, Service
from doi_proxy.system.options import SettingsGroup

if TYPE_CHECKING:
    from doi_proxy.features.local_records.records import LocalRecords
    from doi_proxy.store.kept_file import KeptFile
    from doi_proxy.system.check import Finding, Inspection


class LocalRecordSettings(SettingsGroup):
    """Local records."""

    local_records: Path | None = Field(
        None,
        description="TOML file, or folder of TOML files and imports, with records that win over the cache and the "
        "upstream. A change takes effect without a reload. Set it to correct, add or withdraw names.",
    )


class LocalRecordFiles(Feature, Service):
    """The records of the operator's files."""

    name = "local_records"
    summary = "what the operator says about names and prefixes, before the cache and the upstream"
    settings = LocalRecordSettings

    _files: KeptFile[LocalRecords]
    #: The records in force.
    _records: LocalRecords

    @classmethod
    def check(cls, inspection: Inspection) -> Iterator[Finding]:
        """Every problem in the files, with its line and column."""
        from doi_proxy.features.local_records.files import record_files

        return record_files(time.time).check(inspection)

    def add_sources(self, core: Core) -> None:
        """Put the records in force. Raises ConfigurationError if a file has an error."""
        from doi_proxy.features.local_records.files import record_files
        from doi_proxy.store.kept_file import KeptFile

        def use(records: LocalRecords) -> None:
            core.upstream.use_routes(records.routes())
            core.resolver.local_records = records if len(records) else None
            core.forget_prepared()  # a new record may be about any name
            self._records = records

        self._files = KeptFile(record_files(self.context.clock), use, self.context.settings)

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Watch the files."""
        about = "Problems found in the files of local records by the last reading."
        core.meter.gauge(GaugeData("local_records", "Local records in force."), lambda: len(self._records))
        core.meter.gauge(GaugeData("local_record_problems", about), lambda: len(self._files.problems))
        self.context.reloads.on_reload(self._files.reload)
        return self._files, self

    def ready(self) -> Mapping[str, Any]:
        """The number of records in force, and the places of problems. Their messages are in the log."""
        if self._files.path is None:
            return {}
        # Problems that /readyz shows.
        places = [
            {"file": Path(problem.file).name, "line": problem.line, "column": problem.column}
            for problem in self._files.problems[:10]
        ]
        return {"local_records": {"state": self._files.state, "records": len(self._records), "problems": places}}
