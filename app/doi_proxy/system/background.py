"""What lives beside requests, from the start of a process to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Service:
    """What lives beside requests. It is started in the order of the features, and stopped in reverse."""

    async def start(self) -> None:
        """Called before the first request."""

    async def run(self) -> None:
        """Called in a task of its own, which is cancelled at the end, while the cache is open."""

    def tick(self, late: float) -> None:
        """Called every second, `late` seconds later than planned."""

    def ready(self) -> Mapping[str, Any]:
        """What /readyz shows about this service: words, or members of their own, without paths and messages."""
        return {}

    async def stop(self) -> None:
        """Called after the last request, when the parts of the core are closed."""
