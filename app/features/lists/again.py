"""Looks up rows of an earlier run again, and replaces them in their file.

The new file is written beside the old one and takes its place at the end. A run that a signal ends has replaced the
rows that were answered; the same command continues with the others.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from app.errors import ConfigurationError
from app.features.command import CommandContext
from app.features.lists.batch import BatchInput
from app.features.lists.command import ResolveChoice
from app.features.lists.lines import ListItem
from app.features.lists.progress import report_rows
from app.features.lists.resolve_lists import open_rows
from app.features.lists.verdict import FIELDS, GOOD, UNDECIDED, ListRow, Verdict
from app.features.private_file import open_private
from app.system.interruption import INTERRUPTED, Stop, stop_on_signals
from app.system.progress import show_duration
from app.system.regular_file import open_regular

#: Limit of a row, in bytes.
_MAX_ROW_BYTES: Final = 4 * 1024 * 1024
#: Rows between two chances for other work.
_GROUP: Final = 64
#: The shortest pause between two rounds, in seconds. It doubles so many times, to more than half an hour.
FIRST_PAUSE: Final = 30.0
_DOUBLINGS: Final = 6


class _Round:
    """The number of names of a round, its rows by verdict, and when their names can be looked up again (monotonic)."""

    def __init__(self, names: int) -> None:
        self.names = names
        self.verdicts = Counter[Verdict]()
        self.next_at = 0.0

    def add(self, row: ListRow) -> None:
        """Count a row."""
        self.verdicts[row.verdict] += 1
        wait = 0.0 if row.judgement is None else row.judgement.retry_after or 0.0
        self.next_at = max(self.next_at, time.monotonic() + wait)


async def resolve_again(context: CommandContext, choice: ResolveChoice) -> int:
    """Replace the rows of a file that have some verdicts, in rounds. Raises ConfigurationError and DoiProxyError."""
    path = choice.output_file
    if path is None or choice.names or choice.lists != ("-",) or choice.output not in (None, "jsonl"):
        raise ConfigurationError("--again: name the file of rows with -o FILE, which is jsonl, and no list")
    if choice.matches:
        raise ConfigurationError("--again: rows have no references to compare; leave out --match")
    verdicts = Counter[Verdict]()
    with stop_on_signals() as stop:
        for number in range(1, choice.rounds + 1):
            done = await _run_round(context, choice, path, stop)
            verdicts += done.verdicts
            # A later round repeats only what can pass by itself.
            repeated = UNDECIDED.intersection(map(Verdict, choice.again))
            left = sum(done.verdicts[verdict] for verdict in repeated)
            if stop.event.is_set() or not left or number == choice.rounds:
                break
            seconds = max(FIRST_PAUSE * 2.0 ** min(number - 1, _DOUBLINGS), done.next_at - time.monotonic())
            names = "1 name was" if left == 1 else f"{left:,} names were"
            print(
                f"round {number} of {choice.rounds}: {names} not verified; the next round begins in "
                f"{show_duration(seconds)}; Ctrl-C ends the command",
                file=sys.stderr,
                flush=True,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await stop.event.wait()
            if stop.event.is_set():
                break
            for verdict in repeated:
                verdicts[verdict] = 0
            choice = replace(choice, again=tuple(verdict.value for verdict in repeated))
    report_rows(verdicts)
    if stop.event.is_set():
        print(
            f"stopped by a signal after {done.verdicts.total():,} of {done.names:,} names of round {number}; "
            "run the same command again to continue",
            file=sys.stderr,
        )
        return INTERRUPTED
    return 0 if all(verdict in GOOD for verdict in +verdicts) else 1


async def _run_round(context: CommandContext, choice: ResolveChoice, path: Path, stop: Stop) -> _Round:
    """Look up the rows once, and replace them."""
    try:
        source = open_regular(path)
    except OSError as error:
        raise ConfigurationError(f"-o {path}: cannot be read: {error.strerror or error}") from error
    with source, open_regular(path) as inputs:
        _claim(source, path)
        # Raises before anything is written.
        done = _Round(sum(row is not None for _, row in _read_rows(source, choice, path)))
        source.seek(0)
        partial = path.with_name(f"{path.name}.partial")
        mode = stat.S_IMODE(os.fstat(source.fileno()).st_mode)
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW
        waiting = _read_again(inputs, choice, path)
        with os.fdopen(open_private(partial, flags, mode), "wb") as target:
            try:
                async with open_rows(context, choice, waiting, stop.event, None, FIELDS) as groups:
                    rows = _flatten(groups)
                    async with aclosing(rows):
                        await _copy(source, target, choice, path, rows, done)
            except asyncio.CancelledError:
                stop.event.set()
            finally:
                # Also after a failure: what was answered is kept.
                for line in source:
                    target.write(line)
                target.flush()
                os.fsync(target.fileno())
                partial.replace(path)
    return done


def _claim(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigurationError(f"-o {path}: another process writes to it; wait until it ends") from error


async def _copy(
    source: IO[bytes],
    target: IO[bytes],
    choice: ResolveChoice,
    path: Path,
    rows: AsyncIterator[ListRow],
    done: _Round,
) -> None:
    """Copy rows, and replace those that are looked up again, until the new rows end."""
    for line, row in _read_rows(source, choice, path):
        try:
            new = await anext(rows, None) if row is not None else None
        except BaseException:
            target.write(line)
            raise
        if new is not None and row is not None:
            members = new.members()
            row |= {name: members[name] for name in row if name in members and name not in ("line", "key", "echo")}
            target.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n")
            done.add(new)
        else:
            target.write(line)


async def _read_again(file: IO[bytes], choice: ResolveChoice, path: Path) -> AsyncGenerator[list[BatchInput]]:
    """The inputs of the rows that are looked up again."""
    group: list[BatchInput] = []
    for _, row in _read_rows(file, choice, path):
        if row is not None:
            group.append(ListItem(row["input"]))
        if len(group) >= _GROUP:
            yield group
            group = []
            await asyncio.sleep(0)
    yield group


def _read_rows(file: IO[bytes], choice: ResolveChoice, path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """The lines of a file, with the row of each that is looked up again. Raises ConfigurationError."""
    number = 0
    while line := file.readline(_MAX_ROW_BYTES):
        number += 1
        try:
            row = json.loads(line)
            is_error = isinstance(row, dict) and "error" in row
            is_row = is_error or (isinstance(row["input"], str) and Verdict(row["verdict"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            is_row = False
        if not is_row:
            raise ConfigurationError(
                f"-o {path}, line {number}: this is not a row in JSON with the members input and verdict; name the "
                "file of an earlier run in the format jsonl"
            )
        yield line, row if not is_error and row["verdict"] in choice.again else None


async def _flatten(groups: AsyncIterator[list[ListRow]]) -> AsyncGenerator[ListRow]:
    async for group in groups:
        for row in group:
            yield row
