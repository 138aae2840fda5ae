"""A handle record: the values that the upstream has for one name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from app.doi.name import fold
from app.errors import InvalidAnswer
from app.handle.ttl import earliest_end
from app.handle.value import HandleValue, matches_type, read_value

T = TypeVar("T")

#: Values of one record. Parsing 47,000 values, which fit in 1 MiB, blocks the event loop for 80 ms.
MAX_VALUES: Final = 5_000
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Record:
    """The values of one name in the upstream's order. That order decides which value wins; the index does not."""

    values: tuple[HandleValue, ...]
    _by_type: dict[str, tuple[HandleValue, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)
    _derived: dict[Callable[[Record], Any], Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def derive(self, compute: Callable[[Record], T]) -> T:
        """The result of `compute` for this record. It is computed once and kept with the record."""
        if compute not in self._derived:
            self._derived[compute] = compute(self)
        result: T = self._derived[compute]
        return result

    def select(self, types: Collection[str] = (), indexes: Collection[int] = ()) -> Record:
        """The values with one of these types or one of these indexes. Without types and indexes, all values."""
        if not types and not indexes:
            return self
        index_set, folded_types = frozenset(indexes), [fold(item) for item in types]
        # 200 types against 5,000 values cost one hash look-up and one `startswith` per value.
        exact = frozenset(item.removesuffix(".") for item in folded_types)
        families = tuple(item for item in folded_types if item.endswith("."))
        return Record(
            tuple(
                v
                for v in self.values
                if v.index in index_set or v.folded_type in exact or v.folded_type.startswith(families)
            )
        )

    def of_type(self, pattern: str) -> tuple[HandleValue, ...]:
        """The values of one type; see HandleValue.has_type.

        `pattern` is a constant of this program. The result is kept, so a client's types go to `select`.
        """
        values = self._by_type.get(pattern)
        if values is None:
            folded = fold(pattern)
            values = tuple(value for value in self.values if matches_type(value.folded_type, folded))
            self._by_type[pattern] = values
        return values

    def ends_at(self, fetched_at: float) -> float:
        """When the TTL of the first value ends, in seconds since the epoch."""
        return earliest_end((value.ttl for value in self.values), fetched_at)


def read_values(values: bytes) -> Record:
    """Read a record from the JSON array of its values. Raises InvalidAnswer."""
    try:
        items: list[msgspec.Raw] = _array.decode(values)
        # Members that this program does not parse must be UTF-8 too (RFC 8259, section 8.1).
        values.isascii() or values.decode()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidAnswer("The `values` of the upstream's answer are not a JSON array.", detail=str(error)) from error
    if len(items) > MAX_VALUES:
        raise InvalidAnswer(f"The record has {len(items)} values; the limit is {MAX_VALUES}.")
    return Record(tuple(read_value(bytes(item)) for item in items))


def write_values(record: Record) -> bytes:
    """The JSON array of a record's values. Each value keeps the bytes that the upstream sent."""
    return b"[" + b",".join(value.raw for value in record.values) + b"]"
