"""The Serial Item and Contribution Identifier inside a name (ANSI/NISO Z39.56-1996): its place, and how it is restored.

A SICI has three segments: the item, 0097-4679(199911)55:11; the contribution, <1381::AID-JCLP6>; and the control
segment, 3.0.CO;2-#, which ends with a version and a check character. Publishers that registered the version alone,
2.0.CO;2, wrote no hyphen after it. So a hyphen without a character after it has lost one.
"""

from __future__ import annotations

import re
from typing import Final

_CASELESS: Final = re.IGNORECASE | re.ASCII
#: Section 6: the location and the code of the title, between angle brackets, or nothing if it identifies an issue. Some
#: publishers register square brackets.
_CONTRIBUTION: Final = r"(?:<(?:[0-9A-Za-z+/.-]{0,12}:[^<>\[\]\s]{0,24})?>|\[[0-9A-Za-z+/.-]{0,12}:[^<>\[\]\s]{0,24}\])"
#: Section 7: code structure identifier, derivative part identifier, medium, version, check character.
_CONTROL: Final = r"[0-9]\.[0-9]\.[A-Z]{2};[0-9](?:-[0-9A-Z#]?)?"
_SICI: Final = re.compile(rf"{_CONTRIBUTION}({_CONTROL})?", _CASELESS)
_BEGUN: Final = re.compile(r"[<\[][0-9A-Z+/.-]{0,12}:[^<>\[\]\s]{0,24}\Z", _CASELESS)
_WITHOUT_CHECK: Final = re.compile(r"[>\]][0-9]\.[0-9]\.[A-Z]{2};[0-9]-\Z", _CASELESS)
#: Section 5: the SICI begins with an ISSN. "(SICI)" before it belongs to the names of one publisher.
_ITEM: Final = re.compile(r"/(?:\(SICI\))?([0-9]{4}-?[0-9]{3}[0-9X]\(.*)\Z", _CASELESS)
_VALUES: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ#"
_MODULUS: Final = len(_VALUES)

#: ".CO" is a top-level domain. Programs make a link of the control segment, in Markdown, in HTML or as it stands.
_LINK: Final = re.compile(
    r"""(?<=[>\]])
        (?: \[ (?:https?://)? ([0-9]\.[0-9]\.[A-Z]{2}[^\s\[\]()]{0,4}) \] \( [^\s()]{0,300} \)
          | <a\s[^<>]{0,300}> (?:https?://)? ([0-9]\.[0-9]\.[A-Z]{2}[^\s<>]{0,4}) </a>
          | < (?:https?://)? ([0-9]\.[0-9]\.[A-Z]{2};[0-9](?:-[0-9A-Z#])?) >
          | https?:// (?=[0-9]\.[0-9]\.[A-Z]{2};) )""",
    _CASELESS | re.VERBOSE,
)
#: The contribution before a control segment, in either kind of brackets. No name with "(SICI)" has square ones.
_BRACKETS: Final = re.compile(r"([<\[])([0-9A-Za-z]{1,8}:[^<>\[\]\s]{1,12})[>\]](?=[0-9]\.[0-9]\.)")
#: Other signs in the place of angle brackets, such as quotation marks and East Asian brackets.
_OTHER_ANGLES: Final = re.compile(
    r"[\u00ab\u2039\u226a\u27e8\u2329\u3008\u300a\uff1c]([0-9A-Za-z+/.-]{0,12}:[^<>\[\]\s]{0,24})"
    r"[\u00bb\u203a\u226b\u27e9\u232a\u3009\u300b\uff1e](?=[0-9]\.[0-9]\.)"
)
_BLANK_INSIDE: Final = re.compile(
    r"([<\[][0-9A-Za-z+/.-]{0,12}:[^<>\[\]\s]{0,24})\s([^<>\[\]\s]{0,24}[>\]][0-9]\.[0-9]\.)", _CASELESS
)
_BLANK: Final = re.compile(
    rf"""\s(?={_CONTRIBUTION}\s?[0-9]\.[0-9]\.[A-Z])
       | \s(?<=[>\]]\s)(?=[0-9]\.[0-9]\.[A-Z]{{2}};)
       | \s(?<=\.CO;\s)(?=[0-9])
       | \s(?<=;[0-9]-\s)(?=[0-9A-Z#](?:[\s.,;)]|\Z))""",
    _CASELESS | re.VERBOSE,
)


def find_span(text: str, begin: int = 0) -> tuple[int, int]:
    """The contribution and control segments of the first SICI of a text from `begin` on; (0, 0) if it has none."""
    found = _SICI.search(text, begin) if "<" in text or "[" in text else None
    return found.span() if found else (0, 0)


def is_cut(name: str) -> bool:
    """Whether a name ends inside a SICI: in its contribution, in its control segment, or before its check character."""
    if "<" not in name and "[" not in name:
        return False
    found = _SICI.search(name)
    if found is None:
        return _BEGUN.search(name) is not None
    return found[1] is None or (name.endswith("-") and found.end() == len(name))


def check_character(sici: str) -> str:
    """The check character of a SICI that is written up to the last hyphen (appendix A, modulus 37).

    381 of 486 registered names have it.
    """
    values = [_VALUES.find(c) if c in _VALUES else _MODULUS - 1 for c in reversed(sici.upper())]
    return _VALUES[-(3 * sum(values[::2]) + sum(values[1::2])) % _MODULUS]


def complete(name: str) -> tuple[str, ...]:
    """The names that a name without its check character may be: with "#", which browsers cut off, and as computed."""
    if not _WITHOUT_CHECK.search(name):
        return ()
    item = _ITEM.search(name)
    computed = check_character(item[1]) if item else "#"
    return tuple(dict.fromkeys((f"{name}#", name + computed)))


def without_link(text: str) -> str:
    """10.1000/74<947:ABC>http://2.0.CO;2 -> 10.1000/74<947:ABC>2.0.CO;2: a program linked the host 2.0.CO."""
    return _LINK.sub(lambda link: link[1] or link[2] or link[3] or "", text) if ">" in text or "]" in text else text


def restore_angle_brackets(text: str) -> str:
    """10.1000/74«947:ABC»2.0.CO;2 -> 10.1000/74<947:ABC>2.0.CO;2: other signs around the contribution."""
    return text if text.isascii() else _OTHER_ANGLES.sub(r"<\1>", text)


def join_segments(text: str) -> str:
    """10.1000/74 <947:ABC>2.0.CO;2 -> 10.1000/74<947:ABC>2.0.CO;2: a line was broken between two segments."""
    return _BLANK_INSIDE.sub(r"\1\2", _BLANK.sub("", text)) if ";" in text or "[" in text or "<" in text else text


def with_other_brackets(text: str) -> str:
    """10.1000/74[947:ABC]2.0.CO;2 -> 10.1000/74<947:ABC>2.0.CO;2: the brackets of a SICI, in either direction."""
    return text if "(SICI)" in text.upper() and "[" not in text else _BRACKETS.sub(_change_brackets, text)


def _change_brackets(found: re.Match[str]) -> str:
    return f"<{found[2]}>" if found[1] == "[" else f"[{found[2]}]"
