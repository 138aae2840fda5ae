"""A handle record: the values that a server has for one name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from doi_names.name import fold
from handle_protocol.errors import AnswerTooLarge, InvalidRecord
from handle_protocol.value import DEFAULT_TTL, HandleValue, read_value

T = TypeVar("T")

#: Limits of one record: its values, and the bytes of their JSON. Reading the largest one, and writing its page, takes
#: the event loop 15 ms. Records in use are below 10 kB.
MAX_VALUES: Final = 1_000
MAX_VALUES_BYTES: Final = 262_144
#: Limits per process: the number of records, and the bytes of their JSON. The worst records, lists of networks with
#: 6 bytes of JSON and 300 bytes of memory each, take 100 MB in all. Usual records take less than 4 MB.
MAX_CACHED_RECORDS: Final = 1_024
MAX_CACHED_BYTES: Final = 2 * 1024 * 1024
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Record:
    """The values of one name in the server's order. That order decides which value wins; the index does not."""

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
        # "." alone names no type.
        exact = frozenset(item.removesuffix(".") for item in folded_types if item != ".")
        families = tuple(item for item in folded_types if item.endswith(".") and item != ".")
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
            folded = pattern.upper()  # it is ASCII
            if folded.endswith("."):
                values = tuple(value for value in self.values if f"{value.folded_type}.".startswith(folded))
            else:
                values = tuple(value for value in self.values if value.folded_type == folded)
            self._by_type[pattern] = values
        return values

    def ends_at(self, fetched_at: float) -> float:
        """When the first TTL of the values ends, in seconds since the epoch. Without values, DEFAULT_TTL counts."""
        ttls = [value.ttl for value in self.values] or [DEFAULT_TTL]
        return min(ttl.seconds if ttl.absolute else fetched_at + ttl.seconds for ttl in ttls)


def read_values(values: bytes) -> Record:
    """Read a record from the JSON array of its values. Raises InvalidRecord."""
    if len(values) > MAX_VALUES_BYTES:
        raise AnswerTooLarge(f"The values of the record have {len(values)} bytes; the limit is {MAX_VALUES_BYTES}.")
    try:
        items: list[msgspec.Raw] = _array.decode(values)
        # Members that this program does not parse must be UTF-8 too (RFC 8259, section 8.1).
        values.isascii() or values.decode()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidRecord("The `values` of the answer are not a JSON array.", detail=str(error)) from error
    if len(items) > MAX_VALUES:
        raise AnswerTooLarge(f"The record has {len(items)} values; the limit is {MAX_VALUES}.")
    return Record(tuple(read_value(bytes(item)) for item in items))


def write_values(record: Record) -> bytes:
    """The JSON array of a record's values. Each value keeps the bytes that the server sent."""
    return b"[" + b",".join(value.raw for value in record.values) + b"]"


class RecordCache:
    """Parsed records by their JSON. The least recently used record is evicted first."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._records: OrderedDict[bytes, Record] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def parse(self, values: bytes) -> Record:
        """Parse the JSON array of a record's values, or return the cached record. Raises InvalidRecord."""
        cached = self._records.get(values)
        if cached is not None:
            self._records.move_to_end(values)
            return cached
        record = read_values(values)
        self._records[values] = record
        self.bytes += len(values)
        while self.bytes > self._max_bytes or len(self._records) > self._max_records:
            evicted, _ = self._records.popitem(last=False)
            self.bytes -= len(evicted)
        return record


#: A pure function with a cache that all callers share: a service reads the same record several times in a row.
parse_record: Final = RecordCache(MAX_CACHED_RECORDS, MAX_CACHED_BYTES).parse
