"""What is said of a name, and of its record, in which state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from doi_names.name import HandleName
from doi_proxy.cache.entry import FOREVER, Entry, RegistryEntry
from doi_proxy.errors import UpstreamTimeout
from doi_proxy.resolver import claims
from doi_proxy.resolver.claims import Currency, Standing
from doi_proxy.resolver.resolution import Origin, Resolution, Tombstone
from handle_protocol.answer import Answer, ResponseCode
from tests.table import table

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
