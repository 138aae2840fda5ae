"""What records and answers say about where a handle is: in the sites of a service, or further on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import ClassVar, Final, Protocol, TypeVar

import msgspec

from doi_names.name import MAX_NAME_BYTES, fold
from handle_protocol.errors import HandleProtocolError, InvalidRecord, MalformedMessage, ServerRefused, ServerTimeout
from handle_protocol.value import escape_separators, parse_record
from handle_protocol.wire.message import Response
from handle_protocol.wire.site_value import Permission, ServiceSite, TtlType, Value, decode_site


class ResponseCode(IntEnum):
    """The response codes that are an answer. Every other code reports a failure."""

    SUCCESS = 1
    HANDLE_NOT_FOUND = 100
    VALUES_NOT_FOUND = 200


#: For what each answer compares. Python 3.11 takes 900 instructions to look up a member in its class.
SUCCESS: Final = ResponseCode.SUCCESS


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The answer about a name. `values` is the compact JSON array of its values, or `[]`."""

    #: The URL to which the record leads every client, if a store has noted it.
    target: ClassVar[str | None] = None

    code: ResponseCode
    values: bytes = b"[]"
    #: What Cache-Status says about where a new answer came from. Stores do not keep it.
    detail: str | None = None
    #: Whether the handle server's signature of this answer was verified. Stores keep it, bundles do not.
    is_verified: bool = False

    def agrees_with(self, other: Answer) -> bool:
        """Whether another answer says the same about the name."""
        return self.code is other.code and self.values == other.values


class _Wire(msgspec.Struct, gc=False):
    responseCode: int
    handle: str | None = None
    values: msgspec.Raw = msgspec.Raw()
    message: str | None = None


_decoder: Final = msgspec.json.Decoder(_Wire)


def read_answer(body: bytes, name: str) -> Answer:
    """Read the body of an answer to the query about `name`.

    Raises ServerRefused if the response code reports a failure. Raises InvalidRecord if the body is not JSON, has no
    response code, has values that cannot be read, or is about another name.
    """
    try:
        wire = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidRecord("The answer is not valid JSON of the handle API.", detail=str(error)) from error
    if wire.responseCode not in ResponseCode.__members__.values():
        raise ServerRefused(
            f"The server reported a failure, response code {wire.responseCode}.",
            response_code=wire.responseCode,
            detail=(wire.message or "no reason given")[:200],
        )
    if not _same_name(wire.handle, name):
        raise InvalidRecord("The answer is about another name.")
    if wire.responseCode != ResponseCode.SUCCESS:
        return Answer(ResponseCode(wire.responseCode))
    if not bytes(wire.values):
        raise InvalidRecord("The answer has response code 1 (success) and no `values`.")
    # This removes insignificant white space. Numbers and escapes keep their spelling.
    values = escape_separators(msgspec.json.format(bytes(wire.values), indent=-1))
    return (
        Answer(ResponseCode.SUCCESS, values) if parse_record(values).values else Answer(ResponseCode.VALUES_NOT_FOUND)
    )


def _same_name(handle: str | None, name: str) -> bool:
    if handle is None:
        return False
    handle, name = fold(handle), fold(name)
    # The record of a prefix is the handle 0.NA/<prefix>. Servers echo it with or without the "0.NA/".
    return handle == name or ("/" not in name and handle == "0.NA/" + name)


#: The handle whose HS_SITE values are the root.
ROOT_HANDLE: Final = b"0.NA/0.NA"
_PREFIX_RECORDS: Final = b"0.NA/"
#: The types by which a prefix record, or the record of a service handle, names its sites (RFC 3651, sections 3.2.2 and
#: 3.2.4).
SERVICE_TYPES: Final = (b"HS_SITE", b"HS_SITE.6", b"HS_SERV")


@dataclass(frozen=True, slots=True)
class HandleService:
    """The sites of a service. `is_verified`: a chain of signatures from the root leads to their keys."""

    sites: tuple[ServiceSite, ...]
    is_verified: bool


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be found out about a handle."""

    handle: bytes
    #: Types and indexes of the values. A value of one of them is sent. All values if both are empty.
    types: tuple[bytes, ...] = ()
    indexes: tuple[int, ...] = ()
    #: Only a primary site may answer.
    authoritative: bool = False
    #: The answer must be signed, and so must every answer that leads to the server.
    certified: bool = False
    #: It is about a prefix or a service handle, on the way to the server of a name.
    is_lookup: bool = False


@dataclass(frozen=True, slots=True)
class Lead:
    """Where a record leads: to sites, else to the record of one of the service handles."""

    sites: tuple[ServiceSite, ...]
    #: In the order in which they are tried. Empty if there are sites.
    service_handles: tuple[bytes, ...]
    #: Seconds for which this is true.
    lifetime: float
    #: The memory that this takes, in usual services.
    weight: int = 1


def prefix_record(handle: bytes) -> bytes | None:
    """The handle of the prefix record of a handle. None for a prefix record: its service is found from the root."""
    prefix, slash, _ = handle.partition(b"/")
    if not slash or prefix.upper() == _PREFIX_RECORDS[:-1]:
        return None
    return _PREFIX_RECORDS + prefix


def read_lead(values: Sequence[Value], now: float) -> Lead | None:
    """Where a prefix record or the record of a service handle leads; None if nowhere."""
    return _read(values, (b"HS_SITE", b"HS_SITE.6"), (b"HS_SERV",), now)


def read_referral(values: Sequence[Value], now: float) -> Lead | None:
    """Where a referral leads; None if nowhere."""
    # The values of a referral, response code 303 (RFC 3651, section 3.2.3; RFC 3652, section 3.4). They hold for all
    # prefixes derived from the one that has them.
    return _read(values, (b"HS_SITE.PREFIX", b"HS_NA_DELEGATE"), (b"HS_SERV.PREFIX",), now)


def _read(
    values: Sequence[Value], site_types: tuple[bytes, ...], service_types: tuple[bytes, ...], now: float
) -> Lead | None:
    public = [value for value in values if value.permissions & Permission.PUBLIC_READ]
    site_values = _bound([value for value in public if value.type.upper() in site_types])
    sites = tuple(site for value in site_values if (site := _decode(value.data)) is not None)
    if sites:
        return Lead(sites, (), _lifetime(site_values, now), _weigh(site_values, sites))
    # The data is sent as a name, in a query.
    named = [v for v in public if v.type.upper() in service_types and 0 < len(v.data.strip()) <= MAX_NAME_BYTES]
    # Service handles of one record. The rest is ignored.
    named = named[:8]
    handles = tuple(dict.fromkeys(value.data.strip() for value in named))
    return Lead((), handles, _lifetime(named, now), _weigh(named, ())) if handles else None


def _bound(site_values: list[Value]) -> list[Value]:
    sizes = accumulate(len(value.data) for value in site_values)
    count = sum(size <= 64 * 1024 for size in sizes)
    # Sites of one service, and bytes of their values. The rest is ignored. Services in use have fewer than ten sites.
    return site_values[: min(count, 16)]


def _weigh(values: list[Value], sites: tuple[ServiceSite, ...]) -> int:
    # An interface has 6 bytes in the value, and 100 in memory.
    interfaces = sum(len(server.interfaces) for site in sites for server in site.servers)
    # Site values with more bytes or more interfaces than this count as several services in a directory.
    return 1 + sum(len(value.data) for value in values) // 4_096 + interfaces // 16


def _decode(data: bytes) -> ServiceSite | None:
    # One malformed value must not hide the other sites of the service.
    try:
        return decode_site(data)
    except MalformedMessage:
        return None


def _lifetime(values: Iterable[Value], now: float) -> float:
    return min((_remaining(value, now) for value in values), default=0.0)


def _remaining(value: Value, now: float) -> float:
    if value.ttl_type == TtlType.ABSOLUTE:
        return max(0.0, value.ttl - now)
    return max(0.0, float(value.ttl)) if value.ttl_type == TtlType.RELATIVE else 0.0


Result = TypeVar("Result")

#: Seconds for which a service, or what is known about a server that the operator named, is used at least and at most.
#: Services of a handle system change rarely, so an hour is short.
SHORTEST_LIFETIME: Final = 60.0
LONGEST_LIFETIME: Final = 3_600.0
#: Seconds for a lookup that is not needed, and for its tokens. The rest of the caller's time is for the name itself.
LOOKUP_TIMEOUT: Final = 4.0


@dataclass(frozen=True, slots=True)
class DirectoryLimits:
    """The bounds of a directory. Times are in seconds."""

    #: For one lookup of a service, and for one refresh of the root. No caller's time limits them: callers share them.
    timeout: float
    #: Queries for one handle, with those for prefixes, service handles and referrals; also records that lead to it.
    #: The reference software follows 20 service handles.
    queries: int = 20
    #: Services that are remembered; a large one counts as several. The one that was used least recently is forgotten.
    services: int = 10_000
    #: A service is looked up again after the TTL of its record, at least and at most so long.
    shortest_lifetime: float = SHORTEST_LIFETIME
    longest_lifetime: float = LONGEST_LIFETIME
    #: So long after that time, the last known sites are used if the lookup fails. Records are served stale for longer,
    #: but servers can change their addresses in a week.
    grace: float = 7 * 86_400.0
    #: Wait for the lookup of a service whose last known sites could be used, and for a root that is not needed.
    lookup_timeout: float = LOOKUP_TIMEOUT

    def bound(self, lifetime: float) -> float:
        """A lifetime within the limits."""
        return max(self.shortest_lifetime, min(lifetime, self.longest_lifetime))


@dataclass(frozen=True, slots=True)
class Lookups:
    """How services are looked up: by which client, at whose cost, and within which bounds."""

    #: An answer that belongs to the question, and is signed if the question says so. Raises HandleProtocolError.
    ask: Callable[[HandleService, Question], Awaitable[Response]]
    #: Is awaited before each query but the first of a question. Raises QueryNotAdmitted.
    admit_query: Callable[[], Awaitable[None]]
    limits: DirectoryLimits
    #: Seconds since the epoch.
    clock: Callable[[], float]
    observer: DirectoryObserver
    breaker: RootBreaker | None
    #: Whether each answer of a lookup must be signed, if the root has keys. The answer about the name need not be.
    are_signed: bool = False


class DirectoryObserver:
    """A subclass records what happens to lookups. It must be quick and must not raise."""

    def record_refresh(self, error: HandleProtocolError | None) -> None:
        """The root was refreshed, or with an error it could not be."""

    def record_overdue(self, error: HandleProtocolError) -> None:
        """A known service could not be looked up again, so its last known sites are used on."""


class RootBreaker(Protocol):
    """Decides whether the root is left alone after failures. Times are seconds since the epoch."""

    def allow(self, now: float) -> bool:
        """Whether a query may be sent. The query that is sent after a pause is a probe."""

    def retry_after(self, now: float) -> float:
        """Seconds until a query may be sent; 0 if one may be sent now."""

    def record_answer(self) -> None:
        """The root answered."""

    def record_failure(self, name: str, now: float) -> bool:
        """The root did not answer about a name."""


async def within(seconds: float | None, work: Awaitable[Result], late: str) -> Result:
    """The result of work. After some seconds it is cancelled, and ServerTimeout is raised with the message `late`."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise ServerTimeout(late) from error
