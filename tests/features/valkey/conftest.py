"""The fixtures of the stores' tests."""

from tests.cache.conftest import clock, session_cluster, session_sentinels, valkey_url

__all__ = ["clock", "session_cluster", "session_sentinels", "valkey_url"]
