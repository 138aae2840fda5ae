"""What is asked of an upstream, and the seam behind which it answers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.doi.name import HandleName
from app.handle.answer import Answer

#: The network of a client in CIDR notation; None for the service's own work: background refreshes and bulk jobs.
ClientNetwork = str | None


class Priority(enum.IntEnum):
    """Who waits for the answer; people go before bulk jobs and background refreshes."""

    PERSON = 0
    BULK = 1
    BACKGROUND = 2


class Waiters:
    """The clients that wait for the answer to one question: it has a place in the line of each.

    Without this, a client would wait in the long line of the client that sent the question first.
    """

    __slots__ = ("_on_join", "clients", "refused")

    def __init__(self, client: ClientNetwork = None) -> None:
        #: In the order in which they came; a dict because it may hold thousands.
        self.clients: dict[ClientNetwork, None] = {client: None}
        #: Whether the question was refused. A client that comes afterwards sends its own.
        self.refused = False
        self._on_join: Callable[[ClientNetwork], None] | None = None

    def join(self, client: ClientNetwork) -> None:
        """Another client waits as well."""
        if client not in self.clients:
            self.clients[client] = None
            if self._on_join is not None:
                self._on_join(client)

    def notify(self, on_join: Callable[[ClientNetwork], None] | None) -> None:
        """Call `on_join` with each client that joins from now on; None ends this."""
        self._on_join = on_join


@dataclass(frozen=True, slots=True)
class Question:
    """One name to ask about."""

    name: HandleName
    #: Ask a primary server of the handle, past every cache (`?auth`).
    authoritative: bool = False
    #: Ask for a certified answer (`?cert`).
    certified: bool = False
    priority: Priority = Priority.PERSON
    #: Called when the question leaves, after its wait for the budget.
    leaves: Callable[[], None] | None = field(default=None, compare=False)
    #: The clients that wait for the answer and share its cost.
    waiters: Waiters = field(default_factory=Waiters, compare=False)


class Source(Protocol):
    """Somebody who knows names."""

    async def ask(self, question: Question) -> Answer:
        """The answer about one name; an unknown name is an answer. Raises CouldNotVerify, and nothing else."""

    async def aclose(self) -> None:
        """Let go of connections; the source is not asked afterwards."""


class AgencySource(Protocol):
    """Somebody who knows registration agencies."""

    async def registration_agencies(self, names: Sequence[str], client: ClientNetwork = None) -> list[dict[str, str]]:
        """For each DOI name or prefix `{"DOI": …, "RA": …}` or `{"DOI": …, "status": …}`, in order.

        `client` is the network of the client that the question is charged to. Raises CouldNotVerify.
        """
