"""A cache of parsed records. Without it, one request would parse the same JSON several times."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from app.handle.record import Record, read_values

#: Limits per process: the number of records, and the bytes of their JSON. The worst records, lists of networks with
#: 6 bytes of JSON and 300 bytes of memory each, take 100 MB in all. Usual records take less than 4 MB.
MAX_RECORDS: Final = 1_024
MAX_BYTES: Final = 2 * 1024 * 1024


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
        """Parse the JSON array of a record's values, or return the cached record. Raises InvalidAnswer."""
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


#: A pure function with a cache that all callers share. The upstream client, the TTL policy, the resolver and the pages
#: read the same record one after another.
parse_record: Final = RecordCache(MAX_RECORDS, MAX_BYTES).parse
