"""An institution's branding: its name, logo, colours, links, texts and templates. docs/branding.md has an example."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from html import escape
from importlib import resources
from pathlib import Path
from typing import Final

from app.doi.uri import component
from app.errors import ConfigurationError
from app.web.colours import brand_stylesheet

#: Larger logos are refused, because every reader loads the logo.
MAX_LOGO_BYTES: Final = 262_144
#: Links in one setting.
MAX_LINKS: Final = 10
#: For each suffix of a logo: the media type, and the bytes at the start of such a file.
LOGO_TYPES: Final = {
    ".svg": ("image/svg+xml", b""),
    ".png": ("image/png", b"\x89PNG\r\n\x1a\n"),
    ".webp": ("image/webp", b"RIFF"),
    ".jpg": ("image/jpeg", b"\xff\xd8\xff"),
    ".jpeg": ("image/jpeg", b"\xff\xd8\xff"),
}
#: Stands for the DOI name in the address of a search.
NAME_PLACEHOLDER: Final = "{doi}"
_STYLESHEET: Final = "/static/style.css"
_FAVICON: Final = "favicon.svg"
#: The colour and the title of our icon.
_FAVICON_COLOUR: Final = "#0b5a73"
_PRODUCT: Final = "doi-proxy"
_ADDRESS: Final = re.compile(r"(?:https?://[^\s/]|mailto:|/)[^\s\"<>\\]*")
_SVG_ROOT: Final = re.compile(rb"<svg[\s>]")
#: The root element of an SVG logo must begin within this many bytes.
_SVG_HEAD_BYTES: Final = 4_096
#: Bytes of the digest in a file's address. The address changes with the content.
_DIGEST_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Branding:
    """The values of the settings `branding_...`. An unset path is None, an unset text is ""."""

    name: str
    logo: Path | None
    accent: str
    accent_dark: str
    background: str
    background_dark: str
    home_text: str
    help_links: str
    search_links: str
    imprint: str
    privacy: str
    footer: str
    templates: Path | None
    messages: Path | None
    languages: str


@dataclass(frozen=True, slots=True)
class NamedLink:
    """A link and its text."""

    words: str
    address: str

    def fill(self, name: str) -> str:
        """The address with the percent-encoded DOI name in place of the placeholder."""
        return self.address.replace(NAME_PLACEHOLDER, component(name))


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of `/static/`."""

    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Brand:
    """The parts of the branding that pages show. Addresses are paths below the resolver's own, or URLs."""

    name: str
    stylesheet: str
    logo: str | None
    home_text: str
    help_links: tuple[NamedLink, ...]
    search_links: tuple[NamedLink, ...]
    imprint: str
    privacy: str
    footer: str


def read_brand(branding: Branding) -> tuple[Brand, dict[str, StaticFile]]:
    """Read what the pages show, and the static files by path. Raises ConfigurationError."""
    folder = resources.files("app.web").joinpath("static")
    ours = folder.joinpath("style.css").read_text("utf-8")
    colours = {
        "accent": branding.accent,
        "accent_dark": branding.accent_dark,
        "background": branding.background,
        "background_dark": branding.background_dark,
    }
    stylesheet = (ours + brand_stylesheet(ours, colours)).encode()
    favicon = StaticFile("image/svg+xml", _brand_favicon(folder.joinpath(_FAVICON).read_text("utf-8"), branding))
    files = {
        _STYLESHEET: StaticFile("text/css;charset=utf-8", stylesheet),
        f"/static/{_FAVICON}": favicon,
        "/favicon.ico": favicon,
    }
    logo_path = None
    if branding.logo is not None:
        logo = _read_logo(branding.logo)
        logo_path = f"/static/logo-{_digest(logo.content)}{branding.logo.suffix.lower()}"
        files[logo_path] = logo
    brand = Brand(
        name=branding.name,
        # Browsers keep the stylesheet for a day. Its query changes with its content.
        stylesheet=f"{_STYLESHEET}?v={_digest(stylesheet)}",
        logo=logo_path,
        home_text=branding.home_text,
        help_links=read_named_links("branding_help_links", branding.help_links),
        search_links=read_named_links("branding_search_links", branding.search_links),
        imprint=_read_address("branding_imprint", branding.imprint),
        privacy=_read_address("branding_privacy", branding.privacy),
        footer=branding.footer,
    )
    return brand, files


def _brand_favicon(svg: str, branding: Branding) -> bytes:
    """The icon of the site with the colour and the name of the institution."""
    if branding.accent:
        svg = svg.replace(f'fill="{_FAVICON_COLOUR}"', f'fill="{escape(branding.accent)}"')
    return svg.replace(f"<title>{_PRODUCT}</title>", f"<title>{escape(branding.name or _PRODUCT)}</title>").encode()


def read_named_links(setting: str, text: str) -> tuple[NamedLink, ...]:
    """Parse the links in a text such as `Help = https://… | Ask us = mailto:…`. Raises ConfigurationError."""
    parts = [part.strip() for part in text.split("|") if part.strip()]
    if len(parts) > MAX_LINKS:
        raise ConfigurationError(f"{setting}: there are {len(parts)} links; the limit is {MAX_LINKS}")
    return tuple(_read_link(setting, part) for part in parts)


def _read_link(setting: str, part: str) -> NamedLink:
    words, equals, address = (piece.strip() for piece in part.partition("="))
    if not (words and equals and address):
        raise ConfigurationError(f"{setting}: {part[:80]!r} is not a link; write Label = https://… | Label = https://…")
    return NamedLink(words, _read_address(setting, address))


def _read_address(setting: str, address: str) -> str:
    if address and not _ADDRESS.fullmatch(address):
        raise ConfigurationError(
            f"{setting}: {address[:80]!r} is not an address; write https://…, mailto:… or a path that begins with /"
        )
    return address


def _read_logo(path: Path) -> StaticFile:
    if path.suffix.lower() not in LOGO_TYPES:
        raise ConfigurationError(f"branding_logo: {path} must end with .svg, .png, .webp, .jpg or .jpeg")
    media_type, magic = LOGO_TYPES[path.suffix.lower()]
    try:
        with path.open("rb") as file:
            content = file.read(MAX_LOGO_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"branding_logo: the file {path} cannot be read: {error}") from error
    if len(content) > MAX_LOGO_BYTES:
        raise ConfigurationError(f"branding_logo: {path} is larger than {MAX_LOGO_BYTES} bytes; make it smaller")
    is_svg = media_type == "image/svg+xml"
    if not content.startswith(magic) or (is_svg and not _SVG_ROOT.search(content[:_SVG_HEAD_BYTES])):
        raise ConfigurationError(
            f"branding_logo: the content of {path} is not {media_type}; give the file the suffix of its content"
        )
    return StaticFile(media_type, content)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
