"""Builds what bounds clients: their limits, those of their connections, and the deny list of the operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.assembly.settings import Settings
from app.features.limits.buckets import Rate
from app.features.limits.denials import Denials
from app.features.limits.limits import ClientLimits
from app.features.metrics.connections import ConnectionMetrics
from app.features.metrics.instruments import ClientMetrics
from app.features.metrics.workers import Exposition
from app.server.connections import ConnectionLimits, Connections, Reason
from app.server.descriptors import connections_that_fit
from app.server.proxies import trusted_addresses
from app.web.client_network import ClientNetworks


def build_limits(settings: Settings, clock: Callable[[], float], counts: ClientMetrics) -> ClientLimits:
    """The limits of clients. `counts` counts refusals."""
    return ClientLimits(
        networks=ClientNetworks(),
        requests=Rate(settings.client_rate, settings.client_burst) if settings.client_rate else None,
        bypasses=Rate(settings.bypass_burst / 60, settings.bypass_burst),
        allow_file=settings.client_allow_file,
        deny_file=settings.client_deny_file,
        clock=clock,
        refused=counts.refused,
    )


def read_connection_limits(settings: Settings) -> ConnectionLimits:
    """The limits of the connections of this process."""
    return ConnectionLimits(
        head_timeout=settings.client_head_timeout,
        body_timeout=settings.client_body_timeout,
        write_timeout=settings.client_write_timeout,
        idle_timeout=settings.client_idle_timeout,
        total=settings.max_connections or connections_that_fit(2 * settings.upstream_max_concurrency),
        per_client=settings.client_max_connections,
        client_of=ClientNetworks().client_of,
        is_trusted=trusted_addresses(settings.trusted_proxies),
    )


def open_connections(settings: Settings, exposition: Exposition) -> Connections:
    """What the server keeps about the connections of this process."""
    connections = Connections(read_connection_limits(settings))
    reasons = [reason.value for reason in Reason]
    metrics = ConnectionMetrics(exposition.registry, reasons)
    exposition.flushers.append(
        lambda: metrics.report(
            len(connections), {reason.value: number for reason, number in connections.closed.items()}
        )
    )
    return connections


def build_denials(file: Path | None, clock: Callable[[], float], limits: ClientLimits) -> Denials:
    """The networks that an operator denies, in a `file` that workers share."""
    return Denials(file, clock, limits.deny)
