"""Runs `doi-proxy resolve`: reads lists, resolves their names here or on a server, and writes rows.

The file of the rows is the state of a run that did not end: the same command goes on after its last row.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import get_args

from doi_names.find_names import FoundName
from doi_names.name import HandleName
from doi_proxy.errors import ConfigurationError, InvalidParameter
from doi_proxy.features.feature import CommandContext
from doi_proxy.features.lists.batch import BatchInput, BatchOptions, agency_source, build_batches
from doi_proxy.features.lists.command import ResolveChoice
from doi_proxy.features.lists.rows_file import RowOutput, RowsFile, WrittenRow, show_verdicts
from doi_proxy.features.lists.server_client import LITERAL, BatchClient
from doi_proxy.features.lists.verdict import (
    GOOD,
    MATCH_FIELDS,
    SUGGESTIONS,
    ListRow,
    Verdict,
    read_fields,
    read_input,
)
from doi_proxy.features.metadata.match import Match
from doi_proxy.list_formats import writing
from doi_proxy.list_formats.body import ListSource, read_items, require_files, stream_items
from doi_proxy.list_formats.entries import ListItem
from doi_proxy.list_formats.formats import TEXT
from doi_proxy.system.files import STANDARD_INPUT, printable
from doi_proxy.system.progress import INTERRUPTED, Bar, progress, shows_progress, stop_on_signals


class ListFiles:
    """What was read of the lists, and the list of each row that is under way."""

    def __init__(self) -> None:
        self._groups = deque[tuple[str, int]]()
        #: The names that were read, with those of earlier runs, and whether they are all.
        self.names = 0
        self.is_complete = False
        #: The entries of the lists that were read to their end, and the columns of tables among them.
        self.entries = 0
        self.columns: list[str] = []

    def add(self, file: str, rows: int) -> None:
        """The next rows are of this list."""
        self.names += rows
        if self._groups and self._groups[-1][0] == file:
            rows += self._groups.pop()[1]
        self._groups.append((file, rows))

    def take(self) -> str:
        """The list of the next row."""
        file, rows = self._groups.popleft()
        if rows > 1:
            self._groups.appendleft((file, rows - 1))
        return file


async def resolve_lists(context: CommandContext, choice: ResolveChoice) -> int:
    """Resolve lists and write their rows. Raises ConfigurationError, DoiProxyError and BrokenPipeError."""
    _require_usable(choice)
    output_format = choice.output_format or _default_format(choice)
    files = ListFiles()
    if output_format == "concise":
        choice = replace(choice, suggests=True)
    fields = _choose_fields(choice, output_format)
    writer = _open_writer(output_format, fields, files, choice)
    with RowOutput(choice.output, output_format, fields, writer, choice.again) as output, stop_on_signals() as stop:
        if choice.again and output.obstacle:
            raise ConfigurationError(f"--again: {output.obstacle}")
        run = _Run(context, choice, fields, output, files, stop.event)
        inputs = read_inputs(choice, files, stop.event)
        try:
            async with aclosing(inputs):
                if await run.work(inputs):
                    print(f"-o {choice.output}: all rows are written already", file=sys.stderr)
                    _report(output, files)
                    return 0
        except asyncio.CancelledError:
            stop.event.set()
        if stop.event.is_set():
            return _report_end(output, files)
        if not _is_short(choice):
            _report(output, files)
            _propose_extraction(choice, output)
        return _exit_status(output, is_strict=choice.is_strict)


def _require_usable(choice: ResolveChoice) -> None:
    """Raise ConfigurationError for a file that does not exist, and for what has nothing to compare."""
    require_files(choice.lists)
    if choice.again and not (choice.lists or choice.names) and choice.output is not None:
        require_files([str(choice.output)])
    if choice.matches and choice.again:
        raise ConfigurationError("--again: rows have no references to compare; leave out --match")
    if choice.matches and choice.names:
        raise ConfigurationError(f"--match: {choice.names[0]} is a name without a reference; name a file of references")


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the command, which goes on after the rows of earlier ones."""

    context: CommandContext
    choice: ResolveChoice
    fields: Sequence[str]
    output: RowOutput
    files: ListFiles
    stop: asyncio.Event

    async def work(self, inputs: AsyncGenerator[list[BatchInput]]) -> bool:
        """Write the rows that are missing, and those that are looked up again. Returns whether there were none."""
        output, rest = self.output, list[BatchInput]()
        earlier = output.open_earlier()
        if earlier is not None:
            rest = await self._compare(earlier, inputs)
        if self.stop.is_set():
            return False
        is_whole = earlier is not None and self.files.is_complete and not rest
        if self.choice.lists or self.choice.names:
            await output.begin(0 if earlier is None else earlier.end)
        if is_whole and output.rows and not self.choice.again:
            return True
        with await self._open_bar(is_whole=is_whole) as bar:
            bar.describe(lambda: show_verdicts(output.verdicts))
            if earlier is not None and output.repeated:
                await self._ask_again(earlier, bar)
            if not is_whole and not self.stop.is_set():
                await self._write_rows(_chain(rest, inputs), bar)
        return False

    async def _open_bar(self, *, is_whole: bool) -> AbstractContextManager[Bar]:
        """The progress line, unless rows go to the terminal."""
        if _is_terminal_output(self.choice):
            return nullcontext(Bar())
        total = self.files.names if is_whole else await count_items(self.choice)
        return progress("resolving", total, before=self.output.rows)

    async def _compare(self, earlier: RowsFile, inputs: AsyncIterator[list[BatchInput]]) -> list[BatchInput]:
        """Count the rows of earlier runs, which belong to the inputs in their order.

        Returns inputs without a row that were read. Raises ConfigurationError if a row belongs to another input.
        """
        if not (self.choice.lists or self.choice.names):
            for row in earlier.rows():
                self.output.count_earlier(row)
            self.files.names, self.files.is_complete = self.output.rows + self.output.repeated, True
            return []
        rows = earlier.rows(self.fields)
        following = next(rows, None)
        async for group in inputs:
            for at, item in enumerate(group):
                if following is None:
                    return group[at:]
                text = item if isinstance(item, str) else item.input if isinstance(item, ListRow) else item.text
                if following.verdict is None or following.members["input"] != text:
                    raise earlier.refuse_input(text)
                self.output.count_earlier(following)
                following = next(rows, None)
            await asyncio.sleep(0)
        if following is not None and self.files.is_complete:
            raise earlier.refuse_input(None)
        return []

    async def _ask_again(self, earlier: RowsFile, bar: Bar) -> None:
        """Look up the rows with the verdicts of --again, and replace them."""
        waiting = deque[WrittenRow]()

        async def read_again() -> AsyncGenerator[list[BatchInput]]:
            repeated = filter(self.output.is_repeated, earlier.rows())
            # Rows between two chances for other work.
            while group := list(islice(repeated, 64)):
                waiting.extend(group)
                yield [_read_item(row) for row in group]
                await asyncio.sleep(0)

        with self.output.replace_rows(earlier) as replace_row:
            async with aclosing(read_again()) as inputs, self._open_rows(inputs) as groups:
                async for rows in groups:
                    for row in rows:
                        replace_row(waiting.popleft(), row)
                    bar.advance(len(rows))

    async def _write_rows(self, inputs: AsyncGenerator[list[BatchInput]], bar: Bar) -> None:
        async with aclosing(inputs), self._open_rows(inputs) as groups:
            async for rows in groups:
                await self.output.write(rows)
                for row in rows:
                    if _is_short(self.choice) and row.verdict not in GOOD:
                        reason = f": {row.message}" if row.message else ""
                        print(f"{printable(row.input)}: {row.verdict.value}{printable(reason)}", file=sys.stderr)
                bar.advance(len(rows))

    @asynccontextmanager
    async def _open_rows(self, inputs: AsyncIterator[list[BatchInput]]) -> AsyncIterator[AsyncIterator[list[ListRow]]]:
        """The rows of the inputs in groups, of a server or of this process."""
        context, choice = self.context, self.choice
        if choice.server is not None:
            client = BatchClient(choice.server, _query(choice), self.stop)
            async with aclosing(client.groups(inputs)) as rows:
                yield rows
            return
        # With a server, the command does not need the parts that these modules import.
        from doi_proxy.features.metadata.feature import open_comparison
        from doi_proxy.features.suggestions.feature import build_suggested_names

        settings = context.settings
        options = BatchOptions(
            matches=choice.matches,
            is_stopped=self.stop.is_set,
            only_cached=choice.only_cached,
            literal=choice.literal,
            suggests=choice.suggests,
            checks=choice.checks,
            agency=agency_source(self.fields, is_named=choice.fields is not None, only_cached=choice.only_cached),
        )
        async with AsyncExitStack() as stack:
            core = await stack.enter_async_context(context.stores.open_for_lists())
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


def _read_item(row: WrittenRow) -> ListItem:
    """The input of a row. Its name may have been found in a text that is not a name."""
    text, doi = row.members["input"], row.members.get("doi")
    found = FoundName(HandleName(doi), 0, len(text), text, "literal", None) if isinstance(doi, str) and doi else None
    return ListItem(text, found=found)


async def _chain(first: list[BatchInput], others: AsyncIterator[list[BatchInput]]) -> AsyncGenerator[list[BatchInput]]:
    """The first inputs, if there are some, and the others."""
    if first:
        yield first
    async for group in others:
        yield group


# --- The lists ----------------------------------------------------------------------------------------------------


def list_sources(choice: ResolveChoice) -> list[ListSource]:
    """The lists, with the options that say how they are read."""
    return [
        ListSource(path, choice.input_format, choice.column, keeps_entries=choice.matches, extracts=choice.extracts)
        for path in choice.lists
    ]


async def count_items(choice: ResolveChoice) -> int | None:
    """The items of the lists, for their progress. None if it is not shown, or if a list cannot be read twice."""
    sources = list_sources(choice)
    if not shows_progress() or any(source.path == STANDARD_INPUT or source.is_document for source in sources):
        return None
    # In a thread: a signal is handled while the lists are counted.
    return len(choice.names) + await asyncio.to_thread(lambda: sum(1 for each in sources for _ in read_items(each)))


async def read_inputs(choice: ResolveChoice, files: ListFiles, stop: asyncio.Event) -> AsyncGenerator[list[BatchInput]]:
    """The inputs in groups."""
    if choice.names:
        files.add("", len(choice.names))
        yield list(choice.names)
    for source in list_sources(choice):
        parser = source.open_parser()
        async with aclosing(stream_items(source, stop, parser)) as groups:
            async for items in groups:
                if items:
                    files.add(source.path, len(items))
                    yield [read_input(item) for item in items]
        files.entries += parser.entries
        if parser.column:
            files.columns.append(f"{source.path}: column {parser.column}")
    files.is_complete = not stop.is_set()


async def flatten(groups: AsyncIterator[list[BatchInput]]) -> AsyncGenerator[BatchInput]:
    """The inputs one by one."""
    async for group in groups:
        for item in group:
            yield item


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
    output_format: str, fields: tuple[str, ...], files: ListFiles, choice: ResolveChoice
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
    return not (choice.lists or choice.output_format or choice.fields or choice.suggests or choice.again)


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


def _is_terminal_output(choice: ResolveChoice) -> bool:
    return choice.output is None and sys.stdout.isatty()


# --- The end ------------------------------------------------------------------------------------------------------


def _propose_extraction(choice: ResolveChoice, output: RowOutput) -> None:
    """Say how to read running text, if a list of names has mostly none."""
    is_list = not choice.extracts and any(source.format in (None, TEXT) for source in list_sources(choice))
    wrong = output.verdicts[Verdict.NOT_A_DOI] - output.without_doi
    # The rows after which a list of names that are mostly none may be a text.
    if is_list and output.rows >= 3 and 2 * wrong > output.rows:
        print("most lines are not DOI names; for running text, add --extract", file=sys.stderr)


def _exit_status(output: RowOutput, *, is_strict: bool) -> int:
    """0 if every name leads to its work. An entry without a DOI counts only if it `is_strict`."""
    bad = sum(count for verdict, count in output.verdicts.items() if verdict not in GOOD) + output.matches["different"]
    return 0 if output.rows and bad - (0 if is_strict else output.without_doi) == 0 else 1


def _report(output: RowOutput, files: ListFiles) -> None:
    """Print which columns were read, how many rows have which verdict, and how many names lead to another work."""
    count = output.rows
    rows = "1 row" if count == 1 else f"{count:,} rows"
    # An entry with several names has several rows.
    if files.entries not in (0, count):
        rows += f" from {files.entries:,} entries" if files.entries > 1 else " from 1 entry"
    end, matches = "", output.matches
    if matches:
        found = [f"{match} {matches[match]:,}" for match in get_args(Match) if matches[match]]
        compared = f"{matches.total() - matches['']:,} of {matches.total():,}"
        end = f"; compared {', '.join([compared, *found])}"
    for column in files.columns:
        print(column, file=sys.stderr)
    print(f"{rows}: {show_verdicts(output.verdicts) or 'the lists are empty'}{end}", file=sys.stderr)


def _report_end(output: RowOutput, files: ListFiles) -> int:
    if output.rows:
        _report(output, files)
    total = f"{files.names:,}" if files.is_complete else f"at least {files.names:,}"
    remedy = output.obstacle or "run the same command again to continue"
    print(f"stopped by a signal after {output.rows:,} of {total} names; {remedy}", file=sys.stderr)
    return INTERRUPTED
