"""Puts the local records of the settings in force."""

from __future__ import annotations

from collections.abc import Callable

from app.features.local_records.files import FileBounds, LocalFiles
from app.features.local_records.records import LocalRecords
from app.features.local_records.settings import LocalRecordSettings
from app.features.options import Settings
from app.resolver.resolver import Resolver
from app.upstream.upstream import Upstream


def load_local_files(
    settings: Settings, clock: Callable[[], float], upstream: Upstream, resolver: Resolver
) -> LocalFiles | None:
    """Put the local records in force, if there are any files. Raises ConfigurationError if a file has an error."""
    group = settings.group(LocalRecordSettings)
    if group.local_records is None:
        return None

    def use(records: LocalRecords) -> None:
        upstream.use_routes(records.routes())
        resolver.local_records = records if len(records) else None

    files = LocalFiles(group.local_records, FileBounds.of_records(group.local_records_max), clock, use)
    files.load()
    return files
