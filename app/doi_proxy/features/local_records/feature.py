"""Local records: what the operator says about names and prefixes, before the cache and the upstream."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.feature import NOTHING, Context, Feature, Opened
from doi_proxy.features.local_records.check import find_record_problems
from doi_proxy.features.local_records.files import FileBounds, LocalFiles, last_good_records
from doi_proxy.features.local_records.metrics import PROBLEMS, RECORDS
from doi_proxy.features.local_records.records import LocalRecords
from doi_proxy.features.local_records.settings import LocalRecordSettings


def add_local_records(context: Context) -> None:
    """Put the records in force. Raises ConfigurationError if a file has an error."""
    settings, core = context.settings.group(LocalRecordSettings), context.core
    if settings.local_records is None:
        return

    def use(records: LocalRecords) -> None:
        core.upstream.use_routes(records.routes())
        core.resolver.local_records = records if len(records) else None

    bounds = FileBounds()
    last_good = last_good_records(context.facts.store_url)
    files = LocalFiles(settings.local_records, bounds, context.clock, use, last_good)
    files.load()
    context.provide(files)


def open_local_records(context: Context) -> Opened:
    """Watch the files."""
    files = context.find(LocalFiles)
    context.meter.gauge(RECORDS, lambda: 0 if files is None else files.records)
    context.meter.gauge(PROBLEMS, lambda: 0 if files is None else len(files.problems))
    if files is None:
        return NOTHING
    context.reloads.on_reload(files.request_reload)
    return Opened(services=(files,))


FEATURE: Final = Feature(
    "local_records",
    "what the operator says about names and prefixes, before the cache and the upstream",
    add_sources=add_local_records,
    open=open_local_records,
    check=find_record_problems,
)
