"""`doi-proxy cache export|import|warm|stats|purge`: their flags, and the way to what they do.

Nothing heavy is imported here: every call of the program passes through to build its parser.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from app.doi.name import HandleName
from app.errors import ConfigurationError, InvalidName

if TYPE_CHECKING:
    from app.settings import Settings

#: The flags of each command, without those of the settings, of which there are too many to be read in a row.
USAGE: Final = {
    "export": "[--output FILE] [--from LIST [--ask] [--column NAME] | --prefix PREFIX]",
    "import": "[--no-checksum] FILE",
    "warm": "[--column NAME] [--limit N] LIST [LIST ...]",
    "stats": "[--json] [--every-entry]",
    "purge": "NAME [NAME ...] | --prefix PREFIX | --negative | --all",
}
#: What main.py gives: adds the flags of the settings to a command.
AddSettings = Callable[[argparse.ArgumentParser], None]


def add_cache_commands(cache: argparse.ArgumentParser, add_settings: AddSettings) -> None:
    """Add the commands below `doi-proxy cache`; `cache_command` is the one chosen."""
    commands = cache.add_subparsers(title="commands", metavar="COMMAND", dest="cache_command", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        usage = f"doi-proxy cache {name} {USAGE[name]} [--config FILE] [settings]"
        command = commands.add_parser(name, help=text, description=text, usage=usage)
        add_settings(command)
        return command

    _add_export(add("export", "write a bundle of records: of all, of the names of a list, or of those under a prefix"))
    _add_import(add("import", "read a bundle of records into the store; never an older record over a newer one"))
    _add_warm(add("warm", "ask for the names of lists that are not fresh in the store, as a bulk job"))
    _add_stats(add("stats", "print what the store holds and how it is"))
    _add_purge(add("purge", "forget entries, also in every running proxy on the same store"))


def _add_export(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", default="-", metavar="FILE", help="file, .gz compresses; - is standard output")
    command.add_argument("--from", dest="names_from", metavar="LIST", help="only the names of a list (as for warm)")
    command.add_argument("--prefix", metavar="PREFIX", help="only the names under a prefix, such as 10.1000")
    command.add_argument("--ask", action="store_true", help="ask the upstream for names of the list that are not fresh")
    command.add_argument("--column", metavar="NAME", help="column of a CSV list; without it the one called doi")


def _add_import(command: argparse.ArgumentParser) -> None:
    command.add_argument("bundle", metavar="FILE", help="bundle, .gz is unpacked; - is standard input")
    command.add_argument("--no-checksum", action="store_true", help="accept a bundle without a checksum line")


def _add_warm(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "lists", nargs="+", metavar="LIST", help="text with a name a line, .bib or .csv; - is text from standard input"
    )
    command.add_argument("--column", metavar="NAME", help="column of a CSV list; without it the one called doi")
    command.add_argument("--limit", type=_count, metavar="N", help="ask the upstream for at most N names")


def _add_stats(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--every-entry", action="store_true", help="count fresh, stale and negative ones in a large store too"
    )


def _add_purge(command: argparse.ArgumentParser) -> None:
    command.add_argument("names", nargs="*", metavar="NAME", help="names, in any presentation form")
    command.add_argument("--prefix", metavar="PREFIX", help="all names under a prefix, such as 10.1000")
    command.add_argument("--negative", action="store_true", help="all names that were not found or have no values")
    command.add_argument("--all", dest="everything", action="store_true", help="everything")


def run_cache(chosen: argparse.Namespace, settings: Settings) -> int:
    """Run the chosen command; returns its exit status."""
    commands = {"export": _export, "import": _import, "warm": _warm, "stats": _stats, "purge": _purge}
    return commands[chosen.cache_command](chosen, settings)


def _export(chosen: argparse.Namespace, settings: Settings) -> int:
    from app.cli.cache_commands import ExportChoice, export

    if chosen.names_from and chosen.prefix:
        raise ConfigurationError("--from and --prefix: give one of them")
    if chosen.ask and not chosen.names_from:
        raise ConfigurationError("--ask: which names to ask for is told by --from")
    choice = ExportChoice(chosen.names_from, _prefix(chosen.prefix), chosen.ask, chosen.column)
    return asyncio.run(export(settings, choice, chosen.output))


def _import(chosen: argparse.Namespace, settings: Settings) -> int:
    from app.cli.cache_commands import import_file

    return asyncio.run(import_file(settings, chosen.bundle, accept_no_checksum=chosen.no_checksum))


def _warm(chosen: argparse.Namespace, settings: Settings) -> int:
    from app.cli.cache_commands import warm

    return asyncio.run(warm(settings, chosen.lists, column=chosen.column, limit=chosen.limit))


def _stats(chosen: argparse.Namespace, settings: Settings) -> int:
    from app.cli.cache_commands import show_stats

    return asyncio.run(show_stats(settings, as_json=chosen.as_json, every_entry=chosen.every_entry))


def _purge(chosen: argparse.Namespace, settings: Settings) -> int:
    from app.cli.cache_commands import PurgeChoice, purge

    given = [bool(chosen.names), bool(chosen.prefix), chosen.negative, chosen.everything]
    if sum(given) != 1:
        raise ConfigurationError("purge: give names, or one of --prefix, --negative and --all")
    choice = PurgeChoice(chosen.names, _prefix(chosen.prefix), chosen.negative, chosen.everything)
    return asyncio.run(purge(settings, choice))


def _prefix(text: str | None) -> HandleName | None:
    if not text:
        return None
    try:
        prefix = HandleName(text.rstrip("/"))
    except InvalidName as error:
        raise ConfigurationError(f"--prefix {text}: {error.message}") from error
    if not prefix.is_prefix:
        raise ConfigurationError(f"--prefix {text}: a DOI prefix looks like 10.1000")
    return prefix


def _count(text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of names")
    return int(text)
