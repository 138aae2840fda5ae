"""The root of the handle system: its sites as they are known, and whether it answers."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from handle_protocol import errors, referral
from handle_protocol.lookups import Lookups, within
from handle_protocol.wire.response import Response, SignedAnswer, Values

_LATE: Final = "The root of the handle system did not answer in time."


class RootKeeper(Protocol):
    """Keeps the root across restarts. `service` are the sites that are known at the start."""

    service: referral.HandleService

    async def keep(self, response: Response) -> tuple[SignedAnswer, ...] | None:
        """Keep the signed answer that replaced the root. Returns the answers that prove it, if they are known."""


class Root:
    """Queries the root, refreshes its sites, and leaves it alone after several failures."""

    def __init__(self, keeper: RootKeeper, lookups: Lookups) -> None:
        self._keeper = keeper
        self._service = keeper.service
        self._ask = lookups.ask
        self._limits = lookups.limits
        self._clock = lookups.clock
        self._observer = lookups.observer
        self._admit_query = lookups.admit_query
        self._breaker = lookups.breaker
        self._failed_at: float | None = None
        self._due_at = 0.0
        self._refresh: asyncio.Task[None] | None = None

    async def aclose(self) -> None:
        """Stop a refresh that is under way."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.gather(self._refresh, return_exceptions=True)

    def has_failed(self, now: float) -> bool:
        """Whether the last query failed, a moment ago."""
        return self._failed_at is not None and now < self._failed_at + self._limits.shortest_lifetime

    async def query(self, question: referral.Question, *, is_needed: bool) -> Response:
        """The root's answer. If the sites are due, they are refreshed meanwhile. Raises HandleProtocolError.

        Without `is_needed`, names of known prefixes can be resolved without the root. Its failure then concerns the
        names of one prefix, and several prefixes do not wait for it in vain.
        """
        now = self._clock()
        if not is_needed and (seconds := self._breaker.retry_after(now)) > 0:
            raise errors.RootPaused(retry_after=seconds)
        self._breaker.allow(now)
        if self._due_at <= now:
            self._due_at = now + self._limits.shortest_lifetime
            self._refresh = asyncio.create_task(self._refresh_service())
        try:
            return await within(None if is_needed else self._limits.lookup_timeout, self._query(question), _LATE)
        except errors.ServerTimeout as error:
            self._record_failure(question)
            raise errors.ServerTimeout(_LATE) from error
        except errors.ServerUnreachable as error:
            self._record_failure(question)
            raise error if is_needed else errors.ServiceUnreachable(detail=error.detail) from error

    async def _query(self, question: referral.Question) -> Response:
        if question.certified and not self._service.is_verified:
            raise errors.SignatureInvalid("No chain of signatures: the bootstrap file has no key of the root.")
        response = await self._ask(self._service, question)
        self._breaker.record_answer()
        self._failed_at = None
        return response

    def _record_failure(self, question: referral.Question) -> None:
        self._failed_at = self._clock()
        self._breaker.record_failure(question.handle.decode("latin-1"), self._failed_at)

    async def _refresh_service(self) -> None:
        """Read the root's sites at the root. Only an answer that a key of the known root signed replaces them."""
        try:
            await self._admit_query()
            question = referral.Question(referral.ROOT_HANDLE, referral.SERVICE_TYPES, certified=True, is_lookup=True)
            response = await within(self._limits.timeout, self._query(question), _LATE)
            now = self._clock()
            lead = referral.read_lead(response.body.values, now) if isinstance(response.body, Values) else None
            if lead is None or not lead.sites:
                raise errors.ServiceNotFound(
                    detail=f"the record of the root has no sites, response code {response.code}"
                )
        except errors.HandleProtocolError as error:
            self._observer.record_refresh(error)
            return
        is_new = lead.sites != self._service.sites
        proof = await self._keeper.keep(response) if is_new else self._service.proof
        self._service = referral.HandleService(lead.sites, is_verified=True, proof=proof)
        self._due_at = now + self._limits.bound(lead.lifetime)
        self._observer.record_refresh(None)
