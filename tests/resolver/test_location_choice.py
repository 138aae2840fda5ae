"""Choosing one of several locations: each method, their order, and their chances, proved over a grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_address
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doi_proxy.resolver.resolution import NO_FACTS, Client, ClientFact, Locatt, Negotiation
from doi_proxy.resolver.target import LocationChoice, choose_location, matches
from handle_protocol.value import Location
from tests.table import table

HANDBOOK = 'DOI Handbook, section "Resolution"'
MANUAL = "technical manual, chapter 12"
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
    def test_without_candidates_there_is_none(self) -> None:
        assert choose_location([], None, Client(), []).location is None

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

    def test_three_of_weight_zero_are_chosen_equally(self) -> None:
        found = shares([one(n, weight="0") for n in "abc"])
        assert found == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, abs=1e-3)

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
