"""What is asked of an upstream, and the seam behind which it answers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.doi.name import HandleName
from app.handle.answer import Answer


class Priority(enum.IntEnum):
    """Who waits for the answer; people go before bulk jobs and background refreshes."""

    PERSON = 0
    BULK = 1
    BACKGROUND = 2


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


class Source(Protocol):
    """Somebody who knows names."""

    async def ask(self, question: Question) -> Answer:
        """The answer about one name; an unknown name is an answer. Raises CouldNotVerify, and nothing else."""

    async def aclose(self) -> None:
        """Let go of connections; the source is not asked afterwards."""


class AgencySource(Protocol):
    """Somebody who knows registration agencies."""

    async def registration_agencies(self, names: Sequence[str]) -> list[dict[str, str]]:
        """For each DOI name or prefix `{"DOI": …, "RA": …}` or `{"DOI": …, "status": …}`, in order.

        Raises CouldNotVerify.
        """
