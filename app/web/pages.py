"""The pages a person sees, each a whole HTML document in UTF-8; their words are in `messages/`."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.doi.code_point import CodePoint
from app.doi.name import HandleName
from app.doi.uri import to_uri, to_url, url_path
from app.handle.value import HandleValue
from app.web.languages import DEFAULT_LANGUAGE, load_catalogues
from app.web.outline import Outline, rows
from app.web.shown_values import (
    HANDLE_RESOLVER,
    MAX_CHARACTERS_SHOWN,
    contact_link,
    data_href,
    granted,
    handle_url,
    hexadecimal,
    linked,
    name_href,
    shape,
    shown_time,
    visible,
)

#: What `Pages.error` takes as its title.
ERROR_TITLES: Final = (
    "error_not_here", "error_method", "error_too_large", "error_too_long", "error_request", "error_internal",
)  # fmt: skip
#: Why the values page came instead of a redirect.
NOTES: Final = ("not_a_web_target", "no_target", "values_not_found")
#: Suggestions, and questionable code points, on one page.
MAX_ITEMS_SHOWN: Final = 10
#: A name in a page's title, in characters.
MAX_TITLE_CHARACTERS: Final = 60
#: From here on the time to wait is told in minutes.
LONG_WAIT_SECONDS: Final = 120

_DOI_RESOLVER: Final = "https://doi.org"


@dataclass(frozen=True, slots=True)
class Link:
    """Where a page's links lead: `base` is this resolver's own path or URL without a slash at its end, such as ""."""

    base: str


@dataclass(frozen=True, slots=True)
class StaleNote:
    """Why a record past its TTL is shown: `fetched` is a date in UTC for people, "" if unknown; `reason` a sentence."""

    fetched: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShownName:
    """A name as a page shows and links it; `kind` is "doi", "prefix" or "handle"; `uri` only where it has one."""

    text: str
    kind: str
    uri: str | None
    public_url: str
    path: str


class Pages:
    """Every page of this resolver. Methods return UTF-8; a `language` that is none of `languages` is the default.

    `base_url_hint` is the address that programs are told to use where a link's base is no URL; `contact` is an e-mail
    address, a URL or words. Raises ConfigurationError where the package's texts cannot be read.
    """

    def __init__(self, *, base_url_hint: str, product_version: str, contact: str | None) -> None:
        self._address = base_url_hint.rstrip("/")
        self._catalogues = load_catalogues()
        loader = PackageLoader("app.web", "templates")
        environment = Environment(
            loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        environment.globals |= {"version": product_version, "operator": contact_link(contact), "link": linked}
        environment.globals |= {"granted": granted, "most_characters": MAX_CHARACTERS_SHOWN}
        environment.globals |= {"shape": shape, "data_href": data_href, "name_href": name_href}
        environment.filters |= {"visible": visible, "time": shown_time, "hexadecimal": hexadecimal}
        pages = [name for name in environment.list_templates() if name not in ("layout.html", "parts.html")]
        self._templates = {name.removesuffix(".html"): environment.get_template(name) for name in pages}

    @property
    def languages(self) -> tuple[str, ...]:
        """The tags of the languages there are, the default first."""
        return tuple(self._catalogues)

    def failure_reason(self, language: str, token: str) -> str:
        """The sentence for people about a failure, named by its token in `app.errors`."""
        texts = (self._catalogues.get(language) or self._catalogues[DEFAULT_LANGUAGE]).texts
        return texts.get(f"failure.{token}") or texts["failure.not-asked"]

    def home(self, link: Link, language: str) -> bytes:
        """The form, and what this resolver is."""
        address = link.base if "://" in link.base else self._address
        return self._page("home", link, language, "home.title", indexed=True, address=address)

    def values(
        self,
        link: Link,
        language: str,
        *,
        name: HandleName,
        values: Sequence[HandleValue],
        stale: StaleNote | None,
        note: str | None = None,
    ) -> bytes:
        """A record; `note` is one of NOTES and says why it is shown where a redirect was expected."""
        leads_on = any(value.has_type("URL.") or value.has_type("10320/loc.") for value in values)
        if note == "not_a_web_target" and not leads_on:
            note = "no_target"
        shown = rows(values)
        facts: dict[str, Any] = {"rows": shown, "hidden": len(values) - len(shown), "outline": Outline()}
        facts |= {"stale": stale, "note": note, "leads_on": leads_on and note is None}
        return self._page("values", link, language, "values.title_", name, **facts)

    def values_not_found(self, link: Link, language: str, *, name: HandleName, stale: StaleNote | None = None) -> bytes:
        """The name is registered and has no such values."""
        return self.values(link, language, name=name, values=(), stale=stale, note="values_not_found")

    def not_found(
        self,
        link: Link,
        language: str,
        *,
        name: HandleName,
        suggestions: Sequence[HandleName],
        questionable: Sequence[CodePoint],
        contact: str | None,
        stale: StaleNote | None = None,
    ) -> bytes:
        """The upstream said that the name does not exist; `contact` is an e-mail address, a URL or words."""
        shorter = name.text.rstrip("/")
        slashed = shorter != name.text and "/" in shorter
        others = [other for other in suggestions if not (slashed and other.text == shorter)]
        without_slash = _shown(HandleName(shorter)) if slashed else None
        facts: dict[str, Any] = {"without_slash": without_slash, "suggestions": _all_shown(others)}
        facts |= {"questionable": questionable[:MAX_ITEMS_SHOWN], "contact": contact_link(contact), "stale": stale}
        return self._page("not_found", link, language, "not_found.title_", name, **facts)

    def not_a_doi(
        self, link: Link, language: str, *, typed: str, reason: str, suggestions: Sequence[HandleName] = ()
    ) -> bytes:
        """What was `typed` is no DOI, or no name at all; `reason` is the error's message."""
        typed = typed[:MAX_CHARACTERS_SHOWN]
        facts: dict[str, Any] = {"typed": typed, "reason": reason, "handle_url": handle_url(typed)}
        return self._page("not_a_doi", link, language, "not_a_doi.title", suggestions=_all_shown(suggestions), **facts)

    def could_not_verify(
        self, link: Link, language: str, *, name: HandleName, reason: str, retry_after: int | None
    ) -> bytes:
        """Nobody knows whether the name exists; `retry_after` is in seconds."""
        facts = {"reason": reason, "wait": None if retry_after is None else _wait(retry_after)}
        return self._page("could_not_verify", link, language, "could_not_verify.title_", name, **facts)

    def alias_chain_too_long(self, link: Link, language: str, *, name: HandleName, reached: HandleName) -> bytes:
        """The aliases of `name` form a loop or go on for too long; `reached` is where following them ended."""
        return self._page("alias_chain_too_long", link, language, "alias.title", name, reached=_shown(reached))

    def prefix_inactive(
        self, link: Link, language: str, *, name: HandleName, message: str | None, contact: str | None
    ) -> bytes:
        """The registry marks the name's prefix as inactive; `message` is what it says about that."""
        facts = {"message": message, "contact": contact_link(contact)}
        return self._page("prefix_inactive", link, language, "prefix.title", name, **facts)

    def error(self, link: Link, language: str, *, title_key: str, reason: str) -> bytes:
        """Any other failure; `title_key` is one of ERROR_TITLES, `reason` is a sentence or ""."""
        return self._page("error", link, language, f"title.{title_key}", reason=reason)

    def docs(self, link: Link, schema: dict[str, Any]) -> bytes:
        """The API, from its OpenAPI description; in the default language, which the description is written in."""
        return self._page("docs", link, DEFAULT_LANGUAGE, "docs.title", schema=schema)

    def _page(
        self, template: str, link: Link, language: str, key: str, name: HandleName | None = None, **facts: Any
    ) -> bytes:
        """Render a template; a `key` that ends with an underscore is completed by the name's kind."""
        texts = self._catalogues.get(language) or self._catalogues[DEFAULT_LANGUAGE]
        context = {"t": texts, "base": link.base, "indexed": False, **facts}
        if name is None:
            context["title"] = context["heading"] = texts(key)
        else:
            context["name"] = shown = _shown(name)
            context["heading"] = texts(key + shown.kind if key.endswith("_") else key)
            context["title"] = f"{context['heading']}: {_title_text(name.text)}"
        return self._templates[template].render(context).encode("utf-8", "replace")


def redirect_stub(target_for_display: str) -> bytes:
    """The body of a redirect: a document of two lines titled "Handle Redirect" with one link, which clients read."""
    target = escape(target_for_display)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Handle Redirect</title></head>\n'
        f'<body><p>This name leads to <a href="{target}">{target}</a>.</p></body></html>\n'
    ).encode("utf-8", "replace")


def _shown(name: HandleName) -> ShownName:
    kind = "doi" if name.is_doi or name.is_short_doi else "prefix" if name.is_prefix else "handle"
    public_url = to_url(name, HANDLE_RESOLVER if kind == "handle" else _DOI_RESOLVER)
    return ShownName(name.text, kind, to_uri(name) if name.is_doi else None, public_url, url_path(name))


def _all_shown(names: Sequence[HandleName]) -> list[ShownName]:
    return [_shown(name) for name in names[:MAX_ITEMS_SHOWN]]


def _title_text(text: str) -> str:
    # No markup can isolate an override of the writing direction in a title, so that all formatting characters go.
    short = text if len(text) <= MAX_TITLE_CHARACTERS else text[: MAX_TITLE_CHARACTERS - 1] + "…"
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cf", "Cc") else c for c in short)


def _wait(seconds: int) -> tuple[str, int]:
    if seconds >= LONG_WAIT_SECONDS:
        return "retry_minutes", -(-seconds // 60)
    return ("retry_seconds", seconds) if seconds > 1 else ("retry_soon", seconds)
