"""A handle record: what the upstream knows under one name."""

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

#: A record of more values is not read: 47,000 of them, in 1 MiB, hold the event loop for 80 ms.
MAX_VALUES: Final = 5_000
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Record:
    """The values of one name, in the upstream's order, which is the order that decides (not the index)."""

    values: tuple[HandleValue, ...]
    _by_type: dict[str, tuple[HandleValue, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)
    _derived: dict[Callable[[Record], Any], Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def derive(self, read: Callable[[Record], T]) -> T:
        """What the function `read` makes of this record; computed once and kept with the record."""
        if read not in self._derived:
            self._derived[read] = read(self)
        found: T = self._derived[read]
        return found

    def select(self, types: Collection[str] = (), indexes: Collection[int] = ()) -> Record:
        """The values whose type or index was asked for (a union); all of them where nothing was."""
        if not types and not indexes:
            return self
        wanted_indexes, folded = frozenset(indexes), [fold(wanted) for wanted in types]
        # 200 types are compared with 5,000 values: by one hash and one call each.
        exact = frozenset(wanted.removesuffix(".") for wanted in folded)
        families = tuple(wanted for wanted in folded if wanted.endswith("."))
        return Record(
            tuple(
                v
                for v in self.values
                if v.index in wanted_indexes or v.folded_type in exact or v.folded_type.startswith(families)
            )
        )

    def of_type(self, wanted: str) -> tuple[HandleValue, ...]:
        """The values of one type; see HandleValue.has_type."""
        found = self._by_type.get(wanted)
        if found is None:
            folded = fold(wanted)
            found = tuple(value for value in self.values if matches_type(value.folded_type, folded))
            # What is asked for are a handful of types that this program knows; what callers name goes to `select`.
            self._by_type[wanted] = found
        return found

    def ends_at(self, fetched_at: float) -> float:
        """When the first of the values ends, in seconds since the epoch."""
        return earliest_end((value.ttl for value in self.values), fetched_at)


def read_values(values: bytes) -> Record:
    """Read a record from the JSON array of its values. Raises InvalidAnswer."""
    try:
        items: list[msgspec.Raw] = _array.decode(values)
        # Members that are not parsed here must be UTF-8 as well (RFC 8259, section 8.1).
        values.isascii() or values.decode()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidAnswer("The values of the upstream's answer are not a list.", detail=str(error)) from error
    if len(items) > MAX_VALUES:
        raise InvalidAnswer(f"The record has {len(items)} values; this resolver reads at most {MAX_VALUES}.")
    return Record(tuple(read_value(bytes(item)) for item in items))


def write_values(record: Record) -> bytes:
    """The JSON array of a record's values, each exactly as it came."""
    return b"[" + b",".join(value.raw for value in record.values) + b"]"
