"""An institution's own name, logo, colours, links, texts and HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doi_names.name import HandleName
from doi_proxy.assembly.checks import CoreInspection
from doi_proxy.assembly.core import build_pages
from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.branding.branding import MAX_HTML_BYTES, MAX_LOGO_BYTES, read_branding
from doi_proxy.features.branding.feature import BrandedPages, BrandingSettings, rebrand
from doi_proxy.main import create
from doi_proxy.resolver.prefix_chain import NO_REPORT_CONTACT
from doi_proxy.web.languages import CORE
from doi_proxy.web.look import Branding
from doi_proxy.web.name_pages import describe_not_found
from doi_proxy.web.pages import Link, Pages
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]
HERE = Link("/doi")
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><path d="M0 0h4v4z"/></svg>'


def branded(folder: Path, text: str = "", **settings: Any) -> Pages:
    """The pages with this text in branding.toml."""
    (folder / "branding.toml").write_text(text, "utf-8")
    given = Settings(branding_folder=folder, **settings)
    pages = build_pages(given)
    rebrand(pages, given)
    return pages


def home(pages: Pages, language: str = "en") -> str:
    return pages.home(HERE, language).decode()


def read(folder: Path, text: str = "", **settings: Any) -> Branding:
    (folder / "branding.toml").write_text(text, "utf-8")
    return read_branding(Settings(branding_folder=folder, **settings).group(BrandingSettings), (CORE,))


def refusal(folder: Path, text: str = "") -> str:
    with pytest.raises(ConfigurationError) as refused:
        branded(folder, text)
    return refused.value.message


def test_name_texts_and_links_are_on_the_home_page(tmp_path: Path) -> None:
    text = """
        contact = "ask@example.edu"
        home_text = "Resolve DOIs at Example."
        imprint = "https://example.edu/imprint"
        footer = "A service of Example & Co."

        [help_links]
        "Ask us" = "https://example.edu/ask?a=b"
        Guide = "/static/guide"
    """
    html = home(branded(tmp_path, text, branding_name="Example <Library>"))
    assert "<title>Resolve a DOI · Example &lt;Library&gt;</title>" in html
    assert '<p class="lead">Resolve DOIs at Example.</p>' in html
    assert '<a href="https://example.edu/ask?a=b">Ask us</a>' in html
    assert '<a href="/doi/static/guide">Guide</a>' in html
    assert '<a href="https://example.edu/imprint">Imprint</a>' in html
    assert "A service of Example &amp; Co." in html and "mailto:ask@example.edu" in html


def test_the_icon_of_the_site_has_the_colour_and_the_name(tmp_path: Path) -> None:
    def icon(text: str = "", **settings: Any) -> bytes:
        files = read(tmp_path, text, **settings).files
        assert files["/favicon.ico"] == files["/static/favicon.svg"]
        return files["/favicon.ico"].content

    plain, own = icon(), icon('accent = "#7a1f3d"', branding_name="A & B")
    assert b'fill="#0b5a73"' in plain and b"<title>doi-proxy</title>" in plain
    assert b'fill="#7a1f3d"' in own and b"<title>A &amp; B</title>" in own and b"#0b5a73" not in own


@table(
    ("text", "message"),
    [
        ('help_links = "https://example.edu/"', "line 1: help_links: this is not a table of links; write a table"),
        ('\n[help_links]\nAsk = ""', "line 2: help_links: 'Ask' is not a link"),
        ("[help_links]\nAsk = 1", "'Ask' is not a link"),
        ('[help_links]\nAsk = "javascript:alert(1)"', "'javascript:alert(1)' is not an address"),
        ('[help_links]\nAsk = "https://example.edu/a b"', "is not an address"),
        ("[help_links]\n" + "".join(f'A{n} = "/a"\n' for n in range(11)), "there are 11 links; the limit is 10"),
        ('imprint = "example.edu"', "line 1: imprint: 'example.edu' is not an address"),
        ('acent = "#000000"', "line 1: acent: this key is not known; did you mean accent?"),
        ("footer = 1", "line 1: footer: this is not a text"),
        ("languages = []", "languages: this is not a list of languages"),
        ('languages = "en, de"', "languages: this is not a list of languages"),
        ('languages = ["en", "EN"]', "'EN' is not a language tag"),
        ('languages = ["tlh"]', "'tlh' is not a language of the program"),
        ('logo = "../logo.svg"', "logo: this is not the name of a file in the folder"),
        ('logo = "logo.svg', "line 1: not valid TOML"),
        ("#" * 65_537, "is larger than 65536 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    refused = refusal(tmp_path, text)
    assert str(tmp_path / "branding.toml") in refused or "tlh" in refused
    assert message in refused


def test_a_folder_without_the_file_is_refused(tmp_path: Path) -> None:
    for folder, message in ((tmp_path, "branding.toml cannot be read"), (tmp_path / "none", "does not exist")):
        settings = Settings(branding_folder=folder)
        with pytest.raises(ConfigurationError, match=f"branding_folder: .*{message}"):
            rebrand(build_pages(settings), settings)


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
        (tmp_path / "branding.toml").write_text(f'logo = "{logo.name}"')
        async with Proxy(branding_folder=tmp_path) as proxy:
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
    assert message in refusal(tmp_path, f'logo = "{file}"')


def test_a_colour_is_in_the_stylesheet_and_changes_its_address(tmp_path: Path) -> None:
    plain, changed = read(tmp_path), read(tmp_path, 'accent = "#7A0019"')
    files, own = plain.files, changed.files
    assert changed.brand.stylesheet != plain.brand.stylesheet
    assert b"--accent: #7a0019; --on-accent: #ffffff;" in own["/static/style.css"].content
    assert own["/static/style.css"].content.startswith(files["/static/style.css"].content)


@table(
    ("text", "message", "advice"),
    [
        ('accent = "red"', "line 1: accent: 'red' is not a colour", ""),
        ('accent = "#7cc7db"', "accent: #7cc7db (accent) on #fbfaf7 (paper) has a contrast of 1.82:1", "darker"),
        ('accent_dark = "#0b5a73"', "accent_dark: #0b5a73 (accent) on #14181b (paper) has a contrast of", "lighter"),
        ('background = "#808080"', "background: #1c2126 (ink) on #808080 (paper) has a contrast of 4.11:1", "lighter"),
        ('background_dark = "#ffffff"', "background_dark: #e8e6e1 (ink) on #ffffff (paper)", "darker"),
    ],
)
def test_a_colour_without_contrast_is_refused_with_the_figure_and_advice(
    tmp_path: Path, text: str, message: str, advice: str
) -> None:
    refused = refusal(tmp_path, text)
    assert message in refused and (f"Choose a {advice} colour" in refused) == bool(advice)


def test_html_of_the_institution_is_in_the_header_and_the_footer_unchanged(tmp_path: Path) -> None:
    (tmp_path / "header.html").write_text('<p class="x">{{ News }} & more</p>')
    (tmp_path / "header.de.html").write_text("\ufeff<p>Neues</p>", "utf-8")
    (tmp_path / "footer.html").write_text("<p>Address</p>")
    pages = branded(tmp_path)
    for language, header in (("en", '<p class="x">{{ News }} & more</p>'), ("de", "<p>Neues</p>")):
        html = home(pages, language)
        assert f'</nav>\n<div class="whole">{header}</div>\n</header>' in html
        assert '<footer>\n<div class="whole"><p>Address</p></div>\n' in html
    assert 'class="whole"' not in home(build_pages(Settings()))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "header.html",
            b"x" * (MAX_HTML_BYTES + 1),
            "header.html: the HTML cannot be read: it is larger than 16384",
        ),
        ("footer.html", b"\xff", "footer.html: the HTML cannot be read: 'utf-8' codec can't decode"),
        ("header.tlh.html", b"<p>", "header.tlh.html: 'tlh' is not a language of the pages, which are en, de, fr, es"),
        ("footer.DE.html", b"<p>", "'DE' is not a language of the pages"),
    ],
)
def test_html_that_cannot_be_used_is_refused(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    (tmp_path / file).write_bytes(content)
    assert message in refusal(tmp_path)
    (found,) = BrandedPages.check(CoreInspection(Settings(branding_folder=tmp_path)))
    assert found.severity == "error" and message in found.problem


async def test_a_reload_reads_the_files_again_and_keeps_the_previous_ones_if_they_are_broken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "branding.toml").touch()
    texts = tmp_path / "messages/en.toml"
    texts.parent.mkdir()
    texts.write_text('[home]\ntitle = "First"\n')
    settings = Settings(store_url="memory:", branding_folder=tmp_path)
    lifecycle = Lifecycle(settings)
    pages = create(settings, lifecycle=lifecycle)._face.pages
    titles = []
    for text in ('"Second"', "broken", '"Third"'):
        texts.write_text(f"[home]\ntitle = {text}\n")
        lifecycle.reload(settings)
        titles.append(home(pages).partition("<h1>")[2].partition("</h1>")[0])
    assert titles == ["Second", "Second", "Third"]
    (tmp_path / "footer.html").write_bytes(b"\xff")
    lifecycle.reload(settings)
    assert "<h1>Third</h1>" in home(pages)
    first, second = caplog.messages
    assert "en.toml, line 2: not valid TOML" in first and "footer.html: the HTML cannot be read" in second


async def test_languages_are_those_of_the_file_and_the_first_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "branding.toml").write_text('languages = ["de", "en"]')
    async with Proxy(branding_folder=tmp_path) as proxy:
        headings = [
            (await proxy.get("/", accept_language=wanted)).text.partition("<h1>")[2].partition("</h1>")[0]
            for wanted in ("en", "fr", "de")
        ]
    assert headings == ["Resolve a DOI", "Eine DOI auflösen", "Eine DOI auflösen"]


def test_the_worked_example_is_shown_as_it_says() -> None:
    settings = Settings(branding_name="Example University Library", branding_folder=ROOT / "config/branding-example")
    pages = build_pages(settings)
    rebrand(pages, settings)
    english, german = home(pages), home(pages, "de")
    assert pages.languages == ("en", "de")
    for shown in ("Example University Library", "/doi/static/logo-", "Ask a librarian", "Opening hours", "data set"):
        assert shown in english
    for shown in ("Öffnungszeiten", "Geben Sie eine DOI ein", "Ein Dienst der Universitätsbibliothek", ">Auskunft</a>"):
        assert shown in german
    missing = HandleName("10.1000/x y")
    facts = describe_not_found(pages, "en", missing, NO_REPORT_CONTACT)
    html = pages.render("not_found", HERE, "en", "not_found.title_", missing, **facts, blocks=()).decode()
    assert "Ask our information desk:" in html
    assert 'href="https://library.example.edu/find?doi=10.1000%2Fx%20y"' in html
