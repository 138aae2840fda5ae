"""Without an upstream: a sealed resolver knows what is in its bundle and asks nobody."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import NotInBundle
from app.handle.answer import Answer
from app.upstream.source import ClientNetwork, Question


class SealedSource:
    """Never asks; every question that comes this far is about something that is not in the bundle."""

    async def ask(self, question: Question) -> Answer:
        """Raises NotInBundle."""
        if question.authoritative or question.certified:
            raise NotInBundle("This resolver runs sealed: it asks no upstream, whatever the request wants.")
        raise NotInBundle

    async def registration_agencies(self, names: Sequence[str], client: ClientNetwork = None) -> list[dict[str, str]]:
        """Raises NotInBundle."""
        raise NotInBundle

    async def aclose(self) -> None:
        """Nothing to let go of."""
