"""Runs `doi-proxy resolve`: reads lists, resolves their names here or on a server, and writes rows.

The file of the rows is the state of a run that did not end: the same command goes on after its last row.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO, TypeVar

from doi_names.find_names import FoundName
from doi_names.name import HandleName
from doi_proxy.errors import ConfigurationError, InvalidParameter
from doi_proxy.features.feature import CommandContext, Observers
from doi_proxy.features.lists import rows_file, server_client
from doi_proxy.features.lists.batch import (
    BatchInput,
    BatchOptions,
    RemainingTime,
    agency_source,
    build_batches,
    count_lists,
)
from doi_proxy.features.lists.command import ResolveChoice
from doi_proxy.features.lists.server_client import LITERAL, BatchClient
from doi_proxy.features.lists.verdict import (
    FIELDS,
    GOOD,
    MATCH_FIELDS,
    SUGGESTIONS,
    ListRow,
    Verdict,
    read_fields,
    read_input,
)
from doi_proxy.list_formats import writing
from doi_proxy.list_formats.body import ListSource, require_files, stream_items
from doi_proxy.list_formats.entries import ListItem
from doi_proxy.list_formats.formats import TEXT
from doi_proxy.system.files import Replacement, open_regular, printable
from doi_proxy.system.options import Settings
from doi_proxy.system.progress import INTERRUPTED, Bar, Stop, progress, shows_progress, stop_on_signals
from doi_proxy.upstream.guard import RecordQuery

Item = TypeVar("Item")


async def resolve_lists(context: CommandContext, choice: ResolveChoice) -> int:
    """Resolve lists and write their rows. Raises ConfigurationError, DoiProxyError and BrokenPipeError."""
    require_files(choice.lists)
    if choice.matches and choice.names:
        raise ConfigurationError(f"--match: {choice.names[0]} is a name without a reference; name a file of references")
    output_format = choice.output_format or _default_format(choice)
    files = server_client.ListFiles()
    if output_format == "concise":
        choice = replace(choice, suggests=True)
    fields = _choose_fields(choice, output_format)
    with rows_file.RowOutput(choice.output) as output, stop_on_signals() as stop:
        recorder = rows_file.RowRecorder(output, _open_writer(output_format, fields, files, choice), fields)
        job = server_client.ListJob(recorder, files, server_client.find_obstacle(output, output_format, fields))
        inputs = read_inputs(choice, files, stop.event)
        try:
            async with aclosing(inputs):
                first = await server_client.go_on(output, job, inputs, output_format, fields)
                if files.is_complete and recorder.rows and not first:
                    print(f"-o {output.path}: all rows are written already", file=sys.stderr)
                    _report(job)
                    return 0
                if not stop.event.is_set():
                    await _run(context, choice, recorder, server_client.chain(first, inputs), stop.event, fields)
        except asyncio.CancelledError:
            return _report_end(job)
        if stop.event.is_set():
            return _report_end(job)
        await recorder.finish()
        if not _is_short(choice):
            _report(job)
            _propose_extraction(choice, recorder)
        return _exit_status(recorder, is_strict=choice.is_strict)


async def _run(
    context: CommandContext,
    choice: ResolveChoice,
    recorder: rows_file.RowRecorder,
    inputs: AsyncGenerator[list[BatchInput]],
    stop: asyncio.Event,
    fields: Sequence[str],
) -> None:
    # In a thread: a signal is handled while the list is counted.
    time_left = await asyncio.to_thread(_count_time, context.settings, choice)
    query_recorder = None if time_left is None else time_left.record_query
    with _show_progress(choice, recorder, time_left) as bar:
        async with aclosing(inputs), open_rows(context, choice, inputs, stop, query_recorder, fields) as groups:
            bar.describe(lambda: rows_file.show_verdicts(recorder.verdicts))
            async for rows in groups:
                await recorder.write(rows)
                if _is_short(choice):
                    _explain_failures(rows)
                bar.advance(len(rows))


# --- The lists ----------------------------------------------------------------------------------------------------


def list_sources(choice: ResolveChoice) -> list[ListSource]:
    """The lists, with the options that say how they are read."""
    return [
        ListSource(path, choice.input_format, choice.column, keeps_entries=choice.matches, extracts=choice.extracts)
        for path in choice.lists
    ]


async def read_inputs(
    choice: ResolveChoice, files: server_client.ListFiles, stop: asyncio.Event
) -> AsyncGenerator[list[BatchInput]]:
    """The inputs in groups."""
    if choice.names:
        files.add("", len(choice.names))
        files.names += len(choice.names)
        yield list(choice.names)
    for source in list_sources(choice):
        parser = source.open_parser()
        async with aclosing(stream_items(source, stop, parser)) as groups:
            async for items in groups:
                if items:
                    files.names += len(items)
                    files.add(source.path, len(items))
                    yield [read_input(item) for item in items]
        files.close(source.path, parser)
    files.is_complete = not stop.is_set()


async def flatten(groups: AsyncIterator[list[Item]]) -> AsyncGenerator[Item]:
    """The inputs one by one."""
    async for group in groups:
        for item in group:
            yield item


# --- The rows -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_rows(
    context: CommandContext,
    choice: ResolveChoice,
    inputs: AsyncIterator[list[BatchInput]],
    stop: asyncio.Event,
    record_query: RecordQuery | None,
    fields: Sequence[str],
) -> AsyncIterator[AsyncIterator[list[ListRow]]]:
    """The rows of the inputs in groups, of a server or of this process."""
    if choice.server is not None:
        client = BatchClient(choice.server, _query(choice), stop, lambda text: print(text, file=sys.stderr))
        async with aclosing(client.groups(inputs)) as rows:
            yield rows
        return
    # With a server, the command does not need the parts that these modules import.
    from doi_proxy.features.metadata.feature import open_comparison
    from doi_proxy.features.suggestions.feature import build_suggested_names

    settings = context.settings
    options = BatchOptions(
        matches=choice.matches,
        is_stopped=stop.is_set,
        only_cached=choice.only_cached,
        literal=choice.literal,
        suggests=choice.suggests,
        checks=choice.checks,
        agency=agency_source(fields, is_named=choice.fields is not None, only_cached=choice.only_cached),
    )
    observers = Observers() if record_query is None else Observers(upstream=lambda _: record_query)
    async with AsyncExitStack() as stack:
        core = await stack.enter_async_context(context.stores.open_for_lists(observers))
        names, compare = build_suggested_names(settings, core, settings.public_url), None
        if choice.matches:
            compare = await stack.enter_async_context(open_comparison(settings, core))
            if compare is None:
                raise ConfigurationError(
                    "--match: works are looked up only online, with metadata = on, an upstream_contact and a "
                    "privacy_level below 3; add --upstream-contact ADDRESS, or name a --server that has one"
                )
        batches = build_batches(settings, core, names, compare=compare)
        yield await stack.enter_async_context(aclosing(batches.groups(flatten(inputs), options)))


def _query(choice: ResolveChoice) -> str:
    """The query of a request to a server, with its question mark."""
    chosen = (
        (choice.only_cached, "only=cached"),
        (choice.suggests, "suggest=checked" if choice.checks else "suggest=true"),
        (choice.literal, LITERAL),
        (choice.matches, "match=true"),
    )
    query = "&".join(parameter for is_chosen, parameter in chosen if is_chosen)
    return query and f"?{query}"


# --- The output ---------------------------------------------------------------------------------------------------


def _choose_fields(choice: ResolveChoice, output_format: str) -> tuple[str, ...]:
    """The members of a row that are written. Raises ConfigurationError for one that does not exist."""
    # The output formats whose members are fixed.
    if choice.fields is not None and output_format in {"concise", "urls"}:
        raise ConfigurationError(
            f"--output-format {output_format} has no choice of members; leave out --fields, or use jsonl, csv or table"
        )
    if output_format == "urls":
        return ("url",)
    if output_format == "concise":
        return ("verdict", "input", "line", "key", "message", SUGGESTIONS, *MATCH_FIELDS)
    if choice.fields is None and output_format == "table":
        # The members of a table by default.
        members = ("verdict", "match", "input", "title", "why") if choice.matches else ("verdict", "input", "url")
        return (*members, SUGGESTIONS) if choice.suggests else members
    try:
        return read_fields(choice.fields, suggests=choice.suggests, matches=choice.matches)
    except InvalidParameter as error:
        raise ConfigurationError(f"--{error.message}") from error


def _open_writer(
    output_format: str, fields: tuple[str, ...], files: server_client.ListFiles, choice: ResolveChoice
) -> writing.RowWriter:
    match output_format:
        case "csv":
            return writing.TableWriter(fields)
        case "table":
            return writing.AlignedWriter(fields)
        case "concise":
            has_colour = _is_terminal_output(choice) and not os.environ.get("NO_COLOR")
            return writing.ConciseWriter(files.take, [str(verdict.value) for verdict in GOOD], has_colour=has_colour)
        case "urls":
            return writing.UrlWriter()
        case _:
            return writing.JsonLinesWriter()


def _is_short(choice: ResolveChoice) -> bool:
    """Whether a person wants the targets of a few names, and nothing else."""
    return not (choice.lists or choice.output_format or choice.fields or choice.suggests)


def _default_format(choice: ResolveChoice) -> str:
    if _is_short(choice):
        return "urls"
    if not _is_terminal_output(choice):
        return "jsonl"
    formats = [source.format for source in list_sources(choice)]
    # Files of references: their rows have keys.
    with_keys = {"bibtex", "ris", "medline", "endnote", "wos"}
    has_entries = all(form is not None and form.name in with_keys for form in formats) and not choice.extracts
    return "concise" if formats and has_entries and not (choice.fields or choice.matches) else "table"


def _explain_failures(rows: Sequence[ListRow]) -> None:
    for row in rows:
        if row.verdict not in GOOD:
            message = f": {row.message}" if row.message else ""
            print(f"{printable(row.input)}: {row.verdict.value}{printable(message)}", file=sys.stderr)


def _is_terminal_output(choice: ResolveChoice) -> bool:
    return choice.output is None and sys.stdout.isatty()


def _count_time(settings: Settings, choice: ResolveChoice) -> RemainingTime | None:
    """What estimates the time. None if no progress is shown, and for lists whose length is not known."""
    if not shows_progress() or _is_terminal_output(choice):
        return None
    size = count_lists(list_sources(choice))
    rate = None if choice.server is not None or choice.only_cached else settings.upstream_rate
    return None if size is None else RemainingTime(size, rate)


def _show_progress(
    choice: ResolveChoice, recorder: rows_file.RowRecorder, time_left: RemainingTime | None
) -> AbstractContextManager[Bar]:
    """The progress line, unless rows go to the terminal."""
    if _is_terminal_output(choice):
        return nullcontext(Bar())
    if time_left is None:
        return progress("resolving", None, before=recorder.earlier_rows)
    total, estimate = time_left.size.items, time_left.estimate
    return progress("resolving", total, before=recorder.earlier_rows, estimate=estimate)


# --- The end ------------------------------------------------------------------------------------------------------


def _propose_extraction(choice: ResolveChoice, recorder: rows_file.RowRecorder) -> None:
    """Say how to read running text, if a list of names has mostly none."""
    is_list = not choice.extracts and any(source.format in (None, TEXT) for source in list_sources(choice))
    wrong = recorder.verdicts[Verdict.NOT_A_DOI] - recorder.without_doi
    # The rows after which a list of names that are mostly none may be a text.
    if is_list and recorder.rows >= 3 and 2 * wrong > recorder.rows:
        print("most lines are not DOI names; for running text, add --extract", file=sys.stderr)


def _exit_status(recorder: rows_file.RowRecorder, *, is_strict: bool) -> int:
    """0 if every name leads to its work. An entry without a DOI counts only if it `is_strict`."""
    bad = sum(count for verdict, count in recorder.verdicts.items() if verdict not in GOOD)
    bad += recorder.matches["different"]
    return 0 if recorder.rows and bad - (0 if is_strict else recorder.without_doi) == 0 else 1


def _report(job: server_client.ListJob) -> None:
    rows_file.report_rows(job.recorder.verdicts, job.recorder.matches, job.files.entries, job.files.columns)


def _report_end(job: server_client.ListJob) -> int:
    if job.recorder.rows:
        _report(job)
    total = f"{job.files.names:,}" if job.files.is_complete else f"at least {job.files.names:,}"
    remedy = job.obstacle or "run the same command again to continue"
    print(f"stopped by a signal after {job.recorder.rows:,} of {total} names; {remedy}", file=sys.stderr)
    return INTERRUPTED


async def resolve_again(context: CommandContext, choice: ResolveChoice) -> int:
    """Replace the rows of a file that have some verdicts. Raises ConfigurationError and DoiProxyError."""
    path, rows_format = choice.output, choice.output_format or rows_file.ROWS_FORMATS[0]
    if path is None or rows_format not in rows_file.ROWS_FORMATS:
        raise ConfigurationError(
            f"--again: name the file of rows with -o FILE, which is {' or '.join(rows_file.ROWS_FORMATS)}"
        )
    if choice.matches:
        raise ConfigurationError("--again: rows have no references to compare; leave out --match")
    if (choice.lists or choice.names) and not path.exists():
        return 0
    verdicts = Counter[Verdict]()
    with stop_on_signals() as stop:
        names = await _replace_rows(context, choice, _Source(path, rows_format, choice.again), verdicts, stop)
    if names:
        rows_file.report_rows(verdicts)
    else:
        print(f"-o {path}: no row has one of the verdicts {', '.join(choice.again)}", file=sys.stderr)
    if stop.event.is_set():
        done = f"{verdicts.total():,} of {names:,} names"
        print(f"stopped by a signal after {done}; run the same command again to continue", file=sys.stderr)
        return INTERRUPTED
    return 0 if all(verdict in GOOD for verdict in +verdicts) else 1


class _Source:
    """The file of the rows, and the verdicts of those that are looked up again."""

    def __init__(self, path: Path, rows_format: str, verdicts: Sequence[str]) -> None:
        self.path = path
        self._format = rows_format
        self._verdicts = frozenset(map(Verdict, verdicts))

    def open(self) -> IO[bytes]:
        """Open the file. Raises ConfigurationError."""
        try:
            return open_regular(self.path)
        except OSError as error:
            raise ConfigurationError(f"-o {self.path}: cannot be read: {error.strerror or error}") from error

    def rows(self, file: IO[bytes]) -> rows_file.RowsFile:
        """The rows of the open file, from its beginning."""
        file.seek(0)
        return rows_file.RowsFile(file, self.path, self._format)

    def is_repeated(self, row: rows_file.WrittenRow) -> bool:
        """Whether a row is looked up again."""
        return not row.is_error and row.verdict in self._verdicts


async def _replace_rows(
    context: CommandContext, choice: ResolveChoice, source: _Source, verdicts: Counter[Verdict], stop: Stop
) -> int:
    """Look up the rows, replace them and count their verdicts. Returns the number of names that had to be looked up."""
    with source.open() as file, source.open() as inputs:
        rows_file.claim_file(file.fileno(), source.path)
        # Raises before anything is written.
        names = sum(map(source.is_repeated, source.rows(file).rows()))
        if not names:
            return 0
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        with Replacement(source.path) as replacement:
            os.fchmod(replacement.file.fileno(), mode)
            copy = _Copy(source, file, replacement.file, verdicts)
            try:
                async with open_rows(context, choice, _read_again(source, inputs), stop.event, None, FIELDS) as groups:
                    rows = flatten(groups)
                    async with aclosing(rows):
                        await copy.run(rows)
            except asyncio.CancelledError:
                stop.event.set()
            finally:
                # Also after a failure: what was answered is kept.
                copy.finish()
                replacement.put()
    return names


class _Copy:
    """Copies a file of rows, and replaces those that are looked up again."""

    def __init__(self, source: _Source, file: IO[bytes], target: IO[bytes], verdicts: Counter[Verdict]) -> None:
        self._source = source
        self._file = file
        self._target = target
        self._verdicts = verdicts
        #: The bytes of the file that were copied or replaced.
        self._done = 0

    async def run(self, rows: AsyncIterator[ListRow]) -> None:
        """Copy and replace until the new rows end."""
        file = self._source.rows(self._file)
        for row in file.rows():
            if not self._source.is_repeated(row):
                continue
            new = await anext(rows, None)
            if new is None:
                return
            self._copy_until(file.end - len(row.data))
            members = new.members()
            # Those that say where an item is in its list stay.
            changed = members.keys() - {"input", "line", "key", "echo"}
            known = {name: members[name] for name in row.members if name in changed}
            self._target.write(file.encode(row.members | known))
            self._done = file.end
            self._verdicts[new.verdict] += 1

    def finish(self) -> None:
        """Copy the rest, also a row that a killed run did not finish."""
        self._copy_until(os.fstat(self._file.fileno()).st_size)

    def _copy_until(self, end: int) -> None:
        while data := os.pread(self._file.fileno(), min(1024 * 1024, end - self._done), self._done):
            self._target.write(data)
            self._done += len(data)


async def _read_again(source: _Source, inputs: IO[bytes]) -> AsyncGenerator[list[BatchInput]]:
    """The inputs of the rows that are looked up again."""
    group: list[BatchInput] = []
    for row in source.rows(inputs).rows():
        if source.is_repeated(row):
            group.append(_read_item(row))
        # Rows between two chances for other work.
        if len(group) >= 64:
            yield group
            group = []
            await asyncio.sleep(0)
    yield group


def _read_item(row: rows_file.WrittenRow) -> ListItem:
    """The input of a row. Its name may have been found in a text that is not a name."""
    text, doi = row.members["input"], row.members.get("doi")
    found = FoundName(HandleName(doi), 0, len(text), text, "literal", None) if isinstance(doi, str) and doi else None
    return ListItem(text, found=found)
