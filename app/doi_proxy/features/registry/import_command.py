"""The files of registration agencies for `doi-proxy cache import`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import AUTO, CommandContext, Importer, refuse_options, require_libraries
from doi_proxy.features.registry.feature import Registry
from doi_proxy.features.registry.import_files import (
    COUNTS,
    MAX_USELESS,
    ImportRequest,
    Missing,
    RegistryReport,
    import_registry,
)
from doi_proxy.features.registry.import_parts import decompress_head, is_gzip, is_tar
from doi_proxy.features.registry.json_values import RegistryFormat, detect_format, parse_date
from doi_proxy.store.file import find_store_file
from doi_proxy.system.options import Settings, redact
from doi_proxy.system.progress import Bar, interrupt_on_signals, progress


def detect(head: bytes) -> str | None:
    """The format of the file that begins so. AUTO for an archive, each of whose files has its own. None for another."""
    if is_gzip(head):
        head = decompress_head(head)
    return AUTO if is_tar(head) else detect_format(head)


def import_registry_files(context: CommandContext, namespace: argparse.Namespace, form: str) -> int:
    """Import a file or a folder. Returns the exit status. Raises ConfigurationError and StoreError."""
    path = namespace.path
    of_bundles = {"--no-checksum": namespace.no_checksum}
    refuse_options({"--skip-unusable": namespace.skip_unusable}, "is for the dump of a handle server")
    refuse_options(of_bundles, f"is for bundles, and {path} is a file of a registration agency")
    if namespace.since and namespace.missing:
        raise ConfigurationError("--since leaves records out, so --missing cannot be used with it; give one of them")
    if form != RegistryFormat.CSV:
        require_libraries(Registry)
    # Processes that read files, if there are as many processors. One process writes what they read.
    # Records that one process sorts at a time; they take about 80 MB of its memory.
    request = ImportRequest(
        path,
        None if namespace.format == AUTO else RegistryFormat(form),
        _read_since(namespace.since),
        None if namespace.missing is None else Missing(namespace.missing),
        namespace.restart,
        min(len(os.sched_getaffinity(0)), 8),
        250_000,
    )

    def show_bar(label: str, total: float | None, in_bytes: bool) -> AbstractContextManager[Bar]:
        return progress(label, total, in_bytes=in_bytes)

    interrupt_on_signals()
    try:
        report = import_registry(request, _store_path(context.settings), show_bar, clock=time.time)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        raise
    return _report_registry(report, request)


def _read_since(text: str | None) -> int:
    if text is None:
        return 0
    date = parse_date(text)
    if date is None:
        raise ConfigurationError(f"--since {text}: this is not a date of ISO 8601, such as 2026-01-31")
    return date


def _store_path(settings: Settings) -> Path:
    path = find_store_file(settings.store_url)
    if path is None:
        raise ConfigurationError(
            f"--store-url {redact(settings.store_url)}: only a store sqlite:///path holds the records of registration "
            "agencies; import them there, and let other proxies use that proxy as their upstream"
        )
    return path


def _report_registry(report: RegistryReport, request: ImportRequest) -> int:
    """Print the counts of the records. Exit status 1 if a file could not be read or no record was usable."""
    counts = report.counts
    if report.is_continued:
        print("an import that was interrupted was continued; the counts are those of both", file=sys.stderr)
    for name, reason in report.left_out:
        print(f"{name}: {reason}", file=sys.stderr)
    if counts["left_out"] > len(report.left_out):
        print(f"{counts['left_out'] - len(report.left_out)} more files were left out", file=sys.stderr)
    if counts["states"]:
        print(f"{counts['states']} lists of states left out", file=sys.stderr)
    for reason in report.reasons:
        print(f"refused: {reason}", file=sys.stderr)
    if counts["refused"] > len(report.reasons):
        print(f"{counts['refused'] - len(report.reasons)} more records were refused", file=sys.stderr)
    print(_describe_counts(report))
    if counts["answered"]:
        print(f"{counts['answered']} of these names have an answer of an upstream, which stays and is served")
    if request.missing is not None:
        _report_absent(counts["absent"], counts["failures"], request.missing)
    if report.is_useless or not counts["read"]:
        _report_useless(report)
        return 1
    return 1 if counts["failures"] else 0


def _describe_counts(report: RegistryReport) -> str:
    counts = report.counts
    line = f"{counts['read']} records: {', '.join(f'{outcome} {counts[outcome]}' for outcome in COUNTS)}"
    several = counts["several"]
    return f"{line}; {several} with several locations, of which the primary one is stored" if several else line


def _report_useless(report: RegistryReport) -> None:
    if not report.counts["read"]:
        print("no records were found; --format says what the files are", file=sys.stderr)
        return
    if report.counts["refused"] >= MAX_USELESS:
        print(f"stopped: the first {report.counts['refused']} records were refused", file=sys.stderr)
    cause = "the files are of another kind, or incomplete"
    if report.lacks_targets:
        cause = "no work has resource.primary.URL: files from before 2022 do not have it"
    print(f"no record was usable: {cause}", file=sys.stderr)


def _report_absent(absent: int, failures: int, missing: Missing) -> None:
    if failures:
        print("some files could not be read, so no name of the store counts as absent", file=sys.stderr)
    elif missing is Missing.COUNT:
        print(f"{absent} names of the store are not in these files; --missing forget forgets them")
    else:
        print(f"{absent} names are not in these files, and were forgotten")


IMPORTER: Final = Importer(tuple(RegistryFormat), import_registry_files, detect, takes_folders=True)
