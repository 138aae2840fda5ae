"""The templates of an institution, which replace ours or extend them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final

from jinja2 import ChoiceLoader, FileSystemLoader, PrefixLoader, Template, TemplateError, TemplateSyntaxError

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.branding.samples import sample_context, sample_facts
from doi_proxy.system.files import require_regular
from doi_proxy.web.branding import Brand
from doi_proxy.web.look import OwnTemplates, Renderer

log = logging.getLogger(__name__)

#: Larger templates are refused; ours have at most 10 kB.
MAX_TEMPLATE_BYTES: Final = 262_144
#: The prefix of our own templates, which a custom template can extend: `{% extends "doi-proxy/layout.html" %}`.
OWN_PREFIX: Final = "doi-proxy"


def open_templates(own: OwnTemplates, folder: Path, brand: Brand) -> Renderer:
    """What renders the templates of a folder, and ours where it has none. Raises ConfigurationError.

    Each page is rendered once with a sample, which finds errors before a reader does.
    """
    templates = _CustomTemplates(_compile(own, folder), folder, own.render)
    for samples in (sample_facts, *(texts.samples for texts in own.of_features)):
        for name, facts in samples().items():
            templates.check(name, {"brand": brand, "t": own.texts, **sample_context(facts)})
    return templates.render


def _compile(own: OwnTemplates, folder: Path) -> Mapping[str, Template]:
    """Compile all templates. A custom template replaces ours of the same name."""
    loader = ChoiceLoader([FileSystemLoader(folder), PrefixLoader({OWN_PREFIX: own.loader}), own.loader])
    environment = own.open(loader)
    _require_readable(folder / name for name in own.files)
    try:
        return {name.removesuffix(".html"): environment.get_template(name) for name in own.files}
    except TemplateSyntaxError as error:
        raise ConfigurationError(f"{error.filename or folder}, line {error.lineno}: {error.message}") from error
    except (TemplateError, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{folder}: a template cannot be read: {error}") from error


def _require_readable(files: Iterable[Path]) -> None:
    """Refuse files that the loader would read without a bound, or take for absent."""
    for file in files:
        try:
            if file.exists():
                require_regular(file, MAX_TEMPLATE_BYTES)
        except OSError as error:
            raise ConfigurationError(f"{file}: the template cannot be read: {error.strerror or error}") from error


class _CustomTemplates:
    """The compiled templates of a folder, and what renders ours if one of them fails."""

    def __init__(self, templates: Mapping[str, Template], folder: Path, fallback: Renderer) -> None:
        self._templates = templates
        self._folder = folder
        self._fallback = fallback
        #: The places of errors that are logged already.
        self._logged = set[str]()

    def render(self, template: str, context: Mapping[str, Any]) -> str:
        """Render a page. If a custom template fails, log where, and render our own."""
        try:
            return self._templates[template].render(context)
        except Exception as error:
            place = self._find_place(error)
            if place not in self._logged:
                self._logged.add(place)
                log.error("%s: the template failed (%s); the template of doi-proxy is used instead", place, error)
            return self._fallback(template, context)

    def check(self, template: str, context: Mapping[str, Any]) -> None:
        """Render a page to find its errors. Raises ConfigurationError with the file and the line."""
        try:
            self._templates[template].render(context)
        except Exception as error:
            raise ConfigurationError(f"{self._find_place(error)}: the template failed: {error}") from error

    def _find_place(self, error: Exception) -> str:
        """The file of the custom templates, and the line, in which rendering failed."""
        frames = [frame for frame in extract_tb(error.__traceback__) if str(self._folder) in frame.filename]
        return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else f"{self._folder}"
