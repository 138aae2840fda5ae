"""The fixtures of the stores' tests."""

from tests.cache.conftest import clock, session_cluster, valkey_url

__all__ = ["clock", "session_cluster", "valkey_url"]
