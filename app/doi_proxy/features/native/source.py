"""A source that speaks the native protocol, in place of an HTTP API."""

from __future__ import annotations

from typing import Final, Protocol

from doi_proxy.features.native.errors import translated_errors
from doi_proxy.resolver.proof import needs_proof
from doi_proxy.upstream.source import CONTROL_NAME, UpstreamQuery, Verification
from handle_protocol.answer import Answer, ResponseCode
from handle_protocol.client import Finder
from handle_protocol.exchange import ServiceClient
from handle_protocol.lookups import within
from handle_protocol.native_answer import read_response
from handle_protocol.referral import Question
from handle_protocol.wire.message import ResponseStatus
from handle_protocol.wire.response import Response

_LATE: Final = "The handle servers did not answer in time."
_CONTROL: Final = Question(CONTROL_NAME.text.encode())


class ProbedFinder(Finder, Protocol):
    """A Directory, a DirectServer or NamedSites."""

    async def probe(self, question: Question) -> Response | None:
        """Any server's answer to the question, which shows that servers can be reached. Raises HandleProtocolError."""


class NativeSource:
    """See Source. `total_timeout` is for a whole query with the lookups that lead to the server, in seconds."""

    def __init__(
        self,
        finder: ProbedFinder,
        exchange: ServiceClient,
        *,
        total_timeout: float,
        verification: Verification,
    ) -> None:
        self._finder = finder
        self._exchange = exchange
        self._total_timeout = total_timeout
        self._verification = verification

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """The answer of the server that has the handle. Raises CouldNotVerify."""
        if query.leaves is not None:
            query.leaves()
        certified = needs_proof(query.certified, self._verification)
        question = Question(query.name.text.encode(), authoritative=query.authoritative, certified=certified)
        with translated_errors():
            response = await within(self._total_timeout, self._finder.resolve(question), _LATE)
            return read_response(response, is_verified=certified)

    async def probe(self) -> Answer:
        """Any answer shows that the server works, also one that it is not responsible. Raises CouldNotVerify."""
        with translated_errors():
            response = await within(self._total_timeout, self._finder.probe(_CONTROL), _LATE)
            if response is None or response.code == ResponseStatus.NOT_RESPONSIBLE:
                return Answer(ResponseCode.HANDLE_NOT_FOUND)
            return read_response(response, is_verified=False)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._finder.aclose()
        await self._exchange.aclose()
