"""How long caches may store an answer, and which ones: Expires, Cache-Control, Age, Cache-Status, ETag and Vary.

No other module decides one of these headers. docs/caching.md has the decisions as a table, and a test compares the two.
`now` is in whole seconds since the epoch.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from math import floor
from typing import Final, Literal

import msgspec

from doi_proxy.errors import CouldNotVerify
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.resolution import HIT, NO_FACTS, UNCONFIRMED, ClientFact, Origin, Resolution
from doi_proxy.web.request_path import Header, header_lines, http_date

#: The name of this resolver in Cache-Status (RFC 9211) and Proxy-Status (RFC 9209).
CACHE_NAME: Final = "doi-proxy"
#: Seconds for which browsers and other caches can store an answer at most: a corrected target reaches everyone in five
#: minutes, and a page that is opened again in this time costs nothing.
MAX_AGE: Final = 300
#: Seconds for which a client can store an answer that is already stale.
STALE_MAX_AGE: Final = 30.0
#: What Cache-Status says about an answer that the signatures of handle servers prove.
VERIFIED: Final = "verified"
#: Seconds for which a browser can store the answer to a CORS preflight.
PREFLIGHT_MAX_AGE: Final = b"86400"

#: The name of the header in requests and answers.
CACHE_CONTROL: Final = b"cache-control"
_VARY: Final = b"vary"
_ETAG: Final = b"etag"
_CACHE_STATUS: Final = b"cache-status"
#: The answer comes from the operator's local records, which have no TTL.
_LOCAL_STATUS: Final[Header] = (_CACHE_STATUS, f"{CACHE_NAME}; hit; detail=local".encode())
NO_STORE: Final[Header] = (CACHE_CONTROL, b"no-store")
#: Our own pages change only with a release. A new release is visible within the hour.
OWN_PAGE: Final[Header] = (CACHE_CONTROL, b"public, max-age=3600")
STATIC_FILE: Final[Header] = (CACHE_CONTROL, b"public, max-age=86400")
VARY_PREFLIGHT: Final[Header] = (_VARY, b"Access-Control-Request-Headers")
#: A prefix hardly ever moves to another registration agency.
AGENCIES: Final[Header] = (CACHE_CONTROL, b"public, max-age=300")
#: A redirect varies by Accept even without negotiation: whether the prefix negotiates is not known then.
VARY_ACCEPT: Final[Header] = (_VARY, b"Accept")
#: The language of a page depends on Accept-Language.
VARY_LANGUAGE: Final[Header] = (_VARY, b"Accept-Language")
#: For answers that are a page or data, by `Accept`, and a page in the language of the reader.
VARY_ACCEPT_AND_LANGUAGE: Final[Header] = (_VARY, b"Accept, Accept-Language")
#: Facts that a client sends in a header. Vary cannot name the others: address, country and chance.
_FACT_HEADERS: Final = {
    ClientFact.LANGUAGE: "Accept-Language",
    ClientFact.USER_AGENT: "User-Agent",
    ClientFact.COOKIE: "Cookie",
}
#: A redirect that a reader's choice or place decides. The next one can differ, so a browser does not keep it either.
PERSONAL: Final[Header] = (CACHE_CONTROL, b"private, no-store")


class Terms(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The header lines of an answer that change with the time, as a pattern with a place for each number.

    Without `ends`, the lines have no numbers, and hold for the second for which they were written. `ends` is the end
    of the record, and `most` the largest max-age. With `fetched_at`, when the record arrived, they are those of JSON.
    """

    pattern: bytes
    ends: float | None = None
    most: float = 0.0
    fetched_at: float | None = None

    def lines(self, now: int) -> bytes:
        """The lines at a time."""
        ends, most = self.ends, self.most
        if ends is None:
            return self.pattern
        left = floor(ends - now)
        # The record can have ended while another part of the answer was awaited.
        kept = int(most) if left > most else left if left > 0 else 0
        if self.fetched_at is None:
            return self.pattern % (kept, left)
        age, expires = int(max(0.0, now - self.fetched_at)), http_date(int(min(max(now, ends), now + most)))
        # max-age counts from the answer of the upstream, as Age does (RFC 9111, section 4.2.3).
        return self.pattern % (age + kept, expires, age, left)

    def headers(self, now: int) -> tuple[Header, ...]:
        """The lines as headers."""
        return _read_lines(self, now)


@lru_cache(maxsize=4096)
def _read_lines(terms: Terms, now: int) -> tuple[Header, ...]:
    lines = terms.lines(now).split(b"\r\n")
    return tuple([(name, value) for name, _, value in [line.partition(b": ") for line in lines[:-1]]])


NO_TERMS: Final = Terms(b"")
#: The answers whose lines count the seconds of one record.
Kind = Literal["redirect", "page", "json"]


class Freshness:
    """The headers of answers about names. `max_age` is the largest max-age, in seconds."""

    def __init__(self, max_age: float = MAX_AGE) -> None:
        self._max_age = max_age

    def of_redirect(
        self,
        resolution: Resolution,
        now: int,
        facts: ClientFact = NO_FACTS,
        ends_at: float | None = None,
        detail: str | None = None,
    ) -> tuple[Header, ...]:
        """Expires, Cache-Control and Cache-Status of a redirect. The record of the chain that ends first counts.

        `facts` about the client decided the target. `ends_at` is the end of other records that it depends on. `detail`
        is for Cache-Status, which has only one: the reason for a stale answer comes first.
        """
        until, max_age = (now, 0.0) if ClientFact.COOKIE in facts else self._lifetime(resolution, now)
        if ends_at is not None:
            until, max_age = min(until, max(now, ends_at)), min(max_age, max(0.0, ends_at - now))
        # A target that the record does not have is not verified.
        control, (name, status) = _shared(resolution, now, facts, max_age, is_verified=detail is None)
        if detail is not None and b"detail=" not in status:
            status += f"; detail={detail}".encode()
        return ((b"expires", http_date(int(until))), control, (name, status))

    def redirect_terms(self, resolution: Resolution, now: int) -> Terms:
        """The same as `of_redirect`, for a redirect that depends on records of the cache and not on the client."""
        return self._count("redirect", resolution, now) or Terms(header_lines(self.of_redirect(resolution, now)))

    def page_terms(self, resolution: Resolution, now: int) -> Terms:
        """The same as `of_page`, for a page that every client gets."""
        return self._count("page", resolution, now) or Terms(header_lines(self.of_page(resolution, now)))

    def json_terms(self, resolution: Resolution, now: int) -> Terms:
        """Cache-Control, Expires, Age and Cache-Status of a record as JSON."""
        if (terms := self._count("json", resolution, now)) is not None:
            return terms
        status = cache_status(resolution, now, is_verified=resolution.is_verified)
        if resolution.origin is Origin.BYPASSED:
            return Terms(header_lines((NO_STORE, status)))
        until, max_age = _lifetime(resolution, now, self._max_age)
        if resolution.origin is Origin.LOCAL or resolution.origin in UNCONFIRMED:
            expires = (b"expires", http_date(int(until)))
            return Terms(header_lines((cache_control(NO_FACTS, max_age), expires, status)))
        age, expires = int(resolution.entry.age(now)), (b"expires", http_date(int(min(until, now + max_age))))
        control = cache_control(NO_FACTS, age + int(max_age))
        return Terms(header_lines((control, expires, (b"age", b"%d" % age), status)))

    def of_json(self, resolution: Resolution, now: int) -> tuple[Header, ...]:
        """The headers of `json_terms`."""
        return self.json_terms(resolution, now).headers(now)

    def of_page(self, resolution: Resolution, now: int, facts: ClientFact = NO_FACTS) -> tuple[Header, ...]:
        """Cache-Control and Cache-Status of a page about a name, and of its locations as XML."""
        return _shared(resolution, now, facts, self._lifetime(resolution, now)[1])

    def _count(self, kind: Kind, resolution: Resolution, now: int) -> Terms | None:
        """The terms of an answer about one fresh record. None if its numbers do not follow from the record."""
        entry = resolution.entry
        # A record of the future is that of a clock that was set back.
        if resolution.origin is not HIT or resolution.aliases or entry.fetched_at > now + 1.0:
            return None
        return _count(kind, entry.fetched_at, entry.fresh_until, self._max_age, entry.answer.is_verified)

    def _lifetime(self, resolution: Resolution, now: int) -> tuple[float, float]:
        until, max_age = _lifetime(resolution, now, self._max_age)
        for alias in resolution.aliases:
            until, max_age = min((until, max_age), _lifetime(alias, now, self._max_age))
        return until, max_age


@lru_cache(maxsize=4096)
def _count(kind: Kind, fetched_at: float, ends: float, most: float, is_verified: bool) -> Terms:
    control, detail = b"cache-control: public, max-age=%d\r\n", f"; detail={VERIFIED}" if is_verified else ""
    status = f"cache-status: {CACHE_NAME}; hit; ttl=%d{detail}\r\n".encode()
    match kind:
        case "redirect":
            return Terms(b"expires: %b\r\n" % http_date(int(ends)) + control + status, ends, most)
        case "page":
            return Terms(control + status, ends, most)
        case "json":
            return Terms(control + b"expires: %b\r\nage: %d\r\n" + status, ends, most, fetched_at)


def _ends_at(resolution: Resolution, now: int) -> float:
    """The soft expiry. After a clock was set back it is never later than the record's own lifetime from now on."""
    entry = resolution.entry
    # `now` can be the whole second in which the answer arrived.
    return entry.fresh_until if entry.fetched_at <= now + 1.0 else now + entry.fresh_until - entry.fetched_at


def _lifetime(resolution: Resolution, now: int, max_age: float) -> tuple[float, float]:
    """The end of an answer's lifetime, and the seconds until then."""
    if resolution.origin in UNCONFIRMED:
        return now + STALE_MAX_AGE, min(STALE_MAX_AGE, max_age)
    if resolution.origin is Origin.LOCAL:
        # It has no TTL. A client keeps it as long as any answer, or until its last day ends.
        until = max(now, min(resolution.entry.fresh_until, now + max_age))
        return until, until - now
    until = max(now, _ends_at(resolution, now))
    return until, min(until - now, max_age)


def _shared(
    resolution: Resolution, now: int, facts: ClientFact, max_age: float, *, is_verified: bool = True
) -> tuple[Header, Header]:
    control = NO_STORE if resolution.origin is Origin.BYPASSED else cache_control(facts, max_age)
    # An answer is as stale as the alias that led to it.
    told = next((each for each in resolution.chain if each.origin in UNCONFIRMED), resolution)
    return (control, cache_status(told, now, is_verified=is_verified and resolution.is_verified))


def cache_control(facts: ClientFact, max_age: float) -> Header:
    """`Cache-Control`. Caches may share only what is the same for every client (RFC 9111, section 5.2.2.7).

    It counts before Expires (section 5.3), which ends with the record, as at the DOI proxy.
    """
    if ClientFact.COOKIE in facts:
        return PERSONAL
    scope = "private" if facts else "public"
    return CACHE_CONTROL, f"{scope}, max-age={int(max_age)}".encode()


@lru_cache(maxsize=256)
def vary(facts: ClientFact, *, is_page: bool = False) -> Header:
    """`Vary` of an answer that `facts` decided (RFC 9110, section 12.5.5). The words of a page depend on a language."""
    used = facts | ClientFact.LANGUAGE if is_page else facts
    return _VARY, ", ".join(["Accept", *(name for fact, name in _FACT_HEADERS.items() if fact in used)]).encode()


def vary_by_encoding(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    """The headers with Accept-Encoding in `Vary`, as one header: older caches read only one of several lines."""
    given = dict(headers).get(_VARY)
    value = b"Accept-Encoding" if given is None else given + b", Accept-Encoding"
    return (*(header for header in headers if header[0] != _VARY), (_VARY, value))


def find_tag(headers: tuple[Header, ...]) -> bytes | None:
    """The ETag among the headers, with its quotes."""
    return dict(headers).get(_ETAG)


def weaken_tag(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    """The headers with their ETag as a weak one (RFC 9110, section 8.8.1)."""
    return tuple((name, b"W/" + value) if name == _ETAG else (name, value) for name, value in headers)


def entity_tag(body: bytes) -> Header:
    """A strong ETag (RFC 9110, section 8.8.3). Two bodies have the same one only if their digests collide."""
    # Bytes of the digest in an ETag.
    return _ETAG, b'"%s"' % blake2b(body, digest_size=16).hexdigest().encode()


def cache_status(resolution: Resolution, now: int, *, is_verified: bool) -> Header:
    """`Cache-Status`: where the answer came from, and the seconds until the end of its TTL (RFC 9211).

    `is_verified`: signatures prove the whole answer. The reason for a stale answer comes first.
    """
    if resolution.origin is Origin.LOCAL:
        return _LOCAL_STATUS
    entry = resolution.entry
    left = floor(_ends_at(resolution, now) - now)
    match resolution.origin:
        case Origin.HIT:
            source = f"hit; ttl={left}"
        case Origin.STALE:
            # A record that ends within this second is past its TTL as well. Of an imported record without times, and of
            # one from before a clock was set back, the end is not known.
            ttl = "" if claims.fresh_until(entry) is None else f"; ttl={min(left, -1) if left <= 0 else left}"
            source = f"hit{ttl}; detail={failure_token(resolution.failure)}"
        case Origin.REGISTRY:
            source = f"hit; detail=registry; age={claims.age(entry, now)}"
        case Origin.ASKED:
            source = f"fwd=uri-miss; stored; ttl={left}"
        case Origin.RENEWED:
            source = f"fwd=stale; stored; ttl={left}"
        case Origin.JOINED:
            source = f"fwd=uri-miss; collapsed; ttl={left}"
        case Origin.BYPASSED | Origin.RELOADED:
            source = f"fwd=request; stored; ttl={left}"
    detail = VERIFIED if is_verified else entry.answer.detail
    if detail is not None and resolution.origin is not Origin.STALE:
        source += f"; detail={detail}"
    return _CACHE_STATUS, f"{CACHE_NAME}; {source}".encode()


def failure_token(failure: CouldNotVerify | None) -> str:
    """The token of a failure; of the general class if the failure is not known."""
    return (failure or CouldNotVerify).token


def cache_status_text(headers: tuple[Header, ...] | list[Header]) -> str | None:
    """The value of Cache-Status after our own name. None without the header."""
    value = next((value for name, value in headers if name == _CACHE_STATUS), None)
    return None if value is None else value.decode("ascii", "replace").removeprefix(f"{CACHE_NAME}; ")
