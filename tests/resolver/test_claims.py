"""What is said of a name, and of its record, in which state; and that nothing else is said."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import doi_proxy
from doi_names.name import HandleName
from doi_proxy.assembly.features import text_folders
from doi_proxy.cache.entry import FOREVER, Entry, RegistryEntry
from doi_proxy.errors import UpstreamTimeout
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.resolution import Currency, Origin, Resolution, Standing, Tombstone
from doi_proxy.web.languages import CORE, read_all
from handle_protocol.referral import Answer, ResponseCode
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
    "proof.signature_": "the verdict on the signatures decides them: tests/features/proof",
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
    "preferences.always": "the choice of a reader",
    "privacy.": "the settings decide them: tests/features/privacy",
}
#: Messages and descriptions with such a word, by the module, with what decides it or the reason.
MESSAGES: Final = {
    "assembly/command_stores.py": "a file",
    "assembly/checks.py": "the store has just been tried",
    "assembly/settings/": "what a setting does",
    "cache/tiered.py": "a failure of the store has just been caught",
    "commands/": "what a command does",
    "endpoints/operators.py": "null where it is not known",
    "errors.py": "the class of the failure",
    "features/admin/": "claims.find_currency, and Entry.is_proof",
    "features/assistants/": "what a verdict means",
    "features/branding/branding.py": "a file",
    "features/bundles/": "claims.find_currency, and the answers of a visit",
    "features/explain/explainer.py": "the kind of the destination, and claims.find_currency",
    "features/lists/": "a file, or what a member means",
    "features/metrics/": "what a metric counts",
    "features/native/": "the check has just queried the server",
    "features/openapi/": "what a member means",
    "features/proof/": "the proof of the answer decides it",
    "features/setup/": "a file, or a check that has just been made",
    "features/status/": "what a number means",
    "resolver/fetcher.py": "the answer that has just arrived",
    "resolver/prefix_chain.py": "claims.find_standing",
    "server/listening.py": "a file",
    "upstream/upstream_log.py": "the state of the upstream decides it: tests/upstream/test_upstream_log.py",
    "web/problem.py": "the type of the problem",
}


def test_each_text_with_the_word_of_a_claim_belongs_to_a_claim() -> None:
    texts = read_all((CORE, *(folder.package for folder in text_folders())), "en")
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
