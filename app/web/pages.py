"""The pages a person sees, each a whole HTML document in UTF-8; their words are in `messages/`."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.doi.code_point import CodePoint
from app.doi.name import HandleName
from app.doi.percent import encode
from app.doi.uri import to_uri, to_url, url_path
from app.handle.value import Data, HandleValue
from app.web.languages import DEFAULT_LANGUAGE, load_catalogues

#: What `Pages.error` takes as its title.
ERROR_TITLES: Final = (
    "error_not_here", "error_method", "error_too_large", "error_too_long", "error_request", "error_internal",
)  # fmt: skip
#: Why the values page came instead of a redirect.
NOTES: Final = ("not_a_web_target", "no_target", "values_not_found")
#: The permissions of an HS_ADMIN value from the left of its bit string, highest bit first (RFC 3651, section 3.2.1).
PERMISSIONS: Final = (
    "list_handles", "authorized_read", "add_admin", "remove_admin", "modify_admin", "add_value",
    "delete_value", "modify_value", "delete_prefix", "add_prefix", "delete_handle", "add_handle",
)  # fmt: skip
#: What a page shows at most; the rest is in the record's JSON, to which the page links.
MAX_VALUES_SHOWN: Final = 500
MAX_CHARACTERS_SHOWN: Final = 10_000
MAX_ITEMS_SHOWN: Final = 10
#: A name in a page's title, in characters.
MAX_TITLE_CHARACTERS: Final = 60
#: From here on the time to wait is told in minutes.
LONG_WAIT_SECONDS: Final = 120

_DOI_RESOLVER: Final = "https://doi.org"
_HANDLE_RESOLVER: Final = "https://hdl.handle.net"
_HANDLE: Final = re.compile(r"(?:hdl:)?([0-9]+(?:\.[0-9A-Za-z-]+)*/[^\s/]\S*)", re.IGNORECASE)
_DOI: Final = re.compile(r"10(?:\.[^\s/]+)?/\S+")
_WEB_ADDRESS: Final = re.compile(r"(?:https?|ftp)://[^\s<>\"\\]+", re.IGNORECASE)
_EMAIL: Final = re.compile(r"[^\s@<>,;:\"]+@[^\s@<>,;:\"]+\.[^\s@<>,;:\"]+")
_TIME: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]+)?Z")
_SECONDS: Final = re.compile(r"[1-9][0-9]{0,10}")
_BITS: Final = re.compile(f"[01]{{{len(PERMISSIONS)}}}")
#: Controls, which HTML drops or refuses, as their pictures; a tab and a line feed are shown as what they are.
_PICTURES: Final = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {127: 0x2421}


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

    def __init__(self, *, base_url_hint: str = "", product_version: str, contact: str | None = None) -> None:
        self._address = base_url_hint.rstrip("/")
        self._catalogues = load_catalogues()
        loader = PackageLoader("app.web", "templates")
        environment = Environment(
            loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        environment.globals |= {"version": product_version, "operator": _contact(contact), "link": _link}
        environment.globals |= {"granted": _granted, "most_characters": MAX_CHARACTERS_SHOWN}
        environment.globals |= {"shape": _shape, "data_href": _data_href, "name_href": _name_href}
        environment.filters |= {"visible": visible, "time": _time, "hexadecimal": _hexadecimal}
        pages = [name for name in environment.list_templates() if name not in ("layout.html", "parts.html")]
        self._templates = {name.removesuffix(".html"): environment.get_template(name) for name in pages}

    @property
    def languages(self) -> tuple[str, ...]:
        """The tags of the languages there are, the default first."""
        return tuple(self._catalogues)

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
        facts: dict[str, Any] = {"values": values[:MAX_VALUES_SHOWN], "hidden": len(values) - MAX_VALUES_SHOWN}
        facts |= {"stale": stale, "note": note, "leads_on": leads_on and note is None}
        return self._page("values", link, language, "values.title_", name, **facts)

    def values_not_found(self, link: Link, language: str, *, name: HandleName) -> bytes:
        """The name is registered and has no such values."""
        return self.values(link, language, name=name, values=(), stale=None, note="values_not_found")

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
        facts |= {"questionable": questionable[:MAX_ITEMS_SHOWN], "contact": _contact(contact), "stale": stale}
        return self._page("not_found", link, language, "not_found.title_", name, **facts)

    def not_a_doi(
        self, link: Link, language: str, *, typed: str, reason: str, suggestions: Sequence[HandleName] = ()
    ) -> bytes:
        """What was `typed` is no DOI, or no name at all; `reason` is the error's message."""
        typed = typed[:MAX_CHARACTERS_SHOWN]
        facts: dict[str, Any] = {"typed": typed, "reason": reason, "handle_url": _handle_url(typed)}
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
        facts = {"message": message, "contact": _contact(contact)}
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


def visible(text: object) -> str:
    """Text as far as a page shows it, with pictures in place of control characters."""
    return str(text)[:MAX_CHARACTERS_SHOWN].replace("\r\n", "\n").translate(_PICTURES)


def _shown(name: HandleName) -> ShownName:
    kind = "doi" if name.is_doi or name.is_short_doi else "prefix" if name.is_prefix else "handle"
    public_url = to_url(name, _HANDLE_RESOLVER if kind == "handle" else _DOI_RESOLVER)
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


def _link(href: str, text: str | None = None) -> Markup:
    return Markup('<a href="{}"><bdi>{}</bdi></a>').format(href, visible(href if text is None else text))


def _contact(contact: str | None) -> Markup | None:
    """An e-mail address or a web address as a link, anything else as its words; None where there is nothing."""
    words = (contact or "").strip()[:MAX_CHARACTERS_SHOWN]
    if not words:
        return None
    href = _address_href(words.removeprefix("mailto:"))
    return _link(href, words) if href else Markup("<bdi>{}</bdi>").format(visible(words))


def _address_href(text: str) -> str | None:
    if _WEB_ADDRESS.fullmatch(text):
        return text
    return "mailto:" + encode(text, b"@+") if _EMAIL.fullmatch(text) and text.isprintable() else None


def _handle_url(text: str) -> str | None:
    found = _HANDLE.fullmatch(text.strip())
    if found is None or _DOI.match(found[1]) or not found[1].isprintable():
        return None
    return to_url(found[1], _HANDLE_RESOLVER)


def _name_href(base: str, text: str) -> str | None:
    """Where the record of a name is: here for a DOI, at the public resolver for another handle, None for no name."""
    if len(text) <= MAX_CHARACTERS_SHOWN and text.isprintable() and _DOI.fullmatch(text):
        return f"{base}/{url_path(text)}?noredirect"
    handle = _handle_url(text[:MAX_CHARACTERS_SHOWN])
    return None if handle is None else handle + "?noredirect"


def _data_href(base: str, value: HandleValue) -> str | None:
    """Where a value's text leads: only http, https, ftp, an e-mail address, or the record of a name."""
    text = (value.text or "").strip()
    if not text or len(text) > MAX_CHARACTERS_SHOWN:
        return None
    if value.has_type("HS_ALIAS.") or _DOI.fullmatch(text):
        return _name_href(base, text)
    href = _address_href(text)
    return href if href is None or _WEB_ADDRESS.match(href) or value.has_type("EMAIL.") else None


def _shape(data: Data) -> str:
    """How a page shows the data: "text", "hex", "admin", "vlist" or, for whatever else the JSON held, "members"."""
    match data.format, data.value:
        case "admin", {"handle": str(), "index": int(), "permissions": str(bits)} if _BITS.fullmatch(bits):
            return "admin"
        case "vlist", [*items] if all(isinstance(i, dict) and {"handle", "index"} <= i.keys() for i in items):
            return "vlist"
        case "base64" | "hex", str() if _bytes(data) is not None:
            return "hex"
        case _, str():
            return "text"
        case _:
            return "members"


def _bytes(data: Data) -> bytes | None:
    try:
        return base64.b64decode(data.value, validate=True) if data.format == "base64" else bytes.fromhex(data.value)
    except ValueError:
        return None


def _granted(bits: str) -> list[str]:
    return [permission for permission, bit in zip(PERMISSIONS, bits, strict=True) if bit == "1"]


def _hexadecimal(data: Data) -> str:
    """Bytes as groups of four hexadecimal digits."""
    return (_bytes(data) or b"").hex(" ", -2)


def _time(timestamp: str | None) -> str | None:
    """A timestamp as 2004-09-10 19:49:59Z, from ISO 8601 or seconds since the epoch; other text as it came."""
    if timestamp is None or timestamp == "0":
        return None
    if _SECONDS.fullmatch(timestamp):
        return datetime.fromtimestamp(int(timestamp), UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    found = _TIME.fullmatch(timestamp)
    return f"{found[1]} {found[2]}Z" if found else visible(timestamp)
