"""Searches what a list has no field for: an entry without a DOI field, and a field with more than one name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from doi_names.derived import derive
from doi_names.find_names import BLOCK_CHARACTERS, FoundName, NameFinder
from doi_proxy.list_formats import lines

#: Characters of an entry that are searched: all but those of the longest abstracts.
MAX_SEARCHED_CHARACTERS: Final = 16_384
#: Names of one entry that become rows.
MAX_NAMES: Final = 100
#: Characters of an entry in which other identifiers are searched.
_MAX_DERIVED_CHARACTERS: Final = 2_048
#: The rule of a name that stands in a field for something else.
_OTHER_FIELD: Final = "other-field"
_LAST_NAME: Final = f"Of one entry, at most {MAX_NAMES} names are read."


def expand(items: Iterable[lines.ReadItem]) -> Iterator[list[lines.Item]]:
    """The items, with those inside entries. A caller in an event loop gives way to other work after each group."""
    group: list[lines.Item] = []
    for item in items:
        if isinstance(item, lines.SearchedEntry):
            yield group
            group = []
            yield from _search_field(item) if item.is_field else _search(item)
        else:
            group.append(item)
    yield group


def _search_field(entry: lines.SearchedEntry) -> Iterator[list[lines.Item]]:
    """The names of a field, if there are several; otherwise the field as it stands."""
    items: list[lines.Item] = []
    field = entry.fields[0]
    for names in _find(field.text[:MAX_SEARCHED_CHARACTERS]):
        items += [_item(entry, field, name) for name in names if name.confidence != "doubtful"]
        yield []
    distinct = {item.found.name.key for item in items if isinstance(item, lines.ListItem) and item.found is not None}
    if len(items) > MAX_NAMES:
        items[MAX_NAMES - 1 :] = [msgspec.structs.replace(items[MAX_NAMES - 1], note=_LAST_NAME)]
    yield items if len(distinct) > 1 else [entry.without] if entry.without is not None else []


def _search(entry: lines.SearchedEntry) -> Iterator[list[lines.Item]]:
    """Each name in the fields of an entry once; what stands for the entry, if there is none."""
    seen: set[str] = set()
    room = MAX_SEARCHED_CHARACTERS
    for field in entry.fields:
        if field.is_distant and seen:
            break
        text, room = field.text[:room], max(0, room - len(field.text))
        for names in _find(text):
            group: list[lines.Item] = []
            for name in names:
                if name.confidence == "doubtful" or name.name.key in seen or len(seen) >= MAX_NAMES:
                    continue
                seen.add(name.name.key)
                where = f"Found in the field “{field.name}”.{entry.note}"
                is_sure = name.confidence in ("literal", "sure")
                known = replace(name, confidence="likely", rule=name.rule or _OTHER_FIELD) if is_sure else name
                group.append(_item(entry, field, known, where if len(seen) < MAX_NAMES else f"{where} {_LAST_NAME}"))
            yield group
    if not seen and entry.without is not None:
        yield [_derive(entry, entry.without)]


def _derive(entry: lines.SearchedEntry, without: lines.Item) -> lines.Item:
    """What stands for an entry, with the names that follow from its own identifiers by rule."""
    if not isinstance(without, lines.UnreadableItem):
        return without
    text = "\n".join(field.text for field in entry.fields if not field.is_distant)
    return msgspec.structs.replace(without, derived=derive(text[:_MAX_DERIVED_CHARACTERS]))


def _find(text: str) -> Iterator[list[FoundName]]:
    finder = NameFinder()
    for start in range(0, len(text), BLOCK_CHARACTERS):
        yield finder.feed(text[start : start + BLOCK_CHARACTERS])
    yield from finder.end()


def _item(
    entry: lines.SearchedEntry, field: lines.SearchedField, name: FoundName, note: str | None = None
) -> lines.ListItem:
    if isinstance(entry.without, lines.ListItem):
        note = entry.without.note
    return lines.ListItem(name.text, field.line, entry.key, entry.echo, entry.entry, name, note)
