"""A real server beside which the model of Valkey runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from tests.features.valkey.valkey_server import running_valkey


@pytest.fixture(scope="module")
def own_valkey() -> Iterator[Redis]:
    """A client of a server that a test may fill and turn into a replica."""
    with running_valkey() as client:
        yield client
