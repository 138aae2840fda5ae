"""The source of a sealed resolver, which answers from its bundle and has no upstream."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import NotInBundle
from app.handle.answer import Answer
from app.upstream.source import ClientNetwork, Question


class SealedSource:
    """Sends no query. Every query that comes this far is about something that is not in the bundle."""

    async def ask(self, question: Question) -> Answer:
        """Raises NotInBundle."""
        if question.authoritative or question.certified:
            raise NotInBundle("This resolver is sealed; repeat the request without `auth` and `cert`.")
        raise NotInBundle

    async def registration_agencies(self, names: Sequence[str], client: ClientNetwork = None) -> list[dict[str, str]]:
        """Raises NotInBundle."""
        raise NotInBundle

    async def aclose(self) -> None:
        """There is nothing to close."""
