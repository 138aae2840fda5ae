"""How pages show names and values: their visible text, its form, and the addresses that they are allowed to link to."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from doi_names.presentation import encode, to_url, url_path
from doi_proxy.web.languages import Catalogue
from handle_protocol.value import Data, HandleValue

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
