"""The language of a page: which one a browser prefers, and the texts of each.

A language is a TOML file named by its tag, in the folder `texts` of the core and of each feature that has texts. They
are plain text with `{placeholders}`. An institution can put files of its own over ours.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from string import Formatter
from typing import Any, Final

from markupsafe import Markup, escape

from app.errors import ConfigurationError

#: The language whose keys and placeholders every other language must have.
REFERENCE_LANGUAGE: Final = "en"
#: Larger language files are refused; ours have 15 kB.
MAX_FILE_BYTES: Final = 262_144
#: Longer Accept-Language headers are read up to here; browsers send fewer than 100 characters.
MAX_HEADER_CHARACTERS: Final = 500
#: Language ranges after this many are not looked at.
MAX_RANGES: Final = 30
#: One element of Accept-Language: a basic language range (RFC 4647, section 2.1) and a weight (RFC 9110, 12.4.2).
_ELEMENT: Final = re.compile(
    r"(\*|[a-z]{1,8}(?:-[a-z0-9]{1,8}){0,7})(?:[ \t]*;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?", re.IGNORECASE
)
#: The package whose folder `texts` has those of the core.
CORE: Final = "app.web"
_COMPLETE: Final = "docs/branding.md names the files that have them"
_TAG: Final = re.compile(r"[a-z]{2,8}(-[A-Za-z0-9]{1,8}){0,3}")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The texts of one language: `language` is its tag, `texts` maps a key such as "home.title" to plain text."""

    language: str
    texts: Mapping[str, str]

    def __call__(self, key: str, **values: object) -> Markup:
        """The text of a key as HTML, its placeholders filled with `values`, which are escaped unless they are HTML."""
        return escape(self.texts[key]).format(**values)


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


def read_tags(languages: str) -> tuple[str, ...]:
    """The tags in a list such as "en, de", the default first. Raises ConfigurationError."""
    tags = tuple(dict.fromkeys(tag.strip() for tag in languages.split(",")))
    wrong = next((tag for tag in tags if not _TAG.fullmatch(tag)), None)
    if wrong is not None:
        raise ConfigurationError(f"branding_languages: {wrong[:40]!r} is not a language tag; write tags such as en, de")
    return tags


def load_catalogues(
    tags: Sequence[str], folder: Path | None = None, packages: Sequence[str] = (CORE,)
) -> dict[str, Catalogue]:
    """Read the catalogue of each tag, in the order of `tags`, from the texts of `packages`. Raises ConfigurationError.

    A file TAG.toml of `folder` replaces texts of ours, or is a language that we do not have.
    """
    reference = read_all(packages, REFERENCE_LANGUAGE)
    catalogues = {}
    for tag in tags:
        texts = {**read_all(packages, tag), **_read_replacements(tag, folder, reference)}
        missing = next((key for key in reference if key not in texts), None)
        if missing is not None:
            where = f"{folder / tag}.toml" if folder else f"branding_languages: there is no language {tag!r}"
            raise ConfigurationError(f"{where}: the text {missing} is missing; {_COMPLETE}")
        catalogues[tag] = Catalogue(tag, texts)
    return catalogues


def read_all(packages: Sequence[str], name: str) -> dict[str, str]:
    """The texts in the file of this name, without its suffix, of each folder `texts`."""
    return {key: text for package in packages for key, text in read_packaged(package, name).items()}


@lru_cache(maxsize=256)  # a package has two files of a language
def read_packaged(package: str, name: str) -> Mapping[str, str]:
    """The texts in a file of a package's folder `texts`, without its suffix. Empty without such a file."""
    file = resources.files(package).joinpath("texts", f"{name}.toml")
    return read_texts(f"{package}: texts/{name}.toml", file.read_text("utf-8")) if file.is_file() else {}


def _read_replacements(tag: str, folder: Path | None, reference: Mapping[str, str]) -> dict[str, str]:
    path = None if folder is None else folder / f"{tag}.toml"
    if path is None or not path.is_file():
        return {}
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: the language file is larger than {MAX_FILE_BYTES} bytes")
        toml = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: the language file cannot be read: {error}") from error
    texts = read_texts(str(path), toml)
    for key, text in texts.items():
        wrong = _find_fault(text, reference.get(key))
        if wrong is not None:
            raise ConfigurationError(f"{path}, line {_find_line(toml, key)}: {key}: {wrong}")
    return texts


def _find_fault(text: str, reference: str | None) -> str | None:
    """What is wrong with a text that is to replace `reference`, None if nothing is."""
    if reference is None:
        return f"there is no such text; {_COMPLETE}"
    try:
        unknown = placeholders(text) - placeholders(reference)
    except ValueError as error:
        return f"the braces are wrong: {error}"
    return f"there is no placeholder {{{min(unknown)}}} in this text" if unknown else None


def placeholders(text: str) -> set[str]:
    """The names in braces. Raises ValueError if the braces are not balanced."""
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def _find_line(toml: str, key: str) -> int:
    """The line of a key such as "home.title", 1 if it is written in a way that is not found."""
    table, _, name = key.partition(".")
    inside = False
    for number, line in enumerate(toml.splitlines(), 1):
        if line.lstrip().startswith("["):
            inside = line.strip().startswith(f"[{table}]")
        elif inside and re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=", line):
            return number
    return 1


def read_texts(where: str, toml: str) -> dict[str, str]:
    """Read a catalogue: tables of texts, whose keys are joined by a dot. Raises ConfigurationError, naming `where`."""
    try:
        tables = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{where}: the language file cannot be read: {error}") from error
    return dict(_flattened(where, tables))


def _flattened(where: str, tables: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for table, texts in tables.items():
        for key, text in texts.items() if isinstance(texts, dict) else [("", texts)]:
            if not key or not isinstance(text, str):
                raise ConfigurationError(f"{where}: {table}.{key} must be a text in a table")
            yield f"{table}.{key}", text
