"""Runs `doi-proxy cache pull` and `doi-proxy cache export --since`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from app.bulk.export import STANDARD_OUTPUT, Output
from app.bulk.import_bundle import BundleImport, ImportReport
from app.bulk.pull import Body, Pull, PullReport
from app.cache.address import read_store_path
from app.cache.bundle import BundleWriter
from app.cache.delta import Cursor, DeltaEnd, end_line, parse_cursor, start_line
from app.cache.sqlite.change_pages import find_cursor, read_changes, read_origin
from app.cli.cache_import import open_registry, read_bounds
from app.cli.cache_store import open_store, require_store
from app.cli.parent_client import ParentClient
from app.errors import ChangesGone, ConfigurationError, DoiProxyError, InvalidParameter
from app.redaction import redact
from app.registry.record import parse_date
from app.settings import Settings

#: --since for everything, with a cursor at its end.
START: Final = "start"
#: Limit of a pull without --max-bytes, in bytes on the wire.
MAX_BYTES: Final = 16 * 1024**3
_MAX_STATE: Final = 16_384
_MAX_TOKEN: Final = 4_096


# --- export --since -----------------------------------------------------------------------------------------------


def export_changes(settings: Settings, since: str, output: str) -> int:
    """Write the changes since a cursor or a time. Raises ConfigurationError and StoreError."""
    path = read_store_path(settings.store_url)
    if path is None:
        raise ConfigurationError(
            "--since needs a log of changes, which only a SQLite store has; without --since everything is exported"
        )
    require_store(settings)
    messages = sys.stderr if output == STANDARD_OUTPUT else sys.stdout
    try:
        cursor = _read_since(path, since)
        with Output(output) as out:
            lines, end = _write_changes(path, cursor, BundleWriter(out.file))
            out.keep()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DoiProxyError(f"{output}: cannot be written: {error.strerror or error}") from error
    except ChangesGone as error:
        raise DoiProxyError(f"--since {since}: {error.message} --since {START} exports everything.") from error
    print(f"{lines} changes exported; the next delta begins at --since {end}", file=messages)
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


def _write_changes(path: Path, cursor: Cursor | None, writer: BundleWriter) -> tuple[int, str]:
    """Write a delta of all pages. Returns its changes and the cursor of the next one."""
    lines, more = 0, True
    writer.add_line(start_line("" if cursor is None else str(cursor)))
    while more:
        page = read_changes(path, cursor, time.time())
        for line in page.lines:
            writer.add_line(line)
        lines += len(page.lines)
        cursor, more = page.cursor, page.more
    writer.add_line(end_line(DeltaEnd(str(cursor), more=False)))
    writer.finish()
    return lines, str(cursor)


# --- pull ---------------------------------------------------------------------------------------------------------


class _State(msgspec.Struct, frozen=True):
    """Where a pull continues. `store` identifies the child's own store: a new one has nothing, and begins again."""

    parent: str
    cursor: str
    store: str = ""


async def pull(
    settings: Settings, url: str, token_file: str, *, cursor_file: str | None, restart: bool, max_bytes: int
) -> int:
    """Pull the changes of a parent. Exit status 1 if the pull is not complete, or a line was refused."""
    client = ParentClient(url, _read_token(token_file), time.monotonic)
    path = read_store_path(settings.store_url)
    file = _state_path(path, cursor_file)
    began = time.monotonic()
    async with open_store(settings) as cache:
        with open_registry(settings) as registry:
            store = "" if path is None else read_origin(path)
            state = None if restart else _read_state(file, redact(url), store)
            work = BundleImport(cache, read_bounds(settings), time.time, registry)

            async def fetch(cursor: str) -> Body:
                return await asyncio.to_thread(client.fetch, cursor)

            def save(cursor: str) -> None:
                _write_state(file, _State(redact(url), cursor, store))

            job = Pull(fetch, work, save, sleep=asyncio.sleep, max_bytes=max_bytes)
            report = await job.run("" if state is None else state.cursor)
    _print_report(report, work.report, time.monotonic() - began)
    return 0 if report.is_complete and not work.report.counts["refused"] else 1


def _print_report(report: PullReport, imported: ImportReport, seconds: float) -> None:
    for line in imported.refused:
        print(f"a line is refused: {line.reason}", file=sys.stderr)
    if report.began_again:
        print(
            "the parent's log does not go back to the last pull, so everything was pulled; purges before its log begins"
            " did not arrive",
            file=sys.stderr,
        )
    if report.repeats:
        print(f"{report.repeats} pages were fetched again", file=sys.stderr)
    if report.failure is not None:
        print(f"not complete: {report.failure}", file=sys.stderr)
    print(f"{imported.describe_counts()}; {report.pages} pages, {report.bytes} bytes, {seconds:.1f} s")


def _read_token(path: str) -> str:
    try:
        with Path(path).open(encoding="ascii") as file:
            token = file.read(_MAX_TOKEN).strip()
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"--token-file {path}: cannot be read: {error}") from error
    if not token or not token.isprintable():
        raise ConfigurationError(f"--token-file {path}: has no token; put admin_follow_token of the parent into it")
    return token


def _state_path(store: Path | None, cursor_file: str | None) -> Path:
    if cursor_file is not None:
        return Path(cursor_file)
    if store is None:
        raise ConfigurationError("--cursor FILE is needed with this store: the file remembers where a pull continues")
    return Path(f"{store}.pull")


def _read_state(file: Path, parent: str, store: str) -> _State | None:
    """Where to continue. None for another parent, for another store of this proxy, and for a file of another form."""
    state = None
    try:
        with suppress(FileNotFoundError, msgspec.DecodeError), file.open("rb") as opened:
            state = msgspec.json.decode(opened.read(_MAX_STATE), type=_State)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror or error}") from error
    return state if state is not None and (state.parent, state.store) == (parent, store) else None


def _write_state(file: Path, state: _State) -> None:
    partial = file.with_name(file.name + ".partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, 0o600), "wb") as opened:
            opened.write(msgspec.json.encode(state))
            opened.flush()
            os.fsync(opened.fileno())
        partial.replace(file)
    except OSError as error:
        raise DoiProxyError(f"{file}: cannot be written: {error.strerror or error}") from error
