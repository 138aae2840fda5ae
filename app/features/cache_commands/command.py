"""The command line of `doi-proxy cache`.

Every call of the program builds this parser, so this module imports only what is fast to import.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from app.doi.name import HandleName
from app.errors import ConfigurationError, InvalidName

if TYPE_CHECKING:
    from app.assembly.settings import Settings

#: The flags of each command, without the many flags of the settings.
USAGE: Final = {
    "export": "[--output FILE] [--from LIST [--ask] [--column NAME] | --prefix PREFIX | --since CURSOR]",
    "import": "[--format FORMAT] [--since DATE | --missing count|forget] [--restart] [--no-checksum] FILE|FOLDER|-",
    "pull": "--token-file FILE [--restart] URL",
    "warm": "[--column NAME] [--limit N] LIST [LIST ...]",
    "stats": "[--json] [--every-entry]",
    "show": "[--server URL] NAME [NAME ...]",
    "refresh": "[--server URL] NAME [NAME ...] | --prefix PREFIX [--limit N]",
    "purge": "[--server URL] [--soft] [--dry-run] NAME [NAME ...] | --prefix PREFIX | --negative | --all",
}
#: Adds the flags of the settings to a command.
AddSettings = Callable[[argparse.ArgumentParser], None]


def add_cache_commands(cache: argparse.ArgumentParser, add_settings: AddSettings) -> None:
    """Add the commands of `doi-proxy cache`. The selected one becomes `cache_command`."""
    commands = cache.add_subparsers(title="commands", metavar="COMMAND", dest="cache_command", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        usage = f"doi-proxy cache {name} {USAGE[name]} [--config FILE] [settings]"
        command = commands.add_parser(name, help=text, description=text, usage=usage)
        add_settings(command)
        return command

    _add_export(add("export", "write records to a bundle: all, the names of a list, or the names under a prefix"))
    _add_import(
        add(
            "import",
            "read a bundle or files of Crossref or DataCite into the store; no older record replaces a newer one",
        )
    )
    _add_pull(add("pull", "follow a parent: apply the changes and purges of its store since the last pull"))
    _add_warm(add("warm", "fetch the names of lists that are not fresh in the store, as a bulk job"))
    _add_stats(add("stats", "print the number and size of the entries, and whether the store works"))
    _add_show(add("show", "print the cached answers about names, as JSON"))
    _add_refresh(add("refresh", "fetch names from the upstream now, fresh or not"))
    _add_purge(add("purge", "delete entries, also in every running proxy on the same store"))


def _add_export(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--output", default="-", metavar="FILE", help="output file, compressed if it ends in .gz; - is standard output"
    )
    command.add_argument("--from", dest="names_from", metavar="LIST", help="only the names of this list (as for warm)")
    command.add_argument("--prefix", metavar="PREFIX", help="only the names under this prefix, such as 10.1000")
    command.add_argument(
        "--since",
        metavar="CURSOR",
        help="only what was written or purged since the cursor of an earlier delta, or since a time; start is "
        "everything, with a cursor",
    )
    command.add_argument(
        "--ask", action="store_true", help="fetch the names of the list that are not fresh from the upstream"
    )
    command.add_argument("--column", metavar="NAME", help="column of a CSV list (default: doi)")


def _add_import(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "path",
        metavar="FILE",
        help="bundle; or a data file of Crossref or DataCite, a table of names and URLs, a tar archive or a folder of "
        "these; each also compressed by gzip; - is standard input",
    )
    command.add_argument(
        "--format",
        choices=("auto", "bundle", "crossref", "datacite", "csv"),
        default="auto",
        metavar="FORMAT",
        help="auto (default), bundle, crossref, datacite or csv",
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


def _add_pull(command: argparse.ArgumentParser) -> None:
    command.add_argument("url", metavar="URL", help="the parent: a URL, or unix: and the path of its admin socket")
    command.add_argument(
        "--token-file", required=True, metavar="FILE", help="file with the parent's admin_replica_token"
    )
    command.add_argument("--restart", action="store_true", help="pull everything again")


def _add_warm(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "lists",
        nargs="+",
        metavar="LIST",
        help="text file with one name a line, .csv, .bib, .ris, .jsonl or .json, each also with .gz; - is text from "
        "standard input",
    )
    command.add_argument("--column", metavar="NAME", help="column of a CSV list (default: doi)")
    command.add_argument("--limit", type=_whole_number, metavar="N", help="query the upstream for at most N names")


def _add_stats(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--every-entry", action="store_true", help="count fresh, stale and negative entries even in a large store"
    )


def _add_show(command: argparse.ArgumentParser) -> None:
    command.add_argument("names", nargs="+", metavar="NAME", help="names, in any presentation form")
    _add_server(command)


def _add_refresh(command: argparse.ArgumentParser) -> None:
    command.add_argument("names", nargs="*", metavar="NAME", help="names, in any presentation form")
    command.add_argument("--prefix", metavar="PREFIX", help="the names of the cache under this prefix, oldest first")
    command.add_argument("--limit", type=_whole_number, metavar="N", help="fetch at most N names of the prefix")
    _add_server(command)


def _add_purge(command: argparse.ArgumentParser) -> None:
    command.add_argument("names", nargs="*", metavar="NAME", help="names, in any presentation form")
    command.add_argument("--prefix", metavar="PREFIX", help="all names under this prefix, such as 10.1000")
    command.add_argument("--negative", action="store_true", help="all names that were not found, or have no values")
    command.add_argument("--all", dest="everything", action="store_true", help="all entries")
    _add_server(command)
    command.add_argument("--soft", action="store_true", help="make the entries stale and keep them for outages")
    command.add_argument("--dry-run", action="store_true", help="count the entries, and change nothing")


def _add_server(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--server", metavar="URL", help="use the admin API of the proxy at this URL instead of the store"
    )


def run_cache(namespace: argparse.Namespace, settings: Settings) -> int:
    """Run the selected command. Returns its exit status."""
    commands = {"export": _export, "import": _import, "warm": _warm, "stats": _stats, "purge": _purge}
    commands |= {"show": _show, "refresh": _refresh, "pull": _pull}
    return commands[namespace.cache_command](namespace, settings)


def _export(namespace: argparse.Namespace, settings: Settings) -> int:
    from app.features.cache_commands.commands import ExportChoice, export

    if namespace.since:
        return _export_changes(namespace, settings)
    if namespace.names_from and namespace.prefix:
        raise ConfigurationError("--from and --prefix cannot be used together; give one of them")
    if namespace.ask and not namespace.names_from:
        raise ConfigurationError("--ask needs --from LIST to say which names to look up")
    choice = ExportChoice(namespace.names_from, _prefix(namespace.prefix), namespace.ask, namespace.column)
    return asyncio.run(export(settings, choice, namespace.output))


def _import(namespace: argparse.Namespace, settings: Settings) -> int:
    from app.features.bundles.import_command import run_import

    return run_import(namespace, settings)


def _export_changes(namespace: argparse.Namespace, settings: Settings) -> int:
    from app.features.follow.command import export_changes

    if namespace.names_from or namespace.prefix or namespace.ask:
        raise ConfigurationError("--since cannot be used with --from, --prefix or --ask; it has all names")
    return export_changes(settings, namespace.since, namespace.output)


def _pull(namespace: argparse.Namespace, settings: Settings) -> int:
    from app.features.follow.command import pull

    return asyncio.run(pull(settings, namespace.url, namespace.token_file, restart=namespace.restart))


def _warm(namespace: argparse.Namespace, settings: Settings) -> int:
    from app.features.cache_commands.commands import warm

    return asyncio.run(warm(settings, namespace.lists, column=namespace.column, limit=namespace.limit))


def _stats(namespace: argparse.Namespace, settings: Settings) -> int:
    from app.features.cache_commands.commands import show_stats

    return asyncio.run(show_stats(settings, as_json=namespace.as_json, every_entry=namespace.every_entry))


def _show(namespace: argparse.Namespace, settings: Settings) -> int:
    from app.features.admin.command import open_client, show_remote, show_stored
    from app.features.cache_commands.commands import read_argument

    names = [read_argument(text) for text in namespace.names]
    if namespace.server is not None:
        return show_remote(open_client(settings, namespace.server), names)
    return asyncio.run(show_stored(settings, names))


def _refresh(namespace: argparse.Namespace, settings: Settings) -> int:
    from app.features.admin.command import open_client, refresh_remote, refresh_stored
    from app.features.cache_commands.commands import read_argument

    if bool(namespace.names) == bool(namespace.prefix):
        raise ConfigurationError("refresh needs names, or --prefix")
    if (prefix := _prefix(namespace.prefix)) is not None:
        return _refresh_prefix(namespace, settings, prefix)
    names = [read_argument(text) for text in namespace.names]
    if namespace.server is not None:
        return refresh_remote(open_client(settings, namespace.server), names)
    return asyncio.run(refresh_stored(settings, names))


def _refresh_prefix(namespace: argparse.Namespace, settings: Settings, prefix: HandleName) -> int:
    from app.features.admin.command import open_client, refresh_prefix_remote, refresh_prefix_stored
    from app.features.admin.models import MAX_REFRESHED, REFRESH_LIMIT

    limit = REFRESH_LIMIT if namespace.limit is None else namespace.limit
    if not 1 <= limit <= MAX_REFRESHED:
        raise ConfigurationError(f"--limit {limit}: give a number from 1 to {MAX_REFRESHED}")
    if namespace.server is not None:
        return refresh_prefix_remote(open_client(settings, namespace.server), prefix, limit)
    return asyncio.run(refresh_prefix_stored(settings, prefix, limit))


def _purge(namespace: argparse.Namespace, settings: Settings) -> int:
    from app.features.cache_commands.commands import purge, read_argument
    from app.features.cache_commands.purge import Selection

    selections = [bool(namespace.names), bool(namespace.prefix), namespace.negative, namespace.everything]
    if sum(selections) != 1:
        raise ConfigurationError("purge needs names, or exactly one of --prefix, --negative and --all")
    prefix = _prefix(namespace.prefix)
    if namespace.server is not None:
        return _purge_remote(namespace, settings, prefix)
    names = [read_argument(text) for text in namespace.names]
    selection = Selection(names, prefix, namespace.negative, namespace.everything)
    return asyncio.run(purge(settings, selection, soft=namespace.soft, dry_run=namespace.dry_run))


def _purge_remote(namespace: argparse.Namespace, settings: Settings, prefix: HandleName | None) -> int:
    from app.features.admin.command import open_client, purge_remote
    from app.features.cache_commands.commands import read_argument

    selections: list[dict[str, object]] = [{"doi": read_argument(text).text} for text in namespace.names]
    if prefix is not None:
        selections = [{"prefix": prefix.text}]
    elif namespace.negative or namespace.everything:
        selections = [{"negative": True} if namespace.negative else {"all": True}]
    client = open_client(settings, namespace.server)
    return purge_remote(client, selections, soft=namespace.soft, dry_run=namespace.dry_run)


def _prefix(text: str | None) -> HandleName | None:
    if not text:
        return None
    try:
        prefix = HandleName(text.rstrip("/"))
    except InvalidName as error:
        raise ConfigurationError(f"--prefix {text}: {error.message}") from error
    if not prefix.is_prefix:
        raise ConfigurationError(f"--prefix {text}: this is not a DOI prefix; a DOI prefix looks like 10.1000")
    return prefix


def _whole_number(text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
