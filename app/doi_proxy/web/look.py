"""The look of the pages: templates, texts and static files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, Literal

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from doi_names.presentation import component
from doi_proxy.system.files import read_package_file
from doi_proxy.web import shown_values
from doi_proxy.web.languages import LANGUAGES, Catalogue, load_catalogues
from doi_proxy.web.negotiation import write_timestamp

TEXT_PLACEHOLDER: Final = "{text}"
_STYLESHEET: Final = "/static/style.css"
_FAVICON: Final = "favicon.svg"


@dataclass(frozen=True, slots=True)
class NamedLink:
    """A link and its text."""

    words: str
    address: str

    def fill(self, name: str) -> str:
        """The address with the percent-encoded DOI name in place of the placeholders."""
        # What stands in the address of a search for the DOI name, and for any text that is searched: a name or a
        # reference.
        return self.fill_text(name).replace("{doi}", component(name))

    def fill_text(self, text: str) -> str:
        """The address with the percent-encoded text in place of its placeholder."""
        return self.address.replace(TEXT_PLACEHOLDER, component(text))


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of `/static/`."""

    media_type: str
    content: bytes


_SEARCHES: Final = (
    NamedLink("Crossref", "https://search.crossref.org/search/works?q={text}&from_ui=yes"),
    NamedLink("DataCite", "https://commons.datacite.org/doi.org?query={text}"),
)


@dataclass(frozen=True, slots=True)
class Brand:
    """What the pages show of the institution. Addresses are paths below the resolver's own, or URLs."""

    stylesheet: str
    name: str = "doi-proxy"
    logo: str | None = None
    #: An e-mail address, a URL or words.
    contact: str | None = None
    home_text: str = ""
    help_links: tuple[NamedLink, ...] = ()
    search_links: tuple[NamedLink, ...] = _SEARCHES
    free_links: tuple[NamedLink, ...] = ()
    imprint: str = ""
    privacy: str = ""
    footer: str = ""
    #: HTML at the end of the header, and at the start of the footer.
    header_html: Markup | None = None
    footer_html: Markup | None = None

    @property
    def text_searches(self) -> tuple[NamedLink, ...]:
        """The searches that take the text of a reference: those of the institution, or ours if it has none."""
        return tuple(link for link in self.search_links if TEXT_PLACEHOLDER in link.address) or _SEARCHES


@dataclass(frozen=True, slots=True)
class Branding:
    """The face of the pages. The default of each part is ours."""

    brand: Brand
    #: The static files by path.
    files: Mapping[str, StaticFile]
    #: The tags of the languages, the default first.
    languages: Sequence[str] = LANGUAGES
    #: By language, the texts that replace ours. A language that we do not have has all of them.
    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: The brand in each language in which it differs.
    brands: Mapping[str, Brand] = field(default_factory=dict)


def our_branding() -> Branding:
    """Our own face."""
    stylesheet, files = open_files()
    return Branding(Brand(stylesheet), files)


def read_stylesheet() -> str:
    """Our stylesheet."""
    return read_package_file("doi_proxy.web", "static", "style.css").decode()


def open_files(rules: str = "", draw_icon: Callable[[str], str] = str) -> tuple[str, dict[str, StaticFile]]:
    """The address of our stylesheet, with `rules` at its end, and the static files by path."""
    stylesheet = (read_stylesheet() + rules).encode()
    icon = draw_icon(read_package_file("doi_proxy.web", "static", _FAVICON).decode())
    favicon = StaticFile("image/svg+xml", icon.encode())
    files = {
        _STYLESHEET: StaticFile("text/css;charset=utf-8", stylesheet),
        f"/static/{_FAVICON}": favicon,
        "/favicon.ico": favicon,
    }
    # Browsers keep the stylesheet for a day. Its query changes with its content.
    return f"{_STYLESHEET}?v={digest(stylesheet)}", files


def digest(content: bytes) -> str:
    """A short digest of a file, for its address."""
    return blake2b(content, digest_size=6).hexdigest()


Outcome = Literal["registered", "corrected", "other", "unknown", "without", "missing", "gone"]
#: The sign of each outcome, which says the same as its colour: that of the class `is-…` in style.css.
SIGNS: Final = MappingProxyType[Outcome, str](
    {
        "registered": "\N{CHECK MARK}",
        "corrected": "\N{RIGHTWARDS ARROW}",
        "other": "!",
        "unknown": "?",
        "without": "\N{EN DASH}",
        "missing": "\N{BALLOT X}",
        "gone": "\N{EN DASH}",
    }
)


@dataclass(frozen=True, slots=True)
class Look:
    """Templates, texts and static files. The first catalogue is that of the default language."""

    brands: Mapping[str, Brand]
    files: Mapping[str, StaticFile]
    catalogues: Mapping[str, Catalogue]
    templates: Environment
    version: str

    @property
    def contact(self) -> str | None:
        """The contact of the institution, for readers."""
        return next(iter(self.brands.values())).contact

    def texts(self, language: str) -> Catalogue:
        """The texts of a language. A language without texts gets those of the default language."""
        return self.catalogues.get(language) or next(iter(self.catalogues.values()))

    def render(self, template: str, context: Mapping[str, Any]) -> str:
        """Render the template of a page, such as "home", with its facts."""
        ours = {"brand": self.brands[context["t"].language], "version": self.version}
        ours["operator"] = shown_values.contact_link(self.contact)
        return self.templates.get_template(f"{template}.html").render(ours, **context)


def open_look(branding: Branding, packages: tuple[str, ...], *, version: str) -> Look:
    """Read the templates and texts of packages."""
    catalogues = load_catalogues(branding.languages, packages, branding.texts)
    brands = {tag: branding.brands.get(tag, branding.brand) for tag in catalogues}
    return Look(brands, branding.files, catalogues, _open_templates(packages), version)


@cache
def _open_templates(packages: tuple[str, ...]) -> Environment:
    """The templates of packages. All looks of the process share them, so each is compiled once."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "texts") for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # the files do not change while the process runs
    )
    environment.globals |= {
        "link": shown_values.render_link,
        "moment": write_timestamp,
        "granted": shown_values.write_permissions,
        "most_characters": shown_values.MAX_CHARACTERS_SHOWN,
        "signs": SIGNS,
        "shape": shown_values.shape,
        "data_href": shown_values.data_href,
        "name_href": shown_values.name_href,
    }
    environment.filters |= {"visible": shown_values.visible, "hexadecimal": shown_values.hexadecimal}
    return environment
