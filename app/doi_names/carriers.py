r"""What a text says without its carrier: HTML, LaTeX, JSON, RTF, quoted-printable, and the links of wikis and chats.

A carrier is read before names are found: 10.1000/a&lt;b, 10.1000/a{\textless}b, 10.1000/a\u003cb and 10.1000/a=3Cb are
one text. What ends a value in a carrier, such as a tag or a brace, becomes a quotation mark, which no registered
name has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Final

from doi_names.repair.prefix import BEGINNING

_FLAGS: Final = re.IGNORECASE | re.ASCII | re.VERBOSE
#: The commands of LaTeX that are one character, also with "text" before them. Other commands end a name.
_CHARACTERS: Final = {
    "less": "<", "lt": "<", "greater": ">", "gt": ">", "underscore": "_", "endash": "-", "slash": "/", "sim": "~",
    "asciitilde": "~", "asciicircum": "^", "quotesingle": "'", "bar": "|", "dollar": "$", "lbrack": "[", "rbrack": "]",
    "numbersign": "#", "percent": "%", "ampersand": "&", "asteriskcentered": "*", "backslash": "\\",
}  # fmt: skip
_CHARACTER: Final = (
    rf"\\(?:text)?(?:{'|'.join(_CHARACTERS)})(?![a-z])(?:\{{\}}|[ ])?"
    r'|\\char(?:[0-9]{2,3}|"[0-9a-f]{2}|`\\?[!-~])(?:\{\}|[ ])?|\\string\\?[!-~]|\\[~^]\{\}'
)
#: The control segment of a SICI looks like a host, 2.0.CO, and programs make a link of it.
_SICI_END: Final = r"(?:https?://)?([0-9]\.[0-9]\.[A-Z]{2}"
#: What is written for other characters, by the rule that answers show.
RULES: Final = {
    # A template of a wiki for one character. <wbr> allows a line break inside a word.
    "html-entity": r"""
        &(?:amp;){0,3}(?:\#[0-9]{2,7};?|\#x[0-9a-f]{2,6};?|[a-z][a-z0-9]{1,24};|(?:lt|gt|amp|nbsp)(?![a-z=]))
        | <wbr\s?/?> | \{\{[=!]\}\}""",
    "link": rf"""(?<=[>\]]) (?: \[ {_SICI_END}[^\s\[\]()]{{0,4}}) \] \( [^\s()]{{0,300}} \)
            | <a\s[^<>]{{0,300}}> {_SICI_END}[^\s<>]{{0,4}}) </a>
            | <(?:https?://[^\s<>|]{{1,300}}\|)? {_SICI_END}(?:;[0-9](?:-[0-9A-Z\#])?)?) >
            ) | ([>\]])https?://(?=[0-9]\.[0-9]\.[A-Z]{{2}};)
        | (?<=[^\s(]) \[ (?:https?://)? ([^\s\[\]()/]{{1,60}}) \] \( https?://[^\s()/]{{1,60}}/? \) (?=[^\s.,;)])
        | (?<=[0-9a-z./-]) <https?://[^\s<>|]{{1,200}}\| ([^\s<>|]{{1,100}}) >""",
    # A command for a character, for a place where a line may break, or for a font. Markdown escapes any punctuation
    # (CommonMark 0.31, section 2.4).
    "latex-escape": rf"""\{{ (?:{_CHARACTER}|\\?[][<>_&%$\#]) \}} | {_CHARACTER}
        | \$[<>_]\$ | \\ensuremath\{{[<>_]\}} | \\protect(?=\\)
        | \\(?:allowbreak|nobreak|linebreak|penalty-?[0-9]{{1,5}})(?![a-z])(?:\{{\}}|[ ])?
        | \\(?:emph|text[a-z]{{2}}|mbox|nolinkurl|path)\{{[^{{}}\s]{{1,100}}\}}
        | \\{{1,4}}(?=[_&%\#${{}}<>.:;+~-]|[\[\]](?=[0-9])) | \\\((?=[^()\s]{{1,64}}\\\)) | \\\)""",
    # RFC 8259, section 7 (JSON), also of a slash; with two digits (ECMAScript, HexEscapeSequence); \\uN of RTF.
    "escape": r"\\u[0-9]{4,5}\s?(?:\?|\\'[0-9a-f]{2}) | \\{1,4}(?:u\{?[0-9a-f]{4}\}?|x[0-9a-f]{2}|/(?=[^\s\\]))",
    # RFC 2045, section 6.7: also a line that goes on.
    "quoted-printable": r"(?:(?-i:=[0-9A-F]{2}))+ | =\r?\n(?=\S)",
    # Elements of HTML and JATS that change how a part of a word looks. A superscript is a footnote.
    "inline-tag": r"""</?nowiki\s?/?>
        | (?: </?(?:b|i|em|u|strong|span|font|mark|small|tt|code|bdi|bold|italic|underline|monospace)
              (?:\s[^<>]{0,200})?> ){1,6}""",
}
#: A character that a token or an end can have.
_SPECIAL: Final = re.compile(r"[^0-9A-Za-z ./:()_,+\n-]")
#: The first characters of a token. A search for these alone is quick.
_FIRST: Final = re.compile(r"[&<>\\={\[\]$]")
_TOKEN: Final = re.compile("|".join(f"(?P<{k.replace('-', '_')}>{v})" for k, v in RULES.items()), _FLAGS)
_PARAMETER: Final = re.compile(r"[?&;][a-z_.-]{1,30}\Z", _FLAGS)
#: What ends a value.
_END: Final = re.compile(
    r"""(?:
        # HTML, XML: an element of two letters or more, or a usual one of one letter. SICIs have "<" before a digit.
        <\\?/ | <!-- | <(?:[a-z][a-z-]{1,15}[1-6]?|[apiqsu])(?=[\s/>])
        # Attributes, JSON, CSV, programs: a quotation mark. An apostrophe only before what follows a value.
      | ["`\u201c\u201d\u201e] | [\u00ab\u00bb](?!(?:[^\u00bb\s]{0,40}\u00bb)?[0-9]\.[0-9]\.)
      | ['\u2018\u2019]\s{0,4}(?:[/?]?>|[],:;)}]|[a-z-]{2,20}=|\Z)
        # Markdown, reStructuredText.
      | \]\( | (?:\[[0-9]{1,3})?\]\[ | \[\^ | >` | __; | ~~ | \u2026
        # Wikis.
      | \[\[ | \]\] | \{\{ | \|
        # BibTeX, LaTeX; an escaped control character or quotation mark. Other commands of LaTeX and RTF stay.
      | \}[,}{\s] | \\{1,4}[nrt\"']
        # PDF objects.
      | \)/S/URI | >>/(?:Border|Rect|Type)
        # RDF: the type of a literal. MARC: the mark and the code of the next subfield.
      | \^\^ | \$[0-9a-z](?=[0-9A-Za-z:]) | [\u01c2\u2021]
        )""",
    _FLAGS,
)
#: A value without quotation marks in a tag: <a href=https://doi.org/
_IN_TAG: Final = re.compile(r"<[a-z](?:[^<>\"']|\"[^<>\"]{0,200}\"|'[^<>']{0,200}'){0,200}=[^\s<>\"']{0,200}\Z", _FLAGS)


@dataclass(frozen=True, slots=True)
class Carried:
    """A text without its carrier. `stops` has for each character where the written text goes on after it."""

    text: str
    stops: Sequence[int]
    #: What was undone, in order.
    rules: tuple[str, ...] = ()
    #: Where the text goes on although an element ended there.
    joints: tuple[int, ...] = ()
    #: How many "#", "&" and "?" an author escaped, which are parts of a name.
    escaped: int = 0


def read_carrier(written: str, before: str = "") -> Carried:
    """The text that a carrier has from a place on where a name may begin. `before` is what is written before it."""
    stops: Sequence[int] = range(1, len(written) + 1)
    if not _SPECIAL.search(written) and ")/S" not in written:
        return Carried(written, stops)
    text, rules, joints, escaped = written, dict[str, None](), list[int](), 0
    # A carrier may be in another one: JSON in HTML.
    for _ in range(3):
        pieces, places, done, seen, opened = list[str](), list[int](), 0, 0, 0
        last_closing = text.rfind("</")
        for first in _FIRST.finditer(text):
            token = _TOKEN.match(text, first.start()) if first.start() >= seen else None
            if token is None:
                continue
            seen = token.end()
            rule = (token.lastgroup or "").replace("_", "-")
            plain = _WRITERS[rule](token)
            if rule == "inline-tag" and "nowiki" not in token[0].lower():
                opens = token[0].count("<") - 2 * token[0].count("</")
                closes_own = opens < 0 and opened > 0
                opened = max(0, opened + opens)
                plain = _join(text, token, is_whole=closes_own, closes_later=last_closing >= token.end())
                if plain == "" and not closes_own and "</" in token[0]:
                    joints.append(len(places) + token.start() - done)
            if plain is None or plain == token[0]:
                continue
            escaped += rule == "latex-escape" and (plain or text[token.end() : token.end() + 1]) in ("#", "&", "?")
            pieces += text[done : token.start()], plain
            places += stops[done : token.start()]
            places += [stops[token.end() - 1]] * len(plain)
            done = token.end()
            rules.setdefault(rule)
        if not pieces:
            break
        text, stops = "".join(pieces) + text[done:], [*places, *stops[done:]]
    return Carried(_mark_ends(text, before), stops, tuple(rules), tuple(joints), escaped)


def _mark_ends(text: str, before: str) -> str:
    """The text with a quotation mark at what ends a value after the beginning of a name."""
    name = BEGINNING.search(text)
    if not name:
        return text
    rest = text[name.end() :]
    start = (before + text[: name.start()])[-256:]
    if "<" in start and _IN_TAG.search(start):
        rest = rest.replace(">", '"', 1)
    # Of a part of a text, the first end is enough.
    return text[: name.end()] + _END.sub(lambda end: '"' + end[0][1:], rest, count=1 if before else 0)


def _join(text: str, tags: re.Match[str], *, is_whole: bool, closes_later: bool) -> str | None:
    """Nothing if a name goes on after tags. None if they end it: before another word, or between two numbers."""
    last, following = text[tags.start() - 1 : tags.start()], text[tags.end() : tags.end() + 1]
    if not last.strip() or not re.match(r"[0-9A-Za-z./_(:;+-]", following):
        return None
    if is_whole or "</" not in tags[0]:
        return "" if is_whole or closes_later else None
    is_beside = last.isdigit() and (following.isdigit() if "><" in tags[0] else following.isupper())
    return None if is_beside or following.isupper() else ""


def _write_entity(token: re.Match[str]) -> str:
    written = token[0]
    if written[0] != "&":
        return written[2] if written[0] == "{" else ""
    for _ in range(4):
        written = unescape(written)
    return written


def _write_link(token: re.Match[str]) -> str:
    # The rule of a token is a group too, before what is inside it.
    return next((group for group in token.groups()[1:] if group and group != token[0]), "")


def _write_latex(token: re.Match[str]) -> str:
    written = token[0][1:-1] if token[0].startswith("{") else token[0]
    written = written.removesuffix("{}").rstrip(" ")
    if number := re.fullmatch(r'\\char(?:([0-9]+)|"(..)|`\\?(.))', written):
        return number[3] or chr(int(number[1]) if number[1] else int(number[2], 16))
    if argument := re.fullmatch(r"\\[a-z]+\{(.*)\}", written, re.IGNORECASE):
        return argument[1]
    word = written.lstrip("\\")
    if written.startswith("\\string"):
        return written[-1]
    character = _CHARACTERS.get(word.lower().removeprefix("text"))
    return character or ("" if word[:1].isalpha() else word.strip("$"))


def _write_escaped(token: re.Match[str]) -> str:
    written = token[0].lstrip("\\")
    if written == "/":
        return "/"
    # RTF writes the number as a decimal one, and what to show without the character after it.
    code = (
        int(written[1:6].split("?")[0].split("\\")[0])
        if written[-1] == "?" or "'" in written
        else int(written[1:].strip("{}"), 16)
    )
    character = chr(code) if code not in range(0xD800, 0xE000) else "\ufffd"
    return character if character.isprintable() else " "


def _write_bytes(token: re.Match[str]) -> str | None:
    if token[0][1] in "\r\n":
        return ""
    # The value of a parameter: &date=2013.
    if _PARAMETER.search(token.string, max(0, token.start() - 32), token.start()):
        return None
    try:
        character = bytes.fromhex(token[0].replace("=", "")).decode()
    except UnicodeDecodeError:
        return None
    return character if character.isprintable() else " " if character.isspace() else None


_WRITERS: Final[dict[str, Callable[[re.Match[str]], str | None]]] = {
    "html-entity": _write_entity,
    "link": _write_link,
    "latex-escape": _write_latex,
    "escape": _write_escaped,
    "quoted-printable": _write_bytes,
    "inline-tag": lambda _: "",
}
