"""What a reference says about the work that it cites: from the fields of an entry, or from running text. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from doi_proxy.features.metadata.words import simplify, split_words

#: Characters of a reference that are read.
MAX_CHARACTERS: Final = 4_096

_LINE: Final = re.compile(r"^[ \t]*([A-Z][A-Z0-9]) {0,2}- +(.*)$", re.MULTILINE)
#: What is not a part of a citation: its DOI, addresses, other identifiers, and when it was read.
_MARK: Final = re.compile(
    r"\b(?:https?://|(?:doi|pmid|pmcid|isbn|issn|arxiv):?\s?(?=[\w]*\d)|10\.\d{4,9}/)\S*"
    r"|[\[(]?\b(?:accessed|retrieved|abgerufen|zugriff|consulté|consultado|cited)\b[^)\]]{0,40}?\d{4}[\])]?",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\s*(?:\[\w{1,12}\]|\(\d{1,4}\)|\d{1,4}\.(?=\s))\s*")
_YEAR: Final = re.compile(r"(?<![\d-])(?:1[4-9]|20)\d\d(?!\d)")
_DIGITS: Final = re.compile(r"\d+")
_V, _P = r"(?:s\d-)?\d{1,4}", r"[a-z]{0,3}\d{1,7}[a-z]?"
_Y: Final = r"(?:1[4-9]|20)\d\d"
#: How a citation writes volume, issue and page, in folded text: with labels, "77(18), 3865", "2021;372:n71",
#: "47, 777 (1935)", "2001, 25, 402-408", "48, no. 8 (1935): 696", "1, 12-40".
_PLACES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b(?:vol(?:ume)?|bd|band|jg|tom[eo]?|t|v)\.?\s?(?P<volume>{_V})\b",
        rf"(?<![\d.])\b(?P<volume>{_V})(?=,\s(?:no|nr|num|n)\b)|(?<![\d.,-])\s(?P<volume2>{_V})(?=\s\({_Y}\))",
        r"\b(?:no|nr|num|numero|n°|issue|iss|h|heft|fasc)\.?\s?(?P<issue>\d+[a-z]?)",
        rf"\b(?:(?:pp?|pags?|seiten?|str)\.?\s?|s[.\s]\s?)(?P<page>(?!{_Y}\b(?!-)){_P})\b",
        rf"(?<![\d./-])\b(?P<volume>{_V})\s?\((?!{_Y}\))(?P<issue>[\d]*[a-z]?)(?:[-/]\d+)?\)(?:\s?[,:]\s?(?P<page>{_P})\b)?",
        rf"(?<![\d(./-])\b(?P<volume>{_V}),\s(?P<page>{_P})(?:-{_P})?\s?\({_Y}\)",
        rf"\b{_Y},\s(?P<volume>{_V})(?:\s?\((?P<issue>\d+)\))?,\s(?P<page>{_P})\b",
        rf";\s?(?P<volume>{_V})\s?(?:\((?P<issue>[^)]{{0,12}})\))?\s?:\s?(?P<page>{_P})\b",
        rf"\({_Y}\)(?:\s?[:,]\s?|\s)(?P<page>{_P})(?=[-.,;\s]|$)",
        rf"[,.]\s(?P<volume>{_V}),\s(?P<page>[a-z]{{1,2}}\d+|(?!{_Y}\b)\d{{4,7}})(?=[.,\s]|$)",
        rf"[,.;:]\s?(?P<volume>{_V})\s?[,:]\s?(?P<page>{_P})-{_P}\b",
        rf"[a-z]\.?\s(?P<volume>{_V})\s(?P<page>{_P})(?:-{_P})?[\s.,;]*$",
        rf"[,:;]\s?(?P<page>(?!{_Y}-{_Y}){_P})-{_P}(?=[\s.,;)]|$)",
    )
)
_QUOTED: Final = re.compile(
    r"[“„«「『]\s?(.{2,300}?)[.,]?\s?[”“»」』]|(?<!\w)\"(.{2,300}?)\"(?!\w)|(?<!\w)[‘‚'](.{2,300}?)[.,]?[’‘'](?!\w)"
)
#: The end of a title after a year or names: a sentence, a bracket, a label or a number.
_END: Final = re.compile(
    r"(?<=[^\s.]{3})[.?!](?=\s|$)|\.{3}|…|\s?[\[(]|\s//|\s?[;—]\s|\.\s(?=In:?\s)"
    r"|,\s(?=\d|S\.|pp?\.|[Vv]ol|Bd|Nr|[Nn]o\.|[A-Z][a-z]{0,6}\. ?[A-Z])"
)
_AFTER_YEAR: Final = re.compile(
    rf"\(\D{{0,12}}{_Y}[a-z]?(?:[,/–-][^()]{{0,24}})?\)\s?[.:,]?\s+(?=[^\W\d_])"
    r"(?!(?:[NnHS][ro]?|[Vv]ol|pp?|Heft|Issue)\b\.?\s?\d)"
    rf"|\b{_Y}[a-z]?\s?:\s+(?=[^\W\d_])"
)
#: Names before a colon, with initials, particles and marks between them: "JINEK, Martin ; HAUER, M. u. a.:".
_BEFORE_COLON: Final = re.compile(
    r"(?:(?:[A-ZÀ-ÞЀ-Я][\w'’-]*+\.?|u\. ?a\.|et al\.?|and|und|et|y|&|von|van|zu|der|den|de|di|la|le"
    r"|\([A-Z]\w{1,5}\.?\))[\s,;/]*+){1,60}:\s+"
)
#: The end of names with initials, or of one name or organisation, before a sentence; also of names after initials.
_AFTER_NAMES: Final = re.compile(
    r"(?:[^.]{2,80}?\bet al\.|.{2,400}?(?:\s[A-ZÀ-ÞЀ-Я]{1,3}|[A-ZÀ-ÞЀ-Я]\.|[^\W\d_]{3}))(?:\.\s|(?<=\.)\s)"
    r"(?=[^\W\d_]+(?![.,\w]))"
    r"|[^.。]{2,60}[.。]\s?(?=[\u2e80-\u9fff])"
)
_AFTER_INITIALS: Final = re.compile(
    r"[A-ZÀ-ÞЀ-Я]\.(?:.{2,400}?[^\W\d_]{3}|.{0,100}?\bet al)\.\s(?=[^\W\d_]+(?![.,\w]))"
)
_JOURNAL: Final = re.compile(
    r"(?:the )?(?:annal\w*|archiv\w*|bulletin|journal|proceedings|proc|transactions|zeitschrift|revue|revista|"
    r"actes|acta|communications|letters|phys|chem|rev)\b"
)
#: What follows a part of the name of a journal: "Rev. Lett. 77".
_ABBREVIATED: Final = re.compile(r"\.\s*(?:[A-Z][a-z]{0,4}\.?\s*){0,3}\d")
#: What comes before the book of a chapter.
_IN: Final = re.compile(r"[.,?!”\"’»]\s+(?:[Ii]n|[Dd]ans|[Ee]n):?\s+(?=[^\W\d])")
_PREPRINT: Final = re.compile(
    r"\b(?:arxiv|(?:bio|med|chem|psy|soc|eng)r?xiv|preprint|ssrn|research square)\b", re.IGNORECASE
)
_NOTICE: Final = re.compile(
    r"\b(?:errat(?:um|a)|corrigend(?:um|a)|addendum|retraction|berichtigung|rectificat\w+|fe de erratas|"
    r"(?:a |author |publisher )correction|department of error|correction to|book review)\b"
    r"|^(?:correction\b|(?:comments?|commentary) on\b|(?:reply|response|rejoinder) to\b)"
    r"|\[[^\]\[]{0,80}\b\d{1,4}, \w?\d+ \(\d{4}\)\]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Cited:
    """What a reference says. What it does not say is "" or empty.

    `text` is one in running text, without its DOI and up to the book of a chapter; `title` is then what must be a
    title, and `container` the rest. Numbers are without letters and leading zeros.
    """

    title: str = ""
    names: str = ""
    years: tuple[int, ...] = ()
    container: str = ""
    volumes: frozenset[str] = frozenset()
    issues: frozenset[str] = frozenset()
    pages: frozenset[str] = frozenset()
    is_preprint: bool = False
    is_notice: bool = False
    text: str = ""

    @property
    def shown_names(self) -> str:
        """The names for a reader."""
        return "" if self.text and not self.title else self.names.strip(' .,:;“"‘«(')[:120]

    @property
    def place(self) -> str:
        """Where it was published, for a reader."""
        numbers = (", ".join(sorted(numbers)) for numbers in (self.volumes, self.issues, self.pages))
        return ", ".join(filter(None, (self.container, *numbers)))


def read_cited(entry: str) -> Cited:
    """What a reference says, as fields in the form of RIS or as running text."""
    reference = entry[:MAX_CHARACTERS]
    return _read_fields(reference) if reference.lstrip().startswith("TY  -") else _read_text(reference)


def is_preprint(place: str) -> bool:
    """Whether a container or a publisher is a server of preprints."""
    return bool(_PREPRINT.search(place))


def is_notice(title: str) -> bool:
    """Whether a title is that of a correction, a retraction, a comment or a reply."""
    return bool(_NOTICE.search(title))


def read_number(text: str) -> str:
    """The first number of a volume, an issue or a page, without letters, leading zeros and the series: "s2-42"."""
    found = _DIGITS.search(text.partition("-")[2] if text[:1] in "sS" and "-" in text[:3] else text)
    return (found[0].lstrip("0") or "0") if found else ""


def _read_fields(entry: str) -> Cited:
    fields = defaultdict[str, list[str]](list)
    for tag, value in _LINE.findall(entry):
        if value.strip():
            fields[tag].append(value.strip())
    title = ": ".join(value.strip("{}")[:300] for value in (*fields["TI"][:1], *fields["ST"][:1]))
    container = next(iter(fields["T2"]), "")
    volumes, issues, pages = (
        frozenset(filter(None, map(read_number, values)))
        for values in (fields["VL"], fields["IS"], re.findall(_P, simplify(next(iter(fields["SP"]), "")))[:1])
    )
    return Cited(
        title,
        "; ".join(fields["AU"] or fields["ED"]).strip("{}"),
        tuple(int(year) for value in fields["PY"] for year in _YEAR.findall(value)),
        container,
        volumes,
        issues,
        pages,
        is_preprint=is_preprint(" ".join((container, *fields["PB"]))) and not fields["SP"],
        is_notice=is_notice(title),
    )


def _read_text(reference: str) -> Cited:
    text = " ".join(_MARK.sub(" ", reference).split())
    if (mark := _NUMBER.match(text)) is not None:
        text = text[mark.end() :]
    title, begin, end = _find_title(text)
    # A title has numbers of its own.
    rest = simplify(f"{text[:begin]}, , {text[end:]}")
    found: dict[str, set[str]] = {"volume": set(), "issue": set(), "page": set()}
    for pattern in _PLACES:
        for place in pattern.finditer(rest):
            for name, value in place.groupdict().items():
                if value and (number := read_number(value)):
                    found[name.rstrip("2")].add(number)
    volumes, issues, pages = map(frozenset, found.values())
    inside = _IN.search(text, end if title else 0)
    years = _YEAR.findall(f"{text[:begin]} {text[end:]}")
    return Cited(
        title,
        text[:begin] if title else text,
        tuple(int(year) for year in years if year not in volumes | pages),
        text[inside.end() :] if inside else "",
        volumes,
        issues,
        pages,
        is_preprint=is_preprint(text) and not found["page"],
        is_notice=is_notice(title or text),
        text=text[: inside.start()] if inside else text,
    )


def _find_title(text: str) -> tuple[str, int, int]:
    """What must be the title in a reference, and its place. Without one, "" and the end of the text twice."""
    without = "", len(text), len(text)
    # After a word without a mark, quotes are a part of the title.
    if (quoted := _QUOTED.search(text)) and not re.search(r"[^\W\d_]\s?[“\"‘'„«]$", text[: quoted.start() + 1]):
        group = quoted.lastindex or 1
        return quoted[group], quoted.start(group), quoted.end(group)
    names = _AFTER_INITIALS if re.match(r"[A-ZÀ-ÞЀ-Я]\.", text) else _AFTER_NAMES
    for mark in (_AFTER_YEAR.search(text), _BEFORE_COLON.match(text), names.match(text)):
        if mark is None:
            continue
        ended = _END.search(text, mark.end())
        end = ended.start() if ended else len(text)
        title = text[mark.end() : end].rstrip(" .,:")
        words = re.findall(r"[^\W\d_]{2,}", title)
        # A journal and its volume follow the names where a style has no titles.
        is_journal = _JOURNAL.match(simplify(title)) and re.search(r"\d", text[mark.end() : end + 12])
        said = [word for word in split_words(title) if not word.isdigit()]
        is_short = max(len(words), len(said)) < 3 and mark.re is names
        if is_short and (ended is None or ended[0] not in ".?!" or _ABBREVIATED.match(text, end)):
            continue
        if words and not is_journal:
            return title, mark.end(), mark.end() + len(title)
    return without
