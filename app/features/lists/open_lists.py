"""How many lists are answered at a time, in all and for each client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from app.errors import Quota, TooManyBatches

#: The name of the limit, in RateLimit headers and in metrics.
BATCHES: Final = "batches"
#: The Retry-After of a refusal, in seconds. Lists take from a second to hours.
_RETRY_SECONDS: Final = 10.0


class OpenBatches:
    """Counts the lists that are being answered."""

    def __init__(self, most: int, most_of_client: int, count_refusal: Callable[[str], None]) -> None:
        """`count_refusal` is called with the name of the limit."""
        self._most = most
        self._most_of_client = most_of_client
        self._count_refusal = count_refusal
        self._of_client: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of_client.total()

    @contextmanager
    def enter(self, client: str) -> Iterator[None]:
        """Hold a place of a client. Raises TooManyBatches."""
        if self._of_client[client] >= self._most_of_client:
            raise self._refuse(
                f"This client has {self._most_of_client} lists that are not answered yet; wait for one of them.",
                self._most_of_client,
            )
        if len(self) >= self._most:
            raise self._refuse(f"This resolver is answering {self._most} lists; try again later.", self._most)
        self._of_client[client] += 1
        try:
            yield
        finally:
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]

    def _refuse(self, message: str, amount: int) -> TooManyBatches:
        self._count_refusal(BATCHES)
        return TooManyBatches(message, quota=Quota(BATCHES, amount, int(_RETRY_SECONDS)), retry_after=_RETRY_SECONDS)
