"""Repairs of endings: punctuation, markup, and what a publisher's URL adds after a name."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

#: The most characters that are cut from the end.
_MAX_ENDINGS: Final = 16
#: A complete name does not end with these. It can end with "+", "-" and "#": 10.1021/ja001926+, ...CO;2-#.
_ENDINGS: Final = frozenset(".,;:\"'`|*\\!?&$^~=([{<\u2197\u21a9\ufffd")
#: Nor with punctuation of other scripts, or with the number of a footnote: Unicode, General_Category P and No.
_OTHER_ENDINGS: Final = ("P", "No")
_OPENERS: Final = {")": "(", "]": "[", "}": "{", ">": "<"}
_CASELESS: Final = re.IGNORECASE | re.ASCII
_PAGE_PART: Final = re.compile(
    r"""(?: /(?: abstract | full(?:[-_]?text)? | summary | e?pdf(?:direct|plus)? | html? | meta | epub | reader | short
               | references | citations? | metrics | figures | tables | comments | event_abstract | suppinfo | xml
               | supplementary-material )
          | \.(?: full(?:-text)? | abstract | short | long | e?pdf(?:\+html)?
               | html? | xml | epub | ris | bib | svg ) )\Z""",
    _CASELESS | re.VERBOSE,
)
_SUBPAGE: Final = re.compile(
    r"/(?:asset|suppl_file|supplementary-material|figures?|tables?|media|pdf|full|abstract|html|transform)/.*\Z",
    _CASELESS | re.DOTALL,
)
#: A "#" never reaches doi.org, and a "?" begins a query there, also before one letter: no name of 104,745 has either
#: before a letter. "&" begins a parameter. Some names of Wiley end with "#": CO;2-#.
_QUERY_OR_FRAGMENT: Final = re.compile(
    r"(?:[?#](?=[A-Za-z])|&(?=[A-Za-z_.]{1,40}[=&])|#:~|\?\Z|(?<!-)#\Z).*", re.DOTALL
)
_FOOTNOTE: Final = re.compile(r"(?:\[[0-9]{1,3}(?:[,-][0-9]{1,3}){0,4}\]|\^\{?[0-9]{1,3}\}?)\Z")
#: What PDF pages print after a name, without the blank that a reader sees; and words of Chinese, Japanese and Korean,
#: which have no blank before them.
_NEXT_WORD: Final = re.compile(
    r"""(?<=[0-9])(?:Received|Accepted|Published|Available|Copyright|Citation|Abstract|Keywords|PMID|PMCID|PubMed)
        [A-Za-z:]{0,20}\Z
      | (?<=[0-9A-Za-z])[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3].*""",
    re.VERBOSE | re.DOTALL,
)
#: Of 104,745 names, none has a comma. 598 have a semicolon, nearly all of them SICIs: CO;2-1.
_CELLS: Final = re.compile(r",[^,]{1,200},.*", re.DOTALL)
_CELL: Final = re.compile(r"(?:,|(?<!\.CO);)(?=[^,;]).*", _CASELESS | re.DOTALL)
_SESSION: Final = re.compile(r";(?:jsessionid|sid|phpsessid)=.*", _CASELESS | re.DOTALL)
#: No registered name contains these. SICIs have "<" before a digit.
_MARKUP: Final = re.compile(
    r"""(?:</|<(?:a|br|cite|div|em|li|p|ref|span|sub|sup|td)[\s/>]|\]\(|\[(?:crossref|pubmed|medline|google\sscholar|web\sof\sscience)\]|__;|\}[,}{\s]|\]\]|\]\[|>`|\)/S/URI|>>/(?:Border|Rect|Type)|[\u300b\u300d\u300f\u3011\u3015]|["'\u201d]\s{0,4}[>,]|\||\u2026).*""",
    _CASELESS | re.DOTALL,
)
#: bioRxiv, medRxiv and arXiv number the versions of a work, and register one name for all of them.
_VERSION: Final = re.compile(r"(\A10\.(?:1101|64898|48550)/.{4,60}[0-9])v[0-9]{1,2}\Z", _CASELESS)
_MIN_SLUG_CHARACTERS: Final = 20
_MIN_SLUG_WORDS: Final = 2
_MIN_WORD_CHARACTERS: Final = 3


def without_trailing_slash(text: str) -> str:
    """10.1000/182/ -> 10.1000/182"""
    return text.rstrip("/")


def without_trailing_punctuation(text: str) -> str:
    """10.1000/182). -> 10.1000/182: a closing bracket is cut only if its opening bracket is missing."""
    for _ in range(_MAX_ENDINGS):
        last = text[-1:]
        opener = _OPENERS.get(last)
        if text.endswith("--"):
            text = text.rstrip("-")
        elif _is_ending(last) or (opener and text.count(last) > text.count(opener)):
            text = text[:-1].rstrip()
        else:
            break
    return text


def _is_ending(character: str) -> bool:
    if character <= "\x7f":
        return character in _ENDINGS
    return character in _ENDINGS or unicodedata.category(character).startswith(_OTHER_ENDINGS)


def without_footnote(text: str) -> str:
    """10.1000/182[3] -> 10.1000/182: the number of a footnote or of a reference."""
    return _FOOTNOTE.sub("", text)


def without_next_word(text: str) -> str:
    """10.1000/182Received -> 10.1000/182: the next word of a page, without a blank before it."""
    return _NEXT_WORD.sub("", text)


def without_next_cells(text: str) -> str:
    """10.1000/182,2009,Green -> 10.1000/182: the next cells of a table."""
    return _CELLS.sub("", text)


def without_next_cell(text: str) -> str:
    """10.1000/182;2009 -> 10.1000/182: one comma may also be a dot that was not copied well."""
    return _CELL.sub("", text)


def without_page_part(text: str) -> str:
    """10.1000/182/abstract -> 10.1000/182: the part that a publisher's URL adds after the name."""
    return _SUBPAGE.sub("", _PAGE_PART.sub("", text))


def without_query_or_fragment(text: str) -> str:
    """10.1000/182#page -> 10.1000/182"""
    return _QUERY_OR_FRAGMENT.sub("", text)


def without_session(text: str) -> str:
    """10.1000/182;jsessionid=0A1B -> 10.1000/182"""
    return _SESSION.sub("", text)


def without_markup(text: str) -> str:
    """10.1000/182</ref> -> 10.1000/182: markup of HTML, Markdown, BibTeX or a wiki after the name."""
    found = _MARKUP.search(text, 1)
    return text[: found.start()] if found else text


def without_version(text: str) -> str:
    """10.1101/2020.01.01.123456v2 -> 10.1101/2020.01.01.123456: the version of a preprint."""
    return _VERSION.sub(r"\1", text)


def without_title(text: str) -> str:
    """10.1000/1-82/the-title-of-the-work-2 -> 10.1000/1-82: the title that a publisher's URL has after the name."""
    name, _, last = text.rpartition("/")
    if len(last) < _MIN_SLUG_CHARACTERS or "/" not in name:
        return text
    words = [word for word in last.split("-") if word.isalpha() and len(word) >= _MIN_WORD_CHARACTERS]
    return name if len(words) >= _MIN_SLUG_WORDS and last.count("-") > _MIN_SLUG_WORDS else text
