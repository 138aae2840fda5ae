"""Where a name ends: what no name contains, and what a page, a program or a table writes after one.

Every end is searched after the prefix and one character of the suffix, and outside a SICI. Of 110,816 registered names
of two public collections, none has a quotation mark, "$", "^", "|", a comma, "&", "?" or a sign outside ASCII, and none
has a capital and two small letters after a digit. 779 have an angle bracket, all of them in a SICI, and two have a
semicolon outside one.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from doi_names.repair.prefix import BEGINNING

_SICI_FLAGS: Final = re.IGNORECASE | re.ASCII
#: Section 6: the location and the code of the title, between angle brackets, or nothing if it identifies an issue. Some
#: publishers register square brackets.
_CONTRIBUTION: Final = r"(?:<(?:[0-9A-Za-z+/.-]{0,12}:[^<>\[\]\s]{0,24})?>|\[[0-9A-Za-z+/.-]{0,12}:[^<>\[\]\s]{0,24}\])"
#: Section 7: code structure identifier, derivative part identifier, medium, version, check character.
_SICI_CONTROL: Final = r"[0-9]\.[0-9]\.[A-Z]{2};[0-9](?:-[0-9A-Z#$&*=~]?)?"
_SICI: Final = re.compile(rf"{_CONTRIBUTION}({_SICI_CONTROL})?", _SICI_FLAGS)
_BEGUN: Final = re.compile(r"[<\[][0-9A-Z+/.-]{0,12}:[^<>\[\]\s]{0,24}\Z", _SICI_FLAGS)
_WITHOUT_CHECK: Final = re.compile(r"[>\]][0-9]\.[0-9]\.[A-Z]{2};[0-9]-\Z", _SICI_FLAGS)
#: Section 5: the SICI begins with an ISSN. "(SICI)" before it belongs to the names of one publisher.
_ITEM: Final = re.compile(r"/(?:\(SICI\))?([0-9]{4}-?[0-9]{3}[0-9X]\(.*)\Z", _SICI_FLAGS)
_VALUES: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ#"
_MODULUS: Final = len(_VALUES)

#: The contribution before a control segment, in either kind of brackets. No name with "(SICI)" has square ones.
_BRACKETS: Final = re.compile(r"([<\[])([0-9A-Za-z]{1,8}:[^<>\[\]\s]{1,12})[>\]](?=[0-9]\.[0-9]\.)")
#: Other signs in the place of angle brackets, such as quotation marks and East Asian brackets.
_OTHER_ANGLES: Final = re.compile(
    r"[\u00ab\u2039\u226a\u27e8\u2329\u3008\u300a\uff1c]([0-9A-Za-z+/.-]{0,12}:[^<>\[\]\s]{0,24})"
    r"[\u00bb\u203a\u226b\u27e9\u232a\u3009\u300b\uff1e](?=[0-9]\.[0-9]\.)"
)
_BLANK_INSIDE: Final = re.compile(
    r"([<\[][0-9A-Za-z+/.-]{0,12}:[^<>\[\]\s]{0,24})\s([^<>\[\]\s]{0,24}[>\]][0-9]\.[0-9]\.)", _SICI_FLAGS
)
_BLANK: Final = re.compile(
    rf"""\s(?={_CONTRIBUTION}\s?[0-9]\.[0-9]\.[A-Z])
       | \s(?<=[>\]]\s)(?=[0-9]\.[0-9]\.[A-Z]{{2}};)
       | \s(?<=\.CO;\s)(?=[0-9])
       | \s(?<=;[0-9]-\s)(?=[0-9A-Z#](?:[\s.,;)]|\Z))""",
    _SICI_FLAGS | re.VERBOSE,
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


def restore_angle_brackets(text: str) -> str:
    """10.1000/74«947:ABC»2.0.CO;2 -> 10.1000/74<947:ABC>2.0.CO;2: other signs around the contribution."""
    return text if text.isascii() else _OTHER_ANGLES.sub(r"<\1>", text)


def join_segments(text: str) -> str:
    """10.1000/74 <947:ABC>2.0.CO;2 -> 10.1000/74<947:ABC>2.0.CO;2: a line was broken between two segments."""
    return _BLANK_INSIDE.sub(r"\1\2", _BLANK.sub("", text)) if ";" in text or "[" in text or "<" in text else text


def with_other_brackets(text: str) -> str:
    """10.1000/74[947:ABC]2.0.CO;2 -> 10.1000/74<947:ABC>2.0.CO;2: the brackets of a SICI, in either direction."""
    if "(SICI)" in text.upper() and "[" not in text:
        return text
    return _BRACKETS.sub(lambda found: f"<{found[2]}>" if found[1] == "[" else f"[{found[2]}]", text)


#: A complete name does not end with any of these. It can end with "+" (10.1021/ja001926+), "-", and in a SICI with "#".
ENDINGS: Final = frozenset(".,;:\"'`|*\\!?&$^~=_([{<\u2197\u21a9\ufffc\ufffd")
_OPENERS: Final = {")": "(", "]": "[", "}": "{", ">": "<"}
_BRACKET: Final = re.compile(r"[()\[\]{}]")
_CLOSERS: Final = {"(": ")", "[": "]", "{": "}"}
#: The rest of a text in which a bracket was opened before a word.
_BEGUN_WORD: Final = re.compile(r"(?:[A-Z]{2,12}|[A-Z][A-Za-z]{2,20}|see)[.:]?\Z")
_CASELESS: Final = re.IGNORECASE | re.ASCII

EAST_ASIAN: Final = re.compile(
    r"""(?<=[!-~])(?:
        [\u3001\uff0c\uff01\uff1f\uff09\uff3d\uff5d\u3008-\u3011\u3014-\u301f\uff62-\uff64\u30fb]
      | (?<!CO)\uff1b
        # A full stop or a colon inside a name was typed with an East Asian keyboard, and so was a pair of brackets.
      | [\u3002\uff0e\uff61\uff1a](?![0-9a-z])
      | \uff08(?![^\uff08\uff09\s]{1,40}\uff09[0-9A-Za-z])
        )""",
    re.VERBOSE,
)
#: What ends a value in any carrier.
MARKUP: Final = re.compile(r'"|\\(?=[A-Za-z])')
SIGN: Final = re.compile(
    r"""(?:
        # Marks of a publisher; arrows, symbols and emoji.
        [\u00a9\u00ae\u2122\u2190-\u21ff\u2300-\u2bff\ufe0f\U0001f000-\U0001faff] | (?<!;[0-9]-)\*
      | \([cC]\)\s?(?=(?:19|20)[0-9]{2})
        # A remark in brackets: one word in square ones, or several words.
      | \[(?=[A-Za-z][a-z]{2,20}(?:\s|\Z|\](?![0-9])))
      | [(\[](?=[^()\[\]\s]{1,40}\s[^()\[\]]{0,80}[)\]])
        )""",
    re.VERBOSE,
)
#: A "#" never reaches doi.org, and a "?" begins a query there, also before one letter. "&" begins a parameter. Some
#: names of Wiley end with "#": CO;2-#.
QUERY_OR_FRAGMENT: Final = re.compile(
    r"(?:[?#](?=[A-Za-z])|&(?=[A-Za-z_.]{1,40}[=&]|[0-9]{4}(?![0-9]))|#?:~:|\?\Z|(?<!-)#\Z).*", re.DOTALL
)
#: A Publisher Item Identifier ends with a check character: S0140-6736(20)30183-5, B978-0-12-385118-5.00029-3. Nothing
#: follows it in the 8,861 registered names that have one.
ITEM_NUMBER: Final = re.compile(
    r"(/(?:[SB]?[0-9]{4}-[0-9]{3}[0-9X]\([0-9]{2}\)[0-9]{5}|B97[89]-[0-9-]{10,13}-[0-9X]\.[0-9]{5})-[0-9X]).*",
    _CASELESS | re.DOTALL,
)
FOOTNOTE: Final = re.compile(r"(?:\[[0-9]{1,3}(?:[,-][0-9]{1,3}){0,4}\]|\^\{?[0-9]{1,3}\}?)\Z")
#: A year in brackets belongs to a citation, unless an ISSN is before it.
YEAR: Final = re.compile(r"\((?<=[0-9A-Za-z].)(?<![0-9]{4}-[0-9]{3}[0-9X].)(?<![0-9]{7}[0-9X].)(?:19|20)[0-9]{2}\)\Z")
#: What pages print after a name, without the blank that a reader sees.
NEXT_WORD: Final = re.compile(
    r"""(?:
        (?<=[0-9])(?:
            # A word with a capital.
            [A-Z][a-z]{2,20}(?=[A-Z:\s,.]|\Z) | \.[A-Z][a-z]{1,20}:?\Z
            # A long word of small letters or of capitals, which is not the number of an article.
          | (?:[a-z]{7,20}|[A-Z]{6,20}:?)\Z
            # A label: capitals before a colon, and labels that stand without one.
          | \.?[A-Z]{3,20}: | ISSN | ISBN | DOI | RIS | PMC?ID | [Vv]ol\. | pp\. | [Ee]-?mail | \.?www\.
            # The host of a journal.
          | [a-z]{2,20}\.(?:com|net|org|edu)\Z
          | https?\Z
            # A conjunction of English, German or French, with the blank after it only.
          | (?:and|or|und|oder|et|ou)\Z
        )
        # After a letter, a label, or a word that was seen in PDF pages.
      | (?<=[a-z])(?:
            \.?[A-Z]{3,20}:
          | (?:Downloaded|Copyright|Published|Available|Accepted|Received|Keywords)[A-Za-z:]{0,20}\Z
        )
        # Names of Wiley end with ".x".
      | (?<=\.x)[A-Z]
        # The ending of a case: the genitive of English, others of Turkish, Hungarian and Finnish.
      | ['\u2019][^\W\d_]{1,6}\Z
      | (?<=[0-9])-(?:b[ae]n|b[\u00f3\u0151]l|n[ae]k|n[\u00e1\u00e9]l|h[oe\u00f6]z|[tr][\u00f3\u0151]l|v[ae]l)\Z
      | (?<=[0-9]):[a-z\u00e4\u00f6]{1,4}\Z
        # A dash between two parts of a sentence.
      | [\u2014\u2015](?=[A-Za-z])
        )""",
    re.VERBOSE,
)
#: A letter of any script but Latin: Chinese, Japanese and Korean have no blank before a word, and suffixes of other
#: languages follow a name.
OTHER_SCRIPT: Final = re.compile(
    r"(?<=[0-9A-Za-z])(?:\([^()\s]{0,12})?[\u0370-\u1dff\u2c80-\u2dff\u3040-\ua71f\ua800-\uabff\uac00-\ud7ff]"
)
#: A name that is written after another one, without a blank. A version alone is not its suffix: Authorea's names end
#: with two numbers and a version, 10.22541/au.158880010.13456789/v2.
SECOND_NAME: Final = re.compile(r"(?<=[0-9])\.?10\.[1-9][0-9]{3,8}/(?=[^\s/])(?!v[0-9]{1,2}(?![0-9A-Za-z]))")
CELLS: Final = re.compile(
    r"""(?:
        ,[^,]{1,200},
      | ,(?=[A-Z]|(?:19|20)[0-9]{2}\Z|pp?\.)
      | (?<!\.CO)(?<!\.co);(?=[^;\s]{2}|[A-Z0-9])
        )""",
    re.VERBOSE,
)
CELL: Final = re.compile(r",(?=[^,;])")
_PAGE_PART: Final = re.compile(
    r"""(?: /(?: abs(?:tract)? | full(?:[-_]?text)? | summary | e?pdf(?:direct|plus|ft)? | html? | meta | epub | reader
               | short | references | citations? | metrics | figures | tables | comments | event_abstract | suppinfo
               | xml | toc | 3d | supplementary-material )
          | \.(?: full(?:-text)? | abstract | summary | extract | short | long | e?pdf(?:\+html)?
               | html? | xml | epub | ris | bib ) | (?:-[a-z]{3,12}|-[0-9a-f]{6})?\.(?:svg|png) )\Z""",
    _CASELESS | re.VERBOSE,
)
_SUBPAGE: Final = re.compile(
    r"/(?:-|asset|suppl|suppl_file|supplementary-material|figures?|tables?|media|pdf|full|abstract|html|transform)/.*\Z",
    _CASELESS | re.DOTALL,
)
#: After a part with a digit, parts without one are those of a publisher's site: /issuetoc, /homepage/Authors.html. Of
#: 104,745 registered names, those of two prefixes end so. Letters from a to f alone may be a number: 1361-6633/aafcad.
_WORDS: Final = re.compile(
    r"""/ (?<=[0-9A-Za-z].) (?![a-f]{1,20}\Z)
        [a-z]{2,20}(?:[-_][a-z]{2,20}){0,5} (?: (?<=[a-z]{2})[0-9]\Z | (?: /[A-Za-z][A-Za-z_-]{1,40} )? )
        (?: \.(?:html?|svg|png|php|aspx?|jsp) )?\Z""",
    re.VERBOSE,
)
#: bioRxiv, medRxiv and arXiv number the versions of a work, and register one name for all of them.
_VERSION: Final = re.compile(r"(10\.(?:1101|64898|48550)/.{4,60}[0-9])v[0-9]{1,2}", _CASELESS)
#: Oxford University Press adds a number of its own in the URL of an article: 10.1093/nar/gkaa1100/6029181.
_ARTICLE: Final = re.compile(r"(10\.1093/[a-z]{2,20}/[^\s/]{2,40})/[0-9]{5,9}")


def cut(end: re.Pattern[str], text: str) -> str:
    """The text before an end. What lies inside a SICI is not an end."""
    # Two ends are characters of other scripts alone.
    name = None if text.isascii() and end in (EAST_ASIAN, OTHER_SCRIPT) else BEGINNING.search(text)
    if not name:
        return text
    found = end.search(text, name.end())
    if found:
        begin, close = find_span(text, name.end())
        # A tag of XML with a namespace, </dc:title>, looks like a contribution, and is an end.
        if begin < found.start() < close:
            found = end.search(text, close)
    return text[: found.start()].rstrip() if found else text


def at_unpaired_bracket(text: str) -> str:
    """10.1000/182)and -> 10.1000/182: a bracket without a partner that closes, or that opens before a word."""
    name = BEGINNING.search(text)
    if not name:
        return text
    waiting: dict[str, list[int]] = {closer: [] for closer in _CLOSERS.values()}
    for bracket in _BRACKET.finditer(text, name.end() - 1):
        if bracket[0] in _CLOSERS:
            waiting[_CLOSERS[bracket[0]]].append(bracket.start())
        elif waiting[bracket[0]]:
            waiting[bracket[0]].pop()
        else:
            return text[: bracket.start()]
    begun = min((places[0] for places in waiting.values() if places), default=len(text))
    return text[:begun] if _BEGUN_WORD.match(text, begun + 1) else text


def at_page_part(text: str) -> str:
    """10.1000/182/abstract -> 10.1000/182: the part that a publisher's URL adds after the name."""
    text = _SUBPAGE.sub("", _PAGE_PART.sub("", text))
    if article := _ARTICLE.fullmatch(text):
        return article[1]
    # Protein Data Bank, 10.2210/pdb6lu7/pdb, and a journal with the names of its authors.
    found = None if text.startswith(("10.2210/", "10.31887/")) else _WORDS.search(text)
    name = text[: found.start()] if found else ""
    _, slash, suffix = name.partition("/")
    return name if slash and any(c.isdigit() for c in suffix.rpartition("/")[2]) else text


def at_version(text: str) -> str:
    """10.1101/2020.01.01.123456v2 -> 10.1101/2020.01.01.123456: the version of a preprint."""
    preprint = _VERSION.fullmatch(text)
    return preprint[1] if preprint else text


def at_title(text: str) -> str:
    """10.1000/1-82/the-title-of-the-work-2 -> 10.1000/1-82: the title that a publisher's URL has after the name."""
    name, _, last = text.rpartition("/")
    if len(last) < 20 or "/" not in name:
        return text
    words = [word for word in last.split("-") if word.isalpha() and len(word) >= 3]
    return name if len(words) >= 2 and last.count("-") > 2 else text


def without_trailing_punctuation(text: str) -> str:
    """10.1000/182). -> 10.1000/182: a closing bracket is cut only if its opening bracket is missing."""
    # The most characters that are cut from the end.
    for _ in range(16):
        last = text[-1:]
        opener = _OPENERS.get(last)
        if text.endswith("--"):
            text = text.rstrip("-")
        elif text.endswith(("()", "[]", "{}", "<>")):
            text = text[:-2]
        elif _is_ending(text) or (opener and text.count(last) > text.count(opener)):
            text = text[:-1].rstrip()
        else:
            break
    return text


def _is_ending(text: str) -> bool:
    last = text[-1:]
    # The check character of a SICI: some publishers registered other signs than "#".
    if last in "#$&*=~" and re.search(r";[0-9]-.\Z", text):
        return False
    if last == "#":
        return not text.endswith("-#")
    # Nor does a name end with punctuation of other scripts, or the number of a footnote (General_Category P and No).
    return last in ENDINGS or (last > "\x7f" and unicodedata.category(last).startswith(("P", "No")))
