"""Choosing one of several locations: each method, their order, and their chances, proved over a grid."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import doi_proxy
from doi_names.name import HandleName
from doi_proxy.assembly.features import text_packages
from doi_proxy.cache.entry import FOREVER, Entry, RegistryEntry
from doi_proxy.errors import UpstreamTimeout
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.resolution import (
    NO_FACTS,
    Client,
    ClientFact,
    Currency,
    Locatt,
    Negotiation,
    Origin,
    Resolution,
    Standing,
    Tombstone,
)
from doi_proxy.resolver.target import LocationChoice, choose_location, matches
from doi_proxy.web.languages import CORE, read_all
from handle_protocol.location import Location
from handle_protocol.referral import Answer, ResponseCode
from tests.table import table

HANDBOOK = 'DOI Handbook, section "Resolution"'
#: Chances at equal distances, none of them on a border of the weights below.
GRID = [(step + 0.5) / 2_000 for step in range(2_000)]


def one(name: str, **attributes: str) -> Location:
    return Location((("id", name), *((key.rstrip("_"), value) for key, value in attributes.items())))


def chosen(
    candidates: Sequence[Location], methods: str | None = None, client: Client | None = None, *locatts: Locatt
) -> str | None:
    location = choose_location(candidates, methods, client or Client(), locatts).location
    return None if location is None else location.get("id")


def shares(candidates: Sequence[Location], methods: str | None = None) -> dict[str | None, float]:
    """How often each candidate is chosen if every chance is as likely."""
    counts = Counter(chosen(candidates, methods, Client(chance=chance)) for chance in GRID)
    return {name: count / len(GRID) for name, count in counts.items()}


def at(address: str) -> Client:
    return Client(address=ip_address(address))


#: The printed example: a location for the United Kingdom of weight 0, and two for all clients.
UK = (one("0", country="gb", weight="0"), one("1", weight="1"), one("2", weight="1"))


@pytest.mark.parametrize(
    ("client", "locatts", "expected", "source"),
    [
        (Client(country="US"), [], {"1", "2"}, HANDBOOK),
        (Client(country="GB"), [], {"0"}, HANDBOOK),
        (Client(), [], {"1", "2"}, HANDBOOK + ": outside the UK; here the country is unknown"),
        (Client(country="GB"), [("id", "1")], {"1"}, HANDBOOK),
        (Client(country="US"), [("id", "0")], {"0"}, HANDBOOK),
        (Client(country="US"), [("country", "uk")], {"0"}, HANDBOOK),
        (Client(country="US"), [("id", "9")], {"1", "2"}, HANDBOOK + ": a method that leaves none is passed over"),
        (Client(country="uk"), [], {"0"}, "uk and gb are one country, as in the Handbook's example"),
    ],
)
def test_the_handbook_s_example(client: Client, locatts: list[Locatt], expected: set[str], source: str) -> None:
    found = {
        chosen(UK, "locatt,country,weighted", Client(client.address, client.country, chance), *locatts)
        for chance in (0.0, 0.25, 0.5, 0.75, 0.999)
    }
    assert found == expected
    assert source


class TestMethods:
    @pytest.mark.parametrize("methods", [None, "weighted", "locatt", "country", ""])
    def test_a_single_candidate_is_taken_whatever_it_says(self, methods: str | None) -> None:
        lonely = [one("x", weight="0", country="fr", addresses="192.0.2.0/24", score="-9")]
        assert chosen(lonely, methods, Client(country="US"), ("id", "y")) == "x"

    def test_the_default_order_is_locatt_address_country_score_weighted(self) -> None:
        candidates = [
            one("locatt", wanted="yes", weight="0"),
            one("address", addresses="192.0.2.0/24", weight="0"),
            one("country", country="us", weight="0"),
            one("score", score="7", weight="0"),
            one("weight", weight="1"),
        ]
        client = Client(ip_address("192.0.2.7"), "US")
        order = [chosen(candidates, None, client, ("wanted", "yes"))]
        for left in ([*candidates[1:]], [*candidates[2:]], [*candidates[3:]], [*candidates[4:]]):
            order.append(chosen(left, None, client, ("wanted", "yes")))
        assert order == ["locatt", "address", "country", "score", "weight"]

    @pytest.mark.parametrize(
        ("methods", "expected"),
        [
            ("country,address", "country"),
            ("address,country", "address"),
            (" Country , ADDRESS ", "country"),
            ("nonsense,,country,", "country"),
            ("score", "weight"),
            ("weighted,country", "weight"),
            ("nonsense", "weight"),
            ("", "address"),
        ],
    )
    def test_a_record_names_its_methods(self, methods: str, expected: str) -> None:
        candidates = [
            one("address", addresses="192.0.2.0/24", weight="0"),
            one("country", country="us", weight="0"),
            one("weight", weight="1"),
        ]
        assert chosen(candidates, methods, Client(ip_address("192.0.2.7"), "US")) == expected

    def test_a_list_of_ten_thousand_methods_ends(self) -> None:
        assert chosen(UK, "country," * 10_000, Client(country="GB")) == "0"


class TestLocatt:
    CANDIDATES = (
        one("a", language="de", ctype="text/html", weight="0"),
        one("b", language="en", ctype="text/html", weight="0"),
        one("c", language="en", cr_type="MR-LIST", weight="1"),
    )

    @table(
        ("locatts", "expected"),
        [
            ([("language", "de")], "a"),
            ([("id", "b")], "b"),
            # Each in its order narrows what those before it left; one that leaves none is ignored.
            ([("language", "en"), ("ctype", "text/html")], "b"),
            ([("ctype", "text/html"), ("language", "en")], "b"),
            ([("cr_type", "MR-LIST"), ("language", "de")], "c"),
            ([("language", "fr"), ("language", "de")], "a"),
            # Without a value: whichever has the attribute.
            ([("cr_type", None)], "c"),
            ([("none", None)], "c"),
            # Values are compared exactly.
            ([("language", "DE")], "c"),
            ([("language", "")], "c"),
            ([("Language", "de")], "c"),
            ([], "c"),
        ],
    )
    def test_locatts_narrow_in_their_order(self, locatts: list[Locatt], expected: str) -> None:
        assert chosen(self.CANDIDATES, None, None, *locatts) == expected

    @pytest.mark.parametrize(
        ("value", "wanted", "expected"),
        [
            ("gb", "uk", True), ("uk", "gb", True), ("GB", "uk", True), ("gb", "gb", True), ("UK", "Gb", True),
            ("fr", "uk", False), ("gb", "us", False), ("gb", None, True),
        ],
    )  # fmt: skip
    def test_a_country_is_compared_as_a_country(self, value: str, wanted: str | None, expected: bool) -> None:
        assert matches(one("x", country=value), "country", wanted) is expected

    def test_uk_is_gb_only_for_countries(self) -> None:
        assert not matches(one("x", label="gb"), "label", "uk")


class TestAddress:
    @table(
        ("addresses", "address", "expected"),
        [
            ("192.0.2.0/24", "192.0.2.7", True),
            ("192.0.2.7", "192.0.2.7", True),
            ("192.0.2.7/32", "192.0.2.8", False),
            # Bits behind the mask are not minded.
            ("192.0.2.7/24", "192.0.2.200", True),
            ("10.0.0.0/8, 192.0.2.0/24", "192.0.2.7", True),
            ("nonsense,,192.0.2.0/24", "192.0.2.7", True),
            ("0.0.0.0/0", "203.0.113.9", True),
            ("192.0.2.0/255.255.255.0", "192.0.2.7", True),
            ("2001:db8::/32", "2001:db8:1::7", True),
            ("2001:db8::/32", "2001:db9::7", False),
            ("::/0", "192.0.2.7", False),
            ("0.0.0.0/0", "2001:db8::7", False),
            # A client of a server that listens on "::" (RFC 4291, section 2.5.5.2).
            ("192.0.2.0/24", "::ffff:192.0.2.7", True),
            ("", "192.0.2.7", False),
            ("192.0.2.0/99", "192.0.2.7", False),
            ("192.0.2", "192.0.2.7", False),
            ("\x00", "192.0.2.7", False),
        ],
    )
    def test_networks_hold_the_client(self, addresses: str, address: str, expected: bool) -> None:
        candidates = [one("library", addresses=addresses, weight="0"), one("public", weight="1")]
        assert (chosen(candidates, None, at(address)) == "library") is expected

    def test_an_unknown_client_is_in_no_network(self) -> None:
        assert chosen([one("library", addresses="0.0.0.0/0", weight="0"), one("public")]) == "public"


class TestCountry:
    CANDIDATES = (one("gb", country="gb", weight="0"), one("us", country="us", weight="1"), one("any", weight="1"))

    @pytest.mark.parametrize(
        ("country", "expected"),
        [
            ("GB", {"gb"}),
            ("us", {"us"}),
            ("uk", {"gb"}),
            ("fr", {"us", "any"}),
            (None, {"us", "any"}),
            ("", {"us", "any"}),
        ],
    )
    def test_no_match_keeps_all(self, country: str | None, expected: set[str]) -> None:
        """The reference software; the Handbook drops other countries here, which differs only for weights above 0."""
        assert {chosen(self.CANDIDATES, None, Client(country=country, chance=c)) for c in (0.1, 0.9)} == expected


class TestScore:
    @pytest.mark.parametrize(
        ("scores", "expected"),
        [
            ([None, "5", "1"], "1"),
            (["-1", None, "-2"], "1"),
            (["x", "0.5", ""], "1"),
            (["1e3", "999", "1000"], "0"),
            (["inf", "0.1", "nan"], "1"),
        ],
    )
    def test_the_best_score_wins(self, scores: list[str | None], expected: str) -> None:
        candidates = [one(str(n), **({} if s is None else {"score": s})) for n, s in enumerate(scores)]
        assert chosen(candidates, "score", Client(chance=0.0)) == expected


class TestWeighted:
    @table(
        ("weights", "expected"),
        [
            ([1, 1], [0.5, 0.5]),
            ([1, 3], [0.25, 0.75]),
            ([1, 0, 1], [0.5, 0.0, 0.5]),
            ([0, 0, 5], [0.0, 0.0, 1.0]),
            ([0.1, 0.2, 0.7], [0.1, 0.2, 0.7]),
            ([-5, 1], [0.0, 1.0]),
            ([1e-9, 1e-9], [0.5, 0.5]),
            ([1e308, 1e308], [0.5, 0.5]),
            # All zero: each as often as the others (the reference software prefers the last).
            ([0, 0], [0.5, 0.5]),
            ([0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]),
            ([-1, -2], [0.5, 0.5]),
            (["nan", "inf"], [0.5, 0.5]),
        ],
    )
    def test_shares_are_in_proportion_to_the_weights(self, weights: list[float], expected: list[float]) -> None:
        candidates = [one(str(n), weight=str(weight)) for n, weight in enumerate(weights)]
        found = shares(candidates)
        assert [found.get(str(n), 0.0) for n in range(len(weights))] == pytest.approx(expected, abs=1e-3)

    def test_a_greater_chance_never_leads_further_back(self) -> None:
        candidates = [one(str(n), weight=w) for n, w in enumerate(["1", "0", "2.5", "0.01"])]
        found = [int(chosen(candidates, None, Client(chance=chance)) or -1) for chance in GRID]
        assert all(a <= b for a, b in pairwise(found))

    @pytest.mark.parametrize("chance", [0.0, 1 - 2**-53])
    def test_the_ends_of_the_range_never_choose_weight_zero(self, chance: float) -> None:
        candidates = [one("none", weight="0"), one("some", weight="1"), one("nothing", weight="0")]
        assert chosen(candidates, None, Client(chance=chance)) == "some"


attributes = st.dictionaries(
    st.sampled_from(["id", "weight", "score", "country", "addresses", "http_role", "language", "x"]),
    st.one_of(st.text(max_size=8), st.sampled_from(["0", "1", "1e400", "nan", "gb", "192.0.2.0/24", "conneg"])),
)


@given(
    st.lists(attributes.map(lambda found: Location(tuple(found.items()))), min_size=1, max_size=6),
    st.one_of(st.none(), st.text(max_size=30), st.sampled_from(["score,weighted", "country"])),
    st.one_of(st.none(), st.text(max_size=3)),
    st.one_of(st.none(), st.ip_addresses()),
    st.floats(0, 1, exclude_max=True),
    st.lists(
        st.tuples(st.sampled_from(["id", "country", "x", ""]), st.one_of(st.none(), st.text(max_size=3))), max_size=4
    ),
)
@example([Location((("weight", "1e308"),))] * 3, None, None, None, 0.0, [])
def test_one_of_the_candidates_is_always_chosen(
    candidates: list[Location],
    methods: str | None,
    country: str | None,
    address: object,
    chance: float,
    locatts: list[Locatt],
) -> None:
    client = Client(address, country, chance)  # type: ignore[arg-type]
    assert choose_location(candidates, methods, client, locatts).location in candidates


class TestFacts:
    """Facts about the client that a choice names: those with which another client could have another location."""

    TWO = (one("a"), one("b", weight="0"))
    ROLES = (one("page", http_role="browser", weight="1"), one("data", http_role="conneg", weight="0"))
    UNEQUAL = (one("de", language="de", weight="1"), one("en", language="en", weight="0"))
    BROWSER = Negotiation(False, (("http_role", "browser"),))
    #: Without Accept, User-Agent decides whether the client is a browser.
    UNSAID = Negotiation(False, (("http_role", "no_conneg"),), reads_user_agent=True)

    @table(
        ("candidates", "methods", "client", "locatts", "expected"),
        [
            ((), None, Client(), [], NO_FACTS),
            ((one("a", addresses="192.0.2.0/24", country="de"),), None, Client(), [], NO_FACTS),
            (TWO, None, Client(), [], NO_FACTS),
            ((one("a", score="2"), one("b")), None, Client(), [], NO_FACTS),
            ((one("a"), one("b")), None, Client(), [], ClientFact.CHANCE),
            ((one("a", weight="0"), one("b", weight="0")), None, Client(), [], ClientFact.CHANCE),
            ((one("a", addresses="192.0.2.0/24"), one("b", weight="0")), None, Client(), [], ClientFact.ADDRESS),
            ((one("a", addresses="nonsense"), one("b", weight="0")), None, at("192.0.2.7"), [], ClientFact.ADDRESS),
            ((one("a", addresses="192.0.2.0/24"), one("b", weight="0")), "country", Client(), [], NO_FACTS),
            (UK, None, Client(country="GB"), [], ClientFact.COUNTRY),
            (UK, None, Client(country="US"), [], ClientFact.COUNTRY | ClientFact.CHANCE),
            (UK, None, Client(), [], ClientFact.COUNTRY | ClientFact.CHANCE),
            (UK, None, Client(country="US"), [("id", "0")], NO_FACTS),
            (UK, None, Client(country="US"), [("country", "gb")], NO_FACTS),
            (UNEQUAL, None, Client(), [], ClientFact.LANGUAGE),
            (UNEQUAL, None, Client(), [("language", "en")], NO_FACTS),
            (UNEQUAL, "weighted", Client(), [], NO_FACTS),
            (ROLES, None, Client(negotiation=BROWSER), [], ClientFact.ACCEPT),
            (ROLES, None, Client(negotiation=UNSAID), [], ClientFact.ACCEPT | ClientFact.USER_AGENT),
            ((one("a", ctype="a/b"), one("b", weight="0")), None, Client(), [], ClientFact.ACCEPT),
            ((one("a", **{"media-type": "a/b"}), one("b", weight="0")), None, Client(), [], ClientFact.ACCEPT),
        ],
    )
    def test_facts_are_those_that_could_have_changed_the_choice(
        self,
        candidates: Sequence[Location],
        methods: str | None,
        client: Client,
        locatts: list[Locatt],
        expected: ClientFact,
    ) -> None:
        assert choose_location(candidates, methods, client, locatts).facts == expected


#: Country, address and chance of a client.
known = st.tuples(
    st.sampled_from([None, "gb", "de"]), st.sampled_from([None, "192.0.2.0", "203.0.113.9"]), st.floats(0, 0.99)
)


@given(
    st.lists(attributes.map(lambda found: Location(tuple(found.items()))), min_size=1, max_size=5),
    st.one_of(st.none(), st.sampled_from(["score,weighted", "country", "address,weighted", "locatt"])),
    known,
    known,
    st.sampled_from([Negotiation(), TestFacts.BROWSER, TestFacts.UNSAID]),
    st.sampled_from([Negotiation(), TestFacts.BROWSER, TestFacts.UNSAID]),
)
def test_a_choice_without_facts_is_the_same_for_every_client(
    candidates: list[Location],
    methods: str | None,
    first: tuple[str | None, str | None, float],
    second: tuple[str | None, str | None, float],
    negotiation: Negotiation,
    other: Negotiation,
) -> None:
    def choose_for(known: tuple[str | None, str | None, float], negotiation: Negotiation) -> LocationChoice:
        country, address, chance = known
        client = Client(None if address is None else ip_address(address), country, chance, negotiation)
        return choose_location(candidates, methods, client, ())

    choice = choose_for(first, negotiation)
    if choice.facts == NO_FACTS:
        assert choose_for(second, other) == choice


# --- What is said of a name, and of its record, in which state; and that nothing else is said ------------------------


NOW: Final = 1_800_000_000.0
NAME: Final = HandleName("10.1000/182")
RECORD: Final = Answer(ResponseCode.SUCCESS, b'[{"index":1,"type":"URL"}]')
VERIFIED: Final = Answer(ResponseCode.SUCCESS, RECORD.values, is_verified=True)
NO_VALUES: Final = Answer(ResponseCode.VALUES_NOT_FOUND, b"[]")
NOT_FOUND: Final = Answer(ResponseCode.HANDLE_NOT_FOUND, b"[]")


def entry(answer: Answer = RECORD, fetched: float = NOW - 100, fresh: float = NOW + 100) -> Entry:
    return Entry(NAME.key, answer, fetched, fresh, NOW + 1_000)


def resolution(found: Entry, origin: Origin = Origin.HIT, tombstone: Tombstone | None = None) -> Resolution:
    failure = UpstreamTimeout() if origin in (Origin.STALE, Origin.REGISTRY) else None
    return Resolution(NAME, found, origin, failure, tombstone)


#: An operator's record has no times.
LOCAL: Final = Entry(NAME.key, RECORD, 0.0, FOREVER, FOREVER)
STATES: Final = {
    "fresh": resolution(entry()),
    "fetched now": resolution(entry(fetched=NOW), Origin.ASKED),
    "signed": resolution(entry(VERIFIED)),
    "no values": resolution(entry(NO_VALUES)),
    "not found": resolution(entry(NOT_FOUND)),
    "stale": resolution(entry(fresh=NOW - 10), Origin.STALE),
    # A request refused a record within its TTL, and the upstream failed.
    "refused": resolution(entry(), Origin.STALE),
    "signed, stale": resolution(entry(VERIFIED, fresh=NOW - 10), Origin.STALE),
    "seed without times": resolution(entry(fetched=0.0, fresh=NOW - 10), Origin.STALE),
    "import without times": resolution(entry(fetched=0.0, fresh=0.0), Origin.STALE),
    "file of an agency": resolution(
        RegistryEntry(NAME.key, RECORD, NOW - 100, 0.0, FOREVER, "Crossref"), Origin.REGISTRY
    ),
    "set by an operator": resolution(LOCAL, Origin.LOCAL),
    "withdrawn by an operator": resolution(
        Entry(NAME.key, NOT_FOUND, 0.0, FOREVER, FOREVER), Origin.LOCAL, Tombstone("Retracted.", "2026-03-01")
    ),
}
#: What has an answer of an upstream that is not "not found".
RECORDS: Final = frozenset(
    {"fresh", "fetched now", "signed", "no values", "stale", "refused", "signed, stale"}
    | {"seed without times", "import without times"}
)
WITHOUT_TIME: Final = frozenset(
    {"seed without times", "import without times", "set by an operator", "withdrawn by an operator"}
)
PAST_TTL: Final = frozenset({"stale", "signed, stale", "seed without times", "import without times"})
FROM_AGENCY: Final = frozenset({"file of an agency"})

#: Each claim: what decides it, and the states in which it holds. In all others it is not made.
CLAIMS: Final[dict[str, tuple[Callable[[Resolution], bool], frozenset[str]]]] = {
    "it is registered": (lambda it: claims.find_standing(it) is Standing.REGISTERED, RECORDS | FROM_AGENCY),
    "it is not registered": (lambda it: claims.find_standing(it) is Standing.NOT_REGISTERED, frozenset({"not found"})),
    "it is withdrawn": (
        lambda it: claims.find_standing(it) is Standing.WITHDRAWN,
        frozenset({"withdrawn by an operator"}),
    ),
    "an operator has set it": (
        lambda it: claims.find_standing(it) is Standing.SET_HERE,
        frozenset({"set by an operator"}),
    ),
    "it may be out of date": (
        lambda it: not claims.is_up_to_date(it),
        PAST_TTL | FROM_AGENCY | {"refused"},
    ),
    "it was confirmed at": (
        lambda it: claims.confirmed_at(it.entry) is not None,
        frozenset(STATES) - WITHOUT_TIME - FROM_AGENCY,
    ),
    "it has an age": (lambda it: claims.age(it.entry, NOW) is not None, frozenset(STATES) - WITHOUT_TIME),
    "it is out of date since": (
        lambda it: claims.out_of_date_since(it.entry, NOW) is not None,
        PAST_TTL - {"import without times"},
    ),
    "signatures prove it": (lambda it: it.is_verified, frozenset({"signed"})),
}


@table("claim", list(CLAIMS))
def test_a_claim_is_made_where_it_holds_and_nowhere_else(claim: str) -> None:
    holds, expected = CLAIMS[claim]
    assert {state for state, found in STATES.items() if holds(found)} == expected


def test_each_state_has_one_standing() -> None:
    assert {claims.find_standing(found) for found in STATES.values()} == set(Standing)


@table(
    ("found", "now", "currency"),
    [
        (entry(), NOW, Currency.FRESH),
        (entry(), NOW + 100, Currency.STALE),
        (entry(), NOW + 1_000, Currency.EXPIRED),
        (entry(fetched=0.0, fresh=0.0), NOW, Currency.STALE),
        (RegistryEntry(NAME.key, RECORD, NOW, 0.0, FOREVER, "Crossref"), NOW, Currency.REGISTRY),
    ],
)
def test_an_entry_is_fresh_then_stale_then_expired(found: Entry, now: float, currency: Currency) -> None:
    assert claims.find_currency(found, now) is currency


def test_an_age_is_never_negative() -> None:
    assert claims.age(entry(fetched=NOW + 50), NOW) == 0


# --- The words of claims -----------------------------------------------------------------------------------------

#: Words that say of a name, a work or a service what somebody must have found out.
_WORDS: Final = re.compile(
    r"\b(working|works(?= alone|\.)|(not|page|may) works?|exists?|registered|confirm\w*|verified|proven|holds,"
    r"|withdrawn|fresh|healthy|(is|was|still) (down|sure|spent)|last seen)\b"
)
#: Further words of that kind, in texts for readers.
_READERS_WORDS: Final = re.compile(r"\b(never|always|every|nothing at|only its)\b")
#: The texts of pages with such a word, by the claim of CLAIMS that decides where they are shown.
TEXTS: Final = {
    "it is registered": """
        references.resolved references.alias references.other_work references.no_target references.corrected
        references.cited_work references.related_work references.doubtful_work
        references.count_registered references.heading_registered references.meant
        suggestions.registered suggestions.registered_many suggestions.around""",
    "it is not registered": """
        not_found.lead_doi not_found.lead_handle not_found.lead_prefix ways.mail_missing which_ra.missing
        references.not_found references.count_missing references.heading_missing""",
    "it is withdrawn": """
        gone.title_doi gone.title_handle gone.title_prefix gone.text references.withdrawn""",
    "it was confirmed at": "stale.text stale.text_since",
    "it may be out of date": "stale.text_undated stale.registry",
}
#: Those that say nothing of the kind, with the reason.
OTHER_TEXTS: Final = {
    "could_not_verify.": "says that nothing is known",
    "which_ra.unverified": "says that nothing is known",
    "status.prefixes_": "counts of answers; the state of the upstream decides the headline",
    "status.": "the summary of the status page decides them: tests/features/status/test_summary.py",
    "help.link": "a question",
    "help.form_lead": "a question",
    "help.lead": "advice, after what the record says",
    "help.seen": "a time that the store has kept",
    "not_found.slash": "says that it may be",
    "not_found.reason_new": "one of several possible reasons",
    "note.own_address": "what a redirect to this page would do",
    "ways.": "what the reader says of the page",
    "home.": "what the product does",
    "which_ra.title": "a question",
    "which_ra.lead": "how DOIs are registered",
    "references.lead": "what the page does",
    "references.counted": "says that it is not checked",
    "references.privacy_agencies": "what the page does",
    "preferences.always": "the choice of a reader",
    "privacy.": "the settings decide them: tests/features/privacy",
}
#: Messages and descriptions with such a word, by the module, with what decides it or the reason.
MESSAGES: Final = {
    "assembly/checks.py": "the store has just been tried, or a file",
    "assembly/settings/": "what a setting does",
    "cache/tiered.py": "a failure of the store has just been caught",
    "commands/": "what a command does",
    "endpoints.py": "null where it is not known",
    "errors.py": "the class of the failure",
    "features/admin/": "claims.find_currency, and Entry.is_proof",
    "features/assistants/": "what a verdict means",
    "features/branding/branding.py": "a file",
    "features/explain/explainer.py": "the kind of the destination, and claims.find_currency",
    "features/lists/": "a file, or what a member means",
    "features/metrics/": "what a metric counts",
    "features/native/": "the check has just queried the server",
    "features/openapi/": "what a member means",
    "features/setup/": "a file, or a check that has just been made",
    "features/status/": "what a number means",
    "resolver/prefix_chain.py": "claims.find_standing",
    "server/listening.py": "a file",
    "upstream/upstream_log.py": "the state of the upstream decides it: tests/upstream/test_upstream_log.py",
    "web/problem.py": "the type of the problem",
}


def test_each_text_with_the_word_of_a_claim_belongs_to_a_claim() -> None:
    texts = read_all((CORE, *text_packages()), "en")
    said = {key for key, text in texts.items() if _WORDS.search(text.lower()) or _READERS_WORDS.search(text.lower())}
    decided = {key for keys in TEXTS.values() for key in keys.split()}
    assert set(TEXTS) <= set(CLAIMS)
    assert not decided - said, "these are no claims, or are gone"
    assert _left_over(said - decided, OTHER_TEXTS, texts) == (set(), set())


def test_each_message_with_the_word_of_a_claim_has_a_state_that_decides_it() -> None:
    root = Path(doi_proxy.__path__[0])
    modules = {file.relative_to(root).as_posix(): file for file in root.rglob("*.py")}
    said = {name for name, file in modules.items() if any(_WORDS.search(text) for text in _list_messages(file))}
    assert _left_over(said, MESSAGES, modules) == (set(), set())


def _left_over(found: set[str], exempt: Mapping[str, str], known: Collection[str]) -> tuple[set[str], set[str]]:
    """What no exemption covers, and the exemptions that cover nothing. Those of a feature that was removed stay."""
    left = {one for one in found if not one.startswith(tuple(exempt))}
    covered = {start for start in exempt if any(one.startswith(start) for one in found)}
    return left, {start for start in exempt if any(one.startswith(start) for one in known)} - covered


def _list_messages(file: Path) -> Iterator[str]:
    """The strings of a module that have several words. The docstring of an error is its message."""
    tree = ast.parse(file.read_text("utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        if not (isinstance(node, ast.ClassDef) and file.name in ("errors.py", "feature.py"))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs and " " in node.value:
            yield node.value
