"""How pages show names and values: their visible text, its form, and the addresses that they are allowed to link to."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_names.presentation import decode, encode, to_uri, to_url, url_path
from doi_proxy.web.languages import Catalogue
from handle_protocol.value import Data, HandleValue

#: Values of one page: a row takes 70 to 400 us to render, beside up to 30 ms for parsing the record.
MAX_VALUES_SHOWN: Final = 50
#: JSON of the values of one page, in bytes; it becomes up to 20 times as long in HTML.
MAX_BYTES_SHOWN: Final = 65_536
#: JSON of one value that is not a string, in bytes; larger ones are not parsed for a page.
MAX_VALUE_BYTES_SHOWN: Final = 16_384
#: Members and list items of one page, over all of its values.
MAX_MEMBERS_SHOWN: Final = 500
#: Lists and objects of one page that are parsed, over all of its values: 100 values of lists 200 deep took 60 ms.
MAX_CONTAINERS_SHOWN: Final = 2 * MAX_MEMBERS_SHOWN
#: Levels of nesting that are shown.
MAX_DEPTH_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class Members:
    """Members of a JSON object, or items of a list with the key None. `omitted` is the number that is left out."""

    shown: tuple[tuple[str | None, Any], ...]
    omitted: int = 0

    @property
    def is_list(self) -> bool:
        """Whether they are items of a list."""
        return not self.shown or self.shown[0][0] is None


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A value, and its data that the page shows. Data that is too large is left out; `omitted_bytes` is its size."""

    value: HandleValue
    data: Data
    omitted_bytes: int = 0


def rows(values: Sequence[HandleValue]) -> list[ValueRow]:
    """The first values of a record, as many as one page shows."""
    first_rows: list[ValueRow] = []
    room, containers = MAX_BYTES_SHOWN, MAX_CONTAINERS_SHOWN
    for value in values[:MAX_VALUES_SHOWN]:
        room -= min(len(value.raw), MAX_VALUE_BYTES_SHOWN)
        if room < 0:
            break
        # An upper bound of the lists and objects: brackets within strings count too.
        nested = 0 if value.text is not None else value.raw.count(b"[") + value.raw.count(b"{")
        if value.text is None and (len(value.raw) > MAX_VALUE_BYTES_SHOWN or nested > containers):
            first_rows.append(ValueRow(value, Data("unknown", None), len(value.raw)))
        else:
            containers -= nested
            first_rows.append(ValueRow(value, value.data))
    return first_rows


class Outline:
    """Cuts the JSON of values to what one page shows. Each page has one object, and its values share the limit."""

    def __init__(self) -> None:
        self._room = MAX_MEMBERS_SHOWN

    def items(self, content: Sequence[Any]) -> Members:
        """The first items of a list, unchanged."""
        shown = tuple((None, item) for item in content[: self._room])
        self._room -= len(shown)
        return Members(shown, len(content) - len(shown))

    def members(self, content: Any, depth: int = 1) -> Any:
        """Objects and lists become Members; those too deep show no member. Strings stay, other values become JSON."""
        if not isinstance(content, (dict, list)) or not content:
            return content if isinstance(content, str) else _write_json(content)
        pairs = content.items() if isinstance(content, dict) else ((None, item) for item in content)
        shown = []
        for key, inner in islice(pairs, self._room if depth <= MAX_DEPTH_SHOWN else 0):
            if self._room <= 0:
                break
            self._room -= 1
            shown.append((key, self.members(inner, depth + 1)))
        return Members(tuple(shown), len(content) - len(shown))


def _write_json(content: Any) -> str:
    try:
        return json.dumps(content)
    except ValueError:
        return "…"  # an integer with more digits than Python converts


#: The permissions of an HS_ADMIN value from the left of its bit string, highest bit first (RFC 3651, section 3.2.1).
PERMISSIONS: Final = (
    "list_handles", "authorized_read", "add_admin", "remove_admin", "modify_admin", "add_value",
    "delete_value", "modify_value", "delete_prefix", "add_prefix", "delete_handle", "add_handle",
)  # fmt: skip
#: The public resolver of handles that are not DOIs.
HANDLE_RESOLVER: Final = "https://hdl.handle.net"

_HANDLE: Final = re.compile(r"(?:hdl:)?([0-9]+(?:\.[0-9A-Za-z-]+)*/[^\s/]\S*)", re.IGNORECASE)
_DOI: Final = re.compile(r"10(?:\.[^\s/]+)?/\S+")
_WEB_ADDRESS: Final = re.compile(r"(?:https?|ftp)://[^\s<>\"\\]+", re.IGNORECASE)
#: No character class contains the dot, which only separates labels. Otherwise matching would take quadratic time.
_EMAIL: Final = re.compile(r"[^\s@<>,;:\"]+@[^\s.@<>,;:\"]+(?:\.[^\s.@<>,;:\"]+)+")
_BITS: Final = re.compile(f"[01]{{{len(PERMISSIONS)}}}")
#: Pictures of the control characters, which HTML does not show. A tab and a line feed stay.
_PICTURES: Final = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {127: 0x2421}

#: Limit of one text on a page, in characters.
MAX_CHARACTERS_SHOWN: Final = 10_000


def visible(text: object) -> str:
    """The part of a text that a page shows, with pictures in place of control characters."""
    return str(text)[:MAX_CHARACTERS_SHOWN].replace("\r\n", "\n").translate(_PICTURES)


def render_link(href: str, text: str | None = None) -> Markup:
    """A link, isolated from the writing direction around it. Its default text is the address."""
    words = escape(visible(href if text is None else text))
    return Markup(f'<a href="{escape(href)}"><bdi>{words}</bdi></a>')  # noqa: S704 - escaped


def contact_link(contact: str | None) -> Markup | None:
    """An e-mail or web address as a link, other text as it is; None for an empty text."""
    words = (contact or "").strip()[:MAX_CHARACTERS_SHOWN].removeprefix("mailto:")
    if not words:
        return None
    href = address_href(words)
    return render_link(href, words) if href else Markup("<bdi>{}</bdi>").format(visible(words))


def address_href(text: str) -> str | None:
    """The link of an address: http, https or ftp as it is, an e-mail address as mailto, else None."""
    if _WEB_ADDRESS.fullmatch(text):
        return text
    # The longest mailbox: 64 and 255 octets, and the @ (RFC 5321, section 4.5.3.1).
    if len(text) > 320 or not text.isprintable() or _EMAIL.fullmatch(text) is None:
        return None
    return "mailto:" + encode(text, b"@+")


def host_of_address(address: str) -> str:
    """The host of a web address, "" if it has none that can be read, such as "http://[x/"."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def web_address(text: str | None) -> str | None:
    """The text if it is a web address that a page can show and link, else None."""
    address = (text or "").strip()
    return address if len(address) <= MAX_CHARACTERS_SHOWN and _WEB_ADDRESS.fullmatch(address) else None


def is_administrative(value: HandleValue) -> bool:
    """Whether a value is for the handle system itself (RFC 3651, section 3.1), such as HS_ADMIN; an alias is not."""
    return value.folded_type.startswith("HS_") and not value.has_type("HS_ALIAS.")


def public_handle_url(text: str) -> str | None:
    """The address at the public resolver of a text that looks like a handle and is not a DOI, else None."""
    match = _HANDLE.fullmatch(text.strip())
    if match is None or _DOI.match(match[1]) or not match[1].isprintable():
        return None
    return to_url(match[1], HANDLE_RESOLVER)


def name_href(base: str, text: str) -> str | None:
    """The address of a name's record: here for a DOI, at the public resolver for another handle, else None."""
    if len(text) <= MAX_CHARACTERS_SHOWN and text.isprintable() and _DOI.fullmatch(text):
        return f"{base}/{url_path(text)}?noredirect"
    handle = public_handle_url(text[:MAX_CHARACTERS_SHOWN])
    return None if handle is None else handle + "?noredirect"


def data_href(base: str, value: HandleValue) -> str | None:
    """The link of a value's text: http, https, ftp, an e-mail address, or the record of a name, else None."""
    text = (value.text or "").strip()
    if not text or len(text) > MAX_CHARACTERS_SHOWN:
        return None
    if value.has_type("HS_ALIAS.") or _DOI.fullmatch(text):
        return name_href(base, text)
    href = address_href(text)
    return href if href is None or _WEB_ADDRESS.match(href) or value.has_type("EMAIL.") else None


def shape(data: Data) -> str:
    """How a page shows the data: "text", "hex", "admin", "vlist", or "members" for any other JSON."""
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


def list_permissions(bits: str) -> list[str]:
    """The PERMISSIONS that a bit string of an HS_ADMIN value grants."""
    return [permission for permission, bit in zip(PERMISSIONS, bits, strict=True) if bit == "1"]


def write_permissions(texts: Catalogue, bits: str) -> Markup:
    """What a bit string of an HS_ADMIN value grants. A loop of the template took a tenth of the page of a record."""
    granted = [texts(f"permission.{permission}") for permission in list_permissions(bits)]
    return Markup(", ").join(granted) if granted else texts("values.nothing")


def hexadecimal(data: Data) -> str:
    """Bytes as groups of four hexadecimal digits."""
    return (_bytes(data) or b"").hex(" ", -2)


def find_target(values: Sequence[HandleValue]) -> str | None:
    """The address that the record's one URL leads to, None if it has several locations or none."""
    if any(value.has_type("10320/loc.") for value in values):
        return None
    typed = [value for value in values if value.has_type("URL")] or [
        value for value in values if value.has_type("URL.")
    ]
    return web_address(typed[0].text) if typed else None


#: Names in one list of a page, and questionable code points.
MAX_ITEMS_SHOWN: Final = 10
#: A name in the title of a page, in characters.
MAX_TITLE_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class ShownName:
    """A name as a page shows and links it. `kind` is "doi", "prefix" or "handle"; `uri` is None if it has none."""

    text: str
    kind: str
    uri: str | None
    public_url: str
    path: str


def show_name(name: HandleName) -> ShownName:
    """What a page shows of a name."""
    kind = "doi" if name.is_doi or name.is_short_doi else "prefix" if name.is_prefix else "handle"
    path, resolver = url_path(name), HANDLE_RESOLVER if kind == "handle" else "https://doi.org"
    return ShownName(name.text, kind, to_uri(name) if name.is_doi else None, f"{resolver}/{path}", path)


def show_names(names: Sequence[HandleName]) -> list[ShownName]:
    """The first names of a list, as many as a page shows."""
    return [show_name(name) for name in names[:MAX_ITEMS_SHOWN]]


def title_text(text: str) -> str:
    """A name in the title of a page, shortened."""
    # Markup in a title cannot isolate an override of the writing direction, so all formatting characters are replaced.
    short = text if len(text) <= MAX_TITLE_CHARACTERS else text[: MAX_TITLE_CHARACTERS - 1] + "…"
    if short.isprintable():
        return short
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cf", "Cc") else c for c in short)


def readable(typed: str) -> str:
    """What was typed, without its escapes. If they cannot be read, or a form would read other text, it is unchanged."""
    try:
        text = decode(typed)
    except InvalidName:
        return typed
    return text if text.isprintable() and "%" not in text else typed
