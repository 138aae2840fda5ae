"""Local records: what the operator says about names and prefixes, before the cache and the upstream.

An exact name wins over a prefix, and a longer prefix over a shorter one. Names compare without regard to ASCII case.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from doi_names.name import PREFIX_RECORDS, HandleName, fold
from doi_names.presentation import component, url_path
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import PrefixDenied
from doi_proxy.resolver.resolution import MAX_ALIASES, Origin, Resolution, Tombstone
from doi_proxy.system.toml_text import FileProblem
from handle_protocol.referral import Answer, ResponseCode

#: Placeholders in the target of a prefix: the whole name, and its part after the first slash, both percent-encoded.
DOI_PLACEHOLDER: Final = "{doi}"
SUFFIX_PLACEHOLDER: Final = "{suffix}"


class LocalAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer about a name. `alias` is the name that its only value is an alias of."""

    answer: Answer
    tombstone: Tombstone | None = None
    alias: str | None = None


class TargetTemplate(msgspec.Struct, frozen=True, gc=False):
    """A target with placeholders, for each name of a prefix."""

    url: str


class Route(msgspec.Struct, frozen=True, gc=False):
    """The base URL of the upstream that knows the names of a prefix."""

    upstream: str


class Denial(msgspec.Struct, frozen=True, gc=False):
    """Why the names of a prefix are refused."""

    reason: str


class LocalRecord(msgspec.Struct, frozen=True, gc=False):
    """What happens with a name, or with the names of a prefix. `until` is in seconds since the epoch."""

    #: The name or the prefix, as the file spells it.
    subject: str
    is_prefix: bool
    action: LocalAnswer | TargetTemplate | Route | Denial
    until: float
    #: Where it was read.
    file: str
    line: int
    #: Whether the rules of library copy apply to its target.
    allows_detour: bool = True

    @property
    def key(self) -> str:
        """The name or prefix in the form that is compared."""
        return _compared(fold(self.subject))

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer about names, and not a route or a denial."""
        return isinstance(self.action, LocalAnswer | TargetTemplate)

    def problem(self, message: str, severity: Literal["error", "warning"] = "error") -> FileProblem:
        """A problem of this record as a whole."""
        return FileProblem(self.file, self.line, 1, message, severity)


def _compared(key: str) -> str:
    """The key by which a name is compared: the record of a prefix is one name with and without its 0.NA/."""
    rest = key.removeprefix(PREFIX_RECORDS)
    return key if "/" in rest else rest


class LocalRecords:
    """The records in force. A look-up costs one or two dictionary accesses."""

    def __init__(self, records: Iterable[LocalRecord] = ()) -> None:
        self._names: dict[str, LocalRecord] = {}
        self._prefixes: dict[str, LocalRecord] = {}
        for record in records:
            (self._prefixes if record.is_prefix else self._names)[record.key] = record
        self._sorted = sorted(self._names)
        # A client's name can have thousands of elements before its slash.
        self._most_elements = max((prefix.count(".") + 1 for prefix in self._prefixes), default=0)

    def __len__(self) -> int:
        return len(self._names) + len(self._prefixes)

    def routes(self) -> dict[str, str]:
        """The upstream of each routed prefix. A route has no end."""
        routed = ((record.subject, record.action) for record in self._prefixes.values())
        return {prefix: action.upstream for prefix, action in routed if isinstance(action, Route)}

    def resolve(self, name: HandleName, now: float) -> Resolution | None:
        """The answer about a name; None if the cache and the upstream decide. Raises PrefixDenied.

        `now` is in seconds since the epoch.
        """
        record = self._find(name.key, now)
        if record is None:
            return None
        match record.action:
            case LocalAnswer(answer, tombstone):
                return _resolution(name, answer, record, tombstone)
            case TargetTemplate(url):
                return _resolution(name, answer_of_value("URL", fill_target(url, name)), record)
            case Denial(reason):
                raise PrefixDenied(reason)
        return None

    def find_place(self, name: HandleName, now: float) -> str | None:
        """File and line of the record that answers or denies a name in place of the cache. A route does not."""
        record = self._find(name.key, now)
        return None if record is None or isinstance(record.action, Route) else f"{record.file}:{record.line}"

    def find_near(self, key: str, candidates: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
        """See LocalAnswers. Two keys before it, and two after it."""
        at = bisect_left(self._sorted, key)
        before = self._sorted[max(0, at - 2) : at]
        return (
            [candidate for candidate in candidates if candidate in self._names],
            before[::-1],
            self._sorted[at : at + 2],
        )

    def _find(self, key: str, now: float) -> LocalRecord | None:
        found = self._names.get(_compared(key))
        if found is not None and now < found.until:
            return found
        return self._find_prefix(key, now) if self._prefixes else None

    def _find_prefix(self, key: str, now: float) -> LocalRecord | None:
        prefix, slash, suffix = key.partition("/")
        is_prefix_record = not slash
        if prefix == PREFIX_RECORDS[:-1]:
            prefix, is_prefix_record = suffix, True
        if prefix.count(".") >= self._most_elements:
            prefix = ".".join(prefix.split(".", self._most_elements)[: self._most_elements])
        while prefix:
            found = self._prefixes.get(prefix)
            # The record of the prefix itself is refused and routed with its names. It does not share their answer.
            if found is not None and now < found.until and not (is_prefix_record and found.is_answer):
                return found
            prefix = prefix.rpartition(".")[0]
        return None


def _resolution(
    name: HandleName, answer: Answer, record: LocalRecord, tombstone: Tombstone | None = None
) -> Resolution:
    entry = Entry(key=name.key, answer=answer, fetched_at=0.0, fresh_until=record.until, stale_until=record.until)
    return Resolution(name, entry, Origin.LOCAL, tombstone=tombstone, allows_detour=record.allows_detour)


def answer_of_value(kind: Literal["URL", "HS_ALIAS"], text: str) -> Answer:
    """The answer whose only value is a string."""
    value = {"index": 1, "type": kind, "data": {"format": "string", "value": text}, "ttl": 86400}
    return Answer(ResponseCode.SUCCESS, msgspec.json.encode([value]))


def fill_target(url: str, name: HandleName) -> str:
    """The target of one name. In the query every reserved character is encoded, in the path only what must be."""
    path, mark, query = url.partition("?")
    suffix = name.suffix or ""
    # After the slash of a template, "../" would lead out of its path (RFC 3986, section 5.2.4).
    segments = url_path("/" + suffix).removeprefix("/")
    path = path.replace(SUFFIX_PLACEHOLDER, segments).replace(DOI_PLACEHOLDER, url_path(name))
    query = query.replace(SUFFIX_PLACEHOLDER, component(suffix)).replace(DOI_PLACEHOLDER, component(name))
    return path + mark + query


# --- All records together -----------------------------------------------------------------------------------------


def find_conflicts(records: Iterable[LocalRecord]) -> list[FileProblem]:
    """A problem for each record of a name that another record has already, and for each loop of aliases."""
    first: dict[tuple[bool, str], LocalRecord] = {}
    problems = []
    for record in records:
        other = first.setdefault((record.is_prefix, record.key), record)
        if other is not record:
            place = f"line {other.line} of {other.file}"
            problems.append(record.problem(f"{record.subject[:200]} has a record already, in {place}"))
    return problems + _find_loops({key: record for (is_prefix, key), record in first.items() if not is_prefix})


def _find_loops(names: dict[str, LocalRecord]) -> list[FileProblem]:
    problems = []
    for key, record in names.items():
        alias = _alias_key(record)
        for _ in range(MAX_ALIASES):
            if alias is None or alias == key:
                break
            alias = _alias_key(names[alias]) if alias in names else None
        if alias == key:
            problems.append(record.problem(f"the aliases of {record.subject[:200]} form a loop"))
    return problems


def _alias_key(record: LocalRecord) -> str | None:
    alias = record.action.alias if isinstance(record.action, LocalAnswer) else None
    return None if alias is None else fold(alias)


def find_expired(records: Iterable[LocalRecord], now: float) -> list[FileProblem]:
    """A warning for each record whose `until` has passed."""
    return [
        record.problem(f"the record of {record.subject[:200]} has expired; remove it or change until", "warning")
        for record in records
        if record.until <= now < math.inf
    ]
