"""The queries of one class in the budget: those that wait, and how many are in flight."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from app.errors import BudgetSpent
from app.upstream.fair_lines import FairLines
from app.upstream.source import ClientNetwork


@dataclass(slots=True, eq=False)
class Ticket:
    """A query that waits, or that is in flight."""

    #: Seconds that it waits after the last client joined, and the end of this wait on the budget's clock.
    patience: float
    deadline: float
    timeout: asyncio.Timeout
    #: None when the query is admitted, or the reason why it is refused.
    turn: asyncio.Future[BudgetSpent | None]
    admitted: bool = False
    #: The client whose turn admitted it.
    client: ClientNetwork = None


@dataclass(slots=True, eq=False)
class Queue:
    """The queries of one class: those that wait, and how many are in flight."""

    lines: FairLines[Ticket]
    most_in_flight: int
    #: Tokens that this class leaves in the bucket.
    leaving: float
    in_flight: int = 0
    in_flight_of: dict[str, int] = field(default_factory=dict)
    #: Set when a place may be free.
    look: asyncio.Event = field(default_factory=asyncio.Event)
    #: Admits the queries that wait. Ends when none waits.
    server: asyncio.Task[None] | None = None

    def enter(self, client: ClientNetwork) -> None:
        """Count a query in flight for its client."""
        if client is not None:
            self.in_flight_of[client] = self.in_flight_of.get(client, 0) + 1

    def end(self, client: ClientNetwork) -> None:
        """A query in flight has ended."""
        self.in_flight -= 1
        if client is not None:
            self.in_flight_of[client] -= 1
            if not self.in_flight_of[client]:
                del self.in_flight_of[client]
