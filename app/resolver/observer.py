"""What a resolver tells to whoever counts."""

from __future__ import annotations

from typing import Protocol

from app.resolver.resolution import Resolution


class ResolutionObserver(Protocol):
    """Told of each answer; must be quick and must not raise."""

    def resolved(self, resolution: Resolution) -> None:
        """A name was answered."""

    def failed(self, token: str) -> None:
        """A name could not be answered; `token` is that of the failure's class."""

    def locations_malformed(self, values: int) -> None:
        """So many 10320/loc values of a record could not be read and were left out."""

    def refreshed_ahead(self) -> None:
        """A popular record is being renewed before its TTL ends."""

    def not_found_confirmed(self, confirmed: bool) -> None:
        """A known record was said to be gone; asked again, the upstream said the same (True) or not."""


class NoResolutionObserver:
    """Counts nothing."""

    def resolved(self, resolution: Resolution) -> None:
        """Nothing."""

    def failed(self, token: str) -> None:
        """Nothing."""

    def locations_malformed(self, values: int) -> None:
        """Nothing."""

    def refreshed_ahead(self) -> None:
        """Nothing."""

    def not_found_confirmed(self, confirmed: bool) -> None:
        """Nothing."""
