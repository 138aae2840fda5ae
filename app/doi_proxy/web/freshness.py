"""How long caches may store an answer, and which ones: Expires, Cache-Control, Age, Cache-Status, ETag and Vary.

No other module decides one of these headers. docs/caching.md has the decisions as a table, and a test compares the two.
`now` is in whole seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import floor
from typing import Final, Protocol

from doi_proxy.errors import CouldNotVerify
from doi_proxy.resolver import resolution as claims
from doi_proxy.resolver.resolution import HIT, NO_FACTS, UNCONFIRMED, Chain, ClientFact, Origin, Resolution
from doi_proxy.web.request_path import Header, http_date

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


class Freshness:
    """The headers of answers about names. `max_age` is the largest max-age, in seconds."""

    def __init__(self, max_age: float = MAX_AGE) -> None:
        self._max_age = max_age

    def of_redirect(
        self,
        chain: Chain,
        now: int,
        facts: ClientFact = NO_FACTS,
        ends_at: float | None = None,
        detail: str | None = None,
    ) -> tuple[Header, ...]:
        """Expires, Cache-Control and Cache-Status of a redirect. The record of the chain that ends first counts.

        `facts` about the client decided the target. `ends_at` is the end of other records that it depends on. `detail`
        is for Cache-Status, which has only one: the reason for a stale answer comes first.
        """
        until, max_age = (now, 0.0) if ClientFact.COOKIE in facts else self._lifetime(chain, now)
        if ends_at is not None:
            until, max_age = min(until, max(now, ends_at)), min(max_age, max(0.0, ends_at - now))
        # A target that the record does not have is not verified.
        control, (name, status) = _shared(chain, now, facts, max_age, is_verified=detail is None)
        if detail is not None and b"detail=" not in status:
            status += f"; detail={detail}".encode()
        return ((b"expires", http_date(int(until))), control, (name, status))

    def of_redirect_hit(self, chain: Chain, now: int) -> tuple[Header, ...]:
        """The same of a redirect that depends on records of memory and not on the client."""
        hit = chain.last
        if hit.origin is not HIT or chain.aliases:
            return self.of_redirect(chain, now)
        return _of_redirect_hit(_ends_at(hit, now), now, self._max_age, hit.entry.answer.is_verified)

    def of_page(
        self, chain: Chain, now: int, facts: ClientFact = NO_FACTS, *, signature: str | None = None
    ) -> tuple[Header, ...]:
        """Cache-Control and Cache-Status of a page about a name, and of its locations as XML.

        `signature` is what the signatures of the record are worth.
        """
        control, (name, status) = _shared(chain, now, facts, self._lifetime(chain, now)[1])
        return control, (name, status if signature is None else status + f"; signature={signature}".encode())

    def of_json_hit(self, chain: Chain, now: int) -> tuple[Header, ...]:
        """The same as `of_json`, of one fresh record."""
        return self.of_json(chain.last, now)

    def of_json(self, resolution: Resolution, now: int) -> tuple[Header, ...]:
        """Cache-Control, Expires, Age and Cache-Status of a record as JSON."""
        if resolution.origin is HIT:
            entry = resolution.entry
            return _of_json_hit(
                entry.fetched_at, _ends_at(resolution, now), now, self._max_age, entry.answer.is_verified
            )
        status = cache_status(resolution, now, is_verified=resolution.is_verified)
        if resolution.origin is Origin.BYPASSED:
            return (NO_STORE, status)
        until, max_age = _lifetime(resolution, now, self._max_age)
        if resolution.origin is Origin.LOCAL or resolution.origin in UNCONFIRMED:
            return cache_control(NO_FACTS, max_age), (b"expires", http_date(int(until))), status
        return (*_of_json(resolution.entry.age(now), until, max_age, now), status)

    def _lifetime(self, chain: Chain, now: int) -> tuple[float, float]:
        until, max_age = _lifetime(chain.last, now, self._max_age)
        for alias in chain.aliases:
            until, max_age = min((until, max_age), _lifetime(alias, now, self._max_age))
        return until, max_age


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
    chain: Chain, now: int, facts: ClientFact, max_age: float, *, is_verified: bool = True
) -> tuple[Header, Header]:
    control = NO_STORE if chain.last.origin is Origin.BYPASSED else cache_control(facts, max_age)
    # An answer is as stale as the alias that led to it.
    told = next((each for each in chain.resolutions if each.origin in UNCONFIRMED), chain.last)
    return (control, cache_status(told, now, is_verified=is_verified and chain.is_verified))


@lru_cache(maxsize=4096)
def _of_redirect_hit(fresh_until: float, now: int, max_age: float, is_verified: bool) -> tuple[Header, ...]:
    left = fresh_until - now
    return (
        (b"expires", http_date(int(fresh_until))),
        cache_control(NO_FACTS, max(0.0, min(left, max_age))),
        _hit_status(left, is_verified),
    )


@lru_cache(maxsize=4096)
def _of_json_hit(
    fetched_at: float, fresh_until: float, now: int, max_age: float, is_verified: bool
) -> tuple[Header, ...]:
    # The record can have ended while another part of the answer was awaited.
    until = max(now, fresh_until)
    headers = _of_json(max(0.0, now - fetched_at), until, min(until - now, max_age), now)
    return (*headers, _hit_status(fresh_until - now, is_verified))


def _of_json(age: float, until: float, max_age: float, now: int) -> tuple[Header, ...]:
    return (
        # max-age counts from the answer of the upstream, as Age does (RFC 9111, section 4.2.3).
        cache_control(NO_FACTS, int(age) + int(max_age)),
        (b"expires", http_date(int(min(until, now + max_age)))),
        (b"age", b"%d" % int(age)),
    )


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
            return _hit_status(left, is_verified)
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


def _hit_status(left: float, is_verified: bool) -> Header:
    detail = f"; detail={VERIFIED}" if is_verified else ""
    return _CACHE_STATUS, f"{CACHE_NAME}; hit; ttl={floor(left)}{detail}".encode()


def failure_token(failure: CouldNotVerify | None) -> str:
    """The token of a failure; of the general class if the failure is not known."""
    return (failure or CouldNotVerify).token


def cache_status_text(headers: tuple[Header, ...] | list[Header]) -> str | None:
    """The value of Cache-Status after our own name. None without the header."""
    value = next((value for name, value in headers if name == _CACHE_STATUS), None)
    return None if value is None else value.decode("ascii", "replace").removeprefix(f"{CACHE_NAME}; ")


#: What the places in a pattern are filled with.
Numbers = tuple[int | bytes, ...]


class Countdown(Protocol):
    """The lines about any record, of one kind of answer."""

    def pattern(self, found: Resolution) -> bytes:
        """The lines about a record, with a place for each number."""

    def numbers(self, found: Resolution, now: int) -> Numbers:
        """The numbers at a time, in whole seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PageCountdown:
    """The lines of a page. `max_age` is in seconds."""

    max_age: int = MAX_AGE

    def pattern(self, found: Resolution) -> bytes:
        """See Countdown."""
        return b"cache-control: public, max-age=%d\r\n" + _status_pattern(found)

    def numbers(self, found: Resolution, now: int) -> Numbers:
        """See Countdown."""
        left = floor(found.entry.fresh_until - now)
        return (left if left < self.max_age else self.max_age), left


@dataclass(frozen=True, slots=True)
class RedirectCountdown(PageCountdown):
    """The lines of a redirect. Its Expires is the end of the record."""

    def pattern(self, found: Resolution) -> bytes:
        """See Countdown."""
        return b"expires: " + http_date(int(found.entry.fresh_until)) + b"\r\n" + PageCountdown.pattern(self, found)


@dataclass(frozen=True, slots=True)
class JsonCountdown:
    """The lines of a record as JSON. `max_age` is in seconds."""

    max_age: int = MAX_AGE

    def pattern(self, found: Resolution) -> bytes:
        """See Countdown."""
        return b"cache-control: public, max-age=%d\r\nexpires: %b\r\nage: %d\r\n" + _status_pattern(found)

    def numbers(self, found: Resolution, now: int) -> Numbers:
        """See Countdown."""
        left, age = floor(found.entry.fresh_until - now), int(found.entry.age(now))
        ends = http_date(int(min(found.entry.fresh_until, now + self.max_age)))
        return age + min(left, self.max_age), ends, age, left


def _status_pattern(found: Resolution) -> bytes:
    detail = f"; detail={VERIFIED}" if found.entry.answer.is_verified else ""
    return f"cache-status: {CACHE_NAME}; hit; ttl=%d{detail}\r\n".encode()
