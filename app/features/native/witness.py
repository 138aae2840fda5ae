"""Two witnesses: a sample of names is asked again, of another site of the service, and the answers are compared.

A plain client sees one site. So it cannot notice that a mirror is behind its primary site, or that a site lies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal

from app.errors import BudgetSpent, CouldNotVerify
from app.features.native.lookups import LOOKUP_TIMEOUT, within
from app.features.native.referral import Question
from app.features.native.site import Candidate, Endpoint
from app.features.native.wire.message import ResponseStatus
from app.features.native.wire.response import Response, Values
from app.features.native.wire.value import Permission, Value

log = logging.getLogger(__name__)

#: One name of so many is asked twice, and at most one in so many seconds: the budget loses a hundredth at most.
NAMES: Final = 100
INTERVAL: Final = 60.0
#: Interfaces of other sites that are tried. Each one after the first takes a token of the budget too.
_ATTEMPTS: Final = 2
#: Indexes of differing values in a line of the log.
_SHOWN: Final = 10
_ABOUT_NAMES: Final = (ResponseStatus.SUCCESS, ResponseStatus.HANDLE_NOT_FOUND, ResponseStatus.VALUES_NOT_FOUND)
#: What two sites of a service answer about one name.
WitnessResult = Literal["agree", "differ", "no-answer"]
Asker = Callable[[Sequence[Candidate], Question], Awaitable[tuple[Response, Endpoint]]]


class Witness:
    """Asks a second site. `admit` takes a place and a token of the budget, after everything that anyone waits for.

    `clock` is monotonic, in seconds. `record` gets each result and the addresses of the two servers; it must not raise.
    """

    def __init__(
        self,
        admit: Callable[[], AbstractAsyncContextManager[None]],
        clock: Callable[[], float],
        record: Callable[[WitnessResult, str], None],
        *,
        shows_names: bool,
    ) -> None:
        self._admit = admit
        self._clock = clock
        self._record = record
        self._shows_names = shows_names
        #: The first name of a process is asked twice.
        self._names, self._due_at = NAMES, float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def offer(
        self, candidates: Sequence[Candidate], question: Question, answered: tuple[Response, Endpoint], ask: Asker
    ) -> None:
        """Query a second site about a name in a task, if a query is due and the service has a second site."""
        self._names += 1
        now = self._clock()
        if self._names < NAMES or now < self._due_at or answered[0].code not in _ABOUT_NAMES:
            return
        others = _find_others(candidates, answered[1])[:_ATTEMPTS]
        if others and not self.is_asking:
            self._names, self._due_at = 0, now + INTERVAL
            # As a look-up, its time does not count for the prefix. A slow second site does not make the names slow.
            again = Question(question.handle, types=question.types, is_lookup=True)
            self._asking = asyncio.create_task(self._compare(answered, lambda: ask(others, again), question.handle))

    @property
    def is_asking(self) -> bool:
        """Whether a query to a second site is under way."""
        return self._asking is not None

    async def aclose(self) -> None:
        """Stop the query that is under way."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
            self._asking = None

    async def _compare(
        self,
        answered: tuple[Response, Endpoint],
        ask: Callable[[], Awaitable[tuple[Response, Endpoint]]],
        handle: bytes,
    ) -> None:
        first, endpoint = answered
        try:
            async with self._admit():
                second, other = await within(LOOKUP_TIMEOUT, ask(), "The second site did not answer in time.")
        except BudgetSpent:
            return  # no site was asked
        except CouldNotVerify:
            self._record("no-answer", "")
            return
        finally:
            self._asking = None
        if second.code not in _ABOUT_NAMES:
            self._record("no-answer", "")
        elif (difference := find_difference(first, second)) is None:
            self._record("agree", "")
        else:
            servers = f"{endpoint.address} and {other.address}"
            name = repr(handle[:200].decode("utf-8", "replace")) if self._shows_names else "a name"
            log.warning("two sites of a service differ about %s, %s: %s", name, servers, difference)
            self._record("differ", servers)


def _find_others(candidates: Sequence[Candidate], answered: Endpoint) -> list[Candidate]:
    """The candidates of other sites. Two addresses of different families with one key are one server."""
    key = next(candidate.public_key for candidate in candidates if candidate.endpoint == answered)

    def is_other(candidate: Candidate) -> bool:
        address = candidate.endpoint.address
        return candidate.public_key != key or (
            address != answered.address and address.version == answered.address.version
        )

    return [candidate for candidate in candidates if is_other(candidate)]


def find_difference(first: Response, second: Response) -> str | None:
    """What differs between two answers, in words; None if nothing does. Time stamps and permissions do not count."""
    if first.code != second.code:
        return f"response codes {first.code:d} and {second.code:d}"
    values_of_first, values_of_second = _list_values(first), _list_values(second)
    indexes = sorted({index for index, *_ in values_of_first ^ values_of_second})
    return f"values {', '.join(map(str, indexes[:_SHOWN]))}" if indexes else None


def _list_values(response: Response) -> set[tuple[int, bytes, bytes, int, int]]:
    values: Sequence[Value] = response.body.values if isinstance(response.body, Values) else ()
    return {
        (value.index, value.type.upper(), value.data, value.ttl_type, value.ttl)
        for value in values
        if value.permissions & Permission.PUBLIC_READ
    }
