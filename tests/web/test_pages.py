"""What a person sees: every page, for names of every kind, in every language."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from doi_names.name import HandleName
from doi_names.presentation import url_path
from doi_proxy import errors
from doi_proxy.assembly.features import text_packages
from doi_proxy.resolver.prefix_chain import ReportContact
from doi_proxy.web.languages import CORE, load_catalogues
from doi_proxy.web.locations import MAX_LOCATIONS_SHOWN, show_locations
from doi_proxy.web.look import our_branding
from doi_proxy.web.name_pages import NOTES, describe_not_found, describe_record, write_stale
from doi_proxy.web.pages import ERROR_TEXTS, Link, Pages
from doi_proxy.web.problem import ErrorPages
from doi_proxy.web.redirect import redirect_stub
from doi_proxy.web.request import Request
from doi_proxy.web.shown_values import MAX_CHARACTERS_SHOWN, PERMISSIONS, show_names
from handle_protocol.location import Location
from handle_protocol.value import HandleValue, read_values
from tests.table import table
from tests.web.proxy import Proxy

PAGES = Pages(
    base_url_hint="https://doi.example.edu/",
    product_version="1.2.3",
    of_features=text_packages(),
)
PAGES.rebrand(replace(our_branding(), brand=replace(our_branding().brand, contact="library@example.edu")))
HERE = Link("/doi")
ORDINARY = "10.1000/182"
HOSTILE = "10.5555/<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;\u202egpj.exe\u00ad{{ 7*7 }}{name}"
LONG = "10.5555/" + "a-very-long-suffix." * 400
NAMES = {"ordinary": ORDINARY, "hostile": HOSTILE, "long": LONG}
VOID = {"meta", "link", "input", "img", "br", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """A page as its elements in document order; the text of an element holds that of the elements in it."""

    source: str
    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert not self.open, "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        assert len(element.attributes) == len(attrs), "an attribute is there twice"
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag, "elements are not nested"

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def one(self, tag: str) -> Element:
        (found,) = self.all(tag)
        return found

    @property
    def links(self) -> dict[str, str]:
        """The text of each link by where it leads."""
        return {element.attributes["href"]: element.text for element in self.all("a")}

    @property
    def words(self) -> str:
        return " ".join(self.one("main").text.split())


def value(index: int, type_: str, data: object, **members: object) -> dict[str, object]:
    return {"index": index, "type": type_, "data": data, **members}


def string(text: str) -> dict[str, str]:
    return {"format": "string", "value": text}


def read(*values: dict[str, object]) -> tuple[HandleValue, ...]:
    return read_values(json.dumps(values).encode()).values


def record_with(data: str) -> tuple[HandleValue, ...]:
    return read(
        value(1, "URL", string(data), timestamp="2004-09-10T19:49:59Z"),
        value(2, data, string(data), timestamp=data),
        value(3, "HS_ADMIN", {"format": "admin", "value": {"handle": data, "index": 300, "permissions": "1" * 12}}),
        value(4, "HS_VLIST", {"format": "vlist", "value": [{"handle": data, "index": 300}]}),
        value(5, "HS_SITE", {"format": "site", "value": {data: [{"address": data}, None, True, 1.5, [], {}]}}),
        value(6, "X", {"format": data, "value": data}),
        value(7, "X", {"format": "base64", "value": data}),
        value(8, "X", {"format": "base64", "value": "AAEC/w=="}),
    )


def suggested(name: HandleName) -> dict[str, Any]:
    """What the feature suggestions adds to a page."""
    names = {"registered": show_names([name]), "suggestions": show_names([name]), "around": show_names([name])}
    return {"blocks": ["suggestions.html"], **names}


TITLES = {
    "openurl": "openurl.title",
    "which_ra": "which_ra.title",
    "locations": "locations.title_",
    "found": "found.title",
    "gone": "gone.title_",
}


def error_page(
    error: errors.DoiProxyError, name: HandleName | None = None, *, typed: str = "", language: str = "en"
) -> bytes:
    """What a browser gets about an error."""
    fields = {b"accept": b"text/html", b"accept-language": language.encode()}
    scope = {"method": "GET", "query_string": b"", "raw_path": b"/"}
    shown = ErrorPages(pages=PAGES, link=HERE, sections=())
    return shown.answer(Request(scope, no_body, None, b"", fields), error, name=name, typed=typed).body


def record_page(
    language: str, name: HandleName, values: Sequence[HandleValue], note: str | None = None, **about: Any
) -> bytes:
    return PAGES.render("values", HERE, language, "values.title_", name, **describe_record(values, note, **about))


def not_found_page(
    language: str, name: HandleName, contact: str | None, sections: dict[str, Any], link: Link = HERE
) -> bytes:
    facts = describe_not_found(PAGES, language, name, ReportContact("", contact))
    return PAGES.render("not_found", link, language, "not_found.title_", name, **facts, **sections)


async def no_body() -> Any:
    raise AssertionError("the body is not read")


def every_page(language: str, text: str) -> dict[str, bytes]:
    name, link, values = HandleName(text), HERE, record_with(text)
    stale = write_stale(PAGES.texts(language), 1_795_165_200.0, None, text)
    shown = show_locations(
        name, [Location((("href", text), ("country", text))), Location((("href_template", "http://x/{hdl}"),))]
    )
    facts: dict[str, dict[str, Any]] = {
        "openurl": {},
        "which_ra": {"rows": [(text, url_path(name), text, None)], "typed": text, "count": 100, "given": None},
        "locations": {"name": name, "locations": shown, "hidden": 0, "malformed": [text]},
        "found": {"name": name, "typed": text},
        "gone": {"name": name, "reason": text, "date": text, "ways": PAGES.list_ways(language, name, "gone")},
    }
    return {
        "home": PAGES.home(link, language),
        "values": record_page(language, name, values, stale=stale),
        **{note: record_page(language, name, values[:1], note) for note in NOTES},
        "values_not_found": record_page(language, name, (), "values_not_found"),
        "not_found": not_found_page(language, name, text, suggested(name)),
        **{page: PAGES.render(page, link, language, TITLES[page], **given) for page, given in facts.items()},
        "not_a_doi": error_page(errors.UnreadableName(), typed=text, language=language),
        "could_not_verify": error_page(errors.CouldNotVerify(retry_after=30), name, language=language),
        "alias": error_page(errors.AliasChainTooLong(reached=text), name, language=language),
        "prefix": error_page(errors.PrefixInactive(status_message=text, contact=text), name, language=language),
        "denied": error_page(errors.PrefixDenied(text), name, language=language),
        **{title: PAGES.error(link, language, title_key=title, reason=text) for title in ERROR_TEXTS},
    }


@pytest.fixture(
    scope="module", params=[(language, kind) for language in PAGES.languages for kind in NAMES], ids="-".join
)
def rendered(request: pytest.FixtureRequest) -> tuple[str, str, dict[str, Page]]:
    language, kind = request.param
    pages = every_page(language, NAMES[kind])
    return language, kind, {key: Page(html.decode()) for key, html in pages.items()}


def test_every_page_is_a_sound_document(rendered: tuple[str, str, dict[str, Page]]) -> None:
    language, _, pages = rendered
    for key, page in pages.items():
        assert page.source.startswith("<!doctype html>"), key
        assert page.one("html").attributes == {"lang": language}, key
        assert page.one("h1").text.strip(), key
        assert page.one("title").text.startswith(page.one("h1").text), key
        for landmark in ("header", "main", "footer"):
            page.one(landmark)
        navigations = [element.attributes["aria-label"] for element in page.all("nav")]
        assert len(navigations) == len(set(navigations)) == 2, key
        ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
        assert len(ids) == len(set(ids)), key
        referred = [element.attributes.get("aria-labelledby") for element in page.elements]
        assert {one for one in referred if one is not None} <= set(ids), key


def test_every_input_has_a_label_and_every_form_posts_to_the_root(rendered: tuple[str, str, dict[str, Page]]) -> None:
    _, _, pages = rendered
    for key, page in pages.items():
        labelled = {element.attributes["for"] for element in page.all("label") if element.text.strip()}
        assert {element.attributes["id"] for element in page.all("input")} <= labelled, key
        forms = [(form.attributes["method"], form.attributes["action"]) for form in page.all("form")]
        fields = {element.attributes["name"] for element in page.all("input")}
        if key == "which_ra":
            assert (forms, fields) == ([("get", "/doi/ra/")], {"names"})
        else:
            assert set(forms) <= {("post", "/doi/")} and fields <= {"hdl"}, key


def test_no_page_runs_or_loads_anything_foreign(rendered: tuple[str, str, dict[str, Page]]) -> None:
    _, _, pages = rendered
    for key, page in pages.items():
        loaded = {element.attributes["href"] for element in page.all("link")}
        assert {href.partition("?")[0] for href in loaded} == {"/doi/static/style.css", "/doi/static/favicon.svg"}, key
        tags = {element.tag for element in page.elements}
        assert not tags & {"script", "img", "style", "iframe", "object", "base"}, key
        attributes = {name for element in page.elements for name in element.attributes}
        assert not {name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset")}, key


def test_links_lead_only_to_addresses_a_person_may_follow(rendered: tuple[str, str, dict[str, Page]]) -> None:
    _, _, pages = rendered
    for key, page in pages.items():
        strange = [href for href in page.links if not re.match(r"/doi/|#main$|https?://|ftp://|mailto:", href)]
        assert not strange, key


def test_only_the_home_page_is_for_search_engines(rendered: tuple[str, str, dict[str, Page]]) -> None:
    _, _, pages = rendered
    for key, page in pages.items():
        robots = [
            element.attributes["content"] for element in page.all("meta") if element.attributes.get("name") == "robots"
        ]
        assert robots == ([] if key == "home" else ["noindex"]), key


def test_a_page_about_a_doi_shows_it_with_its_uri_and_its_link(rendered: tuple[str, str, dict[str, Page]]) -> None:
    _, kind, pages = rendered
    for key in ("values", "values_not_found", "not_found", "could_not_verify", "alias", "prefix", "gone"):
        isolated = [element.text for element in pages[key].all("bdi")]
        assert isolated[0] == NAMES[kind], key
        # Of the others, doi.org has just said that it does not exist, or has nothing to say that helps.
        is_there = key in ("values", "values_not_found", "could_not_verify")
        assert any(href.startswith("https://doi.org/10.") for href in pages[key].links) == is_there, key
        assert any(text.startswith("doi:10.") for text in isolated[1:]) == key.startswith("values"), key


@table(
    ("key", "sign", "sentence", "action"),
    [
        ("values", "\N{CHECK MARK}", "This DOI leads to", "Go to the work"),
        ("not_a_web_target", "!", "You were not redirected", None),
        ("values_not_found", "!", "The name has a record, but no public values", None),
        ("not_found", "\N{BALLOT X}", "This DOI is not registered", "Resolve"),
        ("not_a_doi", "\N{BALLOT X}", "This cannot be resolved as a DOI", "Resolve"),
        ("could_not_verify", "?", "We do not know whether it exists.", "Try again"),
        ("gone", "\N{EN DASH}", "The operators of this resolver say that this work was withdrawn", "Crossref"),
        ("alias", "!", "This name is an alias", None),
        ("prefix", "\N{EN DASH}", "The registry marks the prefix of this name as inactive", "Crossref"),
    ],
)
def test_a_page_says_what_happened_in_a_sentence_with_a_sign_then_offers_one_action(
    key: str, sign: str, sentence: str, action: str | None
) -> None:
    if key == "values":
        page = Page(record_page("en", HandleName(ORDINARY), record_with("https://a.b/")).decode())
    else:
        page = Page(every_page("en", ORDINARY)[key].decode())
    [shown] = [element for element in page.all("span") if "sign" in element.attributes.get("class", "").split()]
    assert (shown.text, shown.attributes["aria-hidden"]) == (sign, "true")
    assert page.words.index(sign) < page.words.index(sentence)
    if action is not None:
        order = [text for text in (sentence, action, "What you can do", "What else you can do") if text in page.words]
        assert [page.words.index(text) for text in order] == sorted(page.words.index(text) for text in order)
    assert '<dl class="ways">' not in page.source.partition("<details")[0]


def test_a_french_title_has_a_blank_before_its_colon_that_does_not_break() -> None:
    title = Page(every_page("fr", ORDINARY)["not_found"].decode()).one("title").text
    assert title.startswith(f"DOI introuvable\N{NO-BREAK SPACE}: {ORDINARY} · ")


def test_the_title_holds_no_character_that_turns_the_writing_direction() -> None:
    page = Page(every_page("en", HOSTILE)["not_found"].decode())
    assert not set("\u202e\u00ad") & set(page.one("title").text)


def test_an_unknown_language_is_the_default() -> None:
    assert PAGES.home(HERE, "tlh") == PAGES.home(HERE, "en")


def test_the_home_page_tells_programs_the_public_address() -> None:
    page = Page(PAGES.home(HERE, "en").decode())
    assert "https://doi.example.edu" in page.words
    assert "https://doi.example.org" in Page(PAGES.home(Link("https://doi.example.org"), "en").decode()).words


def test_the_form_resolves_with_its_first_button_and_shows_the_record_with_its_second() -> None:
    first, second = Page(PAGES.home(HERE, "en").decode()).all("button")
    assert "name" not in first.attributes
    assert second.attributes["name"] == "noredirect"


def not_found(text: str, *, contact: str | None = None, language: str = "en") -> Page:
    name = HandleName(text)
    html = not_found_page(language, name, contact, {"blocks": ()}, Link(""))
    return Page(html.decode())


def test_a_name_that_ends_with_a_slash_is_offered_without_it() -> None:
    page = not_found("10.1000/182/")
    assert page.one("h1").text == "DOI Not Found"
    assert page.source.count('href="/10.1000/182"') == 1


def test_a_name_that_ends_otherwise_gets_no_hint_about_slashes() -> None:
    assert "slash" not in not_found("10.1000/182").words
    assert "slash" not in not_found("10.1000/").words


def test_questionable_code_points_are_named_with_their_place() -> None:
    words = not_found("10.1000/1\u200b8\ue000").words
    assert "U+200B ZERO WIDTH SPACE, character 10 of the name" in words
    assert "U+E000 a private-use character, character 12 of the name" in words


def test_the_form_of_the_not_found_page_holds_the_name() -> None:
    assert not_found(HOSTILE).one("input").attributes["value"] == HOSTILE


@pytest.mark.parametrize(
    ("contact", "href", "shown"),
    [
        (
            "support@example.org",
            "mailto:support@example.org?subject=DOI%20not%20found%3A%2010.1000%2Fx&body=…",
            "support@example.org",
        ),
        ("https://example.org/help?a=b&c", "https://example.org/help?a=b&c", "Open the form (example.org)"),
        ("javascript:alert(1)//@example.org", None, "javascript:alert(1)//@example.org"),
    ],
)
def test_a_contact_is_linked_if_it_is_an_address(contact: str, href: str | None, shown: str) -> None:
    page = not_found("10.1000/x", contact=contact)
    assert shown in page.words
    found = {re.sub("(?<=body=).*", "…", link) for link in page.links if "example.org" in link}
    # An address that is not known leaves the form of doi.org.
    assert found == ({href} if href else set())


def test_the_not_found_page_offers_what_helps() -> None:
    page = not_found("10.1000/x#y", contact="https://agency.example/report")
    assert "Ask the people who run this resolver" in page.words
    mail = next(href for href in page.links if "?subject=" in href)
    assert mail.startswith("mailto:library@example.edu?subject=DOI%20not%20found%3A%2010.1000%2Fx%23y&body=")
    assert page.links["https://search.crossref.org/search/works?q=10.1000%2Fx%23y&from_ui=yes"] == "Crossref"
    archived = "https://web.archive.org/web/*/https://doi.org/10.1000/x%23y"
    assert page.links[archived] == "The Internet Archive's copies of the DOI link"
    assert "Report the missing DOI to the registration agency: Open the form (agency.example)" in page.words
    assert page.words.index("What you can do") < page.words.index("Why this happens")


def test_without_a_form_of_the_agency_the_report_goes_to_the_form_of_doi_org() -> None:
    assert not_found("10.1000/x#y").links["https://doi.org/10.1000/x%23y"] == "the form of doi.org"


@pytest.mark.parametrize(
    ("text", "kind", "elsewhere"),
    [
        ("10.1000/x", "DOI", "https://doi.org/10.1000/x"),
        ("10/abcde", "DOI", "https://doi.org/10/abcde"),
        ("10.99999", "Prefix", "https://doi.org/10.99999"),
        ("20.500.12345/1", "Handle", "https://hdl.handle.net/20.500.12345/1"),
    ],
)
def test_a_name_is_called_what_it_is(text: str, kind: str, elsewhere: str) -> None:
    assert not_found(text).one("h1").text == f"{kind} Not Found"
    page = Page(error_page(errors.CouldNotVerify(), HandleName(text)).decode())
    assert page.one("h1").text == f"This {kind if kind == 'DOI' else kind.lower()} could not be verified"
    assert elsewhere in page.links


@pytest.mark.parametrize(
    ("typed", "href"),
    [
        ("20.500.12345/1", "https://hdl.handle.net/20.500.12345/1"),
        ("10.1000/x", None),
    ],
)
def test_what_looks_like_a_handle_is_sent_to_the_resolver_of_handles(typed: str, href: str | None) -> None:
    page = Page(error_page(errors.UnreadableName(), typed=typed).decode())
    assert page.one("h1").text == "Not a DOI"
    assert {link for link in page.links if "hdl.handle.net" in link} == ({href} if href else set())


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("Author%20et%20al.%2C%2010.5555%2Fwork", "Author et al., 10.5555/work"),
        ("K%C3%B6ln", "Köln"),
        ("100%2525", "100%2525"),
        ("100%", "100%"),
        ("%FF", "%FF"),
        ("a%E2%80%AEb", "a%E2%80%AEb"),
    ],
)
def test_escapes_are_shown_as_the_text_that_they_stand_for(typed: str, shown: str) -> None:
    page = Page(error_page(errors.UnreadableName(), typed=typed).decode())
    assert shown in page.words
    assert page.one("input").attributes["value"] == shown


def test_could_not_verify_never_says_that_the_name_is_missing() -> None:
    for language in PAGES.languages:
        words = Page(every_page(language, ORDINARY)["could_not_verify"].decode()).words.lower()
        assert not re.search(
            "not found|does not exist|not registered|nicht gefunden|nicht registriert|introuvable|no está registr",
            words,
        )
    assert "We do not know whether it exists." in Page(every_page("en", ORDINARY)["could_not_verify"].decode()).words


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "in a moment"),
        (1, "in a moment"),
        (2, "about 2 seconds"),
        (119, "about 119 seconds"),
        (120, "about 2 minutes"),
        (121, "about 3 minutes"),
        (None, None),
    ],
)
def test_the_time_to_wait_is_shown_if_it_is_known(seconds: int | None, shown: str | None) -> None:
    page = Page(error_page(errors.CouldNotVerify(retry_after=seconds), HandleName(ORDINARY)).decode())
    assert page.links["/doi/10.1000/182"] == "Try again"
    assert ("Please try again in" in page.words) == (shown is not None)
    assert shown is None or shown in page.words


def test_the_end_of_an_alias_chain_is_linked_to_its_own_record() -> None:
    html = error_page(errors.AliasChainTooLong(reached="10.1000/b"), HandleName("10.1000/a"))
    assert Page(html.decode()).links["/doi/10.1000/b?noredirect&ignore_aliases"] == "10.1000/b"


def test_an_error_without_a_message_gets_the_text_of_the_page() -> None:
    html = PAGES.error(HERE, "en", title_key="error_internal")
    assert "This resolver made an error" in Page(html.decode()).words


def test_a_client_over_its_limit_learns_in_its_language_when_to_try_again() -> None:
    html = PAGES.error(HERE, "de", title_key="error_too_many", typed="10.1000/182", retry_after=30)
    words = Page(html.decode()).words
    assert 'name="hdl" value="10.1000/182"' in html.decode()
    assert "Aus Ihrem Netz kamen mehr Anfragen" in words
    assert "in etwa 30 Sekunden" in words
    assert "Grund" not in words


def test_words_that_are_english_are_marked_so_in_another_language() -> None:
    html = PAGES.error(HERE, "de", title_key="error_request", reason="It is bad.").decode()
    assert '<bdi lang="en">It is bad.</bdi>' in html


def values_page(*values: dict[str, object], note: str | None = None, name: str = ORDINARY) -> Page:
    return Page(record_page("en", HandleName(name), read(*values), note).decode())


def cells(page: Page) -> list[str]:
    return [" ".join(element.text.split()) for element in page.all("td")]


def test_a_value_is_shown_with_index_type_timestamp_and_data() -> None:
    page = values_page(value(1, "URL", string("http://www.doi.org/hb.html"), timestamp="2004-09-10T19:49:59Z"))
    assert [element.text for element in page.all("th")] == ["Index", "Type", "Timestamp", "Data"]
    assert cells(page) == ["1", "URL", "10 September 2004, 19:49 UTC", "http://www.doi.org/hb.html"]


def test_values_keep_the_order_of_the_record() -> None:
    page = values_page(value(2, "URL", string("b")), value(1, "URL", string("a")))
    assert cells(page)[::4] == ["2", "1"]


@table(
    ("type_", "text", "href"),
    [
        ("URL", "http://example.org/a?b=c&d", "http://example.org/a?b=c&d"),
        ("URL", "javascript:alert(1)", None),
        ("EMAIL", "someone@example.org", "mailto:someone@example.org"),
        ("HS_ALIAS", "10.1000/other#1", "/doi/10.1000/other%231?noredirect"),
    ],
)
def test_data_are_linked_only_where_a_person_may_go(type_: str, text: str, href: str | None) -> None:
    page = values_page(value(1, type_, string(text)))
    assert cells(page)[3] == text
    assert [link for link, said in page.links.items() if said == text] == ([href] if href else [])


@pytest.mark.parametrize(
    ("type_", "href"),
    [
        ("URL", None),
        ("10.1000/type", "/doi/10.1000/type?noredirect"),
        ("10320/loc", "https://hdl.handle.net/10320/loc?noredirect"),
    ],
)
def test_a_type_is_linked_if_it_is_a_name(type_: str, href: str | None) -> None:
    links = values_page(value(1, type_, string("x"))).links
    assert [link for link, said in links.items() if said == type_] == ([href] if href else [])


@table(
    ("data", "shown"),
    [
        (
            {"format": "admin", "value": {"handle": "0.NA/10.1000", "index": 200, "permissions": "000000000011"}},
            "Administrator 0.NA/10.1000, index 200 May delete handles, add handles",
        ),
        (
            {"format": "admin", "value": {"handle": "x", "index": 200, "permissions": "000000000000"}},
            "Administrator x, index 200 May nothing",
        ),
        ({"format": "admin", "value": {"handle": "x", "permissions": "12"}}, "handle x permissions 12"),
        ({"format": "vlist", "value": [{"handle": "10.1000/x", "index": 3}]}, "10.1000/x, index 3"),
        (
            {"format": "site", "value": {"version": 1, "primarySite": True, "hash": None}},
            "version 1 primarySite true hash null",
        ),
        ({"format": "key", "value": {"kty": "RSA", "e": "AQAB"}}, "kty RSA e AQAB"),
        ({"format": "base64", "value": "AAEC/w=="}, "0001 02ff"),
        ("a bare string", "a bare string"),
        (string(""), "(empty)"),
        (string("a\x00b\x1b\r\nc"), "a␀b␛ c"),
    ],
)
def test_data_of_every_format_are_readable(data: object, shown: str) -> None:
    assert cells(values_page(value(1, "X", data)))[3] == shown


def test_every_permission_has_its_words() -> None:
    assert {f"permission.{permission}" for permission in PERMISSIONS} <= set(load_catalogues(("en",))["en"].texts)


def test_long_data_are_cut_and_the_page_says_by_how_much() -> None:
    shown = cells(values_page(value(1, "X", string("x" * (MAX_CHARACTERS_SHOWN + 7)))))[3]
    assert shown == "x" * MAX_CHARACTERS_SHOWN + " 7 more characters are not shown here. This record as JSON"


def test_a_record_that_leads_somewhere_links_there() -> None:
    assert values_page(value(1, "URL", string("http://x.example"))).links["/doi/10.1000/182"] == "Go to the work"
    assert "/doi/10.1000/182" not in values_page(value(1, "DESC", string("x"))).links


def test_the_page_says_why_it_came_instead_of_a_redirect() -> None:
    refused = values_page(value(1, "URL", string("javascript:x")), note="not_a_web_target")
    assert "not one that a browser can open safely" in refused.words
    assert "/doi/10.1000/182" not in refused.links
    assert (
        "none of these values is a web address"
        in values_page(value(1, "DESC", string("x")), note="not_a_web_target").words
    )


def test_a_prefix_has_a_record_page_without_a_doi_uri() -> None:
    page = values_page(value(1, "HS_SERV", string("10.SERV/CROSSREF")), name="10.1000")
    assert page.one("h1").text == "Prefix record"
    assert "doi:10.1000 " not in page.one("main").text.split("Try another")[0]
    assert "https://doi.org/10.1000" in page.links


def stale_page(fetched: float, expired: float | None) -> Page:
    stale = write_stale(PAGES.texts("en"), fetched, expired, "It is down.")
    return Page(record_page("en", HandleName(ORDINARY), record_with("x"), stale=stale).decode())


@pytest.mark.parametrize(
    ("fetched", "said"),
    [(1_795_165_200.0, "last confirmed on 20 November 2026, 09:00 UTC"), (0.0, "could not be confirmed just now")],
)
def test_a_stale_record_says_since_when(fetched: float, said: str) -> None:
    words = stale_page(fetched, None).words
    assert said in words
    assert "Reason: It is down." in words


def test_a_stale_record_says_when_it_expired() -> None:
    words = stale_page(1_795_165_200.0, 1_795_251_600.0).words
    assert "has been out of date since 21 November 2026, 09:00 UTC" in words


def test_the_record_page_leads_with_the_work_and_folds_administrative_values() -> None:
    page = values_page(
        value(1, "URL", string("https://example.org/work")),
        value(100, "HS_ADMIN", {"format": "admin", "value": {"handle": "10.X/1", "index": 3, "permissions": "1" * 12}}),
    )
    assert "This DOI leads to https://example.org/work Go to the work" in page.words
    values, administrative = page.all("details")
    assert [one.text for one in page.all("summary")] == ["Values of the record: 2", "Administrative values: 1"]
    assert "HS_ADMIN" in administrative.text and "URL" not in administrative.text and "URL" in values.text


def test_a_record_of_administrative_values_alone_is_not_folded() -> None:
    page = values_page(value(1, "HS_SERV", string("10.SERV/CROSSREF")), name="10.1000")
    assert not page.all("details") and "10.SERV/CROSSREF" in page.one("table").text


def test_a_record_with_several_locations_does_not_name_one() -> None:
    page = values_page(value(1, "URL", string("https://example.org/")), value(2, "10320/loc", string("<locations/>")))
    assert "This DOI leads to one of its locations" in page.words


@pytest.mark.anyio
async def test_many_locations_are_cut_and_the_page_says_by_how_many() -> None:
    many = "".join(f'<location href="https://example.org/{at}"/>' for at in range(MAX_LOCATIONS_SHOWN + 3))
    async with Proxy() as proxy:
        proxy.upstream.put(ORDINARY, values=[value(1, "10320/loc", string(f"<locations>{many}</locations>"))])
        page = Page((await proxy.get(f"/{ORDINARY}?action=showurls", accept="text/html")).text)
    assert len(cells(page)) == MAX_LOCATIONS_SHOWN * 3
    assert "3 more locations are not shown here." in page.words
    long = [Location((("href", letter * 60_000),)) for letter in "xy"]
    assert len(show_locations(HandleName(ORDINARY), long)) == 1


def test_the_body_of_a_redirect_has_two_lines_and_one_link() -> None:
    target = "http://example.org/?a=\"b\"&c='<d>'\r\n"
    html = redirect_stub("http://example.org/?a=\"b\"&c='<d>'").decode()
    page = Page(html)
    assert html.count("\n") == 2
    assert page.one("title").text == "Handle Redirect"
    assert page.one("a").attributes == {"href": target.strip()}
    assert page.one("a").text == target.strip()


def test_the_stylesheet_loads_nothing() -> None:
    css = resources.files("doi_proxy.web").joinpath("static", "style.css").read_text("utf-8")
    assert not re.search(r"url\(|@import|@font-face", css)


def test_no_two_folders_have_a_template_of_the_same_name() -> None:
    folders = [resources.files(package).joinpath("texts") for package in (CORE, *text_packages())]
    names = [file.name for folder in folders for file in folder.iterdir() if file.name.endswith(".html")]
    assert len(names) == len(set(names))


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/privacy", "/status?format=html"])
async def test_a_page_of_a_feature_is_a_sound_document(path: str) -> None:
    async with Proxy() as proxy:
        page = Page((await proxy.get(path)).text)
    assert page.one("title").text.startswith(page.one("h1").text)
