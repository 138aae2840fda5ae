"""The root of the handle system: its sites as they are known, and whether it answers."""

from __future__ import annotations

import asyncio
from typing import Final

from doi_proxy.errors import BreakerOpen, CouldNotVerify, SignatureInvalid, UpstreamTimeout, UpstreamUnreachable
from doi_proxy.features.native.errors import HandleServerUnreachable, ServiceNotFound
from doi_proxy.features.native.lookups import Lookups, within
from doi_proxy.features.native.referral import ROOT_HANDLE, SERVICE_TYPES, HandleService, Question, read_lead
from doi_proxy.features.native.root_file import RootFile
from doi_proxy.features.native.wire.response import Response, Values
from doi_proxy.upstream.breaker import Breaker

_LATE: Final = "The root of the handle system did not answer in time."


class Root:
    """Queries the root, refreshes its sites, and leaves it alone after several failures."""

    def __init__(self, file: RootFile, lookups: Lookups) -> None:
        self._file = file
        self._service = file.service
        self._ask = lookups.ask
        self._limits = lookups.limits
        self._clock = lookups.clock
        self._log = lookups.log
        self._admit_query = lookups.admit_query
        self._breaker = Breaker(self._limits.root_failures, self._limits.root_pause)
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

    async def query(self, question: Question, *, is_needed: bool) -> Response:
        """The root's answer. If the sites are due, they are refreshed meanwhile. Raises CouldNotVerify.

        Without `is_needed`, names of known prefixes can be resolved without the root. Its failure then concerns the
        names of one prefix, and several prefixes do not wait for it in vain.
        """
        now = self._clock()
        if not is_needed and (seconds := self._breaker.retry_after(now)) > 0:
            raise BreakerOpen(retry_after=seconds)
        self._breaker.allow(now)
        if self._due_at <= now:
            self._due_at = now + self._limits.shortest_lifetime
            self._refresh = asyncio.create_task(self._refresh_service())
        try:
            return await within(None if is_needed else self._limits.lookup_timeout, self._query(question), _LATE)
        except UpstreamTimeout as error:
            self._record_failure(question)
            raise UpstreamTimeout(_LATE) from error
        except UpstreamUnreachable as error:
            self._record_failure(question)
            raise error if is_needed else HandleServerUnreachable(detail=error.detail) from error

    async def _query(self, question: Question) -> Response:
        if question.certified and not self._service.is_verified:
            raise SignatureInvalid("No chain of signatures: the file of upstream_bootstrap has no key of the root.")
        response = await self._ask(self._service, question)
        self._breaker.record_answer()
        self._failed_at = None
        return response

    def _record_failure(self, question: Question) -> None:
        self._failed_at = self._clock()
        self._breaker.record_failure(question.handle.decode("latin-1"), self._failed_at)

    async def _refresh_service(self) -> None:
        """Read the root's sites at the root. Only an answer that a key of the known root signed replaces them."""
        try:
            await self._admit_query()
            question = Question(ROOT_HANDLE, SERVICE_TYPES, certified=True, is_lookup=True)
            response = await within(self._limits.timeout, self._query(question), _LATE)
            now = self._clock()
            lead = read_lead(response.body.values, now) if isinstance(response.body, Values) else None
            if lead is None or not lead.sites:
                raise ServiceNotFound(detail=f"the record of the root has no sites, response code {response.code}")
        except CouldNotVerify as error:
            self._log.record_refresh(error)
            return
        is_new = lead.sites != self._service.sites
        proof = await self._file.keep(response) if is_new else self._service.proof
        self._service = HandleService(lead.sites, is_verified=True, proof=proof)
        self._due_at = now + self._limits.bound(lead.lifetime)
        self._log.record_refresh(None)
