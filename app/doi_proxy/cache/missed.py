"""What a store missed while it was away, and gets when it is back: records and purges, whatever the store is.

The records themselves are in memory. Only their keys are kept here, in at most MAX_BYTES. If there are more, or if the
store is another one than before, it gets every record of memory.
"""

from __future__ import annotations

from typing import Final

from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.purges import MAX_LATE_PURGES, Purges
from doi_proxy.cache.purging import delete_purged
from doi_proxy.cache.store import Store

#: Bytes of the keys that are kept one by one.
MAX_BYTES: Final = 4 * 1024 * 1024
#: Bytes of an entry of a dictionary and the string of its key, without the key.
_KEY_BYTES: Final = 150
#: Records that are written between two flushes.
_A_FLUSH: Final = 250
#: Records that one call writes, of those that are kept one by one: at 0.2 ms each, a fifth of a second.
_A_CALL: Final = 1_000


class Missed:
    """The records and the purges that one store missed."""

    def __init__(self) -> None:
        #: Keys of records, with whether other instances must drop their copy.
        self._keys: dict[str, bool] = {}
        self._bytes = 0
        self._is_everything = False
        self.purges = Purges()
        self.purges.most = MAX_LATE_PURGES

    def __bool__(self) -> bool:
        return bool(self._keys or self.purges or self._is_everything)

    def add(self, key: str, *, announce: bool) -> None:
        """The store missed a record."""
        if key not in self._keys:
            self._bytes += _KEY_BYTES + len(key.encode(errors="surrogatepass"))
        self._keys[key] = self._keys.get(key, False) or announce
        if self._bytes > MAX_BYTES:
            self.add_everything()

    def add_everything(self) -> None:
        """The store missed every record."""
        self._keys.clear()
        self._bytes, self._is_everything = 0, True

    async def write(self, store: Store, memory: MemoryStore, purges: Purges, now: float) -> None:
        """Write to the store what it missed. Raises StoreError when it fails again; the rest stays.

        `purges` are those of the last hour, by any process.
        """
        for scope, at in tuple(self.purges.items()):
            await delete_purged(store, scope, at, announce=True)
            self.purges.pop(scope, None)
        is_everything = self._is_everything
        keys = memory.unsorted_keys() if is_everything else list(self._keys)[:_A_CALL]
        for number, key in enumerate(keys):
            # A queue of writes is limited.
            if number % _A_FLUSH == 0:
                await store.flush()
            entry = memory.peek(key)
            if entry is not None and entry.is_confirmed:
                # A purge by another instance can be newer than the record. One by this process is older: memory has it.
                sent_at = None if purges.refuses(key, 0.0, now) else entry.fetched_at
                await store.put(entry, announce=self._keys.get(key, False), unless_newer=True, sent_at=sent_at)
            if self._keys.pop(key, None) is not None:
                self._bytes -= _KEY_BYTES + len(key.encode(errors="surrogatepass"))
        if is_everything:
            self._is_everything = False
