"""Which language a page is in, and what a catalogue may be."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup, escape

from doi_proxy.assembly.features import text_folders
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.branding.branding import placeholders
from doi_proxy.web.languages import (
    CORE,
    LANGUAGES,
    MAX_HEADER_CHARACTERS,
    Catalogue,
    choose_language,
    load_catalogues,
    read_packaged,
    read_texts,
)
from tests.table import table

#: The core, and the features that have texts.
PACKAGES = (CORE, *(folder.package for folder in text_folders()))
CATALOGUES = load_catalogues(("en", "de", "fr", "es"), packages=PACKAGES)
ENGLISH = CATALOGUES[LANGUAGES[0]]
#: Keys that are put together from a part that stands in the code and one that a fact decides.
JOINED = ("ways.subject_", "ways.mail_", "references.",
    "gone.title_", "which_ra.", "locations.", "privacy.", "status.", "values.leads_", "values.has_",
    "code_point.", "could_not_verify.retry_", "could_not_verify.title_", "not_found.lead_", "not_found.title_", "note.",
    "failure.", "permission.", "title.", "values.title_", "values.index", "values.type", "values.timestamp",
    "values.data", "values.cut_",
)  # fmt: skip


@table(
    ("header", "available", "chosen", "source"),
    [
        (None, ("en", "de"), "en", "RFC 9110, section 12.5.4: no header, any language"),
        ("", ("en", "de"), "en", "RFC 9110, section 12.5.4"),
        ("de", ("en", "de"), "de", "RFC 4647, section 3.4"),
        ("DE", ("en", "de"), "de", "RFC 4647, section 2: letters of either case"),
        ("de-CH", ("en", "de"), "de", "RFC 4647, section 3.4: shortened from the end"),
        ("zh-Hant-CN-x-private1-private2", ("en", "zh-Hant-CN"), "zh-Hant-CN", "RFC 4647, section 3.4, its example"),
        ("zh-Hant-CN-x-private1-private2", ("en", "zh-Hant-CN-x"), "en", "RFC 4647, section 3.4: no single character"),
        ("de", ("en", "de-AT"), "en", "RFC 4647, section 3.4: a longer tag does not match"),
        ("da, en-gb;q=0.8, en;q=0.7", ("en", "de"), "en", "RFC 9110, section 12.5.4, its example"),
        ("en;q=0.7, de", ("en", "de"), "de", "RFC 9110, section 12.4.2: no weight is 1"),
        ("en;q=0.2, de;q=0.3", ("en", "de"), "de", "RFC 9110, section 12.4.2"),
        ("de;q=0.5,en;q=0.5", ("en", "de"), "de", "RFC 4647, section 3.4: equal weights in their order"),
        ("de ; q=0.001", ("en", "de"), "de", "RFC 9110, section 12.4.2: white space around the semicolon"),
        ("fr, de;q=0.5", ("en", "de"), "de", "RFC 4647, section 3.4: the next range"),
        ("fr", ("en", "de"), "en", "RFC 4647, section 3.4: the default"),
        ("*", ("en", "de"), "en", "RFC 4647, section 3.4: the wildcard is the default"),
        ("fr, *;q=0.1", ("en", "de"), "en", "RFC 4647, section 3.4"),
        ("en;q=0, *", ("en", "de"), "de", "RFC 9110, section 12.4.2: 0 is not acceptable"),
        ("de;q=0", ("en", "de"), "en", "RFC 9110, section 12.4.2"),
        ("en;q=0, de;q=0", ("en", "de"), "en", "RFC 9110, section 12.5.4: a header may be disregarded"),
        ("de;q=2, de;q=x, de;q=0.1234, d e, -de, de_DE", ("en", "de"), "en", "malformed elements are ignored"),
        (",,de,", ("en", "de"), "de", "RFC 9110, section 5.6.1: empty elements"),
    ],
)
def test_the_language_asked_for_is_chosen(
    header: str | None, available: tuple[str, ...], chosen: str, source: str
) -> None:
    assert choose_language(header, available) == chosen, source


def test_what_stands_behind_the_bound_of_the_header_is_not_read() -> None:
    filling = "fr," * (MAX_HEADER_CHARACTERS // 3)
    assert choose_language(filling + "de", ("en", "de")) == "en"


def test_an_element_cut_by_the_bound_is_not_read() -> None:
    filling = "x," + "a" * (MAX_HEADER_CHARACTERS - 5) + ","
    assert len(filling) == MAX_HEADER_CHARACTERS - 2
    assert choose_language(filling + "desperate", ("en", "de")) == "en"


@given(st.text(max_size=2_000))
def test_any_header_chooses_a_language_there_is(header: str) -> None:
    assert choose_language(header, ("en", "de")) in ("en", "de")


def test_the_languages_are_in_the_order_of_the_setting() -> None:
    assert list(load_catalogues(("fr", "en"))) == ["fr", "en"]


@pytest.mark.parametrize("language", [tag for tag in CATALOGUES if tag != LANGUAGES[0]])
def test_each_language_has_the_keys_of_the_reference(language: str) -> None:
    assert set(CATALOGUES[language].texts) == set(ENGLISH.texts)


@pytest.mark.parametrize("language", [tag for tag in CATALOGUES if tag != LANGUAGES[0]])
def test_each_text_has_the_placeholders_of_the_reference(language: str) -> None:
    theirs, ours = CATALOGUES[language].texts, ENGLISH.texts
    different = {key for key, text in ours.items() if placeholders(text) != placeholders(theirs[key])}
    assert not different


@pytest.mark.parametrize("language", CATALOGUES)
def test_no_text_is_blank_or_html(language: str) -> None:
    assert not {key for key, text in CATALOGUES[language].texts.items() if not text.strip() or re.search("[<>]", text)}


def test_french_punctuation_stays_on_the_line_of_its_word() -> None:
    assert not {key for key, text in CATALOGUES["fr"].texts.items() if re.search(" [:;!?»]|« ", text)}


def test_spanish_questions_have_both_marks() -> None:
    texts = CATALOGUES["es"].texts
    assert not {
        key for key, text in texts.items() if text.count("?") != text.count("¿") or text.count("!") != text.count("¡")
    }


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_apostrophes_are_typographic_also_in_the_documentation_of_the_api(language: str) -> None:
    files = Path(str(resources.files("doi_proxy"))).glob(f"**/texts/**/{language}.toml")
    typed = {file: re.findall(r"\w+'\w+", file.read_text("utf-8")) for file in files}
    assert len(typed) >= 10
    assert not {file: words for file, words in typed.items() if words}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_text_is_used_in_its_folder_or_by_the_core(package: str) -> None:
    folders = {resources.files(one) for one in (CORE, package)}
    files = [file for folder in folders for file in (*folder.iterdir(), *folder.joinpath("texts").iterdir())]
    sources = "".join(file.read_text("utf-8") for file in files if file.name.endswith((".py", ".html")))
    # `write_count` adds the ending.
    own = read_packaged(package, LANGUAGES[0])
    used = {key: key.removesuffix("_one").removesuffix("_many") for key in own}
    assert not {
        key
        for key, base in used.items()
        if f'"{key}"' not in sources and f'"{base}"' not in sources and not key.startswith(JOINED)
    }


def test_a_text_is_in_one_folder() -> None:
    keys = [key for package in PACKAGES for key in read_packaged(package, LANGUAGES[0])]
    assert len(keys) == len(set(keys))


def test_what_is_filled_in_is_escaped_unless_it_is_html() -> None:
    texts = Catalogue("en", {"a.b": "<{one}> & {two}"})
    assert texts("a.b", one="<i>", two=Markup("<b>x</b>")) == "&lt;&lt;i&gt;&gt; &amp; <b>x</b>"


def test_a_placeholder_in_what_is_filled_in_is_left_alone() -> None:
    assert Catalogue("en", {"a.b": "{one}"})("a.b", one="{two} {0.x}") == "{two} {0.x}"


@pytest.mark.parametrize(
    "text", ["{one} of {two}.", "{{one}} {one}", "{one:5}{two!s}", "{two}{two}{one}", "none & {{}}"]
)
def test_a_text_is_filled_in_as_format_does(text: str) -> None:
    texts, values = Catalogue("en", {"a.b": text}), {"one": 1, "two": "<2>"}
    for _ in range(2):
        assert texts("a.b", **values) == escape(text).format(**values)


@pytest.mark.parametrize("toml", ["no toml", "key = 1", "[table]\nkey = 1", '[table.inner]\nkey = "text"'])
def test_a_catalogue_that_cannot_be_read_says_which(toml: str) -> None:
    with pytest.raises(ConfigurationError, match=r"messages/xx\.toml"):
        read_texts("messages/xx.toml", toml)
