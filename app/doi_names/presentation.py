"""The forms in which people write DOI names: labels, URNs, URLs and URLs rewritten by proxies."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from doi_names.name import HandleName
from doi_names.percent import decode

#: Trimmed at both ends. It includes blanks that str.strip() keeps, such as ZWSP and the byte order mark. Of the control
#: characters, only those with the property White_Space are blanks (The Unicode Standard, PropList.txt).
BLANKS: Final = "".join(
    chr(code)
    for first, last in (
        (0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200D),
        (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x2060), (0x3000, 0x3000), (0xFEFF, 0xFEFF), (0xFFFE, 0xFFFF),
    )
    for code in range(first, last + 1)
)  # fmt: skip
#: Limit of a text that is read alone: in the form, by `/api/parse`, and by a tool for assistants.
MAX_TYPED_CHARACTERS: Final = 4_096
#: Longer paths are not cached.
_MAX_CACHED_BYTES: Final = 256

_CASELESS: Final = re.IGNORECASE | re.ASCII
_LABEL: Final = re.compile(r"(?:doi|hdl):|info:(?:doi|hdl)/|(urn:(?:doi|hdl|eidr):)", _CASELESS)
#: The host of a resolver, also as a library's proxy rewrites it, with dots or hyphens:
#: doi.org, doi-org.ezproxy.x.edu, 0-dx.doi.org.lib.y.edu.
_URL: Final = re.compile(
    r"""(?:https?:/++)?
        (?: (?:(?:www|dx)\.)?doi\.org | hdl\.handle\.net
          | (?:[0-9]{1,2}-)? (?: (?:(?:www|dx)[.-])?doi[.-]org | hdl[.-]handle[.-]net ) (?:\.[a-z0-9-]{1,63}){1,20}
        )
        (?: :[0-9]{1,5} )?
        (?: /++ | \Z )""",
    _CASELESS | re.VERBOSE,
)
#: An empty fragment after the last hyphen of a SICI is its check character (ANSI/NISO Z39.56, appendix A).
_QUERY_OR_FRAGMENT: Final = re.compile(r"(?:\?|(?<!;[0-9]-)#|#(?=\w)).*", re.DOTALL)
#: A path that is already a DOI name: printable ASCII without escapes or blanks.
_LITERAL_PATH: Final = re.compile(rb"/(10\.[!-$&-~]+)")


#: What was undone to find a name in a text.
Rule = Literal["trimmed", "leading-slash", "url", "query", "label", "urn-colon", "percent-decoded"]


class BareName(NamedTuple):
    """The text of a name without its presentation form, and the rules that were applied, in their order."""

    text: str
    rules: tuple[Rule, ...] = ()


def read(text: str) -> HandleName:
    """The name in percent-decoded `text`, without surrounding blanks, one URL form and one label.

    Raises EmptyName, NameTooLong and ForbiddenCodePoint.
    """
    return HandleName(strip_form(text).text)


def strip_form(text: str) -> BareName:
    """Remove surrounding blanks, one URL form and one label from percent-decoded `text`."""
    rules: list[Rule] = []
    trimmed = _strip_blanks(text, rules)
    rest = _without_url(trimmed, rules)
    bare = _without_label(rest, rules)
    if rest is trimmed and bare is not rest:
        # "doi: https://doi.org/10.1000/182": the other order of the two.
        bare = _without_url(bare, rules)
    return BareName(bare, tuple(rules))


def read_path(raw: bytes) -> HandleName:
    """The name in a raw request path without its query: decoded once, leading slashes removed, then read.

    Raises MalformedEscape and NotUTF8 besides the errors of read.
    """
    return _read_path_cached(raw) if len(raw) <= _MAX_CACHED_BYTES else _read_path(raw)


def read_exact(raw: bytes) -> HandleName:
    """The name in percent-encoded bytes: decoded once and otherwise unchanged. Raises as read_path."""
    return _read_exact_cached(raw) if len(raw) <= _MAX_CACHED_BYTES else _read_exact(raw)


def _read_exact(raw: bytes) -> HandleName:
    return HandleName(decode(raw))


def _read_path(raw: bytes) -> HandleName:
    if literal := _LITERAL_PATH.fullmatch(raw):
        return HandleName(literal[1].decode("ascii"))
    return read(decode(raw).lstrip("/"))


#: The names of popular paths. Most requests are for few names.
_read_path_cached = lru_cache(maxsize=512)(_read_path)
_read_exact_cached = lru_cache(maxsize=512)(_read_exact)


def read_typed(text: str) -> HandleName:
    """The name in what a person typed or pasted, raw or percent-encoded; "%" always begins an escape.

    The query or fragment of a pasted URL is not part of the name. In a bare name, "?" and "#" are. Raises as read_path.
    """
    return HandleName(strip_typed_form(text).text)


def strip_typed_form(text: str) -> BareName:
    """Remove what is not part of the name from what a person typed, as read_typed does.

    Raises MalformedEscape and NotUTF8.
    """
    rules: list[Rule] = []
    typed = _strip_blanks(text, rules)
    if _URL.match(typed) or _URL.match(_without_label(typed, [])):
        typed = _undo("query", typed, _QUERY_OR_FRAGMENT.sub("", typed), rules)
    typed = _undo("percent-decoded", typed, decode(typed), rules)
    typed = _undo("leading-slash", typed, typed.lstrip("/"), rules)
    # A resolver reads the path of its URL as any text: https://doi.org/https://doi.org/10.1000/182.
    bare = strip_form(_without_url(typed, rules))
    # A blank can stand on both sides of an escape, so "trimmed" can occur twice.
    return BareName(bare.text, tuple(dict.fromkeys((*rules, *bare.rules))))


def _undo(rule: Rule, before: str, after: str, rules: list[Rule]) -> str:
    """The text after a rule. The rule is recorded if it changed the text."""
    if after != before:
        rules.append(rule)
    return after


def _strip_blanks(text: str, rules: list[Rule]) -> str:
    return _undo("trimmed", text, text.strip(BLANKS), rules)


def _without_url(text: str, rules: list[Rule]) -> str:
    found = _URL.match(text)
    if not found:
        return text
    rules.append("url")
    return text[found.end() :].strip(BLANKS)


def _without_label(text: str, rules: list[Rule]) -> str:
    label = _LABEL.match(text)
    if not label:
        return text
    rules.append("label")
    rest = text[label.end() :].strip(BLANKS)
    if label[1]:
        # DOI Handbook, DOI Name Encoding Rules for URL Presentation: in a URN a colon stands for the first slash.
        head, colon, tail = rest.partition(":")
        if colon and "/" not in head:
            rules.append("urn-colon")
            return f"{head}/{tail}"
    return rest
