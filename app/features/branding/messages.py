"""The texts of an institution: a file such as `en.toml` replaces texts of ours, or is a language of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Final

from app.errors import ConfigurationError
from app.system.regular_file import explain_failure, read_regular
from app.web.languages import LANGUAGES, read_all, read_texts

#: Larger language files are refused; ours have 15 kB.
MAX_FILE_BYTES: Final = 262_144
#: What replaces settings in one language.
BRAND: Final = ("brand.help_links", "brand.search_links", "brand.free_links", "brand.footer")
_COMPLETE: Final = "docs/branding.md names the files that have them"
_TAG: Final = re.compile(r"[a-z]{2,8}(-[A-Za-z0-9]{1,8}){0,3}")


def read_tags(languages: str) -> tuple[str, ...]:
    """The tags in a list such as "en, de", the default first. Raises ConfigurationError."""
    tags = tuple(dict.fromkeys(tag.strip() for tag in languages.split(",")))
    wrong = next((tag for tag in tags if not _TAG.fullmatch(tag)), None)
    if wrong is not None:
        raise ConfigurationError(f"branding_languages: {wrong[:40]!r} is not a language tag; write tags such as en, de")
    return tags


def read_messages(tags: Sequence[str], folder: Path | None, packages: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """The texts in a file TAG.toml of `folder` for each tag. Raises ConfigurationError if a language misses a text."""
    reference = read_all(packages, LANGUAGES[0])
    found: dict[str, Mapping[str, str]] = {}
    for tag in tags:
        found[tag] = _read_replacements(tag, folder, reference)
        known = read_all(packages, tag).keys() | found[tag].keys()
        missing = next((key for key in reference if key not in known), None)
        if missing is not None:
            where = (
                f"{folder / tag}.toml" if folder else f"branding_languages: {tag!r} is not a language of the program"
            )
            raise ConfigurationError(f"{where}: the text {missing} is missing; {_COMPLETE}")
    return found


def _read_replacements(tag: str, folder: Path | None, reference: Mapping[str, str]) -> dict[str, str]:
    path = None if folder is None else folder / f"{tag}.toml"
    if path is None or not path.exists():
        return {}
    try:
        toml = read_regular(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: the language file cannot be read: {explain_failure(error)}") from error
    texts = read_texts(str(path), toml)
    for key, text in texts.items():
        wrong = None if key in BRAND else _find_fault(text, reference.get(key))
        if wrong is not None:
            raise ConfigurationError(f"{path}, line {_find_line(toml, key)}: {key}: {wrong}")
    return texts


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
