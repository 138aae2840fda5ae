"""A query about one name, the interface of everything that answers it, and what answers have besides records."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, Literal, Protocol

import msgspec

from doi_names.name import HandleName, fold
from doi_proxy.errors import InvalidAnswer, NotAdmitted, NotInBundle
from doi_proxy.system.options import redact
from handle_protocol.referral import Answer

#: A longer time is cut to one hour. A mistaken date must not stop all queries for a year.
MAX_SECONDS: Final = 3600.0
_DELAY_SECONDS: Final = re.compile(r"[0-9]+", re.ASCII)
_MAX_CHARACTERS: Final = 64


def read_retry_after(value: str, now: float) -> float | None:
    """Seconds to wait, 0 to MAX_SECONDS, from delay-seconds or an HTTP-date. None if it is neither.

    `now` is in seconds since the epoch.
    """
    text = value.strip()
    if _DELAY_SECONDS.fullmatch(text):
        # More digits than this are more than MAX_SECONDS anyway.
        return MAX_SECONDS if len(text) > 9 else min(float(text), MAX_SECONDS)
    try:
        when = parsedate_to_datetime(text[:_MAX_CHARACTERS])
        seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0.0, min(seconds, MAX_SECONDS))


class _Row(msgspec.Struct, gc=False):
    DOI: str
    RA: str | None = None
    status: str | None = None


_decoder: Final = msgspec.json.Decoder(list[_Row])


def read_agencies(body: bytes, names: Sequence[str]) -> list[dict[str, str]]:
    """One row for each queried name, in order: `{"DOI": …, "RA": …}` or `{"DOI": …, "status": …}`.

    Raises InvalidAnswer for everything else, also for rows about other names.
    """
    try:
        rows = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidAnswer("The upstream's answer is not JSON of the Which RA service.", detail=str(error)) from error
    if [fold(row.DOI) for row in rows] != [fold(name) for name in names]:
        raise InvalidAnswer("The upstream's Which RA service answered about other names than the queried ones.")
    return [_read(row) for row in rows]


def _read(row: _Row) -> dict[str, str]:
    if row.RA:
        return {"DOI": row.DOI, "RA": row.RA}
    if row.status:
        return {"DOI": row.DOI, "status": row.status}
    raise InvalidAnswer("The upstream's answer has neither a registration agency nor a status.")


#: The request header with the identifier (RFC 8586, section 2).
LOOP_HEADER: Final = "CDN-Loop"
_ID_DIGITS: Final = 16


def read_loop_id(store_url: str, public_url: str | None, upstream_urls: Iterable[str]) -> str:
    """The identifier: a pseudonym as in RFC 8586, section 2.

    The instances of a service have one, because they have these settings in common. A service whose upstream is another
    doi-proxy has another one: their upstreams differ.
    """
    common = "\n".join((redact(store_url), public_url or "", *upstream_urls))
    return f"doi-proxy-{hashlib.sha256(common.encode()).hexdigest()[:_ID_DIGITS]}"


#: The prefix record of all DOI prefixes. Any handle API answers about it, even if only "not found".
CONTROL_NAME: Final = HandleName("0.NA/10")
#: The network of a client in CIDR notation; None for the service's own work: background refreshes and bulk jobs.
ClientNetwork = str | None
#: When the signatures of handle servers are verified: see the setting upstream_verify.
Verification = Literal["never", "when-asked", "lookups", "always"]


class Priority(enum.IntEnum):
    """Who waits for the answer. Queries of people go before those of bulk jobs and background refreshes."""

    PERSON = 0
    BULK = 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a query about a name is not sent now, and until when. Everything that refuses a query uses this value."""

    #: Who refuses.
    by: Literal["pause", "breaker", "budget", "failure", "sealed", "local record"]
    #: The token of the error that the query gets.
    reason: str
    #: Seconds until a query may be sent. Infinity if time does not change it.
    seconds: float


@dataclass(slots=True, eq=False)
class QueryWait:
    """The wait of a query for its turn. A request that cannot wait for the answer says what its query lacked."""

    #: What the query lacks, as the error of its refusal, or lacked when its turn came. None if it has not waited.
    find_lack: Callable[[], NotAdmitted] | None = None
    #: Lets another client wait for it in a line of its own. None if it has not waited.
    join: Callable[[ClientNetwork], None] | None = None
    #: When it was sent, by the loop's clock. None before that.
    sent_at: float | None = None


@dataclass(frozen=True, slots=True)
class UpstreamQuery:
    """One name to query, and how."""

    name: HandleName
    #: Query a primary server of the handle and bypass every cache (`?auth`).
    authoritative: bool = False
    #: Request a certified answer (`?cert`).
    certified: bool = False
    priority: Priority = Priority.PERSON
    #: Called when the query is sent, after its wait for the budget.
    leaves: Callable[[], None] | None = field(default=None, compare=False)
    #: The client that the query is charged to.
    client: ClientNetwork = None
    wait: QueryWait = field(default_factory=QueryWait, compare=False)


class Source(Protocol):
    """Answers queries about names: an upstream, a group of upstreams, or a bundle."""

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """The answer about one name. "Not found" is an answer. Raises CouldNotVerify, and nothing else."""

    async def aclose(self) -> None:
        """Close the connections. The source is not used afterwards."""


class AgencySource(Protocol):
    """Answers queries about registration agencies."""

    async def registration_agencies(self, names: Sequence[str], client: ClientNetwork = None) -> list[dict[str, str]]:
        """For each DOI name or prefix `{"DOI": …, "RA": …}` or `{"DOI": …, "status": …}`, in order.

        `client` is the network of the client that the query is charged to. Raises CouldNotVerify.
        """


class SealedSource:
    """Sends no query. Every query that comes this far is about something that is not in the bundle."""

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """Raises NotInBundle."""
        if query.authoritative or query.certified:
            raise NotInBundle("This resolver is sealed; repeat the request without `auth` and `cert`.")
        raise NotInBundle

    async def registration_agencies(self, names: Sequence[str], client: ClientNetwork = None) -> list[dict[str, str]]:
        """Raises NotInBundle."""
        raise NotInBundle

    async def aclose(self) -> None:
        """There is nothing to close."""
