"""A bounded map. What is used stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Generations(Generic[Key, Value]):
    """A bounded map with two generations. An entry is dropped once others weighing `most` were used after it.

    It holds at most twice that weight, and one entry more.
    """

    def __init__(self, most: int, weigh: Callable[[Key, Value], int]) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def __len__(self) -> int:
        """The number of keys; one that was used in both generations counts twice."""
        return len(self._young) + len(self._old)

    def get(self, key: Key) -> Value | None:
        """The value of a key, which counts as used. None if it is not in the map."""
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Add a value, or replace it."""
        if self._weight >= self._most:
            self._old, self._young, self._weight = self._young, {}, 0
        # A key that is put again counts twice until its generation is over.
        self._weight += self._weigh(key, value)
        self._young[key] = value

    def drop(self, key: Key) -> None:
        """Remove a key."""
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Remove every key."""
        self._young, self._old, self._weight = {}, {}, 0
