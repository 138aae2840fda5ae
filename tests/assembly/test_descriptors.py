"""The limit of open files decides how many client connections are served."""

from __future__ import annotations

import resource
from typing import Final

import pytest

from doi_proxy.assembly.descriptors import RESERVED, UNLIMITED, connections_that_fit
from tests.table import table

UPSTREAM: Final = 32


@table(
    "limit, connections",
    [
        (resource.RLIM_INFINITY, UNLIMITED),
        (65_536, 65_536 - RESERVED - UPSTREAM),
        (1_024, 1_024 - RESERVED - UPSTREAM),
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
    assert connections_that_fit(UPSTREAM) == connections
