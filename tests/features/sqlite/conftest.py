"""The fixtures of the stores' tests."""

from tests.cache.conftest import clock

__all__ = ["clock"]
