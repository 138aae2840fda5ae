"""Library copy: the URL of each service, which rule decides, the reader's choice, exemptions and loops."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_proxy.features.library.copy import (
    NOT_CONCERNED,
    Decision,
    LibraryRules,
    LibraryWork,
    Outcome,
    OwnAddress,
    ReaderFacts,
    decide_copy,
)
from doi_proxy.features.library.rules import build_service, read_rules
from doi_proxy.resolver.resolution import NO_FACTS, ClientFact
from doi_proxy.system.toml_text import WrongTable
from tests.table import table

SICI: Final = "10.1002/(SICI)1096-8644(199601)99:1<1::AID-AJPA1>3.0.CO;2-#&=+ü"
TARGET: Final = "https://www.example.org/a?b=c&d=%20e#f"
HOME: Final = "198.51.100.7"
CAMPUS: Final = "192.0.2.7"

SERVICES: Final = """
[[service]]
name = "ezproxy"
label = "EZproxy"
kind = "ezproxy"
url = "https://ezproxy.example.edu/login"

[[service]]
name = "libkey"
label = "LibKey"
kind = "libkey"
library = "1234"
"""


def rules(text: str, exempt: str = "") -> LibraryRules:
    found, problems = read_rules({"rules.toml": exempt + SERVICES + text})
    assert problems == []
    return found


def work(
    target: str = "https://www.publisher.com/1", name: str = "10.1234/1", agency: str | None = None
) -> LibraryWork:
    return LibraryWork(HandleName(name), target, agency)


def reader(address: str | None = HOME, *languages: str, choice: str | None = None) -> ReaderFacts:
    return ReaderFacts(None if address is None else ip_address(address), languages, choice)


def outcome(given: LibraryRules, of: LibraryWork, by: ReaderFacts, own: OwnAddress | None = None) -> Decision:
    return decide_copy(given, given.find_concerning(of, own), of, by)


def service(given: LibraryRules, of: LibraryWork, by: ReaderFacts) -> str | None:
    found = outcome(given, of, by).service
    return None if found is None else found.name


# --- The URLs of the services -------------------------------------------------------------------------------------

ENCODED: Final = "https%3A%2F%2Fwww.example.org%2Fa%3Fb%3Dc%26d%3D%2520e%23f"
DOI: Final = "10.1002/(SICI)1096-8644(199601)99:1%3C1::AID-AJPA1%3E3.0.CO%3B2-%23%26%3D%2B%C3%BC"


@table(
    ("kind", "value", "url", "source"),
    [
        (
            "ezproxy",
            "https://ezproxy.example.edu/login",
            f"https://ezproxy.example.edu/login?url={TARGET}",
            "OCLC: the target is not encoded and comes last",
        ),
        (
            "ezproxy",
            "https://login.example.edu/login?auth=shibboleth",
            f"https://login.example.edu/login?auth=shibboleth&url={TARGET}",
            "OCLC, AUTH in the starting point URL",
        ),
        (
            "ezproxy-encoded",
            "https://ezproxy.example.edu/login",
            f"https://ezproxy.example.edu/login?qurl={ENCODED}",
            "OCLC: qurl is percent-encoded",
        ),
        (
            "openathens",
            "example.edu",
            f"https://go.openathens.net/redirector/example.edu?url={ENCODED}",
            "OpenAthens, link generator: the prefix, then the encoded target",
        ),
        ("libkey", "1234", f"https://libkey.io/libraries/1234/{DOI}", "Third Iron, LibKey.io linking syntax"),
        (
            "openurl-0.1",
            "https://findit.example.edu/resolve",
            f"https://findit.example.edu/resolve?id=doi:{DOI}",
            "DOI Handbook, section 3.8.4.1",
        ),
        (
            "openurl-0.1",
            "https://findit.example.edu/resolve?",
            f"https://findit.example.edu/resolve?id=doi:{DOI}",
            "a base URL that ends with its question mark",
        ),
        (
            "openurl-1.0",
            "https://findit.example.edu/resolve?vid=VIEW",
            f"https://findit.example.edu/resolve?vid=VIEW&url_ver=Z39.88-2004&rft_id=info:doi/{DOI}",
            "ANSI/NISO Z39.88-2004, KEV",
        ),
        (
            "template",
            "https://go.example.edu/{doi}/to?u={target_encoded}&d={doi_encoded}",
            f"https://go.example.edu/{DOI}/to?u={ENCODED}&d=10.1002%2F%28SICI%291096-8644%28199601%2999%3A1%3C1%3A%3A"
            "AID-AJPA1%3E3.0.CO%3B2-%23%26%3D%2B%C3%BC",
            "every placeholder",
        ),
        ("template", "https://go.example.edu/?{target}", f"https://go.example.edu/?{TARGET}", "the target as it is"),
    ],
)
def test_each_service_gets_the_url_that_it_understands(kind: str, value: str, url: str, source: str) -> None:
    made = build_service("s", "S", kind, value, frozenset())
    assert made.link(LibraryWork(HandleName(SICI), TARGET)) == url, source


@table(
    ("kind", "value", "message"),
    [
        ("ezproxy", "ezproxy.example.edu", "is not a URL"),
        ("ezproxy", "javascript:alert(1)//x", "is not a URL"),
        ("ezproxy", "https://user@ezproxy.example.edu/login", "is not a URL"),
        ("ezproxy", "https://ezproxy.example.edu", ""),
        ("ezproxy", "https://ezproxy.example.edu/log in", "is not a URL"),
        ("ezproxy", "https://ezproxy.example.edu/#x", "without a fragment"),
        ("ezproxy", "https://ezproxy.example.edu/{target}", "without placeholders"),
        ("openathens", "https://example.edu", "a domain such as example.edu"),
        ("libkey", "12/34", "the number of a library"),
        ("template", "https://{target}.example.edu/", "is not a URL"),
        ("template", "https://example.edu{target}/", "is not a URL"),
        ("template", "{target}", "is not a URL"),
        ("template", "https://go.example.edu/{url}", "has the placeholder {url}"),
        ("template", "https://go.example.edu/", "at least one placeholder"),
        ("template", "https://go.example.edu/{target}{target}", "each of them once"),
        ("template", "https://go.example.edu/{{target}}", "at least one placeholder"),
        ("template", "https://go.example.edu/{?}{target}", "has the placeholder {?}"),
        ("template", "https://go.example.edu/" + "x" * 2_000 + "{target}", "longer than 2000"),
    ],
)
def test_a_service_that_cannot_be_used_is_refused(kind: str, value: str, message: str) -> None:
    if not message:
        assert build_service("s", "S", kind, value, frozenset()).base == value
        return
    with pytest.raises(WrongTable) as caught:
        build_service("s", "S", kind, value, frozenset())
    assert message in str(caught.value)


@given(st.text(min_size=1, max_size=60), st.text(alphabet=st.characters(codec="ascii"), max_size=60))
def test_a_name_or_target_never_changes_the_host_or_adds_a_line(suffix: str, path: str) -> None:
    try:
        name = HandleName("10.1234/" + suffix)
    except InvalidName:
        return
    target = "https://www.example.org/" + path.replace("\r", "").replace("\n", "")
    for kind, value in (("template", "https://go.example.edu/{doi}?{target}"), ("libkey", "7")):
        url = build_service("s", "S", kind, value, frozenset()).link(LibraryWork(name, target))
        assert url is not None
        assert url.startswith(("https://go.example.edu/", "https://libkey.io/libraries/7/"))
        assert url.isascii() and url.isprintable()


def test_a_handle_that_is_not_a_doi_has_no_url_where_a_doi_is_needed() -> None:
    handle = LibraryWork(HandleName("20.1000/1"), TARGET)
    assert build_service("s", "S", "libkey", "7", frozenset()).link(handle) is None
    assert build_service("s", "S", "openathens", "example.edu", frozenset()).link(handle) is not None


def test_a_url_that_is_too_long_for_a_redirect_leaves_the_target() -> None:
    given = rules('[[rule]]\nservice = "ezproxy"\n')
    assert outcome(given, work("https://www.publisher.com/" + "x" * 16_350), reader()).outcome is Outcome.LEFT_ALONE


# --- The rules ----------------------------------------------------------------------------------------------------

TABLE: Final = """
[[rule]]
service = "none"
networks = ["192.0.2.0/24", "2001:db8::/32"]
hosts = ["campus.example"]

[[rule]]
service = "none"
prefixes = ["10.5555"]

[[rule]]
service = "libkey"
agencies = ["Crossref"]
languages = ["de", "fr-CA"]

[[rule]]
service = "ezproxy"
outside = ["192.0.2.0/24"]
hosts = ["publisher.com"]
exempt = ["open.publisher.com"]
"""


@table(
    ("of", "by", "expected"),
    [
        (work("https://www.publisher.com/1"), reader(), "ezproxy"),
        (work("https://publisher.com/1"), reader(), "ezproxy"),
        (work("https://PUBLISHER.com./1"), reader(), "ezproxy"),
        (work("https://publisher.com:8443/1"), reader("2001:db9::1"), "ezproxy"),
        (work("https://notpublisher.com/1"), reader(), None),
        (work("https://publisher.com.evil.example/1"), reader(), None),
        (work("https://publisher.com@evil.example/1"), reader(), None),
        (work("https://evil.example/?publisher.com"), reader(), None),
        (work("https://open.publisher.com/1"), reader(), None),
        (work("https://x.open.publisher.com/1"), reader(), None),
        (work("https://www.publisher.com/1"), reader(CAMPUS), None),
        (work("https://www.publisher.com/1"), reader(None), "ezproxy"),
        (work("https://www.publisher.com/1", "10.5555/1"), reader(), None),
        (work("https://www.publisher.com/1", "10.5555.7/1"), reader(), None),
        (work("https://www.publisher.com/1", "10.55555/1"), reader(), "ezproxy"),
        (work(agency="Crossref"), reader(HOME, "de"), "libkey"),
        (work(agency="crossref"), reader(HOME, "de-at"), "libkey"),
        (work(agency="Crossref"), reader(HOME, "fr-ca"), "libkey"),
        (work(agency="Crossref"), reader(HOME, "fr"), "ezproxy"),
        (work(agency="Crossref"), reader(HOME, "den"), "ezproxy"),
        (work(agency="Crossref"), reader(HOME, "en", "de"), "ezproxy"),
        (work(agency="DataCite"), reader(HOME, "de"), "ezproxy"),
        (work(agency=None), reader(HOME, "de"), "ezproxy"),
        # Only what a web browser opens goes through a service.
        (work("ftp://www.publisher.com/1"), reader(), None),
        (work("mailto:a@publisher.com"), reader(), None),
        # A target that has been through the service already: EZproxy's own host, and a host that it has rewritten.
        (work("https://ezproxy.example.edu/login?url=https://www.publisher.com/1"), reader(HOME, "de"), None),
        (work("https://www-publisher-com.ezproxy.example.edu/1", agency="Crossref"), reader(HOME, "de"), None),
        (work("https://libkey.io/10.1/2", agency="Crossref"), reader(HOME, "de"), None),
    ],
)
def test_the_first_rule_whose_conditions_hold_decides(of: LibraryWork, by: ReaderFacts, expected: str | None) -> None:
    assert service(rules(TABLE), of, by) == expected


def test_targets_of_this_resolver_are_left_alone() -> None:
    given = rules('[[rule]]\nservice = "ezproxy"\n')
    own = OwnAddress("www.example.edu", "/doi")
    assert outcome(given, work("https://www.example.edu/doi/10.1/2"), reader(), own) is NOT_CONCERNED
    assert outcome(given, work("https://www.example.edu/doi"), reader(), own) is NOT_CONCERNED
    assert outcome(given, work("https://www.example.edu/doing"), reader(), own).outcome is Outcome.SENT
    assert outcome(given, work("https://example.edu/doi/"), reader(), own).outcome is Outcome.SENT


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ('[[rule]]\nservice = "ezproxy"\n', ClientFact.COOKIE),
        ('[[rule]]\nservice = "ezproxy"\nnetworks = ["192.0.2.0/24"]\n', ClientFact.COOKIE | ClientFact.ADDRESS),
        ('[[rule]]\nservice = "ezproxy"\noutside = ["192.0.2.0/24"]\n', ClientFact.COOKIE | ClientFact.ADDRESS),
        ('[[rule]]\nservice = "ezproxy"\nlanguages = ["de"]\n', ClientFact.COOKIE | ClientFact.LANGUAGE),
        # The record alone decides that the rule does not concern it.
        ('[[rule]]\nservice = "ezproxy"\nhosts = ["other.example"]\n', NO_FACTS),
        ('[[rule]]\nservice = "ezproxy"\nprefixes = ["10.9999"]\n', NO_FACTS),
        ('[[rule]]\nservice = "none"\nnetworks = ["192.0.2.0/24"]\n', NO_FACTS),
        ('[[rule]]\nservice = "none"\n[[rule]]\nservice = "ezproxy"\nlanguages = ["de"]\n', NO_FACTS),
        ("", NO_FACTS),
    ],
)
def test_a_decision_names_every_fact_that_another_client_could_differ_in(text: str, facts: ClientFact) -> None:
    for by in (reader(), reader(CAMPUS, "de"), reader(None)):
        assert outcome(rules(text), work(), by).facts == facts


def test_a_choice_wins_over_the_conditions_about_the_reader() -> None:
    given = rules(TABLE)
    chosen = reader(CAMPUS, choice="https://libkey.io/libraries/1234/")
    found = outcome(given, work(), chosen)
    assert (found.outcome, found.url) == (Outcome.CHOSEN, "https://libkey.io/libraries/1234/10.1234/1")
    # What the library exempts stays exempt.
    assert outcome(given, work(name="10.5555/1"), chosen) is NOT_CONCERNED
    assert outcome(given, work("https://open.publisher.com/"), chosen).url is None
