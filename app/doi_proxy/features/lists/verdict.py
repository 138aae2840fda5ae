"""The verdict on one input of a batch: a closed vocabulary, and the row that states it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from cachetools import FIFOCache

from doi_names.errors import InvalidName
from doi_names.find_names import FoundName
from doi_names.name import HandleName
from doi_names.suggestion import Reading, Suggestion, write_reading
from doi_proxy import errors
from doi_proxy.features.metadata.match import Compared, Match
from doi_proxy.list_formats.entries import NO_DOI, Item, ListItem, Scalar
from doi_proxy.list_formats.extraction import POSITION_FIELDS
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.destination import Destination, Kind
from doi_proxy.resolver.resolution import Origin, Resolution, Tombstone
from doi_proxy.resolver.target import Target

#: What looks like a DOI, or like a broken one: a label, or a number that begins like a prefix.
_TRACE: Final = re.compile(
    r"doi|(?<![0-9])[1lI|][0oO](?:\.[0-9OoIl]{4}|[,:;]?\s?[0-9OoIl]{4,9}\s?[/\\])", re.IGNORECASE | re.ASCII
)


class Verdict(Enum):
    """The result of one input of a batch. The values are part of the public interface."""

    RESOLVED = "resolved"
    ALIAS = "alias"  # resolved; the name is an alias of another name
    NO_TARGET = "no_target"  # registered, without a URL to redirect to
    NOT_FOUND = "not_found"
    NOT_A_DOI = "not_a_doi"  # not looked up
    UNVERIFIED = "unverified"  # the upstream could not be queried, or its answer is unreadable
    RATE_LIMITED = "rate_limited"  # not queried: no room in the budget, or the upstream requested a pause


#: The members of every row, in order.
FIELDS: Final = ("input", "doi", "verdict", "url", "ra", "age", "stale", "message", "line", "key", "reason")
#: The members of a row that a request for suggestions adds.
SUGGESTIONS: Final = "suggestions"
SUGGESTION_FIELDS: Final = (SUGGESTIONS, "best")
#: The members that compare the reference of the item with the work.
MATCH_FIELDS: Final = ("match", "title", "why")
#: The member that repeats one of the item.
ECHO: Final = "echo"
#: The verdicts of names that lead somewhere.
GOOD: Final = frozenset({Verdict.RESOLVED, Verdict.ALIAS})


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of looking up a name, the same for all its spellings. Times are seconds since the epoch."""

    verdict: Verdict
    url: str | None = None
    #: When the record was fetched. None if that is not known, for a local record, and without an answer.
    fetched_at: float | None = None
    is_stale: bool = False
    message: str | None = None
    #: Until when the cache has this answer. 0 without an answer.
    fresh_until: float = 0.0
    #: Seconds after which the upstream may be queried again, if that is known.
    retry_after: float | None = None
    #: Why the name could not be verified, as a token of app/doi_proxy/errors.py.
    failure: str | None = None
    tombstone: Tombstone | None = None
    #: Whether an operator has set the record. Nothing says then that the name is registered.
    is_set_here: bool = False

    def age(self, now: float) -> int | None:
        """Whole seconds since the record was fetched. None if that is not known, as of a seed without times."""
        return None if self.fetched_at is None else max(0, int(now - self.fetched_at))


class JudgementMemory:
    """Judgements by the key of their name, at most `max_bytes` of them. The oldest are evicted first.

    A failure is not cached, and "not found" is cached for a minute. Without this memory, each repetition of such a name
    in a long list would be a query.
    """

    def __init__(self, max_bytes: int) -> None:
        # Bytes of a judgement without its texts: the slot of the map, the key and the judgement, by tracemalloc.
        self._kept: FIFOCache[str, tuple[str, Judgement]] = FIFOCache(
            max_bytes, getsizeof=lambda kept: 400 + len(kept[0]) + len(kept[1].url or "")
        )

    def find(self, key: str) -> Judgement | None:
        """The judgement on a name."""
        kept = self._kept.get(key)
        return None if kept is None else kept[1]

    def remember(self, key: str, judgement: Judgement, now: float) -> None:
        """Store a judgement, unless the cache will have it for long. `now` is in seconds since the epoch."""
        # Judgements that stay fresh for longer than this, in seconds, are left to the cache. The two verdicts say
        # nothing about the name: a later batch may have a better one.
        is_decided = judgement.verdict not in (Verdict.UNVERIFIED, Verdict.RATE_LIMITED)
        if key not in self._kept and not (is_decided and judgement.fresh_until - now > 3_600.0):
            self._kept[key] = key, judgement


@dataclass(frozen=True, slots=True)
class ListRow:
    """The result for one input. The members have the names and the order of the public interface."""

    #: The input as it was sent.
    input: str
    #: The name in the spelling of the input. None if the input is not a name that this resolver looks up.
    doi: str | None
    verdict: Verdict
    #: The target of a redirect, percent-encoded ASCII.
    url: str | None = None
    #: The registration agency, None if it is not known.
    ra: str | None = None
    #: Seconds since the record was fetched. None for local records, and without a record.
    age: int | None = None
    #: Whether the upstream could not be queried, and the record is past its TTL or from a registration agency's file.
    stale: bool = False
    #: The reason in words. None if the verdict needs none.
    message: str | None = None
    #: The names that the author of the input may have meant. None if they were not requested.
    suggestions: tuple[Suggestion, ...] | None = None
    #: The likeliest reading, if suggestions were requested.
    best: Reading | None = None
    #: Where the item is in its list: see ListItem. None outside a list.
    line: int | None = None
    key: str | None = None
    #: Why an item was not looked up, as a token: NO_DOI or None.
    reason: str | None = None
    echo: Scalar = None
    #: Whether the reference of the item is about the work that the name leads to. None if that was not requested.
    match: Match | None = None
    #: The title of that work, None if it is not known, and what differs, or why nothing was compared.
    title: str | None = None
    why: str | None = None
    #: Both sides, None if the row is from another process. Not a member of the interface.
    compared: Compared | None = None
    #: The name that was found in the text of the item. Not a member of the interface.
    found: FoundName | None = None
    #: Names that follow from the reference by rule. Not a member of the interface.
    derived: tuple[FoundName, ...] = ()
    #: What the row was made of, None without a look-up. Not a member of the interface.
    judgement: Judgement | None = None

    def place(self, item: Item) -> ListRow:
        """The row with the place of its item, and with what was found in it."""
        placed = replace(self, line=item.line or None, key=item.key, echo=item.echo)
        if not isinstance(item, ListItem):
            return placed
        message = join_notes(self.message, item.note)
        if item.found is None:
            return replace(placed, message=message)
        found = replace(placed, message=message, input=item.text, found=item.found)
        is_as_it_stands = self.best is not None and self.best.name == item.found.name
        return replace(found, best=found.reading) if is_as_it_stands else found

    def with_comparison(self, compared: Compared) -> ListRow:
        """The row with what its reference has to do with the work."""
        title = None if compared.work is None else compared.work.full_title
        return replace(self, match=compared.match, title=title, why=compared.why, compared=compared)

    @property
    def reading(self) -> Reading | None:
        """How the name of the row was read."""
        if self.found is not None:
            return Reading(self.found.name, self.found.confidence, self.found.rule)
        return None if self.doi is None else Reading(HandleName(self.doi), "literal", None)

    def members(self) -> dict[str, Any]:
        """The members as JSON has them. Without suggestions or an echo, those members are absent."""
        found: dict[str, Any] = {
            "input": self.input,
            "doi": self.doi,
            "verdict": self.verdict.value,
            "url": self.url,
            "ra": self.ra,
            "age": self.age,
            "stale": self.stale,
            "message": self.message,
            "line": self.line,
            "key": self.key,
            "reason": self.reason,
        }
        if self.suggestions is not None:
            found[SUGGESTIONS] = [
                {"doi": suggestion.doi.text, "rule": suggestion.rule, "exists": suggestion.exists}
                for suggestion in self.suggestions
            ]
            found["best"] = write_reading(self.best)
        if self.match is not None:
            found |= {"match": self.match, "title": self.title, "why": self.why}
        if self.echo is not None:
            found[ECHO] = self.echo
        return found


def read_row(members: Mapping[str, Any]) -> ListRow:
    """The row whose `members` these are. Raises ValueError for other members."""
    try:
        suggestions = members.get("suggestions")
        if suggestions is not None:
            suggestions = tuple(
                Suggestion(HandleName(suggestion["doi"]), suggestion["rule"], exists=suggestion.get("exists"))
                for suggestion in suggestions
            )
        # The members that a row must have to be read. A request can leave out the others.
        known = {name: members[name] for name in FIELDS[:8]} | {"verdict": Verdict(members["verdict"])}
        known |= {name: members.get(name) for name in ("line", "key", "reason", ECHO, *MATCH_FIELDS)}
        best = members.get("best")
        reading = None if best is None else Reading(HandleName(best["doi"]), best["confidence"], best["rule"])
        return ListRow(**known, suggestions=suggestions, best=reading)
    except (AttributeError, KeyError, TypeError, InvalidName) as error:
        raise ValueError(f"this is not the row of a name: {error!r}") from error


def read_fields(
    fields: str | None, *, suggests: bool, extracts: bool = False, echoes: bool = False, matches: bool = False
) -> tuple[str, ...]:
    """The members of the rows, in the order of the request. Raises InvalidParameter."""
    known = (*FIELDS, *SUGGESTION_FIELDS * suggests, *POSITION_FIELDS * extracts)
    known += (*MATCH_FIELDS * matches, *[ECHO] * echoes)
    if fields is None:
        return known
    chosen = tuple(dict.fromkeys(name.strip() for name in fields.split(",")))
    for name in chosen:
        if name not in known:
            raise errors.InvalidParameter(f"fields: {name[:80]!r} is not one of {', '.join(known)}.")
    return chosen


def judge_target(resolution: Resolution, target: Target) -> Judgement:
    """The judgement for one record that redirects every client to one target."""
    is_stale = not claims.is_up_to_date(resolution)
    message = _explain_stale(resolution) if is_stale else None
    return Judgement(
        Verdict.RESOLVED,
        target.location,
        claims.dated_at(resolution.entry),
        is_stale,
        message,
        resolution.entry.fresh_until,
        is_set_here=claims.find_standing(resolution) is claims.Standing.SET_HERE,
    )


def judge_destination(destination: Destination) -> Judgement:
    """The judgement for a name that the cache, the upstream or a local record has answered."""
    resolutions = destination.resolution.chain
    last = destination.resolution
    url = None if destination.target is None else destination.target.location
    stale = next((resolution for resolution in resolutions if not claims.is_up_to_date(resolution)), None)
    return Judgement(
        _verdict(destination),
        url,
        claims.dated_at(last.entry),
        stale is not None,
        _message(destination, stale),
        min(resolution.entry.fresh_until for resolution in resolutions),
        tombstone=last.tombstone,
        is_set_here=claims.find_standing(last) is claims.Standing.SET_HERE,
    )


def judge_failure(error: errors.DoiProxyError) -> Judgement:
    """The judgement for a lookup that failed. A loop of aliases and an inactive prefix are answers without a target."""
    if not isinstance(error, errors.CouldNotVerify):
        return Judgement(Verdict.NO_TARGET, message=error.message)
    verdict = Verdict.RATE_LIMITED if is_rate_limit(error) else Verdict.UNVERIFIED
    return Judgement(verdict, message=error.message, retry_after=error.retry_after, failure=error.token)


def is_rate_limit(error: errors.CouldNotVerify) -> bool:
    """Whether a name could not be verified because queries are limited: by the budget, or by the upstream."""
    if isinstance(error, errors.UpstreamRefused):
        return error.upstream_status == 429
    return isinstance(error, (errors.NotAdmitted, errors.UpstreamPaused))


def is_worth_waiting(error: errors.CouldNotVerify) -> bool:
    """Whether the same query can succeed after a pause."""
    return is_rate_limit(error) or isinstance(error, errors.BreakerOpen)


def not_a_doi(text: str, message: str) -> ListRow:
    """The row of an input that is not looked up. The reason is NO_DOI if nothing in it looks like a DOI."""
    # Characters of a text in which it is searched.
    reason = None if _TRACE.search(text[:65_536]) else NO_DOI
    return ListRow(text, None, Verdict.NOT_A_DOI, message=message, reason=reason)


def join_notes(*notes: str | None) -> str | None:
    """The sentences of a message."""
    return " ".join(note for note in notes if note) or None


def read_input(item: Item) -> ListItem | ListRow:
    """The input of an item of a list. One that cannot be read has its row."""
    if isinstance(item, ListItem):
        return item
    row = ListRow(item.text, None, Verdict.NOT_A_DOI, message=item.message, reason=item.reason, derived=item.derived)
    return row.place(item)


def explain_other_name(name: HandleName) -> str:
    """Why a name that can be read is not looked up: it is not a DOI name."""
    if name.is_prefix:
        return "This is a DOI prefix; a DOI name has a slash and a suffix after its prefix."
    return "This is not a DOI name: a DOI name begins with “10.” and has a slash after its prefix."


def _verdict(destination: Destination) -> Verdict:
    if destination.kind is Kind.NOT_FOUND:
        return Verdict.NOT_FOUND
    if destination.target is None:
        return Verdict.NO_TARGET
    return Verdict.ALIAS if destination.resolution.aliases else Verdict.RESOLVED


def _message(destination: Destination, stale: Resolution | None) -> str | None:
    """The reasons in words, each a sentence."""
    last = destination.resolution
    sentences = []
    if destination.resolution.aliases:
        sentences.append(f"The name is an alias of {last.name.text}.")
    if last.tombstone is not None:
        sentences.append(f"Gone since {last.tombstone.date}: {last.tombstone.reason}")
    if destination.kind is not Kind.NOT_FOUND and destination.target is None:
        # The message of a registered name without a redirect.
        sentences.append("The record of the name has no URL to redirect to.")
    if stale is not None:
        sentences.append(_explain_stale(stale))
    return " ".join(sentences) or None


def _explain_stale(stale: Resolution) -> str:
    fact = "past its TTL" if stale.origin is Origin.STALE else "from a registration agency's file"
    reason = "." if stale.failure is None else f": {stale.failure.message}"
    return f"The record is {fact}{reason}"
