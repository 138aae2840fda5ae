"""`doi-proxy cache import` and `cache export`."""

from __future__ import annotations

import argparse
import sys
import time
from io import BufferedReader
from pathlib import Path
from typing import Final, cast

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.bundles.bundle import Checksum
from doi_proxy.features.bundles.import_bundle import (
    BundleImport,
    ImportBounds,
    ImportReport,
    import_bundle,
    open_bundle,
    size_of,
)
from doi_proxy.features.feature import (
    AUTO,
    Command,
    CommandContext,
    Importer,
    read_prefix,
    refuse_options,
    set_usage,
)
from doi_proxy.system.files import STANDARD_INPUT, STANDARD_OUTPUT
from doi_proxy.system.options import Settings
from doi_proxy.system.progress import progress, run_job


def _add_import(command: argparse.ArgumentParser) -> None:
    set_usage(
        command,
        "[--format FORMAT] [--since DATE | --missing count|forget] [--restart] [--no-checksum] [--skip-unusable FILE] "
        "FILE|FOLDER|-",
    )
    command.add_argument(
        "path",
        metavar="FILE",
        help="bundle; or a data file of Crossref or DataCite, a table of names and URLs, a tar archive or a folder of "
        "these; each also compressed by gzip; - is standard input",
    )
    command.add_argument(
        "--format",
        choices=("auto", "bundle", "crossref", "datacite", "csv", "handle-dump"),
        default="auto",
        metavar="FORMAT",
        help="auto (default), bundle, crossref, datacite, csv, or handle-dump: the dump of a handle server, which "
        "becomes a file in the folder of local_records",
    )
    command.add_argument("--since", metavar="DATE", help="leave out the records of an agency from before this date")
    command.add_argument(
        "--missing",
        choices=("count", "forget"),
        help="the files are complete: count or forget names that the store has from the same agency, and they do not",
    )
    command.add_argument(
        "--restart", action="store_true", help="begin again, and do not continue an import that was interrupted"
    )
    command.add_argument("--no-checksum", action="store_true", help="accept a bundle without a checksum line")
    command.add_argument(
        "--skip-unusable",
        metavar="FILE",
        type=Path,
        help="leave out records of the dump of a handle server that cannot be used, and write their names to FILE",
    )


BUNDLE: Final = "bundle"
#: The bytes of a file by which its format is found.
_HEAD_BYTES: Final = 65_536


def run_import(namespace: argparse.Namespace, context: CommandContext) -> int:
    """Import a file or a folder. Returns the exit status. Raises ConfigurationError and StoreError."""
    importer, form = _choose_importer(namespace.path, namespace.format, context)
    if importer is not None:
        return importer.run(context, namespace, form)
    refuse_options({"--skip-unusable": namespace.skip_unusable}, "is for the dump of a handle server")
    of_files = {"--since": namespace.since, "--missing": namespace.missing, "--restart": namespace.restart}
    refuse_options(of_files, f"is for the files of registration agencies, and {namespace.path} is a bundle")
    return run_job(import_file(context, namespace.path, accept_no_checksum=namespace.no_checksum))


def _choose_importer(path: str, form: str, context: CommandContext) -> tuple[Importer | None, str]:
    """What imports a file, and its format. None for a bundle."""
    if form == BUNDLE:
        return None, form
    if form != AUTO:
        found = next((importer for importer in context.importers if form in importer.formats), None)
        if found is None:
            raise ConfigurationError(f"--format {form}: this installation has no feature that reads it; install it")
        return found, form
    if path != STANDARD_INPUT and Path(path).is_dir():
        return next((importer for importer in context.importers if importer.takes_folders), None), AUTO
    head = _read_head(path)
    detected = ((importer, importer.detect(head)) for importer in context.importers)
    return next(((importer, form) for importer, form in detected if form is not None), (None, BUNDLE))


def _read_head(path: str) -> bytes:
    """The first bytes. Those of standard input can be read again. Raises ConfigurationError."""
    if path == STANDARD_INPUT:
        return cast(BufferedReader, sys.stdin.buffer).peek(_HEAD_BYTES)
    with open_bundle(path) as file:
        return file.read(_HEAD_BYTES)


async def import_file(context: CommandContext, path: str, *, accept_no_checksum: bool) -> int:
    """Import a bundle, `-` for standard input. Exit status 1 for refused lines, and a wrong or missing checksum."""
    bounds = read_bounds(context.settings)
    with open_bundle(path) as file:
        async with context.stores.open() as cache:
            with progress("importing", size_of(path), in_bytes=True) as bar:
                work = BundleImport(cache, bounds, time.time)
                imported = await import_bundle(work, path, file, bar)
    return _report_import(imported, accept_no_checksum)


def read_bounds(settings: Settings) -> ImportBounds:
    """The limits of imported records."""
    return ImportBounds(
        negative_ttl=settings.cache_negative_ttl,
        ttl_ceiling=settings.cache_ttl_ceiling,
        grace=settings.cache_grace,
        sealed=settings.mode == "sealed",
    )


def _report_import(imported: ImportReport, accept_no_checksum: bool) -> int:
    counts, refused = imported.counts, imported.refused
    for line in refused:
        print(f"line {line.number} is refused: {line.reason}", file=sys.stderr)
    if counts["refused"] > len(refused):
        print(f"{counts['refused'] - len(refused)} more lines are refused", file=sys.stderr)
    absent = imported.checksum is Checksum.ABSENT and not accept_no_checksum
    if absent:
        print(
            "the bundle has no checksum line at its end: it may be incomplete; --no-checksum accepts it",
            file=sys.stderr,
        )
    if imported.checksum is Checksum.WRONG:
        print(
            "the checksum is wrong: lines were changed, added or lost; copy or export the bundle again", file=sys.stderr
        )
    is_empty = not counts.total()
    if is_empty:
        print("the bundle has no records", file=sys.stderr)
    print(f"{imported.describe_counts()}; checksum {imported.checksum.value}")
    return 1 if counts["refused"] or absent or is_empty or imported.checksum is Checksum.WRONG else 0


def _add_export(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[FILE] [--from LIST [--column NAME] | --prefix PREFIX]")
    command.add_argument(
        "file", nargs="?", metavar="FILE", help="the bundle, compressed if it ends in .gz; by default standard output"
    )
    command.add_argument(
        "--from",
        dest="lists",
        action="append",
        default=[],
        metavar="LIST",
        help="only the names of this list, in any format that `resolve` reads; - is standard input; repeat it for "
        "several",
    )
    command.add_argument("--column", metavar="NAME", help="column of a CSV list (default: doi)")
    command.add_argument("--prefix", metavar="PREFIX", help="only the names under this prefix, such as 10.1000")
    command.add_argument("-o", "--output", metavar="FILE", help="the same as FILE")


def _export(context: CommandContext, namespace: argparse.Namespace) -> int:
    from doi_proxy.features.bundles.export import ExportChoice, export

    if namespace.lists and namespace.prefix:
        raise ConfigurationError("--from and --prefix cannot be used together; give one of them")
    if namespace.column and not namespace.lists:
        raise ConfigurationError("--column is for the lists of names; give them with --from LIST")
    if namespace.file and namespace.output:
        raise ConfigurationError("FILE and --output both name the bundle; give one of them; give one of them")
    choice = ExportChoice(namespace.lists, read_prefix(namespace.prefix), namespace.column)
    return run_job(export(context, choice, namespace.file or namespace.output or STANDARD_OUTPUT))


COMMANDS: Final = (
    Command("cache import", _add_import, lambda context, namespace: run_import(namespace, context)),
    Command("cache export", _add_export, _export),
)
