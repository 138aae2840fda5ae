"""A source behind its breaker and its budget; what it answers or fails to answer moves both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from app.errors import (
    BreakerOpen,
    BudgetSpent,
    CouldNotVerify,
    InvalidAnswer,
    NotInBundle,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from app.handle.answer import Answer, ResponseCode
from app.upstream.breaker import Breaker
from app.upstream.budget import Budget
from app.upstream.source import AgencySource, Priority, Question, Source

T = TypeVar("T")

#: Seconds a question waits for the budget, by who waits for the answer.
USUAL_PATIENCE: Final[Mapping[Priority, float]] = MappingProxyType(
    {Priority.PERSON: 5.0, Priority.BULK: 60.0, Priority.BACKGROUND: 60.0}
)
#: The pause after a 429 that names none, in seconds.
_PAUSE_AFTER_TOO_MANY: Final = 1.0
_TOO_MANY_REQUESTS: Final = 429

_ANSWERS: Final = {
    ResponseCode.SUCCESS: "found",
    ResponseCode.HANDLE_NOT_FOUND: "not_found",
    ResponseCode.VALUES_NOT_FOUND: "no_values",
}
_FAILURES: Final[dict[type[CouldNotVerify], str]] = {
    UpstreamTimeout: "timeout",
    UpstreamUnreachable: "unreachable",
    UpstreamRefused: "refused",
    InvalidAnswer: "invalid_answer",
    BreakerOpen: "breaker_open",
    BudgetSpent: "budget_spent",
    NotInBundle: "sealed",
}
_AGENCIES: Final = "agencies"
_CANCELLED: Final = "cancelled"
_OTHER_FAILURE: Final = "failed"
#: Every outcome an observer may be told of.
OUTCOMES: Final = frozenset({*_ANSWERS.values(), *_FAILURES.values(), _AGENCIES, _CANCELLED, _OTHER_FAILURE})
#: Those of them after which the upstream was not asked.
NOT_ASKED: Final = frozenset({"breaker_open", "budget_spent", "sealed"})


class Observer(Protocol):
    """Told of each question; must be quick and must not raise."""

    def asked(self, outcome: str, seconds: float) -> None:
        """A question ended with one of OUTCOMES; `seconds` is how long the upstream took, or the wait for a place."""


class NoObserver:
    """Counts nothing."""

    def asked(self, outcome: str, seconds: float) -> None:
        """Nothing."""


class Guard:
    """Lets questions through to one upstream. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        budget: Budget,
        breaker: Breaker,
        clock: Callable[[], float],
        observer: Observer | None = None,
        patience: Mapping[Priority, float] = USUAL_PATIENCE,
    ) -> None:
        self.budget = budget
        self.breaker = breaker
        self._clock = clock
        self._observer = observer or NoObserver()
        self._patience = patience

    async def run(self, priority: Priority, ask: Callable[[], Awaitable[T]], outcome: Callable[[T], str]) -> T:
        """Ask, when the breaker and then the budget let it. Raises BreakerOpen, BudgetSpent and what `ask` raises."""
        began, admitted = self._clock(), False
        try:
            self._refuse_while_open()
            async with self.budget.admit(priority, self._patience[priority]):
                # The breaker may have opened while this question waited for its place.
                self._refuse_while_open()
                self.breaker.allow(self._clock())
                admitted = True
                return await self._reported(ask, outcome)
        except (BreakerOpen, BudgetSpent) as error:
            if not admitted:
                self._observer.asked(_FAILURES[type(error)], self._clock() - began)
            raise

    def _refuse_while_open(self) -> None:
        seconds = self.breaker.retry_after(self._clock())
        if seconds > 0:
            raise BreakerOpen(retry_after=seconds)

    async def _reported(self, ask: Callable[[], Awaitable[T]], outcome: Callable[[T], str]) -> T:
        began, told = self._clock(), _CANCELLED
        try:
            answer = await ask()
            told = outcome(answer)
            self.breaker.succeeded(self._clock())
            return answer
        except CouldNotVerify as error:
            told = _FAILURES.get(type(error), _OTHER_FAILURE)
            await self._learn(error)
            raise
        finally:
            self._observer.asked(told, self._clock() - began)

    async def _learn(self, error: CouldNotVerify) -> None:
        if isinstance(error, (BreakerOpen, BudgetSpent, NotInBundle)):
            return
        if error.retry_after:
            # An upstream that says when to come back is there; it is obeyed, not given up.
            self.breaker.succeeded(self._clock())
            await self.budget.back_off(error.retry_after)
            return
        self.breaker.failed(self._clock())
        if isinstance(error, UpstreamRefused) and error.upstream_status == _TOO_MANY_REQUESTS:
            await self.budget.back_off(_PAUSE_AFTER_TOO_MANY)


class GuardedSource:
    """A source that is asked only as often as its breaker and its budget allow."""

    def __init__(
        self,
        source: Source,
        budget: Budget,
        breaker: Breaker,
        clock: Callable[[], float],
        observer: Observer | None = None,
        patience: Mapping[Priority, float] = USUAL_PATIENCE,
    ) -> None:
        self._source = source
        self.guard = Guard(budget, breaker, clock, observer, patience)

    async def ask(self, question: Question) -> Answer:
        """The source's answer. Raises CouldNotVerify: BreakerOpen and BudgetSpent of our own, or the source's."""
        return await self.guard.run(
            question.priority, lambda: self._source.ask(question), lambda answer: _ANSWERS[answer.code]
        )

    async def aclose(self) -> None:
        """Close the source."""
        await self._source.aclose()


class GuardedAgencies:
    """The Which RA service of an upstream, behind the guard that its handles are asked through."""

    def __init__(self, source: AgencySource, guard: Guard) -> None:
        self._source = source
        self._guard = guard

    async def registration_agencies(self, names: Sequence[str]) -> list[dict[str, str]]:
        """See AgencySource."""
        return await self._guard.run(
            Priority.PERSON, lambda: self._source.registration_agencies(names), lambda rows: _AGENCIES
        )
