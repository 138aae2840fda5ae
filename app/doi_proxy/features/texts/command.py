"""`doi-proxy parse`: what texts are, decided from their form alone. No upstream is queried."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from doi_names.derived import ParsedText, parse, unreadable
from doi_names.name import NameWarning
from doi_names.presentation import to_uri, to_url
from doi_names.suggestion import Reading, write_reading
from doi_proxy.features.feature import Command, CommandContext, add_format
from doi_proxy.list_formats.entries import Item, ListItem
from doi_proxy.list_formats.writing import to_json_line
from doi_proxy.system.files import STANDARD_INPUT, printable

_KIND_WIDTH: Final = len("not_a_doi")


def add_parse_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument(
        "texts", nargs="*", metavar="TEXT", help="text to parse; by default the lines of standard input"
    )
    add_format(command, "text for people, or one JSON object a line")


def parse_texts(context: CommandContext, namespace: argparse.Namespace) -> int:
    """Print what each text is. Exit status 0 if there are texts and all are DOI names or shortDOIs, else 1."""
    base_url = (context.settings.public_url or "").rstrip("/") or None
    own_hosts = frozenset({urlsplit(base_url).hostname or ""} if base_url else ())
    kinds = set[str]()
    for item in _read_texts(namespace.texts):
        parsed = parse_item(item, own_hosts)
        if namespace.format == "json":
            # A byte of an argument that is not UTF-8 is a lone surrogate here, which JSON cannot show.
            shown = replace(parsed, text=parsed.text.encode("utf-8", "replace").decode("utf-8"))
            print(write_line(shown, base_url).decode("utf-8"))
        else:
            print("\n".join(_describe(parsed)))
        kinds.add(parsed.kind)
    if not kinds:
        print("standard input has no texts", file=sys.stderr)
        return 1
    # The kinds that make the exit status 0.
    return 0 if kinds <= {"doi", "short_doi"} else 1


def _read_texts(arguments: Sequence[str]) -> Iterator[Item]:
    """The texts of the arguments, or the lines of standard input."""
    from doi_proxy.list_formats.body import ListSource, read_items

    if arguments:
        return (ListItem(text, number) for number, text in enumerate(arguments, 1))
    return read_items(ListSource(STANDARD_INPUT, "text"))


def _describe(parsed: ParsedText) -> Iterator[str]:
    """The lines about a text: its kind and name, then what is noteworthy, indented."""
    shown = parsed.text if parsed.name is None else parsed.name.text
    yield f"{parsed.kind:{_KIND_WIDTH}}  {_printable(shown)}"
    if parsed.message is not None:
        yield f"  {_printable(parsed.message)}"
    for warning in parsed.warnings:
        yield f"  warning: {_printable(warning.message)}"
    if parsed.best is not None and parsed.best.rule is not None:
        yield f"  best: {_printable(parsed.best.name.text)} ({parsed.best.confidence}, {parsed.best.rule})"
    for suggestion in parsed.suggestions:
        yield f"  suggestion: {_printable(suggestion.doi.text)} ({suggestion.rule})"


def _printable(text: str) -> str:
    """The text for a terminal, cut."""
    # Characters of a text in the output for people.
    return printable(text[:200] + "…" if len(text) > 200 else text)


COMMANDS: Final = (Command("parse", add_parse_arguments, parse_texts),)


def parse_item(item: Item, own_hosts: frozenset[str]) -> ParsedText:
    """What the text of an item is. A name that was found in it is what it is read as."""
    if not isinstance(item, ListItem):
        return unreadable(item.text, item.message)
    found = item.found
    parsed = parse(item.text if found is None else to_url(found.name), own_hosts=own_hosts)
    if item.note is not None:
        code = "not-utf-8" if found is None else "other-field"
        parsed = replace(parsed, warnings=(*parsed.warnings, NameWarning(code, item.note)))
    if found is None:
        return parsed
    best = Reading(found.name, found.confidence, found.rule)
    return replace(parsed, text=item.text, rules=(), best=best)


def to_object(parsed: ParsedText, base_url: str | None, item: Item | None = None) -> dict[str, Any]:
    """The JSON object about a text. `base_url` is this resolver's own, None if it is not known.

    `item` is an entry of a bibliography; its line and its key follow.
    """
    name, doi = parsed.name, parsed.doi
    is_page = parsed.kind in ("doi", "short_doi", "prefix")
    return {
        "input": parsed.text,
        "kind": parsed.kind,
        "doi": None if doi is None else doi.text,
        "uri": to_uri(doi) if doi is not None and doi.is_doi else None,
        "url": to_url(name, base_url) if name is not None and is_page and base_url is not None else None,
        "doi_org_url": to_url(name) if name is not None and is_page else None,
        "prefix": None if name is None else name.prefix,
        "suffix": None if name is None else name.suffix,
        "rules": list(parsed.rules),
        "warnings": [{"code": warning.code, "message": warning.message} for warning in parsed.warnings],
        "best": write_reading(parsed.best),
        "suggestions": [{"doi": suggestion.doi.text, "rule": suggestion.rule} for suggestion in parsed.suggestions],
        "message": parsed.message,
        **({} if item is None else {"line": item.line, "key": item.key}),
    }


def write_line(parsed: ParsedText, base_url: str | None) -> bytes:
    """The JSON object about a text, on one line."""
    return to_json_line(to_object(parsed, base_url))
