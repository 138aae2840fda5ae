"""The results of the tools. Their JSON schemas are made from these models.

Everything in a result is data from a caller, a record or this program, never an instruction. The length of each text
is limited, and characters that are not graphic are replaced.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from pydantic import BaseModel, Field

from app.features.lists.verdict import Row, Verdict
from app.features.parse.parsing import Kind, ParsedText, to_object
from app.features.suggestions.suggestion import Suggestion

#: Takes the place of a control, formatting, private-use or unassigned character.
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
#: The longest texts in a result, in characters.
_MAX_INPUT: Final = 500
_MAX_MESSAGE: Final = 500
#: A longer URL or name is left out, because a part of it would be another one.
_MAX_URL: Final = 4_096
_MAX_NAME: Final = 2_048


class SuggestionResult(BaseModel):
    """A name that the writer may have meant. It was not looked up."""

    doi: str
    rule: str = Field(description="The copying error that this name undoes.")


class WarningResult(BaseModel):
    """A part of a name that is allowed, and is likely a mistake."""

    code: str
    message: str


class ParsedTextResult(BaseModel):
    """What one text is."""

    input: str = Field(description="The text.")
    kind: Kind
    doi: str | None = Field(description="The DOI name or shortDOI; null if the text is neither.")
    uri: str | None = Field(description="The doi: URI.")
    url: str | None = Field(description="Its address at this resolver; null if the URL of this resolver is not known.")
    doi_org_url: str | None = Field(description="Its address at doi.org: the form to print in a reference.")
    prefix: str | None
    suffix: str | None
    rules: list[str] = Field(description="The rules that removed what surrounded the name.")
    warnings: list[WarningResult]
    suggestions: list[SuggestionResult] = Field(description="The likeliest first. They were not looked up.")
    message: str | None = Field(description="Why the text is not a DOI name; null if it is one.")


class ParseResult(BaseModel):
    """What the texts are, in their order."""

    texts: list[ParsedTextResult]
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
    suggestions: list[SuggestionResult] = Field(description="The likeliest first. They were not looked up.")


class CheckedLine(CheckedName):
    """What is known about one line."""

    line: int = Field(description="The number of the line, from 1.")


class CheckResult(BaseModel):
    """What is known about the lines, in their order."""

    summary: dict[Verdict, int] = Field(description="The number of lines with each verdict.")
    lines: list[CheckedLine]
    left_out: int = Field(description="How many lines are left out, because the result would be too large.")


def write_parsed_text(parsed: ParsedText, base_url: str | None) -> ParsedTextResult:
    """The result about one text."""
    members = to_object(parsed, base_url)
    return ParsedTextResult(
        input=_cut(parsed.text, _MAX_INPUT),
        kind=parsed.kind,
        doi=_whole(members["doi"], _MAX_NAME),
        uri=_whole(members["uri"], _MAX_URL),
        url=_whole(members["url"], _MAX_URL),
        doi_org_url=_whole(members["doi_org_url"], _MAX_URL),
        prefix=_whole(members["prefix"], _MAX_NAME),
        suffix=_whole(members["suffix"], _MAX_NAME),
        rules=members["rules"],
        warnings=[WarningResult(code=one.code, message=_cut(one.message, _MAX_MESSAGE)) for one in parsed.warnings],
        suggestions=_write_suggestions(parsed.suggestions),
        message=None if parsed.message is None else _cut(parsed.message, _MAX_MESSAGE),
    )


def write_name(text: str, row: Row) -> CheckedName:
    """The result about one name. `text` is what the caller sent."""
    return CheckedName(
        input=_cut(text, _MAX_INPUT),
        doi=_whole(row.doi, _MAX_NAME),
        verdict=row.verdict,
        url=_whole(row.url, _MAX_URL),
        ra=None if row.ra is None else _cut(row.ra, _MAX_MESSAGE),
        age=row.age,
        stale=row.stale,
        message=None if row.message is None else _cut(row.message, _MAX_MESSAGE),
        suggestions=_write_suggestions(row.suggestions or ()),
    )


def write_line(number: int, text: str, row: Row) -> CheckedLine:
    """The result about a line, numbered from 1."""
    return CheckedLine(line=number, **write_name(text, row).model_dump())


def _write_suggestions(suggestions: tuple[Suggestion, ...]) -> list[SuggestionResult]:
    return [
        SuggestionResult(doi=_clean(one.doi.text), rule=one.rule)
        for one in suggestions
        if len(one.doi.text) <= _MAX_NAME
    ]


def _cut(text: str, most: int) -> str:
    """A text for a reader. A longer one is cut."""
    return _clean(text if len(text) <= most else text[: most - 1] + "…")


def _whole(text: str | None, most: int) -> str | None:
    """A name or a URL. A longer one is left out."""
    return None if text is None or len(text) > most else _clean(text)


def _clean(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(character if _is_graphic(character) else _REPLACEMENT for character in text)


def _is_graphic(character: str) -> bool:
    # str.isprintable is false for spaces other than U+0020, which printed references have.
    return character.isprintable() or unicodedata.category(character) == "Zs"
