"""The three tools. Each reads its arguments, does the work within its bounds, and returns a result or raises."""

from __future__ import annotations

import asyncio
import unicodedata
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from doi_names.derived import ParsedText, parse
from doi_names.find_names import FoundName
from doi_names.presentation import MAX_TYPED_CHARACTERS
from doi_names.suggestion import Reading, Suggestion
from doi_proxy.endpoints import ReadingModel, SuggestionModel
from doi_proxy.errors import InvalidParameter, InvalidRequest
from doi_proxy.features.lists.batch import Batches, BatchInput, BatchOptions
from doi_proxy.features.lists.server_client import fetch_rows
from doi_proxy.features.lists.verdict import ListRow, Verdict, not_a_doi, read_input
from doi_proxy.features.metadata.match import Match
from doi_proxy.features.texts.command import to_object
from doi_proxy.features.texts.http import ParsedTextModel, WarningModel
from doi_proxy.list_formats.body import read_exported_entries
from doi_proxy.list_formats.entries import ListItem
from doi_proxy.list_formats.extraction import read_references
from doi_proxy.list_formats.fair_lock import FairLock
from doi_proxy.list_formats.formats import HEAD_CHARACTERS, ListFormat, format_of_head
from doi_proxy.proxy_client import ProxyServer
from doi_proxy.upstream.source import Priority

_QUERY: Final = "?suggest=checked"
#: The rows of names. The work stops at the end of the `async with`.
Rows = AbstractAsyncContextManager[AsyncIterator[ListRow]]


class Names(Protocol):
    """Looks up names, and what else each may be. Rows that are known already are passed on."""

    def look_up(self, name: BatchInput) -> Rows:
        """The row of one name, for a person who waits for it."""

    def look_up_list(self, names: Sequence[BatchInput]) -> Rows:
        """The row of each name, in their order."""


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Looks names up with the resolver of this process."""

    batches: Batches

    def look_up(self, name: BatchInput) -> Rows:
        """See Names. Its queries do not wait for queries of lists."""
        options = BatchOptions(suggests=True, checks=True, agency="any", priority=Priority.PERSON)
        return aclosing(self.batches.rows(_stream([name]), options))

    def look_up_list(self, names: Sequence[BatchInput]) -> Rows:
        """See Names. Queries of people go first. Agencies come from the cache alone."""
        matches = self.batches.compare is not None
        return aclosing(self.batches.rows(_stream(names), BatchOptions(suggests=True, checks=True, matches=matches)))


async def _stream(names: Sequence[BatchInput]) -> AsyncGenerator[BatchInput]:
    for name in names:
        yield name


class ServerNames:
    """Looks names up at a proxy. `timeout` limits the wait for the next row, in seconds."""

    def __init__(self, server: ProxyServer, timeout: float) -> None:
        self._server = server
        self._timeout = timeout

    def look_up(self, name: BatchInput) -> Rows:
        """See Names. The proxy treats the name as a list of one."""
        # With these members the agency is looked up too.
        query = _QUERY + "&fields=input,doi,verdict,url,ra,age,stale,message,suggestions"
        return aclosing(fetch_rows(self._server, query, [name], self._timeout))

    def look_up_list(self, names: Sequence[BatchInput]) -> Rows:
        """See Names."""
        return aclosing(fetch_rows(self._server, _QUERY + "&match=true", names, self._timeout))


#: A longer URL or name is left out, because a part of it would be another one.
_MAX_URL: Final = 4_096
_MAX_NAME: Final = 2_048
_LONGEST: Final = dict.fromkeys(("doi", "prefix", "suffix"), _MAX_NAME) | dict.fromkeys(
    ("uri", "url", "doi_org_url"), _MAX_URL
)


class ParseResult(BaseModel):
    """What the texts are, in their order."""

    texts: list[ParsedTextModel]
    left_out: int = Field(description="How many texts are left out at the end, because the result would be too large.")


class CheckedName(BaseModel):
    """What is known about one name."""

    input: str = Field(description="The text.")
    doi: str | None = Field(description="The name that was looked up; null if the text has none.")
    verdict: Verdict = Field(
        description="resolved: registered, with a URL. alias: the same, through another name. no_target: registered, "
        "without a URL. not_found: not registered. not_a_doi: the text has no name to look up. unverified, "
        "rate_limited: nothing is known now; try again later."
    )
    url: str | None = Field(description="The page that the name leads to.")
    ra: str | None = Field(description="The registration agency; null if it is not known.")
    age: int | None = Field(description="Seconds since the record was fetched.")
    stale: bool = Field(description="Whether the record is past its TTL, and the upstream could not be queried.")
    message: str | None = Field(description="The reason in words.")
    reason: str | None = Field(None, description="no-doi: nothing in the text looks like a DOI, not even a broken one.")
    best: ReadingModel | None = Field(None, description="The likeliest name; null if the text has none that may exist.")
    suggestions: list[SuggestionModel] = Field(description="Other names that may be meant, the likeliest first.")


class CheckedLine(CheckedName):
    """What is known about one line."""

    match: Match | None = Field(
        None,
        description="Whether the line is about the work that its DOI leads to. same: yes. related: about its edition, "
        "preprint, chapter or erratum. doubtful: something reads otherwise, and nothing else tells. different: "
        "another work. unknown: it could not be compared. Null if this resolver does not compare them.",
    )
    title: str | None = Field(None, description="The title of that work; null if it is not known.")
    why: str | None = Field(None, description="What differs, or why nothing was compared.")
    line: int = Field(description="The number of the line, from 1.")
    shown: str | None = Field(
        None, description="What the line has in place of `doi`, if that is written wrong: correct the line."
    )


class CheckResult(BaseModel):
    """What is known about the lines, in their order."""

    summary: dict[Verdict, int] = Field(description="The number of names, and of lines without one, with each verdict.")
    without_doi: int = Field(0, description="The lines among not_a_doi in which nothing looks like a DOI.")
    lines: list[CheckedLine]
    left_out: int = Field(description="How many lines are left out, because the result would be too large.")


def write_parsed_text(parsed: ParsedText, base_url: str | None) -> ParsedTextModel:
    """The result about one text."""
    members = to_object(parsed, base_url)
    members |= {"input": _cut(parsed.text), "message": _cut_message(parsed.message)}
    members |= {key: _whole(members[key], most) for key, most in _LONGEST.items()}
    if parsed.best is not None:
        members["best"] |= {"doi": _clean(parsed.best.name.text[:_MAX_NAME])}
    warnings = [WarningModel(code=warning.code, message=_cut(warning.message)) for warning in parsed.warnings]
    members |= {"warnings": warnings, "suggestions": _write_suggestions(parsed.suggestions)}
    return ParsedTextModel(**members)


def write_name(text: str, row: ListRow) -> CheckedName:
    """The result about one name. `text` is what the caller sent."""
    return CheckedName(
        input=_cut(text),
        doi=_whole(row.doi, _MAX_NAME),
        verdict=row.verdict,
        url=_whole(row.url, _MAX_URL),
        ra=_cut_message(row.ra),
        age=row.age,
        stale=row.stale,
        message=_cut_message(row.message),
        reason=row.reason,
        best=_write_reading(row.best),
        suggestions=_write_suggestions(row.suggestions or ()),
    )


def write_checked_line(number: int, text: str, row: ListRow) -> CheckedLine:
    """The result about a line, numbered from 1."""
    members = write_name(text, row).model_dump()
    shown = None if row.found is None or row.found.is_as_written else _cut(row.found.text)
    return CheckedLine(line=number, match=row.match, title=_cut_message(row.title), why=row.why, shown=shown, **members)


def _write_reading(reading: Reading | None) -> ReadingModel | None:
    if reading is None or len(reading.name.text) > _MAX_NAME:
        return None
    return ReadingModel(doi=_clean(reading.name.text), confidence=reading.confidence, rule=reading.rule)


def _write_suggestions(suggestions: tuple[Suggestion, ...]) -> list[SuggestionModel]:
    return [
        SuggestionModel(doi=_clean(suggestion.doi.text), rule=suggestion.rule, exists=suggestion.exists)
        for suggestion in suggestions
        if len(suggestion.doi.text) <= _MAX_NAME
    ]


def _cut(text: str) -> str:
    """A text for a reader. A longer one is cut."""
    return _clean(text if len(text) <= 500 else text[:499] + "…")


def _cut_message(text: str | None) -> str | None:
    return None if text is None else _cut(text)


def _whole(text: str | None, most: int) -> str | None:
    """A name or a URL. A longer one is left out."""
    return None if text is None or len(text) > most else _clean(text)


def _clean(text: str) -> str:
    if text.isprintable():
        return text
    # U+FFFD takes the place of a control, formatting, private-use or unassigned character. str.isprintable is false for
    # spaces other than U+0020, which printed references have.
    return "".join(
        character if character.isprintable() or unicodedata.category(character) == "Zs" else "\ufffd"
        for character in text
    )


#: Seconds for one call; the lines left are unverified. Many clients give up after 60 s.
CALL_TIMEOUT: Final = 45.0

ToolName = Literal["parse", "resolve", "check_list"]
Report = Callable[[int, int], Awaitable[None]]
Result = TypeVar("Result", bound=BaseModel)


#: Lines or texts of one call.
MAX_LINES: Final = 500


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _split_lines(value: Any) -> Any:
    """The lines of a text, or the text itself in a format. Assistants often send one text instead of a list."""
    if not isinstance(value, str):
        return value
    return [value] if _detect_format(value) else [line for line in value.splitlines() if line.strip()]


def _detect_format(text: str) -> ListFormat | None:
    """The format of a bibliography, such as BibTeX. None for other text."""
    return format_of_head(text[:HEAD_CHARACTERS])


class ParseArguments(_Arguments):
    """The arguments of the tool `parse`."""

    texts: list[str] = Field(
        min_length=1, max_length=MAX_LINES, description="The texts: DOI names, URLs, or any other text."
    )


class ResolveArguments(_Arguments):
    """The arguments of the tool `resolve`."""

    name: str = Field(description="A DOI name, or its URL: 10.1000/182, https://doi.org/10.1000/182.")


class CheckArguments(_Arguments):
    """The arguments of the tool `check_list`."""

    lines: Annotated[list[str], BeforeValidator(_split_lines)] = Field(
        min_length=1,
        max_length=MAX_LINES,
        description="One reference or DOI name in each item, as it will be printed; or one text in BibTeX, RIS or CSV.",
    )
    problems_only: bool = Field(
        False,
        description="Return only the lines that are not resolved, or are about another work; the summary counts all.",
    )


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """The limits of one call, and the number of calls at a time."""

    #: A longer result leaves rows out: clients cut what does not fit into their context.
    result_bytes: int = 256 * 1024
    #: Calls at a time that look names up.
    calls: int = 8
    timeout: float = CALL_TIMEOUT


@dataclass(frozen=True, slots=True)
class _Line:
    """A line with its number from 1, its input for the look-up, and a note on it."""

    text: str
    number: int
    input: BatchInput
    note: str | None = None


class Tools:
    """The tools. `base_url` is the resolver's own URL, None if it is not known."""

    def __init__(self, names: Names, bounds: ToolBounds, base_url: str | None, own_hosts: frozenset[str]) -> None:
        self.bounds = bounds
        self._names = names
        self._base_url = base_url
        self._own_hosts = own_hosts
        #: Calls under way that look names up.
        self._calls = 0
        #: Of all texts: see find_names_of.
        self._turns = FairLock()

    async def call(self, tool: ToolName, arguments: dict[str, Any], report: Report) -> BaseModel:
        """The result of a call. `report` gets the number of lines that are done, and of all lines.

        `parse` does not count as a call that looks names up. Raises InvalidParameter and InvalidRequest.
        """
        if tool == "parse":
            return await self._parse(self._read(ParseArguments, arguments).texts)
        if self._calls >= self.bounds.calls:
            raise InvalidRequest(
                f"At most {self.bounds.calls} calls are answered at a time; wait for one of yours, then call again."
            )
        self._calls += 1
        ends = asyncio.get_running_loop().time() + self.bounds.timeout
        try:
            if tool == "resolve":
                return await self._resolve(self._read(ResolveArguments, arguments).name, ends)
            return await self._check(self._read(CheckArguments, arguments), ends, report)
        finally:
            self._calls -= 1

    async def _parse(self, texts: Sequence[str]) -> ParseResult:
        results: list[ParsedTextModel] = []
        for text in texts:
            results.append(write_parsed_text(self._parse_text(text), self._base_url))
            await asyncio.sleep(0)
        fitting = await _take_fitting(results, self.bounds.result_bytes)
        return ParseResult(texts=fitting, left_out=len(results) - len(fitting))

    def _parse_text(self, text: str) -> ParsedText:
        if len(text) > MAX_TYPED_CHARACTERS:
            return ParsedText(text, "not_a_doi", None, (), (), (), self._explain_length(text))
        return parse(text, own_hosts=self._own_hosts)

    async def _resolve(self, text: str, ends: float) -> CheckedName:
        line = self._refuse_long(text, 1) or _Line(text, 1, text)
        async with self._names.look_up(line.input) as rows:
            found = await self._collect(rows, [line], ends, _ignore)
        return write_name(text, found[0])

    async def _check(self, arguments: CheckArguments, ends: float, report: Report) -> CheckResult:
        form = _detect_format(arguments.lines[0])
        read = self._read_lines(arguments.lines) if form is None else self._read_entries(arguments.lines, form)
        lines = [line async for line in read]
        async with self._names.look_up_list([line.input for line in lines]) as rows:
            found = await self._collect(rows, lines, ends, report)
        checked: list[CheckedLine] = []
        for line, row in zip(lines, found, strict=True):
            message = " ".join(filter(None, (row.message, line.note))) or None
            checked.append(write_checked_line(line.number, line.text, replace(row, message=message)))
            await asyncio.sleep(0)
        return await self._summarize(checked, problems_only=arguments.problems_only)

    async def _collect(
        self, rows: AsyncIterator[ListRow], lines: Sequence[_Line], ends: float, report: Report
    ) -> list[ListRow]:
        """The rows of the lines. At the end of the call's time, the lines without a row are unverified."""
        found: list[ListRow] = []
        try:
            async with asyncio.timeout_at(ends):
                async for row in rows:
                    found.append(row)
                    await report(len(found), len(lines))
        except TimeoutError:
            message = f"No answer arrived within {self.bounds.timeout:.0f} s; call again with this line."
            found += [_without_answer(line, message) for line in lines[len(found) :]]
        return found

    async def _read_lines(self, lines: Sequence[str]) -> AsyncIterator[_Line]:
        """Each line, once for each name in it. A line in which only the name of the line before ends is left out."""
        too_long = [self._refuse_long(text, number) for number, text in enumerate(lines, 1)]
        read = ["" if refused else text for text, refused in zip(lines, too_long, strict=True)]
        ends = list(accumulate(len(text) + 1 for text in read))
        places = list(zip([0, *ends], ends, strict=False))
        numbers = {start: number for number, (start, _) in enumerate(places)}
        async for reference in read_references("\n".join(read), places, partial(self._turns.hold, "")):
            at = numbers[reference.start]
            refused = too_long[at]
            for line in (refused,) if refused else _divide_line(lines[at], at + 1, reference.names):
                yield line

    async def _read_entries(self, lines: Sequence[str], form: ListFormat) -> AsyncIterator[_Line]:
        """Each name of a bibliography, and each entry without one, with the number of its line."""
        text = "\n".join(lines)
        async for item in read_exported_entries(text, form, MAX_LINES, partial(self._turns.hold, "")):
            yield _Line(item.text, item.line, read_input(item))

    def _refuse_long(self, text: str, number: int) -> _Line | None:
        """The line of a text that is too long to be read."""
        if len(text) <= MAX_TYPED_CHARACTERS:
            return None
        return _Line(text, number, replace(not_a_doi(text, self._explain_length(text)), suggestions=()))

    async def _summarize(self, checked: list[CheckedLine], *, problems_only: bool) -> CheckResult:
        counts = Counter(line.verdict for line in checked)
        shown = [line for line in checked if _is_problem(line)] if problems_only else checked
        fitting = await _take_fitting(shown, self.bounds.result_bytes)
        summary = {verdict: counts[verdict] for verdict in Verdict}
        without = sum(line.reason is not None for line in checked)
        return CheckResult(summary=summary, without_doi=without, lines=fitting, left_out=len(shown) - len(fitting))

    def _read(self, model: type[Result], arguments: dict[str, Any]) -> Result:
        """The arguments of a call. Raises InvalidParameter."""
        known = ", ".join(model.model_fields)
        try:
            return model.model_validate(arguments)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])[:80]
            raise InvalidParameter(f"{place}: {first['msg']}. The arguments of this tool are: {known}.") from error

    def _explain_length(self, text: str) -> str:
        return (
            f"The text has {len(text)} characters; send one reference, with at most {MAX_TYPED_CHARACTERS}. "
            "`doi-proxy resolve` and POST /api/resolve take longer ones."
        )


def _divide_line(text: str, number: int, names: Sequence[FoundName]) -> Iterator[_Line]:
    """A line once for each of its names, as it stands if it has none."""
    first: dict[str, FoundName] = {}
    for found in names:
        first.setdefault(found.name.key, found)
    distinct = list(first.values())
    left = ", ".join(found.name.text for found in distinct[5:])
    note = f"The line has further names, which were not checked: {left}." if left else None
    for found in distinct[:5]:
        yield _Line(text, number, ListItem(found.text, cited=text, found=found), note)
    if not distinct:
        yield _Line(text, number, ListItem(text))


async def _take_fitting(results: Iterable[Result], most: int) -> list[Result]:
    """The first results whose JSON text has at most `most` bytes together."""
    fitting: list[Result] = []
    for result in results:
        most -= len(result.model_dump_json().encode())
        if most < 0:
            break
        fitting.append(result)
        await asyncio.sleep(0)
    return fitting


def _without_answer(line: _Line, message: str) -> ListRow:
    if isinstance(line.input, ListRow):
        return line.input
    # An item of a bibliography has its line, and its text is not searched for a name before it is looked up.
    if isinstance(line.input, str) or (line.input.found is None and line.input.line):
        return ListRow(line.text, None, Verdict.UNVERIFIED, message=message)
    found = line.input.found
    if found is None:
        return not_a_doi(line.text, message)
    return ListRow(line.text, found.name.text, Verdict.UNVERIFIED, message=message, found=found)


def _is_problem(line: CheckedLine) -> bool:
    return (
        line.verdict is not Verdict.RESOLVED
        or line.match in ("different", "related", "doubtful")
        or line.shown is not None
    )


async def _ignore(done: int, total: int) -> None:
    """The report of a call that needs none."""
