"""`branding.toml`: the contact, logo, colours, links and languages of an institution (docs/branding.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from doi_proxy.system.toml_text import WrongTable
from doi_proxy.web.branding import NamedLink
from doi_proxy.web.languages import LANGUAGES

#: Links of one kind.
MAX_LINKS: Final = 10
#: The keys of colours.
COLOURS: Final = ("accent", "accent_dark", "background", "background_dark")
#: The keys of tables of links.
LINKS: Final = ("help_links", "search_links", "free_links")
_TEXTS: Final = ("contact", "logo", "home_text", "imprint", "privacy", "footer", *COLOURS)
_KEYS: Final = (*_TEXTS, *LINKS, "languages")
_ADDRESS: Final = re.compile(r"(?:https?://[^\s/]|mailto:|/)[^\s\"<>\\]*")
_TAG: Final = re.compile(r"[a-z]{2,8}(-[A-Za-z0-9]{1,8}){0,3}")
_EXAMPLE: Final = 'write a table such as { "Ask us" = "https://library.example.edu/ask" }'


@dataclass(frozen=True, slots=True)
class Institution:
    """What `branding.toml` says. Colours and links are by their keys, and only those that are set."""

    contact: str | None = None
    #: The name of a file in the folder.
    logo: str | None = None
    home_text: str = ""
    imprint: str = ""
    privacy: str = ""
    footer: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, tuple[NamedLink, ...]] = field(default_factory=dict)
    #: The tags of the languages, the default first.
    languages: tuple[str, ...] = LANGUAGES


def read_institution(document: Mapping[str, Any]) -> Institution:
    """The institution of a parsed file. Raises WrongTable."""
    for key in document:
        if key not in _KEYS:
            similar = get_close_matches(key, _KEYS, n=1)
            raise WrongTable("this key is not known" + (f"; did you mean {similar[0]}?" if similar else ""), key[:80])
    texts = {key: _read_text(key, document[key]) for key in _TEXTS if key in document}
    for key in ("imprint", "privacy"):
        _require_address(key, texts.get(key, ""))
    if "/" in texts.get("logo", "") or texts.get("logo") == "..":
        raise WrongTable("this is not the name of a file in the folder of branding.toml; put the logo there", "logo")
    return Institution(
        contact=texts.get("contact") or None,
        logo=texts.get("logo") or None,
        home_text=texts.get("home_text", ""),
        imprint=texts.get("imprint", ""),
        privacy=texts.get("privacy", ""),
        footer=texts.get("footer", ""),
        colours={key: texts[key] for key in COLOURS if texts.get(key)},
        links={key: read_brand_links(key, document[key]) for key in LINKS if key in document},
        languages=_read_languages(document.get("languages", list(LANGUAGES))),
    )


def read_brand_links(key: str, table: object) -> tuple[NamedLink, ...]:
    """The links of a table of addresses by their words. Raises WrongTable."""
    if not isinstance(table, dict):
        raise WrongTable(f"this is not a table of links; {_EXAMPLE}", key)
    if len(table) > MAX_LINKS:
        raise WrongTable(f"there are {len(table)} links; the limit is {MAX_LINKS}", key)
    for words, address in table.items():
        if not (words.strip() and isinstance(address, str) and address):
            raise WrongTable(f"{words[:80]!r} is not a link; {_EXAMPLE}", key)
        _require_address(key, address)
    return tuple(NamedLink(words.strip(), address) for words, address in table.items())


def _read_text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise WrongTable("this is not a text; put it in quotation marks", key)
    return value


def _read_languages(value: object) -> tuple[str, ...]:
    if not (isinstance(value, list) and value and all(isinstance(tag, str) for tag in value)):
        raise WrongTable('this is not a list of languages; write an array of tags, such as ["en", "de"]', "languages")
    wrong = next((tag for tag in value if not _TAG.fullmatch(tag)), None)
    if wrong is not None:
        raise WrongTable(f"{wrong[:40]!r} is not a language tag; write tags such as en, de", "languages")
    return tuple(dict.fromkeys(value))


def _require_address(key: str, address: str) -> None:
    if address and not _ADDRESS.fullmatch(address):
        raise WrongTable(
            f"{address[:80]!r} is not an address; write https://…, mailto:… or a path that begins with /", key
        )
