"""Runs `doi-proxy resolve`: reads lists, resolves their names here or on a server, and writes rows.

The file of the rows is the state of a run that did not end: the same command goes on after its last row.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Final

from doi_proxy.errors import ConfigurationError, InvalidParameter
from doi_proxy.features.command import CommandContext
from doi_proxy.features.lists import list_job
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.command import ResolveChoice
from doi_proxy.features.lists.name_lookup import BatchOptions, agency_source
from doi_proxy.features.lists.remaining_time import RemainingTime, count_lists
from doi_proxy.features.lists.row_output import RowOutput, RowRecorder, report_rows, show_verdicts
from doi_proxy.features.lists.server_client import LITERAL, BatchClient
from doi_proxy.features.lists.verdict import GOOD, MATCH_FIELDS, SUGGESTIONS, ListRow, Verdict, read_fields, read_input
from doi_proxy.list_formats import writing
from doi_proxy.list_formats.formats import TEXT
from doi_proxy.list_formats.list_stream import ListParser, ListSource, require_files, stream_items
from doi_proxy.system.interruption import INTERRUPTED, stop_on_signals
from doi_proxy.system.options import Settings
from doi_proxy.system.progress import Bar, progress, shows_progress
from doi_proxy.system.standard_streams import printable
from doi_proxy.upstream.guard import RecordQuery

#: The formats of files of references: their rows have keys.
_ENTRY_FORMATS: Final = frozenset({"bibtex", "ris", "medline", "endnote", "wos"})
#: The rows after which a list of names that are mostly none may be a text.
_MIN_ROWS: Final = 3
#: The output formats whose members are fixed.
_FIXED_FORMATS: Final = frozenset({"concise", "urls"})
#: The members of a table by default.
_TABLE_FIELDS: Final = ("verdict", "input", "url")
_MATCH_TABLE_FIELDS: Final = ("verdict", "match", "input", "title")


async def resolve_lists(context: CommandContext, choice: ResolveChoice) -> int:
    """Resolve lists and write their rows. Raises ConfigurationError, DoiProxyError and BrokenPipeError."""
    require_files(choice.lists)
    if choice.matches:
        _require_references(choice)
    output_format = choice.output_format or _default_format(choice)
    files = list_job.ListFiles()
    if output_format == "concise":
        choice = replace(choice, suggests=True)
    fields = _choose_fields(choice, output_format)
    with RowOutput(choice.output) as output, stop_on_signals() as stop:
        recorder = RowRecorder(output, _open_writer(output_format, fields, files, choice), fields)
        job = list_job.ListJob(recorder, files, list_job.find_obstacle(output, output_format, fields))
        inputs = _read_inputs(choice, files, stop.event)
        try:
            async with aclosing(inputs):
                first = await list_job.go_on(output, job, inputs, output_format, fields)
                if files.is_complete and recorder.rows and not first:
                    print(f"-o {output.path}: all rows are written already", file=sys.stderr)
                    _report(job)
                    return 0
                if not stop.event.is_set():
                    await _run(context, choice, recorder, list_job.chain(first, inputs), stop.event, fields)
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
    recorder: RowRecorder,
    inputs: AsyncGenerator[list[BatchInput]],
    stop: asyncio.Event,
    fields: Sequence[str],
) -> None:
    # In a thread: a signal is handled while the list is counted.
    time_left = await asyncio.to_thread(_count_time, context.settings, choice)
    query_recorder = None if time_left is None else time_left.record_query
    with _show_progress(choice, recorder, time_left) as bar:
        async with aclosing(inputs), open_rows(context, choice, inputs, stop, query_recorder, fields) as groups:
            async for rows in groups:
                await recorder.write(rows)
                if _is_short(choice):
                    _explain_failures(rows)
                bar.describe(show_verdicts(recorder.verdicts))
                bar.advance(len(rows))


# --- The lists ----------------------------------------------------------------------------------------------------


def _sources(choice: ResolveChoice) -> list[ListSource]:
    return [
        ListSource(path, choice.input_format, choice.column, keeps_entries=choice.matches, extracts=choice.extracts)
        for path in choice.lists
    ]


def _require_references(choice: ResolveChoice) -> None:
    """Raise ConfigurationError for a name or a text, which have no titles to compare."""
    texts = [source.path for source in _sources(choice) if choice.extracts or source.format in (None, TEXT)]
    without = [*choice.names, *texts]
    if without:
        raise ConfigurationError(f"--match: {without[0]} has no titles to compare; name BibTeX, RIS, CSV or JSON")


async def _read_inputs(
    choice: ResolveChoice, files: list_job.ListFiles, stop: asyncio.Event
) -> AsyncGenerator[list[BatchInput]]:
    """The inputs in groups."""
    if choice.names:
        files.add("", len(choice.names))
        files.names += len(choice.names)
        yield list(choice.names)
    for source in _sources(choice):
        parser = ListParser(source)
        async with aclosing(stream_items(source, stop, parser)) as groups:
            async for items in groups:
                if items:
                    files.names += len(items)
                    files.add(source.path, len(items))
                    yield [read_input(item) for item in items]
        files.close(source.path, parser)
    files.is_complete = not stop.is_set()


async def _flatten(groups: AsyncIterator[list[BatchInput]], stop: asyncio.Event) -> AsyncGenerator[BatchInput]:
    async for group in groups:
        for item in group:
            if stop.is_set():
                return
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
    from doi_proxy.features.feature import Observers
    from doi_proxy.features.lists.batch import build_batches
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
            compare = await stack.enter_async_context(open_comparison(settings, core, waits=True))
            if compare is None:
                raise ConfigurationError("--match: no metadata are fetched; add --metadata on, online")
        batches = build_batches(settings, core, names, compare=compare)
        yield await stack.enter_async_context(aclosing(batches.groups(_flatten(inputs, stop), options)))


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
    if choice.fields is not None and output_format in _FIXED_FORMATS:
        raise ConfigurationError(
            f"--output-format {output_format} has no choice of members; leave out --fields, or use jsonl, csv or table"
        )
    if output_format == "urls":
        return ("url",)
    if output_format == "concise":
        return ("verdict", "input", "line", "key", "message", SUGGESTIONS, *MATCH_FIELDS)
    if choice.fields is None and output_format == "table":
        members = _MATCH_TABLE_FIELDS if choice.matches else _TABLE_FIELDS
        return (*members, SUGGESTIONS) if choice.suggests else members
    try:
        return read_fields(choice.fields, suggests=choice.suggests, matches=choice.matches)
    except InvalidParameter as error:
        raise ConfigurationError(f"--{error.message}") from error


def _open_writer(
    output_format: str, fields: tuple[str, ...], files: list_job.ListFiles, choice: ResolveChoice
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
    formats = [source.format for source in _sources(choice)]
    has_entries = all(form is not None and form.name in _ENTRY_FORMATS for form in formats) and not choice.extracts
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
    size = count_lists(_sources(choice))
    rate = None if choice.server is not None or choice.only_cached else settings.upstream_rate
    return None if size is None else RemainingTime(size, rate)


def _show_progress(
    choice: ResolveChoice, recorder: RowRecorder, time_left: RemainingTime | None
) -> AbstractContextManager[Bar]:
    """The progress line, unless rows go to the terminal."""
    if _is_terminal_output(choice):
        return nullcontext(Bar())
    if time_left is None:
        return progress("resolving", None, before=recorder.earlier_rows)
    total, estimate = time_left.size.items, time_left.estimate
    return progress("resolving", total, before=recorder.earlier_rows, estimate=estimate)


# --- The end ------------------------------------------------------------------------------------------------------


def _propose_extraction(choice: ResolveChoice, recorder: RowRecorder) -> None:
    """Say how to read running text, if a list of names has mostly none."""
    is_list = not choice.extracts and any(source.format in (None, TEXT) for source in _sources(choice))
    wrong = recorder.verdicts[Verdict.NOT_A_DOI] - recorder.without_doi
    if is_list and recorder.rows >= _MIN_ROWS and 2 * wrong > recorder.rows:
        print("most lines are not DOI names; for running text, add --extract", file=sys.stderr)


def _exit_status(recorder: RowRecorder, *, is_strict: bool) -> int:
    """0 if every name leads to its work. An entry without a DOI counts only if it `is_strict`."""
    bad = sum(count for verdict, count in recorder.verdicts.items() if verdict not in GOOD) + recorder.others
    return 0 if recorder.rows and bad - (0 if is_strict else recorder.without_doi) == 0 else 1


def _report(job: list_job.ListJob) -> None:
    report_rows(job.recorder.verdicts, job.recorder.others, job.files.entries, job.files.columns)


def _report_end(job: list_job.ListJob) -> int:
    if job.recorder.rows:
        _report(job)
    total = f"{job.files.names:,}" if job.files.is_complete else f"at least {job.files.names:,}"
    remedy = job.obstacle or "run the same command again to continue"
    print(f"stopped by a signal after {job.recorder.rows:,} of {total} names; {remedy}", file=sys.stderr)
    return INTERRUPTED
