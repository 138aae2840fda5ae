"""The command lines of `doi-proxy resolve` and `doi-proxy cache warm`.

Every call of the program builds this parser, so this module imports only what is fast to import.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import Command, CommandContext, add_server, set_usage, whole_number

if TYPE_CHECKING:
    from doi_proxy.proxy_client import ProxyServer

#: The verdicts of --again: a later look-up can have another result.
AGAIN: Final = ("unverified", "rate_limited", "not_found", "no_target")


@dataclass(frozen=True, slots=True)
class ResolveChoice:
    """The arguments of the command. None stands for the default."""

    lists: tuple[str, ...]
    #: Names among the arguments.
    names: tuple[str, ...] = ()
    input_format: str | None = None
    column: str | None = None
    output_format: str | None = None
    fields: str | None = None
    output: Path | None = None
    server: ProxyServer | None = None
    only_cached: bool = False
    suggests: bool = False
    checks: bool = False
    literal: bool = False
    #: Whether references are compared with the works of their names.
    matches: bool = False
    #: Whether the lists are running text.
    extracts: bool = False
    #: Whether an entry without a DOI is a failure.
    is_strict: bool = False
    #: The verdicts of the rows that are looked up again.
    again: tuple[str, ...] = ()


def add_resolve_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `doi-proxy resolve`."""
    command.usage = (
        "doi-proxy resolve [-o FILE] [--output-format jsonl|csv|table|concise|urls] [--fields NAMES] "
        "[--again VERDICTS] [--extract] [--strict] [--server URL] [--only-cached] [--suggest] [--check-suggestions] "
        "[--match] [--encoding literal] [--input-format FORMAT] [--column NAME] [--config FILE] [settings] "
        "[NAME | FILE ...]"
    )
    command.add_argument(
        "lists",
        nargs="*",
        metavar="NAME | FILE",
        help="DOI name, or list of names: text, .csv, .tsv, .bib, .ris, .nbib, .enw, .ciw, .jsonl or .json, each also "
        "with .gz; .docx; - or nothing means standard input",
    )
    command.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the rows to FILE, and go on where FILE ends"
    )
    command.add_argument(
        "--output-format",
        choices=("jsonl", "csv", "table", "concise", "urls"),
        help="format of the rows (default: as the name of FILE says; on a terminal, concise for files of references "
        "and table for other lists; else jsonl)",
    )
    command.add_argument(
        "--fields",
        metavar="NAMES",
        help="members of a row, separated by commas (default: all); not with concise or urls",
    )
    command.add_argument(
        "--again",
        type=_verdicts,
        metavar="VERDICTS",
        help="look up the rows in FILE of -o that have these verdicts again, and replace them: unverified,rate_limited",
    )
    add_server(command, "send the names to the proxy at this URL")
    command.add_argument("--extract", action="store_true", help="read lists as running text: every name in it")
    command.add_argument("--strict", action="store_true", help="exit status 1 also for an entry without a DOI")
    command.add_argument("--only-cached", action="store_true", help="do not query the upstream")
    command.add_argument("--suggest", action="store_true", help="add names that the author of an input may have meant")
    command.add_argument("--check-suggestions", action="store_true", help="look these names up; implies --suggest")
    command.add_argument("--match", action="store_true", help="compare each reference with the work of its name")
    command.add_argument(
        "--encoding", choices=("escaped", "literal"), default="escaped", help="literal: %% does not begin an escape"
    )
    # The formats of a list and of the rows.
    command.add_argument(
        "--input-format",
        choices=("text", "bibtex", "ris", "medline", "endnote", "wos", "cff", "json", "jsonl", "csv", "docx"),
        help="format of the lists (default: as the file name says)",
    )
    command.add_argument(
        "--column", metavar="NAME", help="column of a CSV list, or member of JSON objects (default: doi)"
    )


def _verdicts(text: str) -> tuple[str, ...]:
    verdicts = tuple(text.split(","))
    for verdict in verdicts:
        if verdict not in AGAIN:
            raise argparse.ArgumentTypeError(f"{verdict!r} is not one of {', '.join(AGAIN)}")
    return verdicts


def resolve(context: CommandContext, namespace: argparse.Namespace) -> int:
    """Resolve lists. Exit status 0 if all names resolve, to their works, else 1; 2 for wrong arguments or settings."""
    from doi_proxy.features.lists.resolve_lists import resolve_lists
    from doi_proxy.system.progress import run_job

    return run_job(resolve_lists(context, read_choice(namespace)))


def read_choice(namespace: argparse.Namespace) -> ResolveChoice:
    """The arguments of the command. Raises ConfigurationError for a bad URL."""
    from doi_names.presentation import is_name
    from doi_proxy.list_formats.body import exists
    from doi_proxy.proxy_client import parse_server

    lists = namespace.lists or (() if namespace.again else ("-",))
    names = tuple(argument for argument in namespace.lists if is_name(argument) and not exists(argument))
    return ResolveChoice(
        lists=tuple(argument for argument in lists if argument not in names),
        names=names,
        input_format=namespace.input_format,
        column=namespace.column,
        output_format=_choose_format(namespace.output, namespace.output_format),
        fields=namespace.fields,
        output=namespace.output,
        server=None if namespace.server is None else parse_server(namespace.server, "--server"),
        only_cached=namespace.only_cached,
        suggests=namespace.suggest or namespace.check_suggestions,
        checks=namespace.check_suggestions,
        literal=namespace.encoding == "literal",
        matches=namespace.match,
        extracts=namespace.extract,
        is_strict=namespace.strict,
        again=namespace.again or (),
    )


def _choose_format(output: Path | None, named: str | None) -> str | None:
    """The format that is named, else that of the file. Raises ConfigurationError if they differ."""
    suffix = "" if output is None else output.suffix.lower()
    # The formats of rows by the end of the name of their file.
    by_name = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(suffix)
    if named is not None and by_name is not None and named != by_name:
        raise ConfigurationError(f"-o {output}: the name says {by_name}, and --output-format says {named}; change one")
    return named or by_name


def _add_warm(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--column NAME] [--limit N] LIST [LIST ...]")
    command.add_argument(
        "lists",
        nargs="+",
        metavar="LIST",
        help="list of names, in any format that `resolve` reads, each also with .gz; - is standard input",
    )
    command.add_argument("--column", metavar="NAME", help="column of a CSV list (default: doi)")
    command.add_argument("--limit", type=whole_number, metavar="N", help="fetch at most N names from the upstream")


def _warm(context: CommandContext, namespace: argparse.Namespace) -> int:
    from doi_proxy.features.lists.warm import warm
    from doi_proxy.system.progress import run_job

    choice = ResolveChoice(tuple(namespace.lists), column=namespace.column)
    return run_job(warm(context, choice, namespace.limit))


COMMANDS: Final = (
    Command("resolve", add_resolve_arguments, resolve),
    Command("cache warm", _add_warm, _warm),
)
