"""Asks a service: sends a query to one of its servers, and to further ones if that one fails or is silent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from handle_protocol import errors
from handle_protocol.referral import HandleService, Question
from handle_protocol.signature import check_answer, oldest_version, verify_signature
from handle_protocol.site import AllowServer, Candidate, Endpoint, ServerHealth, rank_candidates
from handle_protocol.transport.stream import Transport
from handle_protocol.wire import message
from handle_protocol.wire.site_value import Address, ServiceSite, TransportProtocol

_ANSWERS: Final = frozenset(
    (
        message.ResponseStatus.SUCCESS,
        message.ResponseStatus.HANDLE_NOT_FOUND,
        message.ResponseStatus.VALUES_NOT_FOUND,
        message.ResponseStatus.NOT_RESPONSIBLE,
        message.ResponseStatus.SERVICE_REFERRAL,
        message.ResponseStatus.PREFIX_REFERRAL,
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

    allow: AllowServer
    #: Seconds of silence after which the next server or transport is queried too. The reference client turns from UDP
    #: to TCP after 3 s.
    head_start: float = 2.0
    #: Servers and transports that are tried for one message to a service. Each one after the first takes a token.
    max_attempts: int = 8


class ServiceClient:
    """Queries the servers of a service. The first valid answer counts.

    `may_ask_again` is awaited before each further message for one question, which needs a token of the budget too.
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
    ) -> None:
        self._transports = transports
        self._health = health
        self._clocks = clocks
        self._may_ask_again = may_ask_again
        self._limits = limits
        self._observer = observer

    async def __call__(self, service: HandleService, question: Question) -> message.Response:
        """An answer that belongs to the question, and is signed if the question says so. Raises HandleProtocolError."""
        return await self._race(self._list(service, question), question)

    async def read_site(self, service: HandleService) -> ServiceSite:
        """What a server of a service says about its site, by one message. It is not signed. Raises HandleProtocolError.

        Nothing is learned from the result: a server that does not offer this operation is not a server that failed.
        """
        candidate = self._list(service, Question(b""))[0]
        flags = message.OpFlag.PUBLIC_ONLY
        query = self._write_query(message.Filters(b""), flags=flags, op_code=message.OpCode.SITE_INFORMATION)
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
            allow=self._limits.allow,
            health=self._health,
            now=now,
        )
        usable = [candidate for candidate in candidates if candidate.endpoint.protocol in self._transports]
        if not usable:
            raise errors.ServiceNotFound(detail=f"none of {len(service.sites)} sites has a server that may be queried")
        usable.sort(key=lambda candidate: self._health.rests(candidate.endpoint.protocol, now))
        return usable[: self._limits.max_attempts]

    async def _race(self, candidates: Sequence[Candidate], question: Question) -> message.Response:
        """Query the candidates in order, each after the failure or the silence of the one before.

        Returns the first valid answer. At last, a port stays silent whose server answered with a
        failure at another one: that ends the race too.
        """
        waiting, running = list(candidates), dict[asyncio.Task[message.Response], Endpoint]()
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

    async def _ask(self, candidate: Candidate, question: Question) -> message.Response:
        """Query one interface, and learn from the result."""
        endpoint, began = candidate.endpoint, self._clocks.monotonic()
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
        self._learn_answer(endpoint, question, began)
        return response

    async def _exchange(self, candidate: Candidate, question: Question) -> message.Response:
        flags = message.OpFlag.PUBLIC_ONLY
        if question.authoritative:
            flags |= message.OpFlag.AUTHORITATIVE
        if question.certified:
            flags |= message.OpFlag.CERTIFIED
        filters = message.Filters(question.handle, question.indexes, question.types)
        query = self._write_query(filters, flags=flags)
        response = await self._send(candidate, query)
        if question.certified:
            verify_signature(response, candidate.public_key, oldest_version=oldest_version(candidate.version))
        if response.code not in _ANSWERS:
            raise errors.ServerRefused(
                f"The handle server reported a failure, response code {response.code}.", response_code=response.code
            )
        return response

    async def _send(self, candidate: Candidate, query: message.Query) -> message.Response:
        """The answer to one message. Raises HandleProtocolError if it does not belong to the query."""
        transport = self._transports[candidate.endpoint.protocol]
        data = await transport.exchange(candidate, query.filters.handle, message.encode_query(query))
        response = message.decode_response(data, digest_requested=True)
        if response.envelope.request_id == message.NO_REQUEST_ID and response.header.op_code == 0:
            raise errors.ServerRefused(
                "The handle server could not read the request.", response_code=response.header.response_code
            )
        check_answer(response, query)
        return response

    def _write_query(
        self, filters: message.Filters, *, flags: int, op_code: message.OpCode = message.OpCode.RESOLUTION
    ) -> message.Query:
        # Seconds for which a request is valid, as the reference client has it. Servers do not check it.
        return message.Query(
            filters,
            request_id=_random.randrange(message.NO_REQUEST_ID),
            expiration=int(self._clocks.epoch()) + (12 * 3600),
            # Every answer repeats the digest of its request.
            flags=message.OpFlag.REQUEST_DIGEST | flags,
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
