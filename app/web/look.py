"""The look of the pages: our templates and texts, and those of the institution, which replace ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from traceback import extract_tb
from types import CodeType
from typing import Any, Final

from jinja2 import (
    BaseLoader,
    BytecodeCache,
    ChoiceLoader,
    Environment,
    FileSystemLoader,
    FunctionLoader,
    PackageLoader,
    PrefixLoader,
    StrictUndefined,
    Template,
    TemplateError,
    TemplateSyntaxError,
)
from jinja2.bccache import Bucket

from app.errors import ConfigurationError
from app.web.branding import Brand, Branding, StaticFile, read_brand
from app.web.languages import CORE, Catalogue, load_catalogues, read_tags
from app.web.numbers import write_count, write_number, write_share
from app.web.page_samples import sample_context, sample_facts
from app.web.shown_values import (
    MAX_CHARACTERS_SHOWN,
    contact_link,
    data_href,
    format_time,
    hexadecimal,
    list_permissions,
    name_href,
    render_link,
    shape,
    visible,
)

log = logging.getLogger(__name__)

#: The prefix of our own templates, which a custom template can extend: `{% extends "doi-proxy/layout.html" %}`.
OWN_PREFIX: Final = "doi-proxy"
#: Templates that are not pages.
_PARTS: Final = ("layout.html", "parts.html")

#: Returns the template of a page, such as "home".
Templates = Callable[[str], Template]


@dataclass(frozen=True, slots=True)
class TextFolder:
    """The folder `texts` of a package: its texts by language, and its templates.

    `samples` returns facts for each page, by template. They find the errors of custom templates before these are used.
    """

    package: str
    samples: Callable[[], Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Look:
    """Templates, texts and static files. The first catalogue is that of the default language."""

    brand: Brand
    files: Mapping[str, StaticFile]
    catalogues: Mapping[str, Catalogue]
    templates: Templates
    #: Our own templates if the institution has a folder of templates, else None.
    fallback: Templates | None
    folder: Path | None
    #: The places of errors that are logged already.
    logged: set[str] = field(default_factory=set)

    def texts(self, language: str) -> Catalogue:
        """The texts of a language. A language without texts gets those of the default language."""
        return self.catalogues.get(language) or next(iter(self.catalogues.values()))

    def render(self, template: str, context: Mapping[str, Any]) -> str:
        """Render a page. If a custom template fails, log where, and render our own."""
        context = {"brand": self.brand, **context}
        if self.fallback is None:
            return self.templates(template).render(context)
        try:
            return self.templates(template).render(context)
        except Exception as error:
            place = self.find_place(error)
            if place not in self.logged:
                self.logged.add(place)
                log.error("%s: the template failed (%s); the template of doi-proxy is used instead", place, error)
            return self.fallback(template).render(context)

    def check(self, template: str, context: Mapping[str, Any]) -> None:
        """Render a page to find its errors. Raises ConfigurationError with the file and the line."""
        try:
            self.templates(template).render({"brand": self.brand, **context})
        except Exception as error:
            raise ConfigurationError(f"{self.find_place(error)}: the template failed: {error}") from error

    def find_place(self, error: Exception) -> str:
        """The file of the custom templates, and the line, in which rendering failed."""
        frames = [one for one in extract_tb(error.__traceback__) if str(self.folder) in one.filename]
        return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else f"{self.folder}"


def open_look(branding: Branding, of_features: Sequence[TextFolder], *, contact: str | None, version: str) -> Look:
    """Read templates, texts and files. Raises ConfigurationError with the file and what is wrong."""
    folders = (TextFolder(CORE, sample_facts), *of_features)
    brand, files = read_brand(branding)
    for setting, folder in (("templates", branding.templates), ("messages", branding.messages)):
        if folder is not None and not folder.is_dir():
            raise ConfigurationError(f"branding_{setting}: there is no folder {folder}")
    packages = [folder.package for folder in folders]
    catalogues = load_catalogues(read_tags(branding.languages), branding.messages, packages)
    names = {"version": version, "operator": contact_link(contact)}
    ours = ChoiceLoader([PackageLoader(package, "texts") for package in packages])
    fallback = _load_own(ours, names)
    if branding.templates is None:
        return Look(brand, files, catalogues, fallback, None, None)
    custom = ChoiceLoader([FileSystemLoader(branding.templates), PrefixLoader({OWN_PREFIX: ours}), ours])
    try:
        templates = _load(custom, _list_names(ours), names)
    except TemplateSyntaxError as error:
        raise ConfigurationError(
            f"{error.filename or branding.templates}, line {error.lineno}: {error.message}"
        ) from error
    except (TemplateError, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{branding.templates}: a template cannot be read: {error}") from error
    look = Look(brand, files, catalogues, templates, fallback, branding.templates)
    for texts in folders:
        for name, facts in texts.samples().items():
            look.check(name, {"t": next(iter(catalogues.values())), **sample_context(facts)})
    return look


class _OwnCode(BytecodeCache):
    """The code of our own templates, by file. All looks of the process share it."""

    def __init__(self) -> None:
        self._code: dict[str, tuple[str, CodeType]] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give the bucket the code if its source is the same."""
        checksum, code = self._code.get(bucket.key, ("", None))
        bucket.code = code if checksum == bucket.checksum else None

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Remember the code of the bucket."""
        if bucket.code is not None:
            self._code[bucket.key] = bucket.checksum, bucket.code


_own_code = cache(_OwnCode)


def _load_own(ours: BaseLoader, names: Mapping[str, Any]) -> Templates:
    """Read our own templates, and compile each at its first use. To compile all of them takes a fifth of a start."""
    environment = _environment(names)
    sources = {name: ours.get_source(environment, name) for name in _list_names(ours)}
    environment.loader, environment.bytecode_cache = FunctionLoader(sources.get), _own_code()
    environment.auto_reload = False  # the files of a newer version do not fit the running program
    return lambda name: environment.get_template(f"{name}.html")


def _load(loader: BaseLoader, files: Sequence[str], names: Mapping[str, Any]) -> Templates:
    """Compile all templates. A custom template replaces ours of the same name."""
    environment = _environment(names)
    environment.loader = loader
    compiled = {name: environment.get_template(name) for name in files}
    pages = {name.removesuffix(".html"): template for name, template in compiled.items() if name not in _PARTS}
    return pages.__getitem__


def _list_names(ours: BaseLoader) -> list[str]:
    """The templates in folders that have texts too."""
    return [name for name in ours.list_templates() if name.endswith(".html")]


def _environment(names: Mapping[str, Any]) -> Environment:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {
        **names,
        "link": render_link,
        "granted": list_permissions,
        "most_characters": MAX_CHARACTERS_SHOWN,
    }
    environment.globals |= {"number": write_number, "share": write_share, "counted": write_count}
    environment.globals |= {"shape": shape, "data_href": data_href, "name_href": name_href}
    environment.filters |= {"visible": visible, "time": format_time, "hexadecimal": hexadecimal}
    return environment
