"""What programs did to a name: escapes, entities, links and tags of their own, and the query of another URL."""

from __future__ import annotations

import re
from html import unescape
from itertools import islice
from typing import Final
from urllib.parse import unquote

from doi_names.repair import sici
from doi_names.repair.characters import with_plain_blanks
from doi_names.repair.prefix import NAME, PREFIX

_CASELESS: Final = re.IGNORECASE | re.ASCII
_LATEX_ESCAPE: Final = re.compile(
    r"""\{\\(?P<braced>[_&%#$<>])\}
      | \{(?P<bare>[][<>_&%\#])\}
        # Markdown escapes any punctuation (CommonMark 0.31, section 2.4).
      | \\{1,4}(?=[_&%#${}<>.:;+~-]|[\[\]](?=[0-9]))
      | \$(?P<math>[<>_])\$
      | \{\\text(?P<braced_word>less|greater|underscore)\}
      | \\text(?P<word>less|greater|underscore)(?:\{\}|[ ])?
      | \\(?P<slash>slash)(?:\{\}|[ ])?
      | \\ensuremath\{(?P<ensured>[<>])\}
      | \\text(?P<dash>endash)(?:\{\}|[ ])
      | \\(?P<opener>\()(?=[^()\s]{1,64}\\\))
      | \\(?P<closer>\))""",
    re.VERBOSE,
)
_LATEX_WORDS: Final = {"less": "<", "greater": ">", "underscore": "_", "endash": "-", "slash": "/"}
#: RFC 8259, section 7 (JSON), also of a slash, and the same with two digits (ECMAScript, HexEscapeSequence).
_ESCAPE: Final = re.compile(r"\\{1,4}(?:u([0-9a-f]{4})|x([0-9a-f]{2})|(/)(?=[^\s\\]))", re.IGNORECASE)
_SURROGATES: Final = range(0xD800, 0xE000)
_BACKSLASH: Final = re.compile(r"(10\.[0-9]{4,9}(?:\.[0-9]{1,9}){0,5})\\{1,4}/?(?=[0-9A-Za-z(])")
_BREAK_TAG: Final = re.compile(r"<wbr\s?/?>", re.IGNORECASE)
#: Elements of HTML and JATS that change how a part of a name looks. Superscripts are footnotes.
_INLINE: Final = re.compile(
    r"<(b|i|em|u|strong|span|font|mark|tt|code|bold|italic|underline|monospace)(?:\s[^<>]{0,200})?>([^<>\s]{1,100})</\1>",
    _CASELESS,
)
#: Part of a name that looks like a host, such as journal.pone.org, with a link to it, in Markdown.
_HOST_LINK: Final = re.compile(
    r"(?<=[^\s(])\[(?:https?://)?([^\s\[\]()/]{1,60})\]\((?:https?://)?\1/?\)(?=[^\s.,;)])", _CASELESS
)
#: Parameters of a query that are read.
_MAX_PARAMETERS: Final = 32


def without_html_entities(text: str) -> str:
    """10.1000/a&lt;b -> 10.1000/a<b: also a tag that allows a line break inside the name."""
    return _BREAK_TAG.sub("", unescape(text))


def without_latex_escapes(text: str) -> str:
    r"""10.1000/18\_2 -> 10.1000/18_2"""
    return _LATEX_ESCAPE.sub(_write_latex_character, text) if "\\" in text or "$" in text or "{" in text else text


def _write_latex_character(found: re.Match[str]) -> str:
    character = found[found.lastgroup] if found.lastgroup else ""
    return _LATEX_WORDS.get(character, character)


def with_slash_for_backslash(text: str) -> str:
    r"""10.1000\182 -> 10.1000/182"""
    found = _BACKSLASH.search(text) if "\\" in text else None
    # Inside a suffix, 10.2889 is a page, and its backslash begins an escape.
    if not found or PREFIX.search(text, 0, found.start()):
        return text
    return f"{text[: found.start()].replace(chr(92), '/')}{found[1]}/{text[found.end() :]}"


def without_escapes(text: str) -> str:
    r"""10.1000/a\u003cb -> 10.1000/a<b: an escape of JSON or of a programming language."""
    return _ESCAPE.sub(_write_escaped_character, text) if "\\" in text else text


def _write_escaped_character(escape: re.Match[str]) -> str:
    if escape[3]:
        return "/"
    code = int(escape[1] or escape[2], 16)
    character = chr(code) if code not in _SURROGATES else "\ufffd"
    return character if character.isprintable() else " "


def without_links(text: str) -> str:
    """10.1000/74<947:ABC>http://2.0.CO;2 -> 10.1000/74<947:ABC>2.0.CO;2: a part that a program linked as a host."""
    return _HOST_LINK.sub(r"\1", sici.without_link(text)) if "http" in text else text


def without_inline_tags(text: str) -> str:
    """10.1000/<b>182</b>-3 -> 10.1000/182-3: tags that change how a part of the name looks."""
    return _INLINE.sub(r"\2", text) if "</" in text else text


def decode_again(text: str) -> str:
    """10.1000%2F182 -> 10.1000/182: a name that was encoded twice. Malformed escapes are left as they are."""
    if "%" not in text:
        return text
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeError:
        return text
    return decoded if decoded == text else with_plain_blanks(decoded)


def parameter_value(text: str) -> str:
    """https://example.org/?doi=10.1000%2F182&y=1 -> 10.1000/182: the first parameter of a query that has a name."""
    _, _, query = text.partition("?")
    for parameter in islice(query.split("&"), _MAX_PARAMETERS):
        _, _, value = parameter.partition("=")
        if "10." in value and NAME.search(decoded := unquote(value, errors="replace")):
            return decoded
    return text
