"""The limit of open files decides how many client connections are served."""

from __future__ import annotations

import resource

import pytest

from doi_proxy.assembly.core import RESERVED, UNLIMITED, open_connections
from doi_proxy.assembly.settings import Settings
from tests.table import table


@table(
    "limit, connections",
    [
        (resource.RLIM_INFINITY, UNLIMITED - RESERVED - 32),
        (65_536, 65_536 - RESERVED - 32),
        (1_024, 1_024 - RESERVED - 32),
        # With a small limit, clients get half of it, and the program 64.
        (200, 100),
        (96, 32),
        (64, 8),
    ],
)
def test_clients_get_the_descriptors_that_are_left(
    monkeypatch: pytest.MonkeyPatch, limit: int, connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))
    assert open_connections(Settings(upstream_max_concurrency=16))._limits.total == connections
