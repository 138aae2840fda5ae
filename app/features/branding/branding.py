"""An institution's branding: its name, logo, colours, links, texts and templates. docs/branding.md has an example."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Final

from app.errors import ConfigurationError
from app.features.branding.colours import brand_stylesheet
from app.features.branding.messages import BRAND, read_messages, read_tags
from app.features.branding.settings import BrandingSettings
from app.features.branding.templates import open_templates
from app.system.regular_file import read_regular
from app.web.branding import Brand, Branding, NamedLink, StaticFile, digest, open_files, read_stylesheet
from app.web.look import OwnTemplates, Renderer

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
#: The colour and the title of our icon.
_FAVICON_COLOUR: Final = "#0b5a73"
_PRODUCT: Final = "doi-proxy"
#: The settings of colours.
_COLOURS: Final = ("accent", "accent_dark", "background", "background_dark")
_ADDRESS: Final = re.compile(r"(?:https?://[^\s/]|mailto:|/)[^\s\"<>\\]*")
_SVG_ROOT: Final = re.compile(rb"<svg[\s>]")
#: The root element of an SVG logo must begin within this many bytes.
_SVG_HEAD_BYTES: Final = 4_096


def read_branding(settings: BrandingSettings, packages: Sequence[str]) -> Branding:
    """The face that the settings describe, over the texts of `packages`. Raises ConfigurationError."""
    colours = {name: getattr(settings, f"branding_{name}") for name in _COLOURS}
    stylesheet, files = open_files(brand_stylesheet(read_stylesheet(), colours), partial(_brand_icon, settings))
    logo_path = None
    if settings.branding_logo is not None:
        logo = _read_logo(settings.branding_logo)
        logo_path = f"/static/logo-{digest(logo.content)}{settings.branding_logo.suffix.lower()}"
        files[logo_path] = logo
    brand = Brand(
        stylesheet,
        name=settings.branding_name,
        logo=logo_path,
        home_text=settings.branding_home_text,
        help_links=read_named_links("branding_help_links", settings.branding_help_links),
        search_links=read_named_links("branding_search_links", settings.branding_search_links),
        free_links=read_named_links("branding_free_links", settings.branding_free_links),
        imprint=_read_address("branding_imprint", settings.branding_imprint),
        privacy=_read_address("branding_privacy", settings.branding_privacy),
        footer=settings.branding_footer,
    )
    folders = {"templates": settings.branding_templates, "messages": settings.branding_messages}
    for setting, folder in folders.items():
        if folder is not None and not folder.is_dir():
            raise ConfigurationError(f"branding_{setting}: the folder {folder} does not exist")
    tags = read_tags(settings.branding_languages)
    texts = read_messages(tags, settings.branding_messages, packages)
    brands = {tag: _translate(brand, settings.branding_messages, tag, texts[tag]) for tag in tags}
    replace_templates = _replace_templates(settings.branding_templates, brand)
    return Branding(brand, files, tags, texts, replace_templates, brands)


def _translate(brand: Brand, folder: Path | None, tag: str, texts: Mapping[str, str]) -> Brand:
    """The brand in a language, whose file can have its footer and its links. Raises ConfigurationError."""
    changed: dict[str, Any] = {}
    for key in BRAND:
        field, text = key.partition(".")[2], texts.get(key, "")
        if text:
            changed[field] = text if field == "footer" else read_named_links(f"{folder}/{tag}.toml: {key}", text)
    return replace(brand, **changed)


def _replace_templates(folder: Path | None, brand: Brand) -> Callable[[OwnTemplates], Renderer] | None:
    return None if folder is None else lambda own: open_templates(own, folder, brand)


def _brand_icon(settings: BrandingSettings, svg: str) -> str:
    """The icon of the site with the colour and the name of the institution."""
    if settings.branding_accent:
        svg = svg.replace(f'fill="{_FAVICON_COLOUR}"', f'fill="{escape(settings.branding_accent)}"')
    return svg.replace(f"<title>{_PRODUCT}</title>", f"<title>{escape(settings.branding_name or _PRODUCT)}</title>")


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
        content = read_regular(path, MAX_LOGO_BYTES)
    except OSError as error:
        raise ConfigurationError(f"branding_logo: the file {path} cannot be read: {error.strerror}") from error
    is_svg = media_type == "image/svg+xml"
    if not content.startswith(magic) or (is_svg and not _SVG_ROOT.search(content[:_SVG_HEAD_BYTES])):
        raise ConfigurationError(
            f"branding_logo: the content of {path} is not {media_type}; give the file the suffix of its content"
        )
    return StaticFile(media_type, content)
