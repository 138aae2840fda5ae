"""Reads restricted values from handle servers. Nothing that it reads is kept.

A query goes past the resolver: past single flight, memory, store, and all that observes their answers. The breaker, the
pause and the budget of the upstream hold for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.doi.name import HandleName
from app.errors import (
    CouldNotVerify,
    InvalidAnswer,
    PrefixDenied,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from app.features.feature import Core, Service
from app.features.native.feature import is_from_root, is_native
from app.features.native.source import RestrictedQuery
from app.features.restricted.errors import ChallengeRefused, IdentityRefused, NotRestricted
from app.features.restricted.file import RestrictedAccess
from app.handle.answer import Answer
from app.upstream.guard import Guard
from app.upstream.routed import RoutedSource
from app.upstream.source import WaitingClients

log = logging.getLogger(__name__)

#: Seconds for one read, with its waits: as for all queries of one request for a name.
TIMEOUT: Final = 8.0
#: Response codes by which a server refuses an identity: no administrator, no valid proof, or it cannot verify one. A
#: second challenge is one too (RFC 3652, section 2.2.2.3).
_REFUSALS: Final = frozenset({400, 402, 403, 404, 405, 406})
#: Seconds without queries for a prefix after its server refused the identity: some servers lock an identity out.
_PAUSE: Final = 60.0


class RestrictedReader(Service):
    """Reads the values of names, at the cost of the client. `clock` is monotonic, in seconds."""

    def __init__(self, core: Core, access: RestrictedAccess, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock
        self._refusals: dict[str, float] = {}
        self._reported: set[str] = set()
        #: The prefixes whose last query failed at the handle server.
        self._failing: set[str] = set()
        self.use(access)

    def use(self, access: RestrictedAccess) -> None:
        """Use another identity and other prefixes from now on."""
        self._access = access
        self._refusals.clear()
        self._reported.clear()
        self._failing.clear()

    def ready(self) -> Mapping[str, str]:
        """See Service."""
        return {"restricted": "failing" if self._failing else "ok"}

    async def read(self, name: HandleName, client: str) -> Answer:
        """All values that the identity may read. Raises NotRestricted and CouldNotVerify."""
        prefix, slash, _ = name.key.partition("/")
        if not slash or prefix not in self._access.prefixes:
            raise NotRestricted
        if self._core.resolver.is_local(name):
            # What the operator withdrew or replaced is not read behind his back.
            raise PrefixDenied("A local record of the operator answers this name; see local_records.")
        if (wait := self._refusals.get(prefix, 0.0) - self._clock()) > 0:
            raise IdentityRefused(retry_after=wait)
        try:
            answer = await self._try(name, prefix, client)
        except (InvalidAnswer, UpstreamRefused, UpstreamTimeout, UpstreamUnreachable):
            self._failing.add(prefix)
            raise
        self._failing.discard(prefix)
        self._reported.discard(prefix)
        return answer

    async def _try(self, name: HandleName, prefix: str, client: str) -> Answer:
        """The answer. A refusal of the identity is recorded and logged, and so is a challenge that is not answered."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._query(name, client)
        except TimeoutError:
            raise UpstreamTimeout("The handle server did not answer in time.") from None
        except UpstreamRefused as error:
            if error.response_code not in _REFUSALS:
                raise
            raise self._record_refusal(prefix, f"response code {error.response_code}") from None
        except ChallengeRefused as error:
            self._report(prefix, error.detail)
            raise

    async def _query(self, name: HandleName, client: str) -> Answer:
        """The first answer of the upstreams that are handle servers."""
        failures: list[CouldNotVerify] = []
        for is_root, guard in self._find_guards(name):
            query = RestrictedQuery(
                name,
                # The root leads to servers that the operator did not name. So each step needs a signature.
                certified=is_root,
                waiters=WaitingClients({client: None}),
                authenticate=self._access.identity.answer,
            )
            try:
                return await guard.fetch(query)
            except CouldNotVerify as error:
                failures.append(error)
        raise failures[0] if failures else NotRestricted

    def _find_guards(self, name: HandleName) -> Sequence[tuple[bool, Guard]]:
        """The upstreams of a name that are handle servers, and whether each begins at the root."""
        source = self._core.upstream.source
        sources = source.sources_of(name) if isinstance(source, RoutedSource) else (source,)
        guards = self._core.upstream.guards.items()
        return [
            (is_from_root(url), guard)
            for source_of_name in sources
            for url, guard in guards
            if guard is source_of_name and is_native(url)
        ]

    def _record_refusal(self, prefix: str, reason: str) -> IdentityRefused:
        self._refusals[prefix] = self._clock() + _PAUSE
        self._report(prefix, reason)
        return IdentityRefused(retry_after=_PAUSE)

    def _report(self, prefix: str, reason: str) -> None:
        """Log the first of several failures. No line has a name, a key or a value."""
        if prefix not in self._reported:
            self._reported.add(prefix)
            identity = self._access.identity
            log.warning("restricted values of %s cannot be read as %s: %s", prefix, identity, reason)
