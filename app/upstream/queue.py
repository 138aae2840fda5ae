"""The queries of one class in the budget: those that wait, and how many are in flight."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from app.errors import BudgetSpent
from app.upstream.fair_lines import FairLines
from app.upstream.source import ClientNetwork


@dataclass(slots=True, eq=False)
class Ticket:
    """A question that waits, or that is under way."""

    #: Seconds that it waits after the last client joined, and when that ends on the budget's clock.
    patience: float
    deadline: float
    timeout: asyncio.Timeout
    #: Done when the question is admitted, or refused for a reason.
    turn: asyncio.Future[BudgetSpent | None]
    admitted: bool = False
    #: The client whose turn admitted it.
    client: ClientNetwork = None


@dataclass(slots=True, eq=False)
class Queue:
    """The questions of one class: those that wait, and how many are under way."""

    lines: FairLines[Ticket]
    most_in_flight: int
    #: Tokens that this class leaves in the bucket.
    leaving: float
    in_flight: int = 0
    in_flight_of: dict[str, int] = field(default_factory=dict)
    #: Set when there may be a place.
    look: asyncio.Event = field(default_factory=asyncio.Event)
    #: Admits those who wait; ends when nothing waits.
    server: asyncio.Task[None] | None = None

    def enter(self, client: ClientNetwork) -> None:
        """Count a question under way."""
        if client is not None:
            self.in_flight_of[client] = self.in_flight_of.get(client, 0) + 1

    def end(self, client: ClientNetwork) -> None:
        """A question under way has ended."""
        self.in_flight -= 1
        if client is not None:
            self.in_flight_of[client] -= 1
            if not self.in_flight_of[client]:
                del self.in_flight_of[client]
