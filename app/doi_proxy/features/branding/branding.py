"""An institution's branding: its name, logo, colours, links, texts and HTML. docs/branding.md has an example."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from html import escape
from pathlib import Path
from string import Formatter
from typing import Any, Final

from markupsafe import Markup

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.branding.feature import BrandingSettings
from doi_proxy.system.files import explain_failure, read_regular
from doi_proxy.system.toml_text import TomlProblem, WrongTable, find_key, parse_toml
from doi_proxy.web import look
from doi_proxy.web.languages import LANGUAGES, flatten_texts, read_all
from doi_proxy.web.look import NamedLink

#: The least contrast of text (WCAG 2.1, 1.4.3).
TEXT_CONTRAST: Final = 4.5
#: Paper is light.
_MEDIA: Final = {"light": "print, (prefers-color-scheme: light)", "dark": "screen and (prefers-color-scheme: dark)"}
_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")
_VARIABLE: Final = re.compile(r"--([a-z-]+): (#[0-9a-f]{6});")

#: Colours such as "#0b5a73" by the names of their variables in the stylesheet, without the dashes.
Palette = Mapping[str, str]


def read_palettes(stylesheet: str) -> dict[str, dict[str, str]]:
    """The colours of each scheme in the stylesheet, which has the dark ones in its first media query."""
    light, dark = (dict(_VARIABLE.findall(part)) for part in stylesheet.split("@media", 2)[:2])
    return {"light": light, "dark": light | dark}


def brand_stylesheet(stylesheet: str, colours: Mapping[str, str]) -> str:
    """The rules to append for an institution's colours, "" if there are none. Raises WrongTable.

    `colours` has "accent" and "background" for the light scheme, "accent_dark" and "background_dark" for the dark one.
    """
    palettes = read_palettes(stylesheet)
    rules = []
    for scheme in ("light", "dark"):
        suffix = "" if scheme == "light" else "_dark"
        changed = _change(colours, suffix, palettes[scheme]["paper"])
        if changed:
            palette = palettes[scheme] | changed
            check_contrast(palette, scheme, "accent" + suffix, "background" + suffix)
            variables = " ".join(f"--{name}: {colour};" for name, colour in changed.items())
            rules.append(f"@media {_MEDIA[scheme]} {{ :root {{ {variables} }} }}\n")
    return "".join(rules)


def _change(colours: Mapping[str, str], suffix: str, paper: str) -> dict[str, str]:
    changed = {}
    for name, variable in (("accent", "accent"), ("background", "paper")):
        key = name + suffix
        colour = colours.get(key, "")
        if colour and not _COLOUR.fullmatch(colour):
            raise WrongTable(f"{colour[:40]!r} is not a colour; write six hexadecimal digits, as in #0b5a73", key)
        if colour:
            changed[variable] = colour.lower()
    if "accent" in changed:
        accent = changed["accent"]
        # The two colours of text on a button.
        changed["on-accent"] = max(("#ffffff", "#0b1d24"), key=lambda text: contrast(text, accent))
        paper = changed.get("paper", paper)
        # The shares of the accent in the ground of a notice, and in its frame.
        changed["tint"], changed["tint-line"] = (mix(accent, paper, share) for share in (0.07, 0.25))
    return changed


def check_contrast(palette: Palette, scheme: str, accent: str, background: str) -> None:
    """Raise WrongTable if a text could not be read. `accent` and `background` are the keys of the colours."""
    # The colours of text, and what lies under it.
    grounds = ("paper", "raised", "tint", "warn-tint")
    pairs = [(text, ground, TEXT_CONTRAST) for text in ("ink", "quiet", "accent") for ground in grounds]
    pairs += [("on-accent", "accent", TEXT_CONTRAST), ("warn", "warn-tint", TEXT_CONTRAST)]
    # The edge of a field (WCAG 2.1, 1.4.11).
    pairs += [("edge", ground, 3.0) for ground in ("paper", "raised")]
    for text, ground, least in pairs:
        ratio = contrast(palette[text], palette[ground])
        if ratio < least:
            key = accent if "accent" in (text, ground) else background
            change = "darker" if (scheme == "light") == ("accent" in (text, ground)) else "lighter"
            raise WrongTable(
                f"{palette[text]} ({text}) on {palette[ground]} ({ground}) has a contrast of {ratio:.2f}:1 "
                f"in the {scheme} scheme; WCAG 2.1 needs {least}:1. Choose a {change} colour",
                key,
            )


def mix(colour: str, ground: str, share: float) -> str:
    """A share of a colour on a ground."""
    pairs = ((int(paint[at : at + 2], 16) for paint in (colour, ground)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(share * ours + (1 - share) * under):02x}" for ours, under in pairs)


def contrast(colour: str, other: str) -> float:
    """The contrast ratio of two colours, 1 to 21 (WCAG 2.1, definition of contrast ratio)."""
    brighter, darker = sorted((_luminance(colour), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2.1, definition of relative luminance)."""
    red, green, blue = (_linear(int(colour[place : place + 2], 16) / 255) for place in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(component: float) -> float:
    return component / 12.92 if component <= 0.04045 else float(((component + 0.055) / 1.055) ** 2.4)


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
    if len(table) > 10:
        raise WrongTable(f"there are {len(table)} links; the limit is 10", key)
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


#: Larger language files are refused; ours have 15 kB.
MAX_MESSAGES_BYTES: Final = 262_144
_COMPLETE: Final = "docs/branding.md names the files that have them"


@dataclass(frozen=True, slots=True)
class Translation:
    """What a language file has: texts by their keys, and the footer and the links of its language."""

    texts: Mapping[str, str]
    links: Mapping[str, tuple[NamedLink, ...]]
    footer: str


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
        return Translation({}, {}, "")
    try:
        toml = read_regular(path, MAX_MESSAGES_BYTES).decode("utf-8-sig")
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


#: The file of the folder that says what the institution is.
FILE: Final = "branding.toml"
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
#: Larger files of HTML are refused, because every page has them.
MAX_HTML_BYTES: Final = 16_384
_HTML_FILE: Final = re.compile(r"(header|footer)(?:\.(.+))?\.html")
_SVG_ROOT: Final = re.compile(rb"<svg[\s>]")


def read_branding(settings: BrandingSettings, packages: Sequence[str]) -> look.Branding:
    """The face that the settings and their folder describe, over the texts of `packages`. Raises ConfigurationError."""
    folder = settings.branding_folder
    if folder is None:
        return _build(settings.branding_name, None, Institution(), packages)
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises where the folder above may not be entered
        raise ConfigurationError(f"branding_folder: the folder {folder} does not exist")
    file = folder / FILE
    try:
        # A larger file is refused. The example has 1 kB.
        text = read_regular(file, 65_536).decode("utf-8-sig")
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


def _build(name: str, folder: Path | None, institution: Institution, packages: Sequence[str]) -> look.Branding:
    """The face of an institution. Raises WrongTable for a key of its file, ConfigurationError for another file."""
    rules = brand_stylesheet(look.read_stylesheet(), institution.colours)
    stylesheet, files = look.open_files(rules, partial(_brand_icon, name, institution.colours.get("accent")))
    logo_path = None
    if folder is not None and institution.logo is not None:
        path = folder / institution.logo
        logo = _read_logo(path)
        logo_path = f"/static/logo-{look.digest(logo.content)}{path.suffix.lower()}"
        files[logo_path] = logo
    links: dict[str, Any] = dict(institution.links)
    brand = look.Brand(
        stylesheet,
        name=name,
        logo=logo_path,
        contact=institution.contact,
        home_text=institution.home_text,
        imprint=institution.imprint,
        privacy=institution.privacy,
        footer=institution.footer,
        **links,
    )
    languages = institution.languages
    messages = None if folder is None else folder / "messages"
    if messages is not None and not os.path.isdir(messages):  # noqa: PTH112 - see above
        messages = None
    found = read_messages(languages, messages, packages)
    texts = {tag: translation.texts for tag, translation in found.items()}
    html = {} if folder is None else _read_html(folder, languages)
    brands = {tag: _translate(brand, translation, html.get(tag, {})) for tag, translation in found.items()}
    return look.Branding(brand, files, languages, texts, brands)


def _translate(brand: look.Brand, translation: Translation, html: Mapping[str, Markup]) -> look.Brand:
    """The brand in a language, whose file can have its footer and its links."""
    changed: dict[str, Any] = {**translation.links, **html}
    if translation.footer:
        changed["footer"] = translation.footer
    return replace(brand, **changed)


def _read_html(folder: Path, languages: Sequence[str]) -> dict[str, dict[str, Markup]]:
    """The HTML of a folder by language, and by field of Brand. Raises ConfigurationError.

    `header.html` is for all languages, and `header.de.html` for German in place of it. The same holds for `footer`.
    """
    found: dict[str, dict[str, Markup]] = {tag: {} for tag in languages}
    try:
        paths = [*folder.iterdir()]
    except OSError as error:
        raise ConfigurationError(f"branding_folder: {folder} cannot be listed: {explain_failure(error)}") from error
    # A file without a tag has the shorter name, so one with a tag comes after it.
    for path in sorted(paths, key=lambda path: len(path.name)):
        named = _HTML_FILE.fullmatch(path.name)
        if named is None:
            continue
        part, tag = named.groups()
        if tag is not None and tag not in languages:
            on = ", ".join(languages)
            message = f"{tag[:40]!r} is not a language of the pages, which are {on}; add it to languages in {FILE}"
            raise ConfigurationError(f"{path}: {message}, or remove this file")
        try:
            html = read_regular(path, MAX_HTML_BYTES).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: the HTML cannot be read: {explain_failure(error)}") from error
        for language in languages if tag is None else (tag,):
            # Nothing of it is escaped or filled in: these files are trusted as the settings are.
            found[language][f"{part}_html"] = Markup(html)  # noqa: S704
    return found


def _brand_icon(name: str, accent: str | None, svg: str) -> str:
    """The icon of the site with the colour and the name of the institution."""
    if accent is not None:
        # The colour and the title of our icon.
        svg = svg.replace('fill="#0b5a73"', f'fill="{escape(accent)}"')
    return svg.replace("<title>doi-proxy</title>", f"<title>{escape(name)}</title>")


def _read_logo(path: Path) -> look.StaticFile:
    if path.suffix.lower() not in LOGO_TYPES:
        raise WrongTable(f"{path.name[:80]} must end with .svg, .png, .webp, .jpg or .jpeg", "logo")
    media_type, magic = LOGO_TYPES[path.suffix.lower()]
    try:
        content = read_regular(path, MAX_LOGO_BYTES)
    except OSError as error:
        raise WrongTable(f"the file {path} cannot be read: {error.strerror}", "logo") from error
    is_svg = media_type == "image/svg+xml"
    # The root element of an SVG logo must begin within this many bytes.
    if not content.startswith(magic) or (is_svg and not _SVG_ROOT.search(content[:4_096])):
        raise WrongTable(f"the content of {path} is not {media_type}; give the file the suffix of its content", "logo")
    return look.StaticFile(media_type, content)
