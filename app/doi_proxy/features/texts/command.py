"""`doi-proxy parse`: what texts are, decided from their form alone. No upstream is queried."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from doi_proxy.features.command import Command, CommandContext, add_format
from doi_proxy.system.files import STANDARD_INPUT

if TYPE_CHECKING:
    from doi_names.derived import ParsedText
    from doi_proxy.list_formats.lines import Item

#: Characters of a text in the output for people.
_MAX_SHOWN_CHARACTERS: Final = 200
#: The kinds that make the exit status 0.
_DOI_KINDS: Final = frozenset({"doi", "short_doi"})
_KIND_WIDTH: Final = len("not_a_doi")


def add_parse_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument(
        "texts", nargs="*", metavar="TEXT", help="text to parse; by default the lines of standard input"
    )
    add_format(command, "text for people, or one JSON object a line")


def parse_texts(context: CommandContext, namespace: argparse.Namespace) -> int:
    """Print what each text is. Exit status 0 if there are texts and all are DOI names or shortDOIs, else 1."""
    from doi_names.derived import unreadable
    from doi_proxy.features.texts.parsed_line import parse_item, write_line
    from doi_proxy.list_formats.lines import ListItem

    base_url = (context.settings.public_url or "").rstrip("/") or None
    own_hosts = frozenset({urlsplit(base_url).hostname or ""} if base_url else ())
    kinds = set[str]()
    for item in _read_texts(namespace.texts):
        parsed = parse_item(item, own_hosts) if isinstance(item, ListItem) else unreadable(item.text, item.message)
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
    return 0 if kinds <= _DOI_KINDS else 1


def _read_texts(arguments: Sequence[str]) -> Iterator[Item]:
    """The texts of the arguments, or the lines of standard input."""
    from doi_proxy.list_formats.body import ListSource, read_items
    from doi_proxy.list_formats.lines import ListItem

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
    from doi_proxy.system.files import printable

    return printable(text[:_MAX_SHOWN_CHARACTERS] + "…" if len(text) > _MAX_SHOWN_CHARACTERS else text)


COMMANDS: Final = (Command("parse", add_parse_arguments, parse_texts),)
