"""How the limit of a SQLite store is divided: its entries, and what a write takes beside them.

A write first goes to the write-ahead log, which is copied into the file from time to time. A page that changes in any
byte is in the log as a whole. So a limit on the bytes on the disk also limits the log and each transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

_PAGE_BYTES: Final = 4_096
#: Pages of the log after which it is copied into the file, of a store of 64 MiB or more. It is about SQLite's default.
_LOG_PAGES: Final = 1_024
#: The least of them. A store of the smallest limit, 1 MiB, has 16.
_MIN_LOG_PAGES: Final = 4
#: The part of the limit that the log takes before it is copied.
_LOG_PART: Final = 16
#: Pages of the log for each row of a transaction: a leaf, and a page of the rest of a long row or of an evicted row.
_PAGES_A_ROW: Final = 2
#: A transaction is written whole before the log is copied, and its rows are in the file before others are evicted.
_RESERVED_LOGS: Final = 4


@dataclass(frozen=True, slots=True)
class StoreBounds:
    """The parts of a limit."""

    #: Bytes of all entries with their room in pages (see file.py).
    entries: int
    #: Rows of one transaction, and the bytes of their entries.
    rows: int
    batch_bytes: int
    #: Pages of the write-ahead log after which it is copied into the file.
    log_pages: int

    @classmethod
    def divide(cls, max_bytes: int) -> Self:
        """The parts of a limit for the file and its log together, in bytes."""
        log_pages = min(_LOG_PAGES, max(_MIN_LOG_PAGES, max_bytes // _LOG_PART // _PAGE_BYTES))
        log_bytes = log_pages * _PAGE_BYTES
        reserved = min(_RESERVED_LOGS * log_bytes, max_bytes // _RESERVED_LOGS)
        return cls(max_bytes - reserved, log_pages // _PAGES_A_ROW, log_bytes, log_pages)

    @property
    def pragmas(self) -> tuple[str, ...]:
        """What a connection that writes is set to. A log that grew in a burst is cut to the second number."""
        return (
            f"PRAGMA wal_autocheckpoint = {self.log_pages}",
            f"PRAGMA journal_size_limit = {2 * self.log_pages * _PAGE_BYTES}",
        )
