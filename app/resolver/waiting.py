"""The wait of a request for a query, which ends when its answer is due."""

from __future__ import annotations

import asyncio
from typing import Final

from app.errors import BudgetSpent, UpstreamTimeout
from app.resolver.single_flight import Result, SingleFlight, await_shielded
from app.upstream.budget import USUAL_RETRY

#: What used up the time of a request.
_SLOW_UPSTREAM: Final = "The upstream is too slow for this request. Its answer will be cached; try again later."
_LONG_QUEUE: Final = "This request waited too long for the budget of upstream queries; try again later."


async def await_until_due(
    flights: SingleFlight[Result], key: str, task: asyncio.Task[Result], due: float | None
) -> Result:
    """Await a query until `due`, in seconds of the event loop's clock. Raises CouldNotVerify, which says what was slow.

    The query continues: other requests wait for it, or will find its answer.
    """
    try:
        return await await_shielded(task, due)
    except TimeoutError:
        if flights.is_sent(key):
            raise UpstreamTimeout(_SLOW_UPSTREAM) from None
        raise BudgetSpent(_LONG_QUEUE, retry_after=USUAL_RETRY) from None
