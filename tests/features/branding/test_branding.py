"""An institution's own name, logo, colours, links, texts and templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.assembly.core import build_pages
from app.assembly.lifecycle import Lifecycle
from app.assembly.settings import Settings, load
from app.doi.name import HandleName
from app.errors import ConfigurationError
from app.features.branding.branding import MAX_LOGO_BYTES, read_branding, read_named_links
from app.features.branding.feature import rebrand
from app.features.branding.settings import BrandingSettings
from app.main import create
from app.web.branding import Branding
from app.web.languages import CORE
from app.web.pages import Link, Pages
from tests.web.proxy import running

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]
HERE = Link("/doi")
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><path d="M0 0h4v4z"/></svg>'


def branded(**settings: Any) -> Pages:
    given = Settings(**{f"branding_{name}": value for name, value in settings.items()})
    pages = build_pages(given)
    rebrand(pages, given)
    return pages


def home(pages: Pages, language: str = "en") -> str:
    return pages.home(HERE, language).decode()


def read(**settings: Any) -> Branding:
    return read_branding(Settings(**settings).group(BrandingSettings), (CORE,))


def refusal(**settings: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        branded(**settings)
    return refused.value.message


def test_name_texts_and_links_are_on_the_home_page() -> None:
    html = home(
        branded(
            name="Example <Library>",
            home_text="Resolve DOIs at Example.",
            help_links="Ask us = https://example.edu/ask?a=b | Guide = /static/guide",
            imprint="https://example.edu/imprint",
            footer="A service of Example & Co.",
        )
    )
    assert "<title>Resolve a DOI · Example &lt;Library&gt;</title>" in html
    assert '<p class="lead">Resolve DOIs at Example.</p>' in html
    assert '<a href="https://example.edu/ask?a=b">Ask us</a>' in html
    assert '<a href="/doi/static/guide">Guide</a>' in html
    assert '<a href="https://example.edu/imprint">Imprint</a>' in html
    assert "A service of Example &amp; Co." in html


def test_the_icon_of_the_site_has_the_colour_and_the_name() -> None:
    def icon(**settings: Any) -> bytes:
        files = read(**settings).files
        assert files["/favicon.ico"] == files["/static/favicon.svg"]
        return files["/favicon.ico"].content

    plain, own = icon(), icon(branding_accent="#7a1f3d", branding_name="A & B")
    assert b'fill="#0b5a73"' in plain and b"<title>doi-proxy</title>" in plain
    assert b'fill="#7a1f3d"' in own and b"<title>A &amp; B</title>" in own and b"#0b5a73" not in own


def test_a_search_link_gets_the_name_percent_encoded() -> None:
    (link,) = read_named_links("x", "Catalogue = https://example.edu/find?q={doi}&x=1")
    assert link.fill("10.1000/a b&c") == "https://example.edu/find?q=10.1000%2Fa%20b%26c&x=1"


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("https://example.edu/", "is not a link; write Label = https"),
        ("Ask =", "is not a link"),
        ("Ask = javascript:alert(1)", "'javascript:alert(1)' is not an address"),
        ("Ask = https://example.edu/a b", "is not an address"),
        (" | ".join(["A = /a"] * 11), "there are 11 links; the limit is 10"),
    ],
)
def test_a_link_that_cannot_be_read_is_refused(links: str, message: str) -> None:
    refused = refusal(help_links=links)
    assert refused.startswith("branding_help_links: ")
    assert message in refused


@pytest.mark.parametrize(
    ("suffix", "content", "media_type"),
    [
        (".svg", SVG, "image/svg+xml"),
        (".png", b"\x89PNG\r\n\x1a\n...", "image/png"),
        (".WEBP", b"RIFF....WEBP", "image/webp"),
        (".jpg", b"\xff\xd8\xff\xe0", "image/jpeg"),
    ],
)
async def test_a_logo_has_an_address_that_changes_with_its_content(
    tmp_path: Path, suffix: str, content: bytes, media_type: str
) -> None:
    logo = tmp_path / f"logo{suffix}"
    addresses = set()
    for more in (b"", b" "):
        logo.write_bytes(content + more)
        async with running(branding_logo=logo) as proxy:
            (source,) = (part.partition('"')[0] for part in (await proxy.get("/")).text.split('src="')[1:])
            got = await proxy.get(source)
        assert (got.status, got["content-type"], got.body) == (200, media_type, content + more)
        assert "default-src 'none'" in (got["content-security-policy"] or "")
        addresses.add(source)
    assert len(addresses) == 2


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("logo.gif", b"GIF89a", "must end with .svg, .png, .webp, .jpg or .jpeg"),
        ("logo.png", b"<svg></svg>", "is not image/png"),
        ("logo.svg", b"<html></html>", "is not image/svg+xml"),
        ("logo.png", b"\x89PNG\r\n\x1a\n" + bytes(MAX_LOGO_BYTES), "is larger than 262144 bytes"),
        ("logo.svg", None, "cannot be read"),
    ],
)
def test_a_logo_that_cannot_be_shown_is_refused(tmp_path: Path, file: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / file).write_bytes(content)
    assert message in refusal(logo=tmp_path / file)


def test_a_colour_is_in_the_stylesheet_and_changes_its_address() -> None:
    plain, changed = read(), read(branding_accent="#7A0019")
    files, own = plain.files, changed.files
    assert changed.brand.stylesheet != plain.brand.stylesheet
    assert b"--accent: #7a0019; --on-accent: #ffffff;" in own["/static/style.css"].content
    assert own["/static/style.css"].content.startswith(files["/static/style.css"].content)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accent": "red"}, "branding_accent: 'red' is not a colour"),
        (
            {"accent": "#7cc7db"},
            "branding_accent: #7cc7db (accent) on #fbfaf7 (paper) has a contrast of 1.82:1 in the light",
        ),
        (
            {"accent_dark": "#0b5a73"},
            "branding_accent_dark: #0b5a73 (accent) on #14181b (paper) has a contrast of 2.32:1",
        ),
        ({"background": "#808080"}, "branding_background: #1c2126 (ink) on #808080 (paper) has a contrast of 4.11:1"),
        ({"background_dark": "#ffffff"}, "branding_background_dark: #e8e6e1 (ink) on #ffffff (paper)"),
    ],
)
def test_a_colour_without_contrast_is_refused_with_the_figure(settings: dict[str, str], message: str) -> None:
    assert message in refusal(**settings)


def test_a_template_of_the_institution_extends_ours(tmp_path: Path) -> None:
    (tmp_path / "layout.html").write_text(
        '{% extends "doi-proxy/layout.html" %}{% block navigation %}{{ super() }}<a href="/x">News</a>{% endblock %}'
    )
    html = home(branded(templates=tmp_path), "de")
    assert '<a href="/x">News</a>' in html
    assert '<a href="/doi/ra/">Welche Agentur?</a>' in html
    assert "<h1>Eine DOI auflösen</h1>" in html


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("<p>\n{% if %}", "home.html, line 2: Expected an expression"),
        ('{% extends "doi-proxy/home.html" %}\n{% block main %}\n{{ nothing }}{% endblock %}', "home.html, line 3"),
        ('{% extends "none.html" %}', "home.html, line 1"),
        ("\n{{ t('home.nothing') }}", "home.html, line 2"),
    ],
)
def test_a_broken_template_is_named_with_its_line(tmp_path: Path, template: str, message: str) -> None:
    (tmp_path / "home.html").write_text(template)
    assert message in refusal(templates=tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "branding_templates: the folder" in refusal(templates=tmp_path / "none")
    assert "branding_messages: the folder" in refusal(messages=tmp_path / "none")


def test_a_template_that_fails_later_is_logged_and_replaced_by_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "home.html").write_text("{% if t.language == 'fr' %}\n{{ 1 // 0 }}\n{% endif %}<h1>Own</h1>")
    pages = branded(templates=tmp_path)
    assert "<h1>Own</h1>" in home(pages)
    for _ in range(2):
        assert "<h1>Résoudre un DOI</h1>" in home(pages, "fr")
    (line,) = caplog.messages
    assert "home.html, line 2: the template failed" in line


async def test_a_reload_reads_the_files_again_and_keeps_the_previous_ones_if_they_are_broken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = tmp_path / "en.toml"
    texts.write_text('[home]\ntitle = "First"\n')
    settings = Settings(store_url="memory:", branding_messages=tmp_path)
    lifecycle = Lifecycle(settings)
    pages = create(settings, lifecycle=lifecycle)._face.pages
    titles = []
    for text in ('"Second"', "broken", '"Third"'):
        texts.write_text(f"[home]\ntitle = {text}\n")
        lifecycle.reload(settings)
        titles.append(home(pages).partition("<h1>")[2].partition("</h1>")[0])
    assert titles == ["Second", "Second", "Third"]
    (line,) = caplog.messages
    assert "en.toml: the language file cannot be read" in line


async def test_languages_are_those_of_the_setting_and_the_first_is_the_default() -> None:
    async with running(branding_languages="de, en") as proxy:
        headings = [
            (await proxy.get("/", accept_language=wanted)).text.partition("<h1>")[2].partition("</h1>")[0]
            for wanted in ("en", "fr", "de")
        ]
    assert headings == ["Resolve a DOI", "Eine DOI auflösen", "Eine DOI auflösen"]


def test_the_worked_example_is_shown_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    settings = load({}, {}, ROOT / "config/branding-example/doi-proxy.toml")
    pages = build_pages(settings)
    rebrand(pages, settings)
    english, german = home(pages), home(pages, "de")
    assert pages.languages == ("en", "de")
    for shown in ("Example University Library", "/doi/static/logo-", "Ask a librarian", "Opening hours", "data set"):
        assert shown in english
    assert "Öffnungszeiten" in german and "Geben Sie eine DOI ein" in german
    missing = HandleName("10.1000/x y")
    html = pages.not_found(HERE, "en", name=missing).decode()
    assert "Ask our information desk:" in html
    assert 'href="https://library.example.edu/find?doi=10.1000%2Fx%20y"' in html
