"""The face of the pages: ours, unless an institution puts its own in place of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from doi_names.uri import component
from doi_proxy.system.package_files import read_package_file
from doi_proxy.web.languages import LANGUAGES

if TYPE_CHECKING:
    from doi_proxy.web.look import OwnTemplates, Renderer

#: What stands in the address of a search for the DOI name, and for any text that is searched: a name or a reference.
NAME_PLACEHOLDER: Final = "{doi}"
TEXT_PLACEHOLDER: Final = "{text}"
_STYLESHEET: Final = "/static/style.css"
_FAVICON: Final = "favicon.svg"
#: Bytes of the digest in a file's address. The address changes with the content.
_DIGEST_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class NamedLink:
    """A link and its text."""

    words: str
    address: str

    def fill(self, name: str) -> str:
        """The address with the percent-encoded DOI name in place of the placeholders."""
        return self.fill_text(name).replace(NAME_PLACEHOLDER, component(name))

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
    #: Returns what renders the pages instead of our templates.
    replace_templates: Callable[[OwnTemplates], Renderer] | None = None
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
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
