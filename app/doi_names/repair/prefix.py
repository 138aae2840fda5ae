"""Repairs of the prefix, and of what separates it from the suffix."""

from __future__ import annotations

import re
from typing import Final

#: A prefix as agencies assign it, with its slash: a registrant code of four to nine digits, and its subdivisions.
#: A search is quick if the expression begins with a literal, so what is before it is looked at after it.
PREFIX: Final = re.compile(r"10\.(?<![0-9]10\.)(?<![0-9]\.10\.)[0-9]{4,9}(?:\.[0-9]{1,9}){0,5}/")
#: A URL of the resolver may stand between a prefix and the name: 10.5424/http://dx.doi.org/10.5424/sjar/20110903-330-10.
_URL: Final = r"(?:https?://(?:dx\.)?doi\.org/)?"
#: The least that a suffix is. It may look like a prefix: 10.1109/10.324524.
SUFFIX_BEGINNING: Final = re.compile(_URL + r"\S")
#: The least that is a name.
BEGINNING: Final = re.compile(PREFIX.pattern + SUFFIX_BEGINNING.pattern)
#: A name up to the first blank, quotation mark, query or fragment. "#" can be the check character of a SICI, and one
#: publisher joins two numbers by "&": 10.1207/S15327663JCP13-1&2_05.
NAME: Final = re.compile(PREFIX.pattern + r'(?:[^\s?#&"]|(?<=;[0-9]-)[\#&]|&(?=[0-9]{1,2}_))+')
#: Pages of doi.org's own site, and words for no name, that look like shortDOIs: https://www.doi.org/help. With "10/"
#: before it, each is one.
SITE_PAGES: Final = (
    "(?:about|contact|demos|faqs?|glossary|handbook|help|home|index|login|members|news|none|null|openurl|overview"
    "|policies|privacy|search|sitemap|tbd|terms|topics|undefined|unknown)"
)
#: What follows the host of a resolver in a URL and does not begin a shortDOI.
NOT_SHORT: Final = rf"(?!(?:https?|doi|hdl|info|urn)(?::|%3A)|{SITE_PAGES}(?![0-9a-z]))"
THREE_DIGITS: Final = re.compile(r"10\.(?:(?<![0-9./]10\.)|(?<=doi\.org/10\.))([0-9]{3})/")
_LETTERS: Final = re.compile(r"(?<![0-9A-Za-z])(?:[1lI|][0oO]|1[oO])\.(?=[0-9OoIl]{4,9}/)")
_LETTERS_INSIDE: Final = re.compile(r"(?<![0-9A-Za-z])10\.(?=[0-9]{0,8}[OoIl])([0-9OoIl]{4,9})(?=/)")
_AS_DIGITS: Final = str.maketrans("OoIl", "0011")
#: A character that a program could not decode, inside or after the number.
UNREADABLE: Final = re.compile(r"(10\.(?<![0-9]10\.)[0-9]{0,9})[?\ufffd]{1,4}([0-9]{0,9})(?=/)")
LOST_DOT: Final = re.compile(r"\A10(?:[-_\s\u00b7]|\.\.)?(?=[1-9][0-9]{3,4}/\S)")
ONE_ZERO: Final = re.compile(r"(?<![0-9A-Za-z.])[01]?\.(?=[0-9]{4,9}/\S)")
#: Crossref's first thousand prefixes. Others with four digits are prefixes of handles too.
NO_TEN: Final = re.compile(r"\A(?=1[0-9]{3}/[^\s/]{4})")
DIGITS_BEFORE: Final = re.compile(r"(?<![0-9A-Za-z.])[0-9]{1,2}(?=10\.[0-9]{4,9}/)")
LETTER_INSIDE: Final = re.compile(r"(?<![0-9])10\.[A-Za-z](?=[0-9]{4,5}/)")
WRONG_DOT: Final = re.compile(r"(?<![0-9.])10[,:;](?=[0-9]{4,9}/)")
#: ".2F" is an encoded slash in the anchors of wikis. What looks like an address of e-mail is not a name.
_NOT_A_SLASH: Final = re.compile(
    r"(?<![0-9])(10\.[0-9]{4,5})(?:\.2F(?=\S)|\.(?=[A-Za-z])|[_:|@-](?=[0-9A-Za-z])(?![0-9a-z-]{1,63}\.[a-z]{2,6}\Z))"
)
_NO_SLASH: Final = re.compile(r"(?<![0-9])(10\.[0-9]{4})(?=[A-Za-z(][^\s/]{3,200}\Z)")
_DOUBLE_SLASH: Final = re.compile(rf"({PREFIX.pattern})/{{1,8}}")
#: The prefix before the whole name or its URL: 10.1000/10.1000/182.
REPEATED: Final = re.compile(rf"({PREFIX.pattern}){_URL}(?=\1\S)")


def with_digits(text: str) -> str:
    """1O.1000/182 -> 10.1000/182: a letter that looks like a digit, as text recognition writes it."""
    text = _LETTERS.sub("10.", text)
    return _LETTERS_INSIDE.sub(lambda found: f"10.{found[1].translate(_AS_DIGITS)}", text)


def with_first_slash(text: str) -> str:
    """10.1000.a182 -> 10.1000/a182: no slash, or another character in its place, as file names have it."""
    # Inside a suffix, 10.4610-4614 is a page: 10.1128/jcm.42.10.4610-4614.2004.
    if BEGINNING.search(text):
        return text
    return _NO_SLASH.sub(r"\1/", _NOT_A_SLASH.sub(r"\1/", text, count=1), count=1)


def with_one_slash(text: str) -> str:
    """10.1000//182 -> 10.1000/182: not for prefixes of which registered names have two slashes."""
    found = _DOUBLE_SLASH.search(text) if "//" in text else None
    # The prefixes of all 96 registered names with two slashes, of 110,816 (American Psychological Association,
    # Hogrefe).
    return with_one_of_two_slashes(text) if found and found[1] not in ("10.1024/", "10.1027/", "10.1037/") else text


def with_one_of_two_slashes(text: str) -> str:
    """10.1037//182 -> 10.1037/182: for any prefix. Most names of those with two slashes have one."""
    return _DOUBLE_SLASH.sub(r"\1", text) if "//" in text else text
