"""An institution's branding: its name, logo, colours, links, texts and templates. docs/branding.md has an example."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.branding.colours import brand_stylesheet
from doi_proxy.features.branding.feature import BrandingSettings
from doi_proxy.features.branding.institution import Institution, read_institution
from doi_proxy.features.branding.messages import Translation, read_messages
from doi_proxy.features.branding.templates import open_templates
from doi_proxy.system.files import explain_failure, read_regular
from doi_proxy.system.toml_text import TomlProblem, WrongTable, find_key, parse_toml
from doi_proxy.web import branding
from doi_proxy.web.look import OwnTemplates, Renderer

#: The file of the folder that says what the institution is, and the folders beside it.
FILE: Final = "branding.toml"
MESSAGES: Final = "messages"
TEMPLATES: Final = "templates"
#: A larger file is refused. The example has 1 kB.
MAX_FILE_BYTES: Final = 65_536
#: Larger logos are refused, because every reader loads the logo.
MAX_LOGO_BYTES: Final = 262_144
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
_SVG_ROOT: Final = re.compile(rb"<svg[\s>]")
#: The root element of an SVG logo must begin within this many bytes.
_SVG_HEAD_BYTES: Final = 4_096


def read_branding(settings: BrandingSettings, packages: Sequence[str]) -> branding.Branding:
    """The face that the settings and their folder describe, over the texts of `packages`. Raises ConfigurationError."""
    folder = settings.branding_folder
    if folder is None:
        return _build(settings.branding_name, None, Institution(), packages)
    if not folder.is_dir():
        raise ConfigurationError(f"branding_folder: the folder {folder} does not exist")
    file = folder / FILE
    try:
        text = read_regular(file, MAX_FILE_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"branding_folder: the file {file} cannot be read: {explain_failure(error)}"
        ) from error
    try:
        return _build(settings.branding_name, folder, read_institution(parse_toml(text)), packages)
    except TomlProblem as error:
        raise ConfigurationError(f"{file}, line {error.line}: {error.message}") from error
    except WrongTable as error:
        key = error.key or ""
        raise ConfigurationError(f"{file}, line {find_key(text, key)[0]}: {key}: {error.message}") from error


def _build(name: str, folder: Path | None, institution: Institution, packages: Sequence[str]) -> branding.Branding:
    """The face of an institution. Raises WrongTable for a key of its file, ConfigurationError for another file."""
    rules = brand_stylesheet(branding.read_stylesheet(), institution.colours)
    stylesheet, files = branding.open_files(rules, partial(_brand_icon, name, institution.colours.get("accent")))
    logo_path = None
    if folder is not None and institution.logo is not None:
        path = folder / institution.logo
        logo = _read_logo(path)
        logo_path = f"/static/logo-{branding.digest(logo.content)}{path.suffix.lower()}"
        files[logo_path] = logo
    brand = branding.Brand(
        stylesheet,
        name=name,
        logo=logo_path,
        contact=institution.contact,
        home_text=institution.home_text,
        imprint=institution.imprint,
        privacy=institution.privacy,
        footer=institution.footer,
        **institution.links,
    )
    found = read_messages(institution.languages, _find_folder(folder, MESSAGES), packages)
    texts = {tag: translation.texts for tag, translation in found.items()}
    brands = {tag: _translate(brand, translation) for tag, translation in found.items()}
    replace_templates = _replace_templates(_find_folder(folder, TEMPLATES), brand)
    return branding.Branding(brand, files, institution.languages, texts, replace_templates, brands)


def _find_folder(folder: Path | None, name: str) -> Path | None:
    return None if folder is None or not (folder / name).is_dir() else folder / name


def _translate(brand: branding.Brand, translation: Translation) -> branding.Brand:
    """The brand in a language, whose file can have its footer and its links."""
    changed: dict[str, Any] = dict(translation.links)
    if translation.footer:
        changed["footer"] = translation.footer
    return replace(brand, **changed)


def _replace_templates(folder: Path | None, brand: branding.Brand) -> Callable[[OwnTemplates], Renderer] | None:
    return None if folder is None else lambda own: open_templates(own, folder, brand)


def _brand_icon(name: str, accent: str | None, svg: str) -> str:
    """The icon of the site with the colour and the name of the institution."""
    if accent is not None:
        svg = svg.replace(f'fill="{_FAVICON_COLOUR}"', f'fill="{escape(accent)}"')
    return svg.replace(f"<title>{_PRODUCT}</title>", f"<title>{escape(name)}</title>")


def _read_logo(path: Path) -> branding.StaticFile:
    if path.suffix.lower() not in LOGO_TYPES:
        raise WrongTable(f"{path.name[:80]} must end with .svg, .png, .webp, .jpg or .jpeg", "logo")
    media_type, magic = LOGO_TYPES[path.suffix.lower()]
    try:
        content = read_regular(path, MAX_LOGO_BYTES)
    except OSError as error:
        raise WrongTable(f"the file {path} cannot be read: {error.strerror}", "logo") from error
    is_svg = media_type == "image/svg+xml"
    if not content.startswith(magic) or (is_svg and not _SVG_ROOT.search(content[:_SVG_HEAD_BYTES])):
        raise WrongTable(f"the content of {path} is not {media_type}; give the file the suffix of its content", "logo")
    return branding.StaticFile(media_type, content)
