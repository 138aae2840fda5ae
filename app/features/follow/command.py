"""Runs `doi-proxy cache pull` and `doi-proxy cache export --since`."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path
from typing import Final

from app.cache.tiered import TieredStore
from app.errors import ConfigurationError, DoiProxyError, InvalidParameter
from app.features.bundles.delta import Cursor, DeltaEnd, parse_cursor
from app.features.bundles.import_bundle import BundleImport, ImportReport
from app.features.bundles.import_command import open_registry, read_bounds
from app.features.bundles.output import OutputFile
from app.features.command import STANDARD_OUTPUT, Command, CommandContext, set_usage
from app.features.follow.errors import ChangesGone
from app.features.follow.primaries import PrimaryState, read_primaries, save_primary
from app.features.follow.primary_client import PrimaryClient
from app.features.follow.pull import Body, Pull, PullLimits, PullReport
from app.features.follow.sqlite_change_pages import find_cursor, write_delta
from app.features.registry.record import parse_date
from app.features.store_url import read_store_path
from app.proxy_client.server import parse_server
from app.system.regular_file import explain_failure, read_regular

#: --since for everything, with a cursor at its end.
START: Final = "start"
_MAX_TOKEN: Final = 4_096


# --- export --since -----------------------------------------------------------------------------------------------


def export_changes(context: CommandContext, since: str, output: str) -> int:
    """Write the changes since a cursor or a time. Raises ConfigurationError and StoreError."""
    path = read_store_path(context.settings.store_url)
    if path is None:
        raise ConfigurationError(
            "--since needs a log of changes, which only a SQLite store has; without --since everything is exported"
        )
    context.stores.require()
    messages = sys.stderr if output == STANDARD_OUTPUT else sys.stdout
    try:
        cursor = _read_since(path, since)
        with OutputFile(output) as out:
            since_text = "" if cursor is None else str(cursor)
            changes, end = write_delta(path, cursor, since_text, out.file, time.time, whole=True)
            out.keep()
    except ChangesGone as error:
        raise DoiProxyError(f"--since {since}: {error.message} --since {START} exports everything.") from error
    print(f"{changes} changes exported; the next delta begins at --since {end.next}", file=messages)
    return 0


def _read_since(path: Path, since: str) -> Cursor | None:
    if since == START:
        return None
    if since.startswith("c1."):
        try:
            return parse_cursor(since)
        except InvalidParameter as error:
            raise ConfigurationError(f"--since {since}: {error.message}") from error
    when = parse_date(since)
    if when is None:
        raise ConfigurationError(f"--since {since}: not a cursor, a time such as 2026-01-31T12:00:00Z, or {START}")
    return find_cursor(path, when)


# --- pull ---------------------------------------------------------------------------------------------------------


async def pull(
    context: CommandContext, url: str, token_file: str, *, restart: bool, limits: PullLimits | None = None
) -> int:
    """Pull the changes of a primary. Exit status 1 if the pull is not complete, or a line was refused."""
    server = parse_server(url, "URL")
    bounds = limits or PullLimits()
    client = PrimaryClient(server, _read_token(token_file), timeout=bounds.page)
    began, primary = time.monotonic(), server.label
    settings = context.settings
    async with context.stores.open() as cache:
        with open_registry(settings) as registry:
            before = PrimaryState(primary, "") if restart else await _find_state(cache, primary)
            work = BundleImport(cache, read_bounds(settings), time.time, registry)

            async def fetch(cursor: str) -> Body:
                return await asyncio.to_thread(client.fetch, cursor)

            async def save(end: DeltaEnd) -> None:
                completed_at = before.completed_at if end.more else time.time()
                await save_primary(cache, PrimaryState(primary, end.next, completed_at))
                await cache.check()

            job = Pull(fetch, work, save, sleep=asyncio.sleep, chance=random.random, limits=bounds)
            report = await job.run(before.cursor)
    _print_report(report, work.report, time.monotonic() - began)
    return 0 if report.is_complete and not work.report.counts["refused"] else 1


async def _find_state(cache: TieredStore, primary: str) -> PrimaryState:
    """Where the store continues. A store that is new, or the replica of another primary, begins. Raises StoreError."""
    states = await read_primaries(cache)
    await cache.check()
    return next((state for state in states if state.url == primary), PrimaryState(primary, ""))


def _print_report(report: PullReport, imported: ImportReport, seconds: float) -> None:
    for line in imported.refused:
        print(f"a line is refused: {line.reason}", file=sys.stderr)
    if report.began_again:
        print(
            "the primary's log does not go back to the last pull, so everything was pulled; purges before its log"
            " begins did not arrive",
            file=sys.stderr,
        )
    if report.repeats:
        print(f"{report.repeats} pages were fetched again", file=sys.stderr)
    if report.failure is not None:
        print(f"not complete: {report.failure}", file=sys.stderr)
    if left_out := imported.counts["left out"]:
        print(
            f"{left_out} records of registration agencies were left out: only a store sqlite:///path has them",
            file=sys.stderr,
        )
    print(f"{imported.describe_counts()}; {report.pages} pages, {report.bytes} bytes, {seconds:.1f} s")


def _read_token(path: str) -> str:
    try:
        token = read_regular(Path(path), _MAX_TOKEN).decode("ascii").strip()
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"--token-file {path}: cannot be read: {explain_failure(error)}") from error
    if not token or not token.isprintable():
        raise ConfigurationError(f"--token-file {path}: has no token; put admin_replica_token of the primary into it")
    return token


def _add_pull(command: argparse.ArgumentParser) -> None:
    set_usage(command, "--token-file FILE [--restart] URL")
    command.add_argument("url", metavar="URL", help="the primary: a URL, or unix: and the path of its admin socket")
    command.add_argument(
        "--token-file", required=True, metavar="FILE", help="file with the primary's admin_replica_token"
    )
    command.add_argument("--restart", action="store_true", help="pull everything again")


def _pull(context: CommandContext, namespace: argparse.Namespace) -> int:
    from app.system.interruption import run_job

    return run_job(pull(context, namespace.url, namespace.token_file, restart=namespace.restart))


COMMANDS: Final = (Command("cache pull", _add_pull, _pull),)
