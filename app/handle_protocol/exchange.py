"""Asks a service: sends a query to one of its servers, and to further ones if that one fails or is silent."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, IPv6Network, ip_address
from types import TracebackType
from typing import Final, Literal, Protocol, Self

from doi_names.name import fold
from handle_protocol import dump as errors
from handle_protocol.directory import Directory
from handle_protocol.dump import HandleNotFound, HandleProtocolError
from handle_protocol.proof_replay import read_response
from handle_protocol.referral import DirectoryLimits, HandleService, Lookups, Question, ResponseCode, within
from handle_protocol.signature_chain import check_answer, oldest_version, verify_signature
from handle_protocol.site import AllowedServers, Candidate, Endpoint, ServerHealth, rank_candidates
from handle_protocol.transport.egress import Egress, HttpAnswer, TunnelTransport
from handle_protocol.transport.stream import ConnectionPool, TcpTransport, Transport
from handle_protocol.transport.udp import UdpTransport
from handle_protocol.value import Record, read_values
from handle_protocol.wire import site_value
from handle_protocol.wire.message import (
    ENVELOPE_BYTES,
    NO_REQUEST_ID,
    UNKNOWN_SERIAL,
    Filters,
    OpCode,
    OpFlag,
    Query,
    Response,
    ResponseStatus,
    SignedAnswer,
    decode_response,
    encode_query,
)
from handle_protocol.wire.site_value import Address, ServiceSite, TransportProtocol

_ANSWERS: Final = frozenset(
    (
        ResponseStatus.SUCCESS,
        ResponseStatus.HANDLE_NOT_FOUND,
        ResponseStatus.VALUES_NOT_FOUND,
        ResponseStatus.NOT_RESPONSIBLE,
        ResponseStatus.SERVICE_REFERRAL,
        ResponseStatus.PREFIX_REFERRAL,
    )
)
_random: Final = random.SystemRandom()
#: What a message is for: the record of a name, the lookup of the service of a prefix, or the site of a server.
Purpose = Literal["name", "lookup", "site"]


class ExchangeObserver(Protocol):
    """Records what happens between this program and handle servers. Must be quick and must not raise.

    A transport is udp, tcp, http or https.
    """

    def record_exchange(self, transport: str, purpose: Purpose, *, is_answered: bool) -> None:
        """Record the end of an exchange, and whether the server answered. A refusal is an answer."""

    def record_rest(self, transport: str) -> None:
        """Record that a server was silent by this transport and answered by another, so this transport comes last."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """`epoch` returns seconds since the epoch; `monotonic` never goes back."""

    epoch: Callable[[], float]
    monotonic: Callable[[], float]


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Which servers are queried, and when the next one is."""

    allowed: AllowedServers
    #: Seconds of silence after which the next server or transport is queried too. The reference client turns from UDP
    #: to TCP after 3 s.
    head_start: float = 2.0
    #: Servers and transports that are tried for one message to a service. Each one after the first takes a token.
    max_attempts: int = 8


class ServiceClient:
    """Queries the servers of a service. The first valid answer counts.

    `may_ask_again` is awaited before each further message for one question, which needs a token of the budget too.
    `mark_slow` is called with the prefix of a name before it is asked of a server that is known as slow.
    """

    def __init__(
        self,
        transports: Mapping[TransportProtocol, Transport],
        health: ServerHealth,
        limits: QueryLimits,
        *,
        clocks: Clocks,
        may_ask_again: Callable[[], Awaitable[bool]],
        observer: ExchangeObserver | None = None,
        mark_slow: Callable[[str], None] | None = None,
    ) -> None:
        self._transports = transports
        self._mark_slow = mark_slow
        self._health = health
        self._clocks = clocks
        self._may_ask_again = may_ask_again
        self._limits = limits
        self._observer = observer

    async def __call__(self, service: HandleService, question: Question) -> Response:
        """An answer that belongs to the question, and is signed if the question says so. Raises HandleProtocolError."""
        response = await self._race(self._list(service, question), question)
        if not question.certified or service.proof is None:
            return response
        return replace(response, proof=(*service.proof, SignedAnswer(response.request, response.data)))

    async def read_site(self, service: HandleService) -> ServiceSite:
        """What a server of a service says about its site, by one message. It is not signed. Raises HandleProtocolError.

        Nothing is learned from the result: a server that does not offer this operation is not a server that failed.
        """
        candidate = self._list(service, Question(b""))[0]
        flags = OpFlag.PUBLIC_ONLY
        query = self._write_query(candidate, Filters(b""), flags=flags, op_code=OpCode.SITE_INFORMATION)
        is_answered = False
        try:
            response = await self._send(candidate, query)
            is_answered = True
        finally:
            self._record(candidate.endpoint, "site", is_answered=is_answered)
        if not isinstance(response.body, ServiceSite):
            raise errors.ServerRefused(
                "The handle server did not send its site information.", response_code=response.header.response_code
            )
        return response.body

    async def aclose(self) -> None:
        """Close the connections."""
        for transport in self._transports.values():
            await transport.aclose()

    def _list(self, service: HandleService, question: Question) -> list[Candidate]:
        """The candidates that can be queried. Those whose transport this network seems to block come last."""
        now = self._clocks.monotonic()
        candidates = rank_candidates(
            service.sites,
            question.handle,
            authoritative=question.authoritative,
            allowed=self._limits.allowed,
            health=self._health,
            now=now,
        )
        usable = [candidate for candidate in candidates if candidate.endpoint.protocol in self._transports]
        if not usable:
            raise errors.ServiceNotFound(detail=f"none of {len(service.sites)} sites has a server that may be queried")
        usable.sort(key=lambda candidate: self._health.rests(candidate.endpoint.protocol, now))
        return usable[: self._limits.max_attempts]

    async def _race(self, candidates: Sequence[Candidate], question: Question) -> Response:
        """Query the candidates in order, each after the failure or the silence of the one before.

        Returns the first valid answer. At last, a port stays silent whose server answered with a
        failure at another one: that ends the race too.
        """
        waiting, running = list(candidates), dict[asyncio.Task[Response], Endpoint]()
        failures: list[errors.HandleProtocolError] = []
        answered = set[Address]()
        is_admitted = True
        try:
            while running or (waiting and is_admitted):
                if is_admitted and (candidate := self._find_next(waiting, running.values())) is not None:
                    waiting.remove(candidate)
                    running[asyncio.create_task(self._ask(candidate, question))] = candidate.endpoint
                has_next = is_admitted and self._find_next(waiting, running.values()) is not None
                may_answer = any(endpoint.address not in answered for endpoint in running.values())
                timeout = None if may_answer and not has_next else self._find_timeout(running.values())
                done, _ = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if not done and not has_next:
                    break
                for task in done:
                    endpoint, failure = running.pop(task), task.exception()
                    if failure is None:
                        self._learn_silence(endpoint, running.values())
                        return task.result()
                    # A limit of ours is the same for each server and transport.
                    if isinstance(failure, errors.AnswerTooLarge) or not isinstance(
                        failure, errors.HandleProtocolError
                    ):
                        raise failure
                    failures.append(failure)
                    if _is_answered(failure):
                        answered.add(endpoint.address)
                is_admitted = is_admitted and bool(waiting) and await self._may_ask_again()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        raise _choose_failure(failures)

    def _find_next(self, waiting: Sequence[Candidate], running: Iterable[Endpoint]) -> Candidate | None:
        """The first candidate that may be queried now. UDP would only repeat the query that a slow server has."""
        slow = {endpoint.address for endpoint in running if self._health.is_slow(endpoint.address)}
        udp = TransportProtocol.UDP
        ready = (
            candidate
            for candidate in waiting
            if candidate.endpoint.protocol is not udp or candidate.endpoint.address not in slow
        )
        return next(ready, None)

    def _find_timeout(self, running: Iterable[Endpoint]) -> float:
        """Seconds until the next candidate is queried. A slow server has two head starts."""
        is_slow = any(self._health.is_slow(endpoint.address) for endpoint in running)
        return self._limits.head_start * (2 if is_slow else 1)

    def _learn_silence(self, answered: Endpoint, silent: Iterable[Endpoint]) -> None:
        """A firewall is between here and a server that answers by one transport and is silent by another.

        An address that is silent while another one answers is perhaps not reached at all: it comes last for a while, so
        its other transports cost no wait.
        """
        self._health.record_recovery(answered.protocol)
        self._health.record_recovery(answered.address)
        for endpoint in silent:
            is_firewall = endpoint.address == answered.address
            if is_firewall and self._observer is not None:
                self._observer.record_rest(_name(endpoint))
            key = endpoint.protocol if is_firewall else endpoint.address
            self._health.record_failure(key, self._clocks.monotonic())

    async def _ask(self, candidate: Candidate, question: Question) -> Response:
        """Query one interface, and learn from the result."""
        endpoint, began = candidate.endpoint, self._clocks.monotonic()
        self._health.record_query(endpoint.address, began)
        # The handle of a lookup is that of a prefix, and its server is another one.
        is_marked = not question.is_lookup and self._health.has_slow_queries(endpoint.address, began)
        if is_marked and self._mark_slow is not None:
            self._mark_slow(fold(question.handle.partition(b"/")[0].decode("utf-8", "replace")))
        try:
            response = await self._exchange(candidate, question)
        except (errors.ServerRefused, errors.AnswerTooLarge):
            self._learn_answer(endpoint, question, began)
            raise
        except errors.HandleProtocolError:
            self._learn_failure(endpoint, question)
            raise
        except asyncio.CancelledError:
            # Another interface answered first, or the caller's time is over.
            if self._clocks.monotonic() - began >= self._limits.head_start:
                self._learn_failure(endpoint, question)
            raise
        finally:
            ended = self._clocks.monotonic()
            self._health.record_end(endpoint.address, ended - began, ended)
        self._learn_answer(endpoint, question, began)
        return response

    async def _exchange(self, candidate: Candidate, question: Question) -> Response:
        flags = OpFlag.PUBLIC_ONLY
        if question.authoritative:
            flags |= OpFlag.AUTHORITATIVE
        if question.certified:
            flags |= OpFlag.CERTIFIED
        filters = Filters(question.handle, question.indexes, question.types)
        query = self._write_query(candidate, filters, flags=flags)
        response = await self._send(candidate, query)
        if question.certified:
            response = replace(response, request=encode_query(query))
            oldest = oldest_version(candidate.version)
            verify_signature(response, candidate.public_key, oldest_version=oldest)
        if response.code not in _ANSWERS:
            raise errors.ServerRefused(
                f"The handle server reported a failure, response code {response.code}.", response_code=response.code
            )
        return response

    async def _send(self, candidate: Candidate, query: Query) -> Response:
        """The answer to one message. Raises HandleProtocolError if it does not belong to the query."""
        transport = self._transports[candidate.endpoint.protocol]
        data = await transport.exchange(candidate, query.filters.handle, encode_query(query))
        response = decode_response(data, digest_requested=True)
        if response.envelope.request_id == NO_REQUEST_ID and response.header.op_code == 0:
            raise errors.ServerRefused(
                "The handle server could not read the request.", response_code=response.header.response_code
            )
        check_answer(response, query)
        return response

    def _write_query(
        self,
        candidate: Candidate,
        filters: Filters,
        *,
        flags: int,
        op_code: OpCode = OpCode.RESOLUTION,
    ) -> Query:
        if candidate.endpoint.protocol is TransportProtocol.TCP:
            flags |= OpFlag.KEEP_ALIVE
        # Seconds for which a request is valid, as the reference client has it. Servers do not check it.
        return Query(
            filters,
            request_id=_random.randrange(NO_REQUEST_ID),
            expiration=int(self._clocks.epoch()) + (12 * 3600),
            # Every answer repeats the digest of its request.
            flags=OpFlag.REQUEST_DIGEST | flags,
            op_code=op_code,
        )

    def _learn_answer(self, endpoint: Endpoint, question: Question, began: float) -> None:
        self._health.record_answer(endpoint, endpoint.address, self._clocks.monotonic() - began)
        self._record(endpoint, _purpose(question), is_answered=True)

    def _learn_failure(self, endpoint: Endpoint, question: Question) -> None:
        self._health.record_failure(endpoint, self._clocks.monotonic())
        self._record(endpoint, _purpose(question), is_answered=False)

    def _record(self, endpoint: Endpoint, purpose: Purpose, *, is_answered: bool) -> None:
        if self._observer is not None:
            self._observer.record_exchange(_name(endpoint), purpose, is_answered=is_answered)


def _name(endpoint: Endpoint) -> str:
    return endpoint.protocol.name.lower()


def _purpose(question: Question) -> Purpose:
    return "lookup" if question.is_lookup else "name"


def _is_answered(failure: errors.HandleProtocolError) -> bool:
    return isinstance(failure, errors.ServerRefused | errors.UnusableAnswer)


def _choose_failure(failures: Sequence[errors.HandleProtocolError]) -> errors.HandleProtocolError:
    """The most informative failure: of a server that answered, else of one that timed out, else the first."""
    answered = filter(_is_answered, failures)
    silent = (failure for failure in failures if isinstance(failure, errors.ServerTimeout))
    return next(answered, None) or next(silent, failures[0])


#: Seconds for one handle, with the look-ups that lead to its server.
TIMEOUT: Final = 10.0
#: Seconds for one connection.
CONNECT_TIMEOUT: Final = 3.0
#: Bytes of one answer after its envelope.
MAX_BYTES: Final = 1024 * 1024
#: The port of handle servers (IANA: hdl-srv), for UDP and TCP. The HTTP tunnel has a port of its own, usually 8000.
PORT: Final = 2641
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")


class Finder(Protocol):
    """Finds the server of a handle, and queries it."""

    async def resolve(self, question: Question) -> Response | None:
        """The server's answer. None if the prefix does not exist. Raises HandleProtocolError."""

    async def aclose(self) -> None:
        """Stop what is under way."""


class NamedSites:
    """Queries the servers of one service, by the hash of the handle (RFC 3651, section 3.2.2)."""

    def __init__(self, service: HandleService, ask: Callable[[HandleService, Question], Awaitable[Response]]) -> None:
        self._service = service
        self._ask = ask

    async def resolve(self, question: Question) -> Response:
        """The answer of the server that has the handle. Raises HandleProtocolError."""
        return await self._ask(self._service, question)

    async def probe(self, question: Question) -> Response:
        """The answer of a server. Raises HandleProtocolError."""
        return await self.resolve(question)

    async def aclose(self) -> None:
        """Nothing is under way."""


class HandleResolver:
    """Resolves handles in one event loop. Until it is closed it keeps connections, and what it learned of services."""

    def __init__(self, finder: Finder, exchange: ServiceClient, timeout: float) -> None:
        """See `from_root` and `of_sites`."""
        self._finder = finder
        self._exchange = exchange
        self._timeout = timeout

    @classmethod
    def from_root(cls, root: HandleService, *, timeout: float = TIMEOUT, private_servers: bool = False) -> Self:
        """A resolver of every handle. `root` are the sites of the root; see `json_sites.read_bootstrap`.

        `timeout` is in seconds. Site values come from the network: a private address in one is refused unless
        `private_servers` is set.
        """
        exchange = _open_exchange(_EveryServer() if private_servers else PublicServers())
        limits = DirectoryLimits(timeout=timeout)
        lookups = Lookups(exchange, _admit, limits, time.time, _NoLog(), _NoBreaker(), are_signed=False)
        return cls(Directory(_RootInMemory(root), lookups), exchange, timeout)

    @classmethod
    def of_sites(cls, service: HandleService, *, timeout: float = TIMEOUT) -> Self:
        """A resolver that queries the servers of one service; see `service_at` and `json_sites.read_site_file`.

        No record leads elsewhere: a server answers for the handles that it has, and refuses others (ServerRefused).
        """
        exchange = _open_exchange(_EveryServer())
        return cls(NamedSites(service, exchange), exchange, timeout)

    async def resolve(
        self, handle: str, types: Sequence[str] = (), indexes: Sequence[int] = (), certified: bool = False
    ) -> Record:
        """The values of a handle that the public may read: those of these types or indexes, or all without both.

        A type "X." stands for "X" and each "X.y" (RFC 3652, section 3.2.1). With `certified`, a chain of signatures
        must lead from the keys of the root, or of the named service, to the answer; that needs `cryptography`. Aliases
        (HS_ALIAS) are values like others: the caller follows them.

        Raises HandleNotFound if the server of the handle says so, SignatureInvalid, ServiceNotFound, ServerTimeout,
        ServerUnreachable, ServerRefused, and UnusableAnswer.
        """
        question = Question(
            handle.encode(), tuple(item.encode() for item in types), tuple(indexes), certified=certified
        )
        answer = read_response(
            await within(self._timeout, self._finder.resolve(question), "The handle servers did not answer in time."),
            is_verified=certified,
        )
        if answer.code is ResponseCode.HANDLE_NOT_FOUND:
            raise HandleNotFound(f"The handle {handle[:200]} does not exist.")
        # A server that sends more than it was asked for does not decide what the caller gets.
        return read_values(answer.values).select(types, indexes)

    async def aclose(self) -> None:
        """Close the connections. The resolver is not used afterwards."""
        await self._finder.aclose()
        await self._exchange.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class PublicServers:
    """See AllowedServers. Only global unicast addresses: a site value can name any machine in the client's network."""

    def find(self, address: site_value.Address) -> site_value.Address | None:
        """See AllowedServers."""
        if not address.is_global or address.is_multicast:
            return None
        # 2000::/3 is what is assigned as Global Unicast (RFC 4291, section 2.4). 6to4 has an IPv4 address inside.
        if isinstance(address, IPv6Address) and (address not in _GLOBAL_UNICAST or address.sixtofour is not None):
            return None
        return address


def service_at(address: str, port: int = PORT, *, http_port: int = 0, public_key: bytes = b"") -> HandleService:
    """A service of one server at an address of IPv4 or IPv6. Raises ValueError for another text.

    With `http_port`, the tunnel is used too. `public_key` (the data of an HS_PUBKEY value) verifies its answers.
    """
    ports = {
        site_value.TransportProtocol.UDP: port,
        site_value.TransportProtocol.TCP: port,
        site_value.TransportProtocol.HTTP: http_port,
    }
    interfaces = tuple(
        site_value.Interface(site_value.Purpose.QUERY, protocol, number) for protocol, number in ports.items() if number
    )
    server = site_value.Server(1, site_value.pack_address(ip_address(address)), public_key, interfaces)
    return HandleService((site_value.ServiceSite(UNKNOWN_SERIAL, (server,)),), is_verified=bool(public_key))


def open_transports(
    *,
    may_ask_again: Callable[[], Awaitable[bool]],
    egress: Egress,
    connect_timeout: float,
    max_bytes: int,
    headers: Mapping[str, str],
) -> dict[site_value.TransportProtocol, Transport]:
    """All transports. `may_ask_again` is awaited before a message is repeated. `headers` identify the HTTP client."""
    messages = ConnectionPool[bytes](may_ask_again=may_ask_again)
    requests = ConnectionPool[HttpAnswer](may_ask_again=may_ask_again)
    tunnel = TunnelTransport(egress, requests, headers=headers, max_bytes=max_bytes)
    return {
        site_value.TransportProtocol.UDP: UdpTransport(max_bytes=max_bytes),
        site_value.TransportProtocol.TCP: TcpTransport(messages, connect_timeout=connect_timeout, max_bytes=max_bytes),
        site_value.TransportProtocol.HTTP: tunnel,
        site_value.TransportProtocol.HTTPS: tunnel,
    }


def _open_exchange(allowed: AllowedServers) -> ServiceClient:
    transports = open_transports(
        may_ask_again=_may_ask_again,
        egress=Egress(connect_timeout=CONNECT_TIMEOUT, max_bytes=MAX_BYTES + ENVELOPE_BYTES),
        connect_timeout=CONNECT_TIMEOUT,
        max_bytes=MAX_BYTES,
        headers={"User-Agent": "handle_protocol"},
    )
    return ServiceClient(
        transports,
        ServerHealth(),
        QueryLimits(allowed),
        clocks=Clocks(time.time, time.monotonic),
        may_ask_again=_may_ask_again,
    )


# What doi-proxy has and a program by itself does not: a budget, a log, a breaker, and a file for the root.


async def _may_ask_again() -> bool:
    return True


async def _admit() -> None:
    """Admit a further query. The limits of a directory bound their number."""


class _EveryServer:
    def find(self, address: site_value.Address) -> site_value.Address | None:
        """See AllowedServers."""
        return address


class _NoLog:
    def record_refresh(self, error: HandleProtocolError | None) -> None:
        """See DirectoryObserver."""

    def record_overdue(self, error: HandleProtocolError) -> None:
        """See DirectoryObserver."""


class _NoBreaker:
    def allow(self, now: float) -> bool:
        """See RootBreaker."""
        return True

    def retry_after(self, now: float) -> float:
        """See RootBreaker."""
        return 0.0

    def record_answer(self) -> None:
        """See RootBreaker."""

    def record_failure(self, name: str, now: float) -> bool:
        """See RootBreaker."""
        return False


class _RootInMemory:
    def __init__(self, service: HandleService) -> None:
        self.service = service

    async def keep(self, response: Response) -> tuple[SignedAnswer, ...] | None:
        """See RootKeeper."""
        return None
