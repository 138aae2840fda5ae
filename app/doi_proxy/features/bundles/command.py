"""`doi-proxy cache import`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from doi_proxy.features.command import Command, CommandContext, set_usage


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


def _import(context: CommandContext, namespace: argparse.Namespace) -> int:
    from doi_proxy.features.bundles.import_command import run_import

    return run_import(namespace, context)


COMMANDS: Final = (Command("cache import", _add_import, _import),)
