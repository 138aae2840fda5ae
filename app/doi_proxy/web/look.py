"""The look of the pages: templates, texts and static files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from hashlib import blake2b
from types import CodeType, MappingProxyType
from typing import Any, Final, Literal

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from jinja2.runtime import Context, Macro
from markupsafe import Markup, escape

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
    # Bytes of the digest in a file's address. The address changes with the content.
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


_LAYOUT: Final = "layout.html"
#: Stands for the title and for the main part in what is around them.
_PLACE: Final = "\0place\0"
#: The layout of what is around the title and the main part, and that of a page without it.
_WHOLE_LAYOUT: Final = "whole_layout.html"
#: What is around the title and the main part, as a template.
_FRAME: Final = "frame.html"
_FRAME_SOURCE: Final = f'{{% extends "{_WHOLE_LAYOUT}" %}}{{% block main %}}{_PLACE}{{% endblock %}}'
#: A text without values in a template, and the mark that stands for it in the compiled template.
_TEXT: Final = re.compile(r'\{\{ t\("([a-z_.]+)"\) \}\}')
_MARK: Final = "\0text {}\0"
_MARKED: Final = re.compile(_MARK.format("([a-z_.]+)"))

#: The text of a template, its file, and what says whether that is unchanged.
Source = tuple[str, str | None, Callable[[], bool] | None]
#: Renders the template of a page, such as "home", with its facts.
Renderer = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class Look:
    """Templates, texts and static files. The first catalogue is that of the default language."""

    brands: Mapping[str, Brand]
    files: Mapping[str, StaticFile]
    catalogues: Mapping[str, Catalogue]
    render_template: Renderer
    #: Each compiles one template for all languages, which its first page would do otherwise.
    preparations: Sequence[Callable[[], object]]

    @property
    def contact(self) -> str | None:
        """The contact of the institution, for readers."""
        return next(iter(self.brands.values())).contact

    def texts(self, language: str) -> Catalogue:
        """The texts of a language. A language without texts gets those of the default language."""
        return self.catalogues.get(language) or next(iter(self.catalogues.values()))

    def render(self, template: str, context: Mapping[str, Any]) -> str:
        """Render a page."""
        return self.render_template(template, {"brand": self.brands[context["t"].language], **context})


def open_look(branding: Branding, packages: tuple[str, ...], *, version: str) -> Look:
    """Read the templates and texts of packages."""
    catalogues = load_catalogues(branding.languages, packages, branding.texts)
    names = {"version": version, "operator": shown_values.contact_link(branding.brand.contact)}
    sources = _read_sources(packages)
    render, preparations = _load_own(sources, names, catalogues)
    brands = {tag: branding.brands.get(tag, branding.brand) for tag in catalogues}
    return Look(brands, branding.files, catalogues, render, preparations)


@cache
def _read_sources(packages: tuple[str, ...]) -> Mapping[str, Source]:
    """Our own templates by their file names. A name of an earlier package hides that of a later one."""
    ours = ChoiceLoader([PackageLoader(package, "texts") for package in packages])
    environment = Environment(autoescape=True)
    return {name: ours.get_source(environment, name) for name in ours.list_templates() if name.endswith(".html")}


def _load_own(
    sources: Mapping[str, Source], names: Mapping[str, Any], catalogues: Mapping[str, Catalogue]
) -> tuple[Renderer, Sequence[Callable[[], object]]]:
    """Our own templates. Returns what renders them, and what compiles each before its first use.

    What is around the main part of our pages depends on little. It is rendered once and kept: a third of the time.
    Texts without values are constants in the templates of each language, which saves a fourth of the rest.
    """
    marked = {name: (_TEXT.sub(_MARK.format(r"\1"), source), file) for name, (source, file, _) in sources.items()}
    marked |= {
        _WHOLE_LAYOUT: marked[_LAYOUT],
        _LAYOUT: ("{% block main required %}{% endblock %}", None),
        _FRAME: (_FRAME_SOURCE, None),
    }
    environments = {tag: _open_environment(names, _Loader(marked, texts)) for tag, texts in catalogues.items()}
    for environment in environments.values():
        environment.context_class = _Context
    frames: dict[tuple[object, ...], list[str]] = {}

    def render(template: str, context: Mapping[str, Any]) -> str:
        environment = environments[context["t"].language]
        key = (context["t"].language, context["base"], context["indexed"], *context["links"])
        frame = frames.get(key)
        if frame is None:
            # Frames that are kept: languages, with and without a link that depends on a setting.
            if len(frames) >= 64:
                frames.clear()
            frame = frames[key] = environment.get_template(_FRAME).render({**context, "title": _PLACE}).split(_PLACE)
        before, between, after = frame
        main = environment.get_template(f"{template}.html").render(context)
        return f"{before}{escape(context['title'])}{between}{main}{after}"

    return render, [partial(_compile, name, *source) for name, source in marked.items()]


class _Loader(BaseLoader):
    """Our own templates with the texts of one language in place of the marks."""

    def __init__(self, marked: Mapping[str, tuple[str, str | None]], texts: Catalogue) -> None:
        self._marked = marked
        self._texts = texts

    def load(self, environment: Environment, name: str, names: MutableMapping[str, Any] | None = None) -> Template:
        """The template of this name, with the names that it can use."""
        code = _write_texts(_compile(name, *self._marked[name]), self._texts)
        return Template.from_code(environment, code, {} if names is None else names)


@lru_cache(maxsize=100)  # ours are 32
def _compile(name: str, marked: str, file: str | None) -> CodeType:
    """The code of a template with marks. The languages and all looks of the process share it."""
    return _open_environment({}).compile(marked, name, file)


def _write_texts(code: CodeType, texts: Catalogue) -> CodeType:
    """Replace the marks in the constants of a template by the texts of a language."""

    def write(constant: object) -> object:
        if isinstance(constant, CodeType):
            return _write_texts(constant, texts)
        return _MARKED.sub(lambda found: texts(found[1]), constant) if isinstance(constant, str) else constant

    return code.replace(co_consts=tuple(map(write, code.co_consts)))


class _Context(Context):
    """What our templates see. Their functions have none of the decorators of jinja2; macros have one.

    A page has forty calls. To look for decorators takes a tenth of its time.
    """

    def call(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Call a function or a macro. jinja2 adds the variables of loops and blocks, for functions with the context."""
        options.pop("_block_vars", None)
        options.pop("_loop_vars", None)
        return function(self.eval_ctx, *args, **options) if type(function) is Macro else function(*args, **options)


def _open_environment(names: Mapping[str, Any], loader: BaseLoader | None = None) -> Environment:
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        **names,
        "link": shown_values.render_link,
        "moment": write_timestamp,
        "granted": shown_values.write_permissions,
        "most_characters": shown_values.MAX_CHARACTERS_SHOWN,
        "signs": SIGNS,
    }
    environment.globals |= {
        "shape": shown_values.shape,
        "data_href": shown_values.data_href,
        "name_href": shown_values.name_href,
    }
    environment.filters |= {"visible": shown_values.visible, "hexadecimal": shown_values.hexadecimal}
    return environment
