"""A text of TOML 1.0 with the place of what is wrong in it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, Literal, TypeVar

import msgspec

Result = TypeVar("Result")

#: Strings and comments of TOML, also without their end.
_QUOTED: Final = re.compile(
    r"""\"{3}(?:[^\\]|\\.)*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|#[^\n]*+""", re.DOTALL
)
#: A key with more dots than any record needs. For "a.a.a" with 100,000 dots, tomllib takes 40 GB of memory.
_DEEP_KEY: Final = re.compile(r"(?:\.[ \t]*+[^.\s=\[\]{},#]*+[ \t]*+){17}")
#: Text without control characters, and not only white space.
_ONE_LINE: Final = re.compile(r"(?=.*\S)[^\x00-\x1f\x7f-\x9f]+")
#: Where tomllib found a mistake, at the end of its message.
_PLACE: Final = re.compile(r" \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)$")


class FileProblem(msgspec.Struct, frozen=True):
    """What is wrong in a file, and where. Lines and columns count from 1; line 0 means the whole file."""

    file: str
    line: int
    column: int
    message: str
    #: A file with warnings alone is used.
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class TomlProblem(Exception):
    """A text is not TOML."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class WrongTable(Exception):
    """A table cannot be used because of one of its keys; `key` is None for the table as a whole."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.key = key


class Block(msgspec.Struct, frozen=True):
    """The text of one table of an array such as `[[rule]]`, from its header on. `name` is "" before the first one."""

    name: str
    text: str
    file: str
    line: int


def split_tables(text: str, file: str, names: str) -> Iterator[Block]:
    """The text of a file before the first table, then each table; `names` are separated by "|".

    A line that begins with a header begins a table, even within a string of several lines.
    """
    header = re.compile(rf"^[ \t]*\[\[[ \t]*({names})[ \t]*\]\]", re.MULTILINE)
    found = [(match.start(), match[1]) for match in header.finditer(text)]
    line = 1
    for (start, name), (end, _) in pairwise([(0, ""), *found, (len(text), "")]):
        block = text[start:end]
        yield Block(name, block, file, line)
        line += block.count("\n")


def read_block(block: Block, read: Callable[[Block], Result]) -> Result | FileProblem:
    """What `read` makes of a block, or the problem because of which it cannot, with its place in the file."""
    try:
        return read(block)
    except TomlProblem as error:
        row, column, message = error.line, error.column, error.message
    except WrongTable as error:
        row, column = (1, 1) if error.key is None else find_key(block.text, error.key)
        message = error.message
    return FileProblem(block.file, block.line + row - 1, column, message)


def parse_table(block: Block, known: str) -> Mapping[str, Any]:
    """The table of a block. Raises TomlProblem, and WrongTable for another one in its text; `known` has the hint."""
    document = parse_toml(block.text + "\n")
    if extra := [key for key in document if key != block.name]:
        raise WrongTable(f"the table [{extra[0][:40]}] is not {known}", extra[0])
    found: Mapping[str, Any] = document[block.name][0]
    return found


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raises WrongTable for a key that is not among those known. `where` begins the list of these."""
    known = tuple(known)
    for key in table:
        if key not in known:
            raise WrongTable(f"unknown key {key[:60]!r}; {where} {', '.join(known)}", key)


def read_string(
    table: Mapping[str, Any], key: str, pattern: re.Pattern[str] = _ONE_LINE, shape: str = "a text of one line"
) -> str:
    """The text of a key. Raises WrongTable without one, and for one that the pattern does not match."""
    if key not in table:
        raise WrongTable(f"{key} is missing")
    value = table[key]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise WrongTable(f"{key} is not {shape}", key)
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a text. Raises TomlProblem."""
    # A key with this many dots is looked for only in a record with as many.
    if text.count(".") > 16 and (deep := _DEEP_KEY.search(_QUOTED.sub(_blank, text))):
        raise TomlProblem("a key has too many dots", *_place_of(text, deep.start()))
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlProblem("the tables or arrays are nested too deep", 1, 1) from None
    except ValueError as error:  # tomllib.TOMLDecodeError, and a number or a date that Python cannot represent
        message = str(error)
        found = _PLACE.search(message)
        reason = message[: found.start()] if found else message
        if found and found[1]:
            line, column = int(found[1]), int(found[2])
        else:
            line, column = (1 + text.rstrip().count("\n"), 1) if found else (1, 1)
        raise TomlProblem(f"not valid TOML: {reason[:1].lower()}{reason[1:200]}", line, column) from None


def _blank(found: re.Match[str]) -> str:
    """Blanks in place of a string or comment, with its line ends."""
    return "".join("\n" if character == "\n" else " " for character in found[0])


def _place_of(text: str, offset: int) -> tuple[int, int]:
    """The line and column of an offset, both from 1."""
    return 1 + text.count("\n", 0, offset), offset - text.rfind("\n", 0, offset)


def find_key(text: str, key: str) -> tuple[int, int]:
    """The line and column of a key in a text, both from 1; (1, 1) if the key is spelled in another way."""
    quoted = re.escape(key)
    pattern = rf"""^[ \t]*(?:\[+[ \t]*(?:[a-z]+[ \t]*\.[ \t]*)?)?(["']?{quoted}["']?)[ \t]*[=.\]]"""
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        return 1, 1
    return _place_of(text, found.start(1))
