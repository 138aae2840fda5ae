"""The keys one edit away from the key of a name: what a writer who made one slip may have meant. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from doi_names.name import HandleName

#: Of a longer name, no candidates are made.
MAX_CHARACTERS: Final = 96
#: Characters that a writer takes for each other, of which a key has the upper case: "l" and "1", "rn" and "m".
_LOOK_ALIKES: Final = (
    "0O",
    "1IL",
    "2Z",
    "5S",
    "6GB",
    "8B",
    "9GQ",
    "UV",
    "-_.",
    "([",
    ")]",
    ("RN", "M"),
    ("CL", "D"),
    ("VV", "W"),
)
#: What a writer can have dropped beside a digit, beside a letter, and anywhere.
_DIGITS: Final = "0123456789"
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MARKS: Final = ".-_/()"


def _list_alternatives() -> dict[str, list[str]]:
    alternatives: dict[str, list[str]] = {}
    for group in _LOOK_ALIKES:
        for character in group:
            alternatives.setdefault(character, []).extend(other for other in group if other != character)
    return alternatives


_ALTERNATIVES: Final = _list_alternatives()
_LONGEST: Final = max(map(len, _ALTERNATIVES))


def list_edited_keys(name: HandleName) -> list[str]:
    """The keys of the names one edit away in the suffix, the likeliest first: about 30 for each of its characters.

    A character too many goes before two that are swapped, a look-alike, and a character that was dropped. A name that
    is not a DOI, or is longer than MAX_CHARACTERS, has none.
    """
    key, start = name.key, len(name.prefix) + 1
    if not name.is_doi or len(key) > MAX_CHARACTERS:
        return []
    edits = chain(_remove(key, start), _swap(key, start), _replace(key, start), _insert(key, start))
    return list(dict.fromkeys(candidate for candidate in edits if candidate != key))


def _remove(key: str, start: int) -> Iterator[str]:
    # A name with an empty suffix is not a DOI.
    return (key[:at] + key[at + 1 :] for at in reversed(range(start, len(key))) if len(key) > start + 1)


def _swap(key: str, start: int) -> Iterator[str]:
    return (key[:at] + key[at + 1] + key[at] + key[at + 2 :] for at in reversed(range(start, len(key) - 1)))


def _replace(key: str, start: int) -> Iterator[str]:
    for at in reversed(range(start, len(key))):
        for length in range(1, _LONGEST + 1):
            for other in _ALTERNATIVES.get(key[at : at + length], ()):
                yield key[:at] + other + key[at + length :]


def _insert(key: str, start: int) -> Iterator[str]:
    """Each character that can have been dropped: a digit beside a digit, a letter beside a letter, or a mark.

    All characters everywhere would be twice as many, and find 0.1 % more of the names.
    """
    for at in reversed(range(start, len(key) + 1)):
        around = key[max(start, at - 1) : at + 1]
        has_digit = any(character.isdigit() for character in around)
        has_other = not all(character.isdigit() for character in around)
        dropped = (_DIGITS if has_digit or not around.isalnum() else "") + (_LETTERS if has_other else "") + _MARKS
        yield from (key[:at] + character + key[at:] for character in dropped)
