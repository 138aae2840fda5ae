"""Whether a reference is about the work that its DOI names. An invented citation often has a real DOI of another work.

`different` needs two facts: another title, and another author or year. What cannot be compared is `unknown`, such as
a title in another script, or a reference without a title.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from html import unescape
from typing import Any, Final, Literal

import msgspec

#: Characters of a title that are kept.
MAX_TITLE: Final = 500
#: Markup inside titles, such as <i> and <mml:math>.
_TAG: Final = re.compile(r"</?[A-Za-z][^<>]{0,200}>")


@dataclass(frozen=True, slots=True)
class Work:
    """What an agency says about a work. `author` is the family name of the first one, or an organisation, or ""."""

    title: str
    author: str = ""
    year: int | None = None


class _Csl(msgspec.Struct, gc=False):
    """The members that are read. All others are skipped."""

    title: Any = None
    author: Any = None
    issued: Any = None


def read_work(data: bytes) -> Work | None:
    """The work in a CSL JSON item, None if it has no title that can be read. Raises nothing for any bytes."""
    try:
        item = msgspec.json.decode(data, type=_Csl)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    title = _read_text(_first(item.title), MAX_TITLE)
    return Work(title, _read_author(_first(item.author)), _read_year(item.issued)) if title else None


def _read_author(author: object) -> str:
    if not isinstance(author, dict):
        return ""
    names = (_read_text(author.get(member), 100) for member in ("family", "literal", "name"))
    return next(filter(None, names), "")


def _read_year(issued: object) -> int | None:
    """The year of {"date-parts": [[2020, 1, 2]]}. Some agencies write numbers as strings."""
    found = issued.get("date-parts") if isinstance(issued, dict) else None
    for _ in range(2):
        found = _first(found)
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) == 4:
        found = int(found)
    is_year = isinstance(found, int) and not isinstance(found, bool) and found in range(1000, 2200)
    return found if is_year else None


def _first(value: object) -> object:
    """The first item of a list, and any other value itself."""
    if isinstance(value, list):
        return value[0] if value else None
    return value


def _read_text(value: object, most: int) -> str:
    """A text without markup and line breaks, in one line."""
    if not isinstance(value, str):
        return ""
    # Characters of a text that are read. Markup takes the rest.
    text = _TAG.sub("", unescape(_TAG.sub("", value[:4_096])))
    text = "".join(character if character.isprintable() else " " for character in text)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


Match = Literal["same", "different", "unknown"]
#: Whether one fact of a reference agrees with that of the work. None if that cannot be said.
_Agreement = bool | None

#: Characters of a reference that are read.
MAX_CHARACTERS: Final = 4_096
#: The share of common words from which titles are the same, and up to which they are different.
_SAME: Final = 0.75
_DIFFERENT: Final = 0.34
#: Shorter titles, such as "Editorial", are the title of too many works. In words.
_MIN_WORDS: Final = 2
_MIN_OTHER_WORDS: Final = 3

_STOP: Final = frozenset(
    "a an and as at by for from in into its of on or the to via with das dem den der des die ein eine für im mit und "
    "von zu zur au aux dans de du en et la le les par pour sur un une con del e el las los para por y".split()
)
_CONTAINERS: Final = frozenset(
    "acta annals annual archives book bulletin chapter communications conference edition editors journal lecture "
    "letters magazine meeting newsletter notes press proceedings publications publishers publishing report reports "
    "review reviews series society springer symposium thesis transactions university verlag workshop "
    "zeitschrift revue revista actes".split()
)
_LETTERS: Final = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"})
#: German transliterations: Müller is Mueller too.
_UMLAUT: Final = re.compile(r"([aou])e")
_TEX: Final = re.compile(r"\\(?:[^A-Za-z]|[uvHtcdbkr](?![A-Za-z])|[A-Za-z]{2,20}(?=[\s{]))|[{}$]")
_WORD: Final = re.compile(r"[^\W_]+")
_MARK: Final = re.compile(r"\b(?:https?://|doi:|10\.\d{4,9}/)\S*", re.IGNORECASE)
_YEAR: Final = re.compile(r"(?<!\d)(?:1[4-9]|20)\d\d(?!\d)")
_SEGMENT: Final = re.compile(r"[.,;:?!()\[\]\"“”„«»/\d\n]+")
_BIBTEX: Final = re.compile(r"\s*@\s*\w{1,40}\s*[{(]")
_BIBTEX_FIELD: Final = re.compile(r"(?<![\w-])(title|author|editor|year|date)\s*=\s*", re.IGNORECASE)
_RIS: Final = re.compile(r"^[ \t]*([A-Z][A-Z0-9]) {0,2}- +(.*)$", re.MULTILINE)
_RIS_FIELDS: Final = {
    "TI": "title", "T1": "title", "AU": "author", "A1": "author", "PY": "year", "Y1": "year", "DA": "year",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Cited:
    """What the fields of a reference say. `text` is the whole of one in running text, else ""."""

    title: str = ""
    author: str = ""
    year: str = ""
    text: str = ""


def match(reference: str, work: Work) -> Match:
    """Compare a reference, as BibTeX, as RIS or in running text, with the work that its DOI names."""
    cited = _read(reference[:MAX_CHARACTERS])
    stated = cited.title or cited.text
    if not stated or _is_latin(stated) != _is_latin(work.title):
        return "unknown"
    title = _compare_title_in_text(cited.text, work.title) if cited.text else _compare_titles(cited.title, work.title)
    author = _compare_authors(cited.text or cited.author, work.author)
    year = _compare_years(cited.text or cited.year, work.year)
    if title:
        return "unknown" if author is False and year is False else "same"
    # In running text, a year can be that of an access, and a run of words another thing than a title.
    is_other = author is False if cited.text else author is False or year is False
    return "different" if title is False and is_other else "unknown"


def read_cited(entry: str) -> dict[str, str]:
    """The title, the author and the year that a reference in BibTeX or RIS states."""
    cited = _read(entry[:MAX_CHARACTERS])
    values = {"title": cited.title, "author": cited.author, "year": cited.year}
    return {name: value.lstrip('{"') for name, value in values.items()}


def _compare_titles(cited: str, found: str) -> _Agreement:
    words_cited, words_found = _words(cited), _words(found)
    if not words_cited or not words_found:
        return None
    if words_cited == words_found:
        return True
    least = min(len(words_cited), len(words_found))
    # One of them can be without its subtitle.
    share = len(words_cited & words_found) / least
    if share >= _SAME and least >= _MIN_WORDS:
        return True
    return False if share <= _DIFFERENT and least >= _MIN_OTHER_WORDS else None


def _compare_title_in_text(text: str, found: str) -> _Agreement:
    words = _words(found)
    if len(words) < _MIN_WORDS:
        return None
    bare = _MARK.sub(" ", text)
    share = len(words & _words(bare)) / len(words)
    if share >= _SAME:
        return True
    is_other = share <= _DIFFERENT and len(words) >= _MIN_OTHER_WORDS and _states_title(bare)
    return False if is_other else None


def _states_title(text: str) -> bool:
    """Whether a reference in running text has words in a row that must be a title: no names, no journal."""
    for segment in _SEGMENT.split(text):
        raw = [word for word in _WORD.findall(segment) if word.casefold() not in _STOP]
        has_initials = any(len(word) == 1 or (len(word) == 2 and word.isupper()) for word in raw)
        # Words in a row that are a title, if none of them names a journal, a publisher or a conference.
        if len(raw) < 4 or has_initials or _CONTAINERS & {word.casefold() for word in raw}:
            continue
        # "John Smith and Karen Jones" are names.
        if not (re.search(r"\s(?:and|und|et|y|&)\s", segment) and all(word[0].isupper() for word in raw)):
            return True
    return False


def _compare_authors(cited: str, family: str) -> _Agreement:
    """Whether the family name is among the cited names, in any order."""
    wanted, known = _names(family), _names(_MARK.sub(" ", cited))
    if not wanted or not known or _is_latin(cited) != _is_latin(family):
        return None
    # "et al." and editors can hide the first author.
    return wanted <= known


def _compare_years(cited: str, year: int | None) -> _Agreement:
    years = [int(found) for found in _YEAR.findall(_MARK.sub(" ", cited))]
    if year is None or not years:
        return None
    # Years between a preprint or an online version and the issue.
    return any(abs(cited_year - year) <= 1 for cited_year in years)


def _names(text: str) -> set[str]:
    return {_UMLAUT.sub(r"\1", word) for word in _WORD.findall(_fold(text)) if len(word) > 1}


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(_fold(text)) if word not in _STOP}


def _fold(text: str) -> str:
    """A text without accents, TeX and letter case."""
    decomposed = unicodedata.normalize("NFKD", _TEX.sub("", text))
    return (
        "".join(character for character in decomposed if not unicodedata.combining(character))
        .casefold()
        .translate(_LETTERS)
    )


def _is_latin(text: str) -> bool:
    """Whether most letters of a text are Latin. A DOI and a URL have no say."""
    letters = [character for character in _MARK.sub(" ", text) if character.isalpha()]
    return sum(letter < "\u0250" or "\u1e00" <= letter < "\u1f00" for letter in letters) * 2 >= len(letters)


def _read(reference: str) -> _Cited:
    if _BIBTEX.match(reference):
        return _Cited(**_read_bibtex(reference))
    fields = [(_RIS_FIELDS[tag], value) for tag, value in _RIS.findall(reference) if tag in _RIS_FIELDS]
    if fields and reference.lstrip().startswith("TY"):
        found: dict[str, str] = {}
        for name, value in fields:
            found[name] = f"{found[name]} {value}" if name == "author" and name in found else found.get(name, value)
        return _Cited(**found)
    return _Cited(text=reference)


def _read_bibtex(entry: str) -> dict[str, str]:
    """The first value of each field. `editor` stands for authors, and `date` for a year."""
    found: dict[str, str] = {}
    after = 0
    while field := _BIBTEX_FIELD.search(entry, after):
        name = {"editor": "author", "date": "year"}.get(field[1].lower(), field[1].lower())
        end = _find_end(entry, field.end())
        found.setdefault(name, entry[field.end() : end])
        after = max(end, field.end())
    return found


def _find_end(entry: str, start: int) -> int:
    """Where a value ends: in braces, in quotes, or at a comma."""
    depth = 0
    is_quoted = entry[start : start + 1] == '"'
    for at in range(start, len(entry)):
        character = entry[at]
        depth += (character == "{") - (character == "}")
        is_end = character == '"' and at > start if is_quoted else character in ",\n}"
        if depth <= 0 and (is_end or depth < 0):
            return at
    return len(entry)
