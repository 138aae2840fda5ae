"""A parsed text as a JSON object, on one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from doi_names.derived import ParsedText, parse
from doi_names.name import NameWarning
from doi_names.presentation import to_uri, to_url
from doi_names.suggestion import Reading, write_reading
from doi_proxy.list_formats.lines import Item, ListItem
from doi_proxy.list_formats.writing import to_json_line


def parse_item(item: ListItem, own_hosts: frozenset[str]) -> ParsedText:
    """What the text of an item is. A name that was found in it is what it is read as."""
    found = item.found
    parsed = parse(item.text if found is None else to_url(found.name), own_hosts=own_hosts)
    if item.note is not None:
        code = "not-utf-8" if found is None else "other-field"
        parsed = replace(parsed, warnings=(*parsed.warnings, NameWarning(code, item.note)))
    if found is None:
        return parsed
    best = Reading(found.name, found.confidence, found.rule)
    return replace(parsed, text=item.text, rules=(), best=best)


def to_object(parsed: ParsedText, base_url: str | None) -> dict[str, Any]:
    """The JSON object about a text. `base_url` is this resolver's own, None if it is not known."""
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
    }


def write_line(parsed: ParsedText, base_url: str | None, item: Item | None = None) -> bytes:
    """The JSON object about a text, on one line.

    `item` is an entry of a bibliography; its line and its key follow.
    """
    members = to_object(parsed, base_url)
    return to_json_line(members if item is None else members | {"line": item.line, "key": item.key})
