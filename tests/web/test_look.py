"""Our own templates: each renders, and is compiled once in a process."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from jinja2 import Environment

from doi_proxy.assembly.features import text_folders
from doi_proxy.features.branding.branding import sample_context, sample_facts
from doi_proxy.web.look import Look, open_look, our_branding

SAMPLES = {**sample_facts(), **{page: facts for one in text_folders() for page, facts in one.samples().items()}}


def our_look() -> Look:
    return open_look(our_branding(), text_folders(), version="1.2.3")


def render(look: Look, page: str, language: str = "en") -> str:
    return look.render(page, {"t": look.texts(language), **sample_context(SAMPLES[page])})


@pytest.mark.parametrize("page", SAMPLES)
def test_each_template_renders_its_sample(page: str) -> None:
    assert render(our_look(), page).strip()


def test_a_template_is_compiled_once_in_a_process_for_all_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = render(our_look(), "home")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a template is compiled again")

    monkeypatch.setattr(Environment, "compile", refuse)
    assert render(our_look(), "home") == shown
    assert render(our_look(), "home", "de") != shown


def test_a_page_has_its_own_title_links_and_place_in_a_frame_that_is_kept() -> None:
    look = our_look()
    context = {"t": look.texts("en"), **sample_context(SAMPLES["home"])}
    first = look.render("home", {**context, "title": "<One>"})
    other = look.render("home", {**context, "title": "Two", "base": "/doi", "links": [], "indexed": True})
    assert "<title>&lt;One&gt; ·" in first and 'name="robots"' in first
    assert "<title>Two ·" in other and 'name="robots"' not in other
    assert 'href="/doi/ra/"' in other and 'href="/ra/"' in first
    assert first == look.render("home", {**context, "title": "<One>"})


@pytest.mark.parametrize("page", SAMPLES)
def test_a_page_with_texts_compiled_into_it_is_the_page_that_calls_for_them(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = our_look()
    shown = [render(look, page, language) for language in look.catalogues]
    monkeypatch.setattr("doi_proxy.web.look._TEXT", re.compile("(never)^"))
    assert shown == [render(our_look(), page, language) for language in look.catalogues]


def test_a_text_with_braces_is_text_and_not_a_template() -> None:
    branding = replace(our_branding(), texts={"en": {"form.resolve": "{{{{ 7 * 7 }}}} {{% x %}}"}})
    look = open_look(branding, text_folders(), version="1.2.3")
    assert "{{ 7 * 7 }} {% x %}" in render(look, "home")
