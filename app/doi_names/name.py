"""DOI names and handles: their syntax, how they are compared, and which characters they must not contain."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from doi_names.errors import EmptyName, ForbiddenCodePoint, NameTooLong, NotADOI

_KINDS: Final = {
    "Cc": "a control character",
    "Cs": "a surrogate",
    "Cf": "a formatting character",
    "Zl": "a formatting character",
    "Zp": "a formatting character",
    "Co": "a private-use character",
    "Cn": "an unassigned code point",
}


@dataclass(frozen=True, slots=True)
class CodePoint:
    """One character of a name; `place` is its position in characters, counted from 1."""

    character: str
    place: int

    @property
    def notation(self) -> str:
        """The usual notation, at least four hexadecimal digits: U+00AD."""
        return f"U+{ord(self.character):04X}"

    @property
    def name(self) -> str | None:
        """The Unicode name; None if the code point has none."""
        return unicodedata.name(self.character, None)

    @property
    def category(self) -> str:
        """The general category, two letters: Cf."""
        return unicodedata.category(self.character)

    @property
    def kind(self) -> str:
        """The kind of code point in words, with an article: "a control character"."""
        return _KINDS.get(self.category, "a graphic character")

    def __str__(self) -> str:
        named = f"{self.notation} {self.name}" if self.name else self.notation
        return f"{named} at character {self.place}"


def first_not_graphic(text: str) -> CodePoint | None:
    """The first code point that is not graphic. L, M, N, P, S and Zs are graphic (ISO 26324, DOI syntax)."""
    # str.isprintable is false for every code point of the categories C and Z except the ASCII space.
    if text.isprintable():
        return None
    return next((CodePoint(c, place) for place, c in enumerate(text, 1) if unicodedata.category(c) in _KINDS), None)


def questionable(text: str) -> Iterator[CodePoint]:
    """The formatting, private-use and unassigned code points of `text`, by the Unicode tables of this Python."""
    if not text.isprintable():
        for place, character in enumerate(text, 1):
            # Allowed in a request, although not graphic: formatting, private use, unassigned.
            if unicodedata.category(character) in {"Cf", "Zl", "Zp", "Co", "Cn"}:
                yield CodePoint(character, place)


#: The longest name accepted, in bytes of UTF-8. ISO 26324 sets no limit; no request line holds more than about this.
MAX_NAME_BYTES: Final = 8192

_FOLD: Final = str.maketrans(ascii_lowercase, ascii_uppercase)
#: "10", then one or more elements of the registrant code, each after a dot (DOI Handbook, section 2.2.2).
_DOI_PREFIX: Final = re.compile(r"10(?:\.[^\s./]+)+")
#: A prefix without a suffix is recognised by its registrant code, which consists of letters, digits and hyphens.
_PREFIX_ALONE: Final = re.compile(r"10(?:\.[0-9A-Za-z-]+)+")
_DOI: Final = re.compile(_DOI_PREFIX.pattern + "/.", re.DOTALL)
#: Empty for a name that begins with a slash.
_HANDLE_PREFIX: Final = re.compile(r"[0-9A-Za-z._-]*")
#: A shortDOI without its "10/". Those in use have three to eight letters and digits.
_BARE_SHORT_DOI: Final = re.compile(r"[0-9A-Za-z]{3,12}")
_SHORT_DOI: Final = re.compile(r"10/[0-9A-Za-z]+")
#: General categories Cc and Cs. Their ranges never change (Unicode stability policy).
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def fold(text: str) -> str:
    """`text` with the ASCII letters a-z in upper case and everything else unchanged (DOI Handbook, section 2.4)."""
    return text.upper() if text.isascii() else text.translate(_FOLD)


@dataclass(frozen=True, slots=True, eq=False)
class HandleName:
    """A name that can be resolved: a DOI name, a shortDOI, a prefix or another handle.

    `text` is the spelling of the caller and is never normalised. `key` is used for comparison, hashing and caching.
    Ill-formed names are registered too, so only control characters and surrogates are refused.

    Raises EmptyName, NameTooLong, and ForbiddenCodePoint with the code point and its place.
    """

    text: str
    key: str = field(init=False, repr=False)
    #: Whether it has the form of a DOI name: "10.", a registrant code, a slash and a suffix that is not empty.
    is_doi: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_length(self.text)
        if not self.text.isprintable() and (found := _FORBIDDEN.search(self.text)):
            raise _forbidden_code_point(CodePoint(found[0], found.start() + 1))
        object.__setattr__(self, "key", fold(self.text))
        object.__setattr__(self, "is_doi", _DOI.match(self.text) is not None)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, HandleName) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.text

    @property
    def prefix(self) -> str:
        """The part before the first slash; the whole name if it has no slash."""
        return self.text.partition("/")[0]

    @property
    def suffix(self) -> str | None:
        """The part after the first slash; None if the name has no slash."""
        _, slash, suffix = self.text.partition("/")
        return suffix if slash else None

    @property
    def can_be_handle(self) -> bool:
        """Whether its prefix has only characters of handle prefixes in use, such as 0.NA, 10.SERV and 20.500.12592.

        RFC 3651, section 2 allows more, but a colon or a blank there is a label, a URL or a sentence.
        """
        return _HANDLE_PREFIX.fullmatch(self.prefix) is not None

    @property
    def is_short_doi(self) -> bool:
        """Whether it is a shortDOI, such as 10/abcde (shortDOI service of the DOI Foundation)."""
        return _SHORT_DOI.fullmatch(self.text) is not None

    def expand_short_doi(self) -> HandleName | None:
        """The shortDOI 10/abcde if this name is its short form abcde; None if it cannot be one."""
        return HandleName("10/" + self.text) if _BARE_SHORT_DOI.fullmatch(self.text) else None

    @property
    def is_prefix(self) -> bool:
        """Whether it is a DOI prefix without a suffix, such as 10.1000."""
        return _PREFIX_ALONE.fullmatch(self.text) is not None

    @property
    def is_reserved(self) -> bool:
        """Whether the suffix begins with one character and a slash, which ANSI/NISO Z39.84-2005 reserves."""
        suffix = self.suffix
        return suffix is not None and suffix[1:2] == "/"

    def questionable(self, most: int) -> tuple[CodePoint, ...]:
        """The first formatting, private-use and unassigned code points. Allowed, but likely copying errors."""
        return tuple(islice(questionable(self.text), most))


@dataclass(frozen=True, slots=True, eq=False)
class DOIName(HandleName):
    """A DOI name in the strict sense of ISO 26324; equal to a HandleName with the same key.

    Raises EmptyName, NameTooLong, NotADOI, and ForbiddenCodePoint for a code point that is not graphic.
    """

    def __post_init__(self) -> None:
        _check_length(self.text)
        if found := first_not_graphic(self.text):
            raise _forbidden_code_point(found)
        if _DOI.match(self.text) is None:
            raise NotADOI(_explain(self.text))
        object.__setattr__(self, "key", fold(self.text))
        object.__setattr__(self, "is_doi", True)

    @classmethod
    def parse(cls, text: str) -> DOIName:
        """Read `text` as a DOI name. Nothing is trimmed or decoded. See the class for the errors."""
        return cls(text)


def _check_length(text: str) -> None:
    if not text:
        raise EmptyName()
    characters = len(text)
    # A character takes at most four bytes in UTF-8.
    if characters * 4 <= MAX_NAME_BYTES:
        return
    if characters > MAX_NAME_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise NameTooLong(f"The name is longer than {MAX_NAME_BYTES} bytes of UTF-8.")


def _forbidden_code_point(point: CodePoint) -> ForbiddenCodePoint:
    return ForbiddenCodePoint(f"The name contains {point}, {point.kind}, which a DOI name must not contain.")


def _explain(text: str) -> str:
    prefix, slash, _ = text.partition("/")
    if blank := re.search(r"\s", prefix):
        return f"A DOI prefix must not contain white space: {CodePoint(blank[0], blank.start() + 1)}."
    if not prefix.startswith("10."):
        return 'A DOI name begins with "10." at character 1.'
    if empty := re.search(r"\.(?=\.|\Z)", prefix):
        return f"The DOI prefix has an empty element after the dot at character {empty.start() + 1}."
    if not slash:
        return f"A DOI name has a slash after its prefix, at character {len(prefix) + 1}."
    return f"A DOI name has a suffix after its slash, from character {len(prefix) + 2}."


#: The most warnings about one name: 8 kB of soft hyphens would be 4,000.
MAX_WARNINGS: Final = 10

#: The prefixes that agencies assign (ISO 26324, section 4.2, allows others), those of ISBN-As, which begin with 978 or
#: 979 (DOI Handbook, ISBN-A), and that of shortDOIs.
USUAL_PREFIX: Final = re.compile(r"10(?:\.(?:[0-9]{4,9}|97[89])(?:\.[0-9]{1,9})*)?")

#: What looks like an ASCII character. Full-width forms are computed.
_LOOK_ALIKES: Final = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\ufe58\ufe63", "-"),
    **dict.fromkeys("\u2044\u2215\u29f8", "/"),
    **dict.fromkeys("\u2024\u3002", "."),
}
#: Codes of warnings by the general category of a code point.
_CODES: Final = {
    "Cf": "formatting-character",
    "Zl": "formatting-character",
    "Zp": "formatting-character",
    "Co": "private-use-character",
    "Cn": "unassigned-code-point",
}


@dataclass(frozen=True, slots=True)
class NameWarning:
    """A likely mistake. `code` is a stable token; `message` has the position in the name, counted from 1."""

    code: str
    message: str


def find_warnings(name: HandleName) -> tuple[NameWarning, ...]:
    """The likely mistakes in a name, at most MAX_WARNINGS."""
    return tuple(islice(_find_all(name), MAX_WARNINGS))


def _find_all(name: HandleName) -> Iterator[NameWarning]:
    if name.is_doi and name.is_reserved:
        place = len(name.prefix) + 2
        message = f"The suffix begins with one character and a slash, at character {place}; this form is reserved."
        yield NameWarning("reserved-form", message)
    if name.is_doi and not USUAL_PREFIX.fullmatch(name.prefix):
        message = f"The prefix {name.prefix[:40]} is unlikely: after 10. it has four to nine digits."
        yield NameWarning("unlikely-prefix", message)
    if name.text.isascii():
        return
    yield from _find_mixed_scripts(name.text)
    yield from _find_look_alikes(name.text)
    for point in questionable(name.text):
        yield NameWarning(_CODES[point.category], f"{point} is {point.kind}, which is likely a copying error.")


def _find_look_alikes(text: str) -> Iterator[NameWarning]:
    for place, character in enumerate(text, 1):
        # Fullwidth forms are those of ASCII, in its order.
        code = ord(character)
        plain = chr(code - (0xFF01 - 0x21)) if code in range(0xFF01, 0xFF5F) else _LOOK_ALIKES.get(character)
        if plain is not None:
            point = CodePoint(character, place)
            yield NameWarning("look-alike", f'{point} looks like "{plain}".')


def _find_mixed_scripts(text: str) -> Iterator[NameWarning]:
    """One warning at the first letter of another script than the letters before it."""
    first = None
    for place, character in enumerate(text, 1):
        script = _script(character)
        if script is None:
            continue
        first = first or script
        if script != first:
            point = CodePoint(character, place)
            yield NameWarning(
                "mixed-scripts", f"{point} is {script.title()}; the letters before it are {first.title()}."
            )
            return


def _script(character: str) -> str | None:
    """The script of a letter, by its Unicode name; None if no other script has letters that look like it."""
    if not character.isalpha():
        return None
    word = unicodedata.name(character, "").partition(" ")[0]
    # Scripts with letters that look alike (Unicode Technical Standard 39, section 4, confusable detection).
    return word if word in {"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC"} else None


#: What begins the handle of a prefix's record.
PREFIX_RECORDS: Final = "0.NA/"


def without_home(name: HandleName) -> HandleName:
    """The name by which the cache knows a record: that of a DOI prefix without "0.NA/", any other as it is."""
    prefix = name.text[len(PREFIX_RECORDS) :] if name.key.startswith(PREFIX_RECORDS) else ""
    found = HandleName(prefix) if prefix else name
    return found if found.is_prefix else name
