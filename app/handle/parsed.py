"""Records parsed once: what was read of a record is kept until records of a certain size were read after it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from app.handle.record import Record, read_values

#: Parsed records, and their JSON in bytes, of one process. A network takes 6 bytes of JSON and 300 bytes of memory: the
#: worst records take 100 MB, usual ones below 4 MB.
MAX_RECORDS: Final = 1_024
MAX_BYTES: Final = 2 * 1024 * 1024


class ParsedRecords:
    """Parsed records by their JSON; the one that was used least recently is dropped first."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._records: OrderedDict[bytes, Record] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def read(self, values: bytes) -> Record:
        """The record in the JSON array of its values. Raises InvalidAnswer."""
        found = self._records.get(values)
        if found is not None:
            self._records.move_to_end(values)
            return found
        record = read_values(values)
        self._records[values] = record
        self.bytes += len(values)
        while self.bytes > self._max_bytes or len(self._records) > self._max_records:
            dropped, _ = self._records.popitem(last=False)
            self.bytes -= len(dropped)
        return record


#: A pure function with a memory, which all callers share: upstream client, TTL policy, resolver and pages read the same
#: record one after another.
parse_record: Final = ParsedRecords(MAX_RECORDS, MAX_BYTES).read
