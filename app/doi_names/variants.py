"""Names that look like another one: what a caller looks up if a name does not exist, before it offers one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from doi_names.name import HandleName
from doi_names.repair.exploration import read_if_doi
from doi_names.suggestion import Suggestion

#: The most names that are listed for one name.
MAX_VARIANTS: Final = 8
#: Longer names have too many places to look like another name.
_MAX_CHARACTERS: Final = 256

#: Letters beside a digit that look like digits, as text recognition and typing confuse them.
_LETTERS_BESIDE_DIGIT: Final = re.compile(r"(?<=[0-9])[OoIl]+|[OoIl]+(?=[0-9])")
#: A part of a name that is a number but for such letters: with other letters beside them, nothing shows a slip.
_NUMBER: Final = re.compile(r"(?<![0-9A-Za-z])[0-9OoIl]{2,}(?![0-9A-Za-z])")
_AS_DIGIT: Final = str.maketrans("OoIl", "0011")
#: What looks like what, in the order in which it is tried: rn and m, a letter and a digit.
_LOOK_ALIKE: Final = re.compile(r"rn|m|[OoIl01]")
_ALIKE: Final = {"rn": ("m",), "m": ("rn",), "O": ("0",), "o": ("0",), "I": ("1", "l"), "l": ("1", "I")} | {
    "0": ("O",),
    "1": ("l", "I"),
}


def list_variants(name: HandleName) -> tuple[Suggestion, ...]:
    """The names that a name may have been before one slip: MAX_VARIANTS at most, the likeliest first.

    None of them is known to be registered. `rule` is `underscore`, `look-alike` or `missing-slash-at-end`.
    """
    if not name.is_doi or len(name.text) > _MAX_CHARACTERS:
        return ()
    return _read(name, _list_texts(name.prefix, name.suffix or ""))


def list_visible_slips(name: HandleName) -> tuple[Suggestion, ...]:
    """Those variants whose slip the name itself shows: letters in a number."""
    if not name.is_doi or len(name.text) > _MAX_CHARACTERS:
        return ()
    return _read(name, iter([_with_digits_in_numbers(name.prefix, name.suffix or "")]))


def _read(name: HandleName, texts: Iterator[tuple[str, str]]) -> tuple[Suggestion, ...]:
    found: dict[str, Suggestion] = {}
    for text, rule in texts:
        variant = read_if_doi(text) if text != name.text else None
        if variant is not None and variant != name:
            found.setdefault(variant.key, Suggestion(variant, rule))
        if len(found) == MAX_VARIANTS:
            break
    return tuple(found.values())


def _with_digits_in_numbers(prefix: str, suffix: str) -> tuple[str, str]:
    return f"{prefix}/{_NUMBER.sub(_write_digits, suffix)}", "look-alike"


def _write_digits(found: re.Match[str]) -> str:
    """A number without its letters, if it has more digits than letters."""
    letters = sum(character.isalpha() for character in found[0])
    return found[0].translate(_AS_DIGIT) if 2 * letters < len(found[0]) else found[0]


def _list_texts(prefix: str, suffix: str) -> Iterator[tuple[str, str]]:
    if " " in suffix:
        yield f"{prefix}/{suffix.replace(' ', '_')}", "underscore"
    yield _with_digits_in_numbers(prefix, suffix)
    yield f"{prefix}/{_LETTERS_BESIDE_DIGIT.sub(lambda found: found[0].translate(_AS_DIGIT), suffix)}", "look-alike"
    if not suffix.endswith("/"):
        yield f"{prefix}/{suffix}/", "missing-slash-at-end"
    for found in islice(_LOOK_ALIKE.finditer(suffix), MAX_VARIANTS):
        for other in _ALIKE[found[0]]:
            yield f"{prefix}/{suffix[: found.start()]}{other}{suffix[found.end() :]}", "look-alike"
