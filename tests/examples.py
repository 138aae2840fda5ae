"""How many examples a property test tries."""

from __future__ import annotations

from hypothesis import settings


def examples(times: int) -> int:
    """So many times the examples of the profile that conftest.py has loaded: more for `make nightly`."""
    return times * settings().max_examples
