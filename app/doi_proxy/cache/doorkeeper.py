"""Which names were seen lately: a name that is seen once does not push another one out of memory.

The doorkeeper of TinyLFU (Einziger, Friedman, Manes: ACM Transactions on Storage 13 (4), 2017, section 3.4.2), without
its counters: docs/decisions/0018-doorkeeper.md.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

#: Bits of one generation, 256 KiB. A power of two.
_BITS: Final = 2**21
#: Names of one generation. Of the names that were not seen, at most an eighth counts as seen.
SPAN: Final = 2**17


class Doorkeeper:
    """Remembers the last SPAN names that were seen, and up to twice as many. A few others count as seen as well."""

    def __init__(self) -> None:
        self._young = bytearray(_BITS // 8)
        self._old = bytearray(_BITS // 8)
        self._names = 0

    def has_seen(self, key: str) -> bool:
        """Whether a name was seen lately. It has been from now on."""
        place = crc32(key.encode(errors="surrogatepass")) % _BITS
        at, bit = place >> 3, 1 << (place & 7)
        if self._young[at] & bit:
            return True
        was_seen = bool(self._old[at] & bit)
        if self._names == SPAN:
            self._old, self._young, self._names = self._young, bytearray(_BITS // 8), 0
        self._young[at] |= bit
        self._names += 1
        return was_seen
