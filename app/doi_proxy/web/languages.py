"""The language of a page: which one a browser prefers, and the texts of each.

A language is a TOML file named by its tag, in the folder `texts` of the core and of each feature that has texts. They
are plain text with `{placeholders}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from markupsafe import Markup, escape

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import has_package_file, read_package_file
from doi_proxy.system.toml_text import TomlProblem, parse_toml

#: Our languages. The first is the default, and every other language has its keys and placeholders.
LANGUAGES: Final = ("en", "de", "fr", "es")
#: No texts of an institution.
NO_TEXTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})
#: Longer Accept-Language headers are read up to here; browsers send fewer than 100 characters.
MAX_HEADER_CHARACTERS: Final = 500
#: Language ranges after this many are not looked at.
MAX_RANGES: Final = 30
#: One element of Accept-Language: a basic language range (RFC 4647, section 2.1) and a weight (RFC 9110, 12.4.2).
_ELEMENT: Final = re.compile(
    r"(\*|[a-z]{1,8}(?:-[a-z0-9]{1,8}){0,7})(?:[ \t]*;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?", re.IGNORECASE
)
#: A placeholder without a format of its own.
_PLACEHOLDER: Final = re.compile(r"\{([a-z_0-9]+)\}")
#: The package whose folder `texts` has those of the core.
CORE: Final = "doi_proxy.web"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The texts of one language: `language` is its tag, `texts` maps a key such as "home.title" to plain text."""

    language: str
    texts: Mapping[str, str]
    #: The texts as HTML, once they have been used: whole ones, and parts between which are the names of placeholders.
    _whole: dict[str, Markup] = field(default_factory=dict, compare=False, repr=False)
    _parts: dict[str, list[str] | None] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, key: str, **values: object) -> Markup:
        """The text of a key as HTML, its placeholders filled with `values`, which are escaped unless they are HTML."""
        # To format a text takes 5 us, and a page has up to 50. A text with other braces needs it.
        if values:
            if key not in self._parts:
                parts = _PLACEHOLDER.split(str(escape(self.texts[key])))
                self._parts[key] = None if re.search("[{}]", "".join(parts[::2])) else parts
            if (found := self._parts[key]) is None:
                return escape(self.texts[key]).format(**values)
            filled = [escape(values[part]) if at % 2 else part for at, part in enumerate(found)]
            return Markup("".join(filled))  # noqa: S704 - escaped
        whole = self._whole.get(key)
        if whole is None:
            whole = self._whole[key] = escape(self.texts[key]).format()
        return whole


def choose_language(accept_language: str | None, available: Sequence[str]) -> str:
    """The tag of `available` that an Accept-Language header asks for first; the first tag where it asks for none.

    Ranges are tried by weight, then in their order, each shortened from its end until a tag fits (RFC 9110,
    section 12.5.4; RFC 4647, section 3.4). `available` holds at least one tag. Malformed elements are ignored.
    """
    ranges = sorted(_ranges(accept_language or ""), key=lambda item: -item[1])
    refused = {wanted for wanted, weight in ranges if weight == 0}
    tags = {tag.lower(): tag for tag in available if tag.lower() not in refused}
    for wanted, weight in ranges:
        if weight == 0:
            break
        if wanted == "*" and tags:
            return next(iter(tags.values()))
        for shorter in _shortened(wanted):
            if shorter in tags:
                return tags[shorter]
    return available[0]


def _ranges(header: str) -> Iterator[tuple[str, float]]:
    elements = header[:MAX_HEADER_CHARACTERS].split(",", MAX_RANGES)
    if len(header) > MAX_HEADER_CHARACTERS or len(elements) > MAX_RANGES:
        elements.pop()  # cut in its middle, or the unread rest
    for element in elements:
        found = _ELEMENT.fullmatch(element.strip(" \t"))
        if found is not None:
            yield found[1].lower(), float(found[2] or 1)


def _shortened(wanted: str) -> Iterator[str]:
    subtags = wanted.split("-")
    while subtags:
        yield "-".join(subtags)
        subtags.pop()
        # A single character introduces what follows it and means nothing alone (RFC 4647, section 3.4).
        while len(subtags) > 1 and len(subtags[-1]) == 1:
            subtags.pop()


def load_catalogues(
    tags: Sequence[str] = LANGUAGES, packages: Sequence[str] = (CORE,), own: Mapping[str, Mapping[str, str]] = NO_TEXTS
) -> dict[str, Catalogue]:
    """The catalogue of each tag, in their order, from the texts of `packages`. Those of `own`, by tag, replace them."""
    return {tag: Catalogue(tag, {**read_all(packages, tag), **own.get(tag, {})}) for tag in tags}


def read_all(packages: Sequence[str], name: str) -> dict[str, str]:
    """The texts in the file of this name, without its suffix, of each folder `texts`."""
    return {key: text for package in packages for key, text in read_packaged(package, name).items()}


@lru_cache(maxsize=128)  # a package has one file of a language
def read_packaged(package: str, name: str) -> Mapping[str, str]:
    """The texts in a file of a package's folder `texts`, without its suffix. Empty without such a file."""
    path = ("texts", f"{name}.toml")
    if not has_package_file(package, *path):
        return {}
    return read_texts(f"{package}: texts/{name}.toml", read_package_file(package, *path).decode())


def read_texts(where: str, toml: str) -> dict[str, str]:
    """Read a catalogue: tables of texts, whose keys are joined by a dot. Raises ConfigurationError, naming `where`."""
    try:
        tables = parse_toml(toml)
    except TomlProblem as error:
        raise ConfigurationError(f"{where}, line {error.line}: the language file cannot be read: {error}") from error
    return flatten_texts(where, tables)


def flatten_texts(where: str, tables: Mapping[str, Any]) -> dict[str, str]:
    """The texts of tables, whose keys are joined by a dot. Raises ConfigurationError, naming `where`."""
    return dict(_flattened(where, tables))


def _flattened(where: str, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for table, texts in tables.items():
        for key, text in texts.items() if isinstance(texts, dict) else [("", texts)]:
            if not key or not isinstance(text, str):
                raise ConfigurationError(f"{where}: {table}.{key} must be a text in a table")
            yield f"{table}.{key}", text
