"""The source of a sealed resolver, which answers from its bundle and has no upstream."""

from __future__ import annotations

from collections.abc import Sequence

from doi_proxy.errors import NotInBundle
from doi_proxy.upstream.source import ClientNetwork, UpstreamQuery
from handle_protocol.answer import Answer


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
