"""The last look at a reading: what is left of the text, and what follows it, decide whether it can be sure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from doi_names.confusable import USUAL_PREFIX
from doi_names.repair import sici

#: Characters after a name that decide whether it ends there.
MAX_LOOK: Final = 64

#: The signs of 110,816 registered names, and "&", which one publisher uses. Any other is a foreign sign.
_USUAL: Final = re.compile(r"(?:[\w./()<>:;\[\]+#-]|&(?=[0-9]{1,2}_))*", re.ASCII)
#: Another prefix or a URL in a suffix. The name that is meant may begin there, or end before it.
_SECOND: Final = re.compile(r"/10\.[0-9]{4,9}/|://")
#: Words before a number of another kind: of a telephone, of an operating system (User-Agent), of a host.
_OTHER_NUMBER: Final = re.compile(
    r"(?<![a-z])(?:t[e\u00e9]l(?:[e\u00e9](?:phone|fono)|efon)?|phone|fax|mobile|os x|ip)\.?:?\s?\Z", re.IGNORECASE
)
#: A number and a unit, 10.2345/kg, if it stands in a sentence without a label.
_RATE: Final = re.compile(r"10\.[0-9.]{4,9}/[a-z]{1,3}", re.IGNORECASE)
_UNLABELLED: Final = re.compile(r"(?<!doi)(?<!doi[:.])\s\Z", re.IGNORECASE)
#: No registered name ends with one of these. The name goes on in the next line.
_BREAKS: Final = ("-", "_")
_PAIRS: Final = ("()", "[]", "<>")
#: What may still be part of a name if it follows without a blank: a letter, a digit, a plus sign.
_GLUED: Final = re.compile(r"[0-9A-Za-z+]")
#: Letters after a digit are the end of a name, or a word that follows without a blank. Letters from a to f alone are
#: hexadecimal digits.
_LETTERS: Final = re.compile(r"(?<=[0-9])(?:[A-Z]{2,6}|(?![a-f]{1,6}\Z)[a-z]{2,6})\Z")
_NEXT_WORD: Final = re.compile(r"[^\S\r\n]{1,8}\S")
#: A number after a blank. PDF readers write an underscore as a blank.
_NUMBER: Final = re.compile(r"[^\S\r\n]{1,4}([0-9]{1,4})(?![0-9A-Za-z/]|\.[0-9])")
#: A line that may go on with the name: not with a capital, a label, a URL, another name or the number of a list.
_NEXT_LINE: Final = re.compile(
    r"(\.?)[^\S\r\n]{0,8}\r?\n[^\S\r\n]{0,8}((?!10\.|doi|https?:|[0-9]{1,3}[.)\]])[0-9a-z(_/<-][^\s,;]{0,40})", re.ASCII
)


def is_certain(name: str, before: str, after: str) -> bool:
    """Whether the name of a reading can be sure. `before` and `after` are MAX_LOOK characters around it, or fewer.

    It cannot if its prefix is unlikely, if a word before it names another number, if a bracket in it has no partner, if
    it has a foreign sign, if it ends inside a SICI, or if it may go on: with a glued word, after a blank with a number,
    or after the end of its line.
    """
    return (
        _USUAL.fullmatch(name) is not None
        and USUAL_PREFIX.fullmatch(name.partition("/")[0]) is not None
        and not name.endswith(_BREAKS)
        and not _OTHER_NUMBER.search(before)
        and not (_RATE.fullmatch(name) and _UNLABELLED.search(before))
        and not _SECOND.search(name)
        and all(name.count(opener) == name.count(closer) for opener, closer in _PAIRS)
        and ("<" not in name or sici.find_span(name) != (0, 0))
        and not sici.is_cut(name)
        and not (_NEXT_WORD.match(after) and _LETTERS.search(name))
        and not (after and (_GLUED.match(after) or _NUMBER.match(after) or _NEXT_LINE.match(after)))
    )


def read_on(name: str, after: str) -> Iterator[tuple[str, str]]:
    """What else a name may be, each with its rule: a whole SICI, without a glued word, with the next number or line."""
    for whole in sici.complete(name):
        yield whole, "sici-check"
    if (letters := _LETTERS.search(name)) and _NEXT_WORD.match(after):
        yield name[: letters.start()], "next-word"
    if number := _NUMBER.match(after):
        yield f"{name}_{number[1]}", "underscore"
    if line := _NEXT_LINE.match(after):
        yield name + line[1] + line[2].rstrip(".)"), "line-end"
