"""The texts of an institution: a file such as `en.toml` replaces texts of ours, or is a language of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.branding.institution import LINKS, read_brand_links
from doi_proxy.system.files import explain_failure, read_regular
from doi_proxy.system.toml_text import TomlProblem, WrongTable, find_key, parse_toml
from doi_proxy.web.branding import NamedLink
from doi_proxy.web.languages import LANGUAGES, flatten_texts, read_all

#: Larger language files are refused; ours have 15 kB.
MAX_FILE_BYTES: Final = 262_144
_COMPLETE: Final = "docs/branding.md names the files that have them"


@dataclass(frozen=True, slots=True)
class Translation:
    """What a language file has: texts by their keys, and the footer and the links of its language."""

    texts: Mapping[str, str]
    links: Mapping[str, tuple[NamedLink, ...]]
    footer: str


_NOTHING: Final = Translation({}, {}, "")


def read_messages(tags: Sequence[str], folder: Path | None, packages: Sequence[str]) -> dict[str, Translation]:
    """What a file TAG.toml of `folder` has for each tag. Raises ConfigurationError if a language misses a text."""
    reference = read_all(packages, LANGUAGES[0])
    found: dict[str, Translation] = {}
    for tag in tags:
        found[tag] = _read_translation(tag, folder, reference)
        known = read_all(packages, tag).keys() | found[tag].texts.keys()
        missing = next((key for key in reference if key not in known), None)
        if missing is not None:
            where = f"{folder / tag}.toml" if folder else f"languages: {tag!r} is not a language of the program"
            raise ConfigurationError(f"{where}: the text {missing} is missing; {_COMPLETE}")
    return found


def _read_translation(tag: str, folder: Path | None, reference: Mapping[str, str]) -> Translation:
    path = None if folder is None else folder / f"{tag}.toml"
    if path is None or not path.exists():
        return _NOTHING
    try:
        toml = read_regular(path, MAX_FILE_BYTES).decode("utf-8-sig")
        tables = parse_toml(toml)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: the language file cannot be read: {explain_failure(error)}") from error
    except TomlProblem as error:
        raise ConfigurationError(f"{path}, line {error.line}: {error.message}") from error
    brand = tables.pop("brand", {})
    texts = flatten_texts(str(path), tables)
    for key, text in texts.items():
        wrong = _find_fault(text, reference.get(key))
        if wrong is not None:
            raise ConfigurationError(f"{path}, line {_find_line(toml, key)}: {key}: {wrong}")
    try:
        return _read_brand(brand, texts)
    except WrongTable as error:
        key = error.key or "brand"
        raise ConfigurationError(f"{path}, line {find_key(toml, key)[0]}: {key}: {error.message}") from error


def _read_brand(brand: object, texts: Mapping[str, str]) -> Translation:
    if not isinstance(brand, dict):
        raise WrongTable("this is not a table", "brand")
    for key in brand:
        if key not in (*LINKS, "footer"):
            raise WrongTable(f"this key is not known; a language has {', '.join(LINKS)} and footer", key[:80])
    footer = brand.get("footer", "")
    if not isinstance(footer, str):
        raise WrongTable("this is not a text; put it in quotation marks", "footer")
    return Translation(texts, {key: read_brand_links(key, brand[key]) for key in LINKS if key in brand}, footer)


def _find_fault(text: str, reference: str | None) -> str | None:
    """What is wrong with a text that is to replace `reference`, None if nothing is."""
    if reference is None:
        return f"the program has no such text; {_COMPLETE}"
    try:
        unknown = placeholders(text) - placeholders(reference)
    except ValueError as error:
        return f"the braces are wrong: {error}"
    return f"this text has no placeholder {{{min(unknown)}}}" if unknown else None


def placeholders(text: str) -> set[str]:
    """The names in braces. Raises ValueError if the braces are not balanced, or have more than a name.

    A width such as in `{count:>999999999}` would make each page as long.
    """
    found = [field for field in Formatter().parse(text) if field[1] is not None]
    if any(form or conversion for _, _, form, conversion in found):
        raise ValueError("a placeholder is a name alone")
    return {str(name) for _, name, _, _ in found}


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
