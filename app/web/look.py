"""The look of the pages: templates, texts and static files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import CodeType
from typing import Any, Final

from cachetools import LRUCache
from jinja2 import BaseLoader, BytecodeCache, ChoiceLoader, Environment, FunctionLoader, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import escape

from app.web.branding import Brand, Branding, StaticFile
from app.web.date import write_timestamp
from app.web.languages import CORE, Catalogue, TextFolder, load_catalogues
from app.web.shown_values import (
    MAX_CHARACTERS_SHOWN,
    contact_link,
    data_href,
    hexadecimal,
    list_permissions,
    name_href,
    render_link,
    shape,
    visible,
)

_LAYOUT: Final = "layout.html"
#: Compiled templates that are kept: those of four languages, and those of changed texts.
_MAX_TEMPLATES: Final = 400
#: Stands for the title and for the main part in what is around them.
_PLACE: Final = "\0place\0"
#: What is around the title and the main part, as a template.
_FRAME: Final = "frame.html"
_FRAME_SOURCE: Final = (f'{{% extends "{_LAYOUT}" %}}{{% block main %}}{_PLACE}{{% endblock %}}', None, None)
#: The layout of a page that is rendered without what is around its main part.
_MAIN_ALONE: Final = ("{% block main required %}{% endblock %}", None, None)
#: A text without values in a template.
_TEXT: Final = re.compile(r'\{\{ t\("([a-z_.]+)"\) \}\}')
#: Frames that are kept: languages, with and without a link that depends on a setting.
_MAX_FRAMES: Final = 64

#: The text of a template, its file, and what says whether that is unchanged.
Source = tuple[str, str | None, Callable[[], bool] | None]
#: Renders the template of a page, such as "home", with its facts.
Renderer = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class OwnTemplates:
    """Our templates, for those that replace or extend them. `texts` are those of the default language."""

    loader: BaseLoader
    #: The files of all templates.
    files: Sequence[str]
    #: Opens an environment with what our templates use.
    open: Callable[[BaseLoader], Environment]
    render: Renderer
    of_features: Sequence[TextFolder]
    texts: Catalogue


@dataclass(frozen=True, slots=True)
class Look:
    """Templates, texts and static files. The first catalogue is that of the default language."""

    brands: Mapping[str, Brand]
    files: Mapping[str, StaticFile]
    catalogues: Mapping[str, Catalogue]
    render_template: Renderer
    #: Each compiles one template, which its first page would do otherwise.
    preparations: Sequence[Callable[[], object]]

    def texts(self, language: str) -> Catalogue:
        """The texts of a language. A language without texts gets those of the default language."""
        return self.catalogues.get(language) or next(iter(self.catalogues.values()))

    def render(self, template: str, context: Mapping[str, Any]) -> str:
        """Render a page."""
        return self.render_template(template, {"brand": self.brands[context["t"].language], **context})


def open_look(branding: Branding, of_features: Sequence[TextFolder], *, contact: str | None, version: str) -> Look:
    """Read templates and texts. Raises ConfigurationError if templates in place of ours cannot be used."""
    packages = (CORE, *(folder.package for folder in of_features))
    catalogues = load_catalogues(branding.languages, packages, branding.texts)
    names = {"version": version, "operator": contact_link(contact)}
    sources = _read_sources(packages)
    render, preparations = _load_own(sources, names, catalogues)
    if branding.replace_templates is not None:
        first = next(iter(catalogues.values()))
        own = OwnTemplates(
            FunctionLoader(sources.get), list(sources), partial(_open_environment, names), render, of_features, first
        )
        render = branding.replace_templates(own)
    brands = {tag: branding.brands.get(tag, branding.brand) for tag in catalogues}
    return Look(brands, branding.files, catalogues, render, preparations)


@cache
def _read_sources(packages: tuple[str, ...]) -> Mapping[str, Source]:
    """Our own templates by their file names. A name of an earlier package hides that of a later one."""
    ours = ChoiceLoader([PackageLoader(package, "texts") for package in packages])
    environment = Environment(autoescape=True)
    return {name: ours.get_source(environment, name) for name in ours.list_templates() if name.endswith(".html")}


class _OwnCode(BytecodeCache):
    """The code of our own templates, by file and source. All looks of the process share it."""

    def __init__(self) -> None:
        self._code: LRUCache[tuple[str, str], CodeType] = LRUCache(_MAX_TEMPLATES)

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give the bucket its code if that is known."""
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Remember the code of the bucket."""
        if bucket.code is not None:
            self._code[bucket.key, bucket.checksum] = bucket.code


_own_code = cache(_OwnCode)


def _load_own(
    sources: Mapping[str, Source], names: Mapping[str, Any], catalogues: Mapping[str, Catalogue]
) -> tuple[Renderer, Sequence[Callable[[], object]]]:
    """Our own templates. Returns what renders them, and what compiles each before its first use.

    What is around the main part of our pages depends on little. It is rendered once and kept: a third of the time.
    Texts without values are compiled into the templates of each language, which takes a fourth of the rest.
    """
    whole = _read_from({**sources, _FRAME: _FRAME_SOURCE}.get, names)
    of_parts = {**sources, _LAYOUT: _MAIN_ALONE}
    parts = {tag: _read_from(partial(_write_texts, of_parts, texts), names) for tag, texts in catalogues.items()}
    frames: dict[tuple[object, ...], list[str]] = {}

    def render(template: str, context: Mapping[str, Any]) -> str:
        key = (context["t"].language, context["base"], context["indexed"], *context["links"])
        frame = frames.get(key)
        if frame is None:
            if len(frames) >= _MAX_FRAMES:
                frames.clear()
            frame = frames[key] = whole.get_template(_FRAME).render({**context, "title": _PLACE}).split(_PLACE)
        before, between, after = frame
        main = parts[context["t"].language].get_template(f"{template}.html").render(context)
        return f"{before}{escape(context['title'])}{between}{main}{after}"

    preparations = [partial(whole.get_template, name) for name in (_LAYOUT, _FRAME)]
    return render, [*preparations, *(partial(part.get_template, name) for part in parts.values() for name in sources)]


def _write_texts(sources: Mapping[str, Source], texts: Catalogue, name: str) -> Source | None:
    """A template with the texts of one language in place of the calls for them."""

    def write(found: re.Match[str]) -> str:
        return found[0] if "{" in texts(found[1]) else texts(found[1])

    return (_TEXT.sub(write, sources[name][0]), *sources[name][1:]) if name in sources else None


def _read_from(find: Callable[[str], Source | None], names: Mapping[str, Any]) -> Environment:
    """An environment with the templates that `find` finds. What is compiled is kept for the whole process."""
    environment = _open_environment(names, FunctionLoader(find))
    environment.bytecode_cache = _own_code()
    environment.auto_reload = False  # the files of a newer version do not fit the running program
    return environment


def _open_environment(names: Mapping[str, Any], loader: BaseLoader | None = None) -> Environment:
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        **names,
        "link": render_link,
        "moment": write_timestamp,
        "granted": list_permissions,
        "most_characters": MAX_CHARACTERS_SHOWN,
    }
    environment.globals |= {"shape": shape, "data_href": data_href, "name_href": name_href}
    environment.filters |= {"visible": visible, "hexadecimal": hexadecimal}
    return environment
