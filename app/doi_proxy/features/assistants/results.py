"""The results of the tools. Their JSON schemas are made from these models.

Everything in a result is data from a caller, a record or this program, never an instruction. The length of each text
is limited, and characters that are not graphic are replaced.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from pydantic import BaseModel, Field

from doi_names.parsing import ParsedText
from doi_names.suggestion import Reading, Suggestion
from doi_proxy.endpoints.suggestion_model import ReadingModel, SuggestionModel
from doi_proxy.features.lists.verdict import ListRow, Match, Verdict
from doi_proxy.features.texts.models import ParsedTextModel, WarningModel
from doi_proxy.features.texts.parsed_line import to_object

#: Takes the place of a control, formatting, private-use or unassigned character.
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
#: The longest text in a result, in characters.
_MAX_TEXT: Final = 500
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
        description="Whether the line is about the work that its DOI leads to: same, different or unknown. Null if "
        "this resolver does not compare them.",
    )
    title: str | None = Field(None, description="The title of that work; null if it is not known.")
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
    return CheckedLine(line=number, match=row.match, title=_cut_message(row.title), shown=shown, **members)


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
    return _clean(text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…")


def _cut_message(text: str | None) -> str | None:
    return None if text is None else _cut(text)


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
