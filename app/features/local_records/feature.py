"""Local records: what the operator says about names and prefixes, before the cache and the upstream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from app.features.feature import NOTHING, Context, Feature, Opened, Service
from app.features.local_records.files import LocalFiles
from app.features.local_records.metrics import PROBLEMS, RECORDS
from app.features.local_records.opening import load_local_files
from app.features.toml_files.watching import WATCH_INTERVAL

#: Problems that /readyz shows.
_MAX_PLACES: Final = 10


class LocalRecordService(Service):
    """Reads the files again when they have changed."""

    def __init__(self, files: LocalFiles) -> None:
        self._files = files

    async def run(self) -> None:
        """Look at the files every second."""
        await self._files.watch(WATCH_INTERVAL)

    def ready(self) -> Mapping[str, Any]:
        """The number of records in force, and the places of problems. Their messages are in the log."""
        places = [
            {"file": Path(problem.file).name, "line": problem.line, "column": problem.column}
            for problem in self._files.problems[:_MAX_PLACES]
        ]
        state = "broken" if self._files.is_broken else "ok"
        return {"local_records": {"state": state, "records": self._files.records, "problems": places}}


def add_local_records(context: Context) -> None:
    """Put the records in force. Raises ConfigurationError if a file has an error."""
    files = load_local_files(context.settings, context.clock, context.core.upstream, context.core.resolver)
    if files is not None:
        context.provide(files)


def open_local_records(context: Context) -> Opened:
    """Watch the files."""
    files = context.find(LocalFiles)
    context.meter.gauge(RECORDS, lambda: 0 if files is None else files.records)
    context.meter.gauge(PROBLEMS, lambda: 0 if files is None else len(files.problems))
    if files is None:
        return NOTHING
    context.reloads.on_reload(files.request_reload)
    return Opened(services=(LocalRecordService(files),))


FEATURE: Final = Feature(
    "local_records",
    "what the operator says about names and prefixes, before the cache and the upstream",
    needs=("toml_files",),
    add_sources=add_local_records,
    open=open_local_records,
)
