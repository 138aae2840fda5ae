"""Finds the names in running text: where each is, how it is read, and how certain that is."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final
from urllib.parse import unquote

from doi_names.carriers import Carried, read_carrier
from doi_names.evidence import MAX_LOOK
from doi_names.name import HandleName, fold
from doi_names.repair.ends import ENDINGS, SECOND_NAME
from doi_names.repair.exploration import Confidence
from doi_names.repair.prefix import NOT_SHORT, SUFFIX_BEGINNING
from doi_names.repair.surroundings import PLAIN, with_chapter, within_cell, without_blanks
from doi_names.suggestion import Reading, Suggestion, read_excerpt

#: Characters of a text that belong to one name at most. A longer word is cut.
MAX_NAME_CHARACTERS: Final = 512
#: Characters that a caller in an event loop reads in one turn. The slowest text that was tried took 8 ms, 12 on a busy
#: machine.
BLOCK_CHARACTERS: Final = 256
#: The beginning of a name, also with a letter for a digit, a comma for the dot, or an encoded slash; and of a shortDOI,
#: in a URL of the resolver or after a label.
_START: Final = re.compile(
    r"""(?: (?<![0-9]) (?<![0-9]\.) | (?<=\$[0-9]) ) (?: 10 | (?<![a-z]) [1lI|][0oO] ) (?: \s?\. | [,:;] ) \s?
        (?: [0-9OoIl]{4,9} | [0-9]{1,4}=\r?\n[0-9]{1,4} | [0-9]{0,9}[?\ufffd]{1,4}[0-9]{0,9} ) (?: \.[0-9]{1,9} ){0,5}
        (?: \s?/ | \\?%(?:25)?2F | \.2F(?=[0-9a-z(]) | &\#(?:x2F|47); | \\{1,4}/?(?=[0-9a-z(]) )
      | (?<=doi\.org/) (?: (?<!\.doi\.org/) | (?<=[./]dx\.doi\.org/) | (?<=www\.doi\.org/) )
        """
    + NOT_SHORT
    + r""" (?:10/)? [a-z][0-9a-z]{2,7} (?! [0-9a-z/_.-]{2} | [0-9a-z/_-] )
      | (?<=doi:) \s? (?: 10/[a-z][0-9a-z]{2,7} (?! [0-9a-z/_.-]{2} | [0-9a-z/_-] )
                       | 10\.[0-9]{4,5}[._:|@-](?=[0-9a-z]) )""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
#: What begins the query or fragment of a URL. "#" is also part of the names of one publisher.
_QUERY: Final = re.compile(r"\?|#(?=[A-Za-z])")
#: Characters before a name that decide whether it is one, and how certain it is: a tag, a URL, "telephone: ".
_LOOK_BEHIND: Final = 160
_SHORT: Final = re.compile(r"\s?(?:10/)?([a-z][0-9a-z]{2,7})", re.IGNORECASE | re.ASCII)
#: The most words that a broken name can have.
_WORDS: Final = re.compile(r"(?:\S+\s+){1,7}(?:\S+\Z)?")
_WORD: Final = re.compile(r"\S+")
#: What separates the words of a broken name: blanks with at most one line end, also in a quoted e-mail.
_BREAK: Final = re.compile(r"[^\S\n]*\n[^\S\n]*(?:>[^\S\n]?){0,8}|[^\S\n]+")
#: A bracket with several words is not part of a name: (open access).
_REMARK: Final = re.compile(r"[(\[][^()\[\]\s]{1,40}[^\S\n][^()\[\]\n]{0,80}[)\]]")
#: A word after the first; a slash between blanks belongs to the word after it.
_NEXT_WORD: Final = re.compile(r"(?:[/.][^\S\n]{1,4})?\S+")
#: The number of the next reference, after the full stop and the line end of the last one: "2. Author".
_LIST_NUMBER: Final = re.compile(r"[(\[]?[0-9]{1,3}[.)\]]{1,2}[^\S\n]{1,8}\S")
#: One written character: an escape of a URL, or the character itself.
_WRITTEN: Final = re.compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_CLOSING: Final = "".join(ENDINGS) + ">)]}"


@dataclass(frozen=True, slots=True)
class FoundName:
    """A name in a text. `start` and `end` count its characters, `text` is the part between them."""

    name: HandleName
    start: int
    end: int
    text: str
    confidence: Confidence
    rule: str | None
    #: The steps that led to the reading, in their order; `rule` is the first.
    rules: tuple[str, ...] = field(default=(), compare=False)
    #: What else the part may mean, the likeliest first.
    suggestions: tuple[Suggestion, ...] = field(default=(), compare=False)

    @property
    def is_as_written(self) -> bool:
        """Whether the text shows the name without an error. Trailing punctuation and escapes are not errors."""
        written = fold(unquote(self.text))
        if written == self.name.key:
            return True
        # A shortDOI can be written without its prefix.
        return (self.rule is None or self.confidence == "sure") and self.name.key == f"10/{written}"


class NameFinder:
    """Finds names in a text that arrives in pieces. The borders of the pieces do not matter."""

    def __init__(self) -> None:
        self._rest = ""
        #: The characters before the rest, and those of the rest that were searched.
        self._before = self._searched = 0

    def feed(self, text: str) -> list[FoundName]:
        """The names that end in this piece. A caller in the event loop feeds BLOCK_CHARACTERS at most."""
        self._rest += text
        return self._find(len(self._rest) - MAX_NAME_CHARACTERS - MAX_LOOK)

    def end(self) -> Iterator[list[FoundName]]:
        """The names at the end of the text, from BLOCK_CHARACTERS at a time."""
        whole = self._rest if self._before == self._searched == 0 else ""
        while len(self._rest) > self._searched + BLOCK_CHARACTERS:
            names = self._find(self._searched + BLOCK_CHARACTERS)
            whole = "" if names else whole
            yield names
        yield self._find(len(self._rest)) or _read_word(whole)

    def _find(self, until: int) -> list[FoundName]:
        """The names that begin before a position of the rest. What lies before it is dropped, but for some context."""
        names: list[FoundName] = []
        text = self._rest.translate(PLAIN) if not self._rest.isascii() else self._rest
        done = self._searched
        while found := SECOND_NAME.match(text, done) or _START.search(text, done):
            if found.start() >= until:
                break
            begin = found.start() + len(found[0]) - len(found[0].lstrip())
            limit = min(begin + MAX_NAME_CHARACTERS, len(text))
            least = SUFFIX_BEGINNING.match(text, found.end(), limit)
            following = _START.search(text, least.end() if least else found.end(), limit)
            if following:
                # A plus sign can end a name: 10.1021/ja003055+. Between two names it separates them.
                limit = following.start()
                limit -= 1 if text[limit - 1] == "+" else 0
            glued = SECOND_NAME.search(text, found.end(), limit)
            limit = glued.start() if glued else limit
            read = _read_at(self._rest, (begin, found.end(), limit))
            done = found.end()
            if read is not None:
                reading, suggestions, end = read
                done = max(done, end)
                place = self._before + begin, self._before + end, self._rest[begin:end]
                names.append(FoundName(reading.name, *place, *reading.steps, suggestions))
        done = max(done, min(until, len(text)))
        cut = max(0, done - _LOOK_BEHIND)
        self._rest, self._before, self._searched = self._rest[cut:], self._before + cut, done - cut
        return names


def find_names(text: str) -> list[FoundName]:
    """Every name in a text, in its order."""
    finder = NameFinder()
    return [*finder.feed(text), *chain.from_iterable(finder.end())]


def _read_at(raw: str, place: tuple[int, int, int]) -> tuple[Reading, tuple[Suggestion, ...], int] | None:
    """The name at a place: its reading, what else it may be, and where it ends. None if it is not a name after all.

    The place is where the name begins, where its suffix does, and where it ends at the latest.
    """
    begin, suffix, limit = place
    short = _SHORT.match(raw, begin, limit)
    if short:
        return Reading(HandleName(f"10/{short[1]}"), "literal", None), (), short.end()
    before = raw[max(0, begin - _LOOK_BEHIND) : begin]
    words = _WORDS.match(raw, begin, limit)
    limit = words.end() if words else limit
    carried = read_carrier(raw[begin:limit], before)
    text = carried.text if carried.text.isascii() else carried.text.translate(PLAIN)
    suffix = bisect_right(carried.stops, suffix - begin)
    end = _find_end(text, before, suffix)
    if before[-8:].lower() == "doi.org/" and not carried.escaped:
        query = _QUERY.search(text, suffix, end)
        end = query.start() if query else end
    if not text[suffix:end].strip():
        return None
    # After an escape all is encoded, as in a URL that is a value in a query. An encoded "?" says nothing then.
    is_encoded = _ESCAPE.fullmatch(before[-3:]) is not None
    written = unquote(carried.text[:end]) if is_encoded else carried.text[:end]
    shown = Carried(written, (), carried.rules, carried.joints, carried.escaped)
    after = (carried.text[end:] + raw[limit : limit + MAX_LOOK])[:MAX_LOOK]
    reading, suggestions = read_excerpt(shown, before, after)
    if reading is None or not reading.name.is_doi:
        return None
    return reading, suggestions, begin + carried.stops[_length(text[:end], reading.name.text) - 1]


def _read_word(text: str) -> list[FoundName]:
    """The name that a text of one word is: a shortDOI, or one after a doubtful repair, as of a lost dot: 101000/182."""
    word = text.strip()
    if not word or len(word) > MAX_NAME_CHARACTERS or len(word.split()) > 1 or _START.search(word):
        return []
    reading, suggestions = read_excerpt(read_carrier(word), "", "")
    if reading is None or not (reading.name.is_doi or reading.name.is_short_doi):
        return []
    start = text.index(word)
    return [FoundName(reading.name, start, start + len(word), word, *reading.steps, suggestions)]


def _find_end(text: str, before: str, suffix: int) -> int:
    """The end of the words of a name: the first, and those after it if the name is broken at a blank or a line end.

    The text begins with the name.
    """
    first = _WORD.match(text, suffix - 1)
    end = first.end() if first else len(text)
    remark = _REMARK.search(text, suffix)
    if remark and suffix < remark.start() < end:
        return remark.start()
    emphasis = text.rfind("_", suffix, end) if before.endswith("_") else -1
    if emphasis > 0 and not text[emphasis + 1 : end].strip(_CLOSING):
        return suffix + len(text[suffix:emphasis].rstrip("_"))
    # Words after the first that a broken name can have.
    for _ in range(3):
        blank = _BREAK.match(text, end)
        word = _NEXT_WORD.match(text, blank.end()) if blank else None
        if blank is None or word is None or not _goes_on(text, blank, word):
            break
        end = word.end()
    return len(within_cell(before, text[:end]))


def _goes_on(text: str, blank: re.Match[str], word: re.Match[str]) -> bool:
    """Whether a name goes on with the next word."""
    end = blank.start()
    if text[end - 1] == "." and "\n" in blank[0] and _LIST_NUMBER.match(text, word.start()):
        return False
    # The rules join the word to what is before it.
    joined = without_blanks(" ".join(text[:end].split())) + f" {word[0]}"
    return with_chapter(without_blanks(joined)) != joined


def _length(written: str, name: str) -> int:
    """The length of the part of a text that its name comes from."""
    if written[: len(name)].lower() == name.lower():
        return len(name)
    folded, at, end = name.casefold(), 0, 0
    for part in _WRITTEN.finditer(written):
        plain = unquote(part[0]).casefold().replace("\\", "/")
        if folded.startswith(plain, at):
            at, end = at + len(plain), part.end()
        if at == len(folded):
            return end
    return len(written.rstrip(_CLOSING)) or len(written)
