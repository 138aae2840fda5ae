"""`doi-proxy cache export` and `warm`."""

from __future__ import annotations

import argparse
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.command import Command, CommandContext, read_prefix, set_usage, whole_number
from doi_proxy.system.files import STANDARD_OUTPUT

#: What a list of names can be.
_LIST: Final = (
    "text file with one name a line, .csv, .bib, .ris, .jsonl or .json, each also with .gz; - is text from standard "
    "input"
)


def _add_export(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[FILE] [--from LIST [--fetch] [--column NAME] | --prefix PREFIX]")
    command.add_argument(
        "file", nargs="?", metavar="FILE", help="the bundle, compressed if it ends in .gz; by default standard output"
    )
    command.add_argument(
        "--from",
        dest="lists",
        action="append",
        default=[],
        metavar="LIST",
        help=f"only the names of this list, a {_LIST}; repeat it for several",
    )
    _add_column(command)
    command.add_argument("--prefix", metavar="PREFIX", help="only the names under this prefix, such as 10.1000")
    command.add_argument(
        "--fetch", action="store_true", help="fetch the names of the lists that are not fresh from the upstream"
    )
    command.add_argument("-o", "--output", metavar="FILE", help="the same as FILE")


def _add_warm(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--column NAME] [--limit N] LIST [LIST ...]")
    command.add_argument("lists", nargs="+", metavar="LIST", help=_LIST)
    _add_column(command)
    command.add_argument("--limit", type=whole_number, metavar="N", help="query the upstream for at most N names")


def _add_column(command: argparse.ArgumentParser) -> None:
    command.add_argument("--column", metavar="NAME", help="column of a CSV list (default: doi)")


def _export(context: CommandContext, namespace: argparse.Namespace) -> int:
    from doi_proxy.features.bundles.export import ExportChoice, export
    from doi_proxy.system.progress import run_job

    if namespace.lists and namespace.prefix:
        raise ConfigurationError("--from and --prefix cannot be used together; give one of them")
    if namespace.fetch and not namespace.lists:
        raise ConfigurationError("--fetch needs --from LIST to say which names to look up")
    if namespace.column and not namespace.lists:
        raise ConfigurationError("--column is for the lists of names; give them with --from LIST")
    if namespace.file and namespace.output:
        raise ConfigurationError("FILE and --output name the same file; give one of them")
    choice = ExportChoice(namespace.lists, read_prefix(namespace.prefix), namespace.fetch, namespace.column)
    return run_job(export(context, choice, namespace.file or namespace.output or STANDARD_OUTPUT))


def _warm(context: CommandContext, namespace: argparse.Namespace) -> int:
    from doi_proxy.features.bundles.visit import warm
    from doi_proxy.system.progress import run_job

    return run_job(warm(context, namespace.lists, column=namespace.column, limit=namespace.limit))


COMMANDS: Final = (
    Command("cache export", _add_export, _export),
    Command("cache warm", _add_warm, _warm),
)
