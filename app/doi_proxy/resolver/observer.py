"""The seam between the resolver and the metrics."""

from __future__ import annotations

from doi_proxy.resolver.resolution import Origin, Resolution


class ResolutionObserver:
    """Counts answers and failures; this one counts nothing. The methods must be quick and must not raise."""

    def record_resolution(self, resolution: Resolution) -> None:
        """Count an answer."""

    def record_origin(self, origin: Origin) -> None:
        """Count an answer that is not a fresh "not found", by its origin."""

    def record_failure(self, token: str) -> None:
        """Count a name without an answer. `token` is the token of the failure's class."""

    def record_malformed_locations(self, values: int) -> None:
        """Count the 10320/loc values of a record that could not be read and were left out."""

    def record_refresh(self) -> None:
        """Count the refresh of a popular record before the end of its TTL."""

    def record_confirmation(self, confirmed: bool) -> None:
        """Count a second query for a known record that the upstream reported as not found. True: it did so again."""
