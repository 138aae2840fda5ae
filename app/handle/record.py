"""A handle record: what the upstream knows under one name."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from app.doi.name import fold
from app.errors import InvalidAnswer
from app.handle.ttl import earliest_end
from app.handle.value import HandleValue, matches_type, read_value

_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Record:
    """The values of one name, in the upstream's order, which is the order that decides (not the index)."""

    values: tuple[HandleValue, ...]
    _by_type: dict[str, tuple[HandleValue, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def select(self, types: Collection[str] = (), indexes: Collection[int] = ()) -> Record:
        """The values whose type or index was asked for (a union); all of them where nothing was."""
        if not types and not indexes:
            return self
        return Record(
            tuple(v for v in self.values if v.index in indexes or any(v.has_type(wanted) for wanted in types))
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
        items: Iterable[msgspec.Raw] = _array.decode(values)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidAnswer("The values of the upstream's answer are not a list.", detail=str(error)) from error
    return Record(tuple(read_value(bytes(item)) for item in items))


def write_values(record: Record) -> bytes:
    """The JSON array of a record's values, each exactly as it came."""
    return b"[" + b",".join(value.raw for value in record.values) + b"]"
