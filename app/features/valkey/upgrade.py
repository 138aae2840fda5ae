"""The format of a store on servers, and the rewriting of entries of earlier releases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from app.errors import DamagedEntry, StoreError
from app.features.store_format import (
    OLD_ENTRIES_UP_TO,
    REWRITE_PAGE,
    STORE_FORMAT,
    Rewrite,
    Survey,
    is_readable,
    refuse_newer,
)
from app.features.stored_entry import has_old_layout, pack, unpack
from app.features.valkey.layout import Layout
from app.features.valkey.node import Access, Node, Result, Script, Words, Work, command
from app.features.valkey.replies import read_anything, read_data, read_number
from app.features.valkey.scan import StoredEntry, scan_entries
from app.features.valkey.scripts import OPEN, REPLACE
from app.features.valkey.servers import Servers
from app.features.valkey.url import StoreUrl

#: The name whose partition has the format of the store.
_FORMAT: Final = "format"
#: After the format while entries of an earlier release may remain.
_MARK: Final = b"rewriting"
_OPEN: Final = Script(OPEN)
_REPLACE: Final = Script(REPLACE)


class CheckedServers(Servers):
    """The servers of a store, behind a check of its format. Nothing is read or written before it has succeeded."""

    def __init__(
        self, url: StoreUrl, layout: Layout, *, clock: Callable[[], float], timeout: float, read_only: bool
    ) -> None:
        """With `read_only`, a store of an earlier release keeps its format."""
        super().__init__(url, clock=clock, timeout=timeout)
        self._partition = layout.find(_FORMAT)
        self._read_only = read_only
        #: Whether the store can be read, and whether its format is that of this release.
        self._is_readable = self._is_checked = False

    async def call(self, slot: int, work: Work[Result], access: Access) -> Result:
        """See Servers."""
        if access not in (Access.READ, Access.LATE):
            if not self._is_checked:
                await self.check_format()
        elif not self._is_readable:
            # A server that refuses writes, or is slow, is read without them.
            await self._read_format(access)
        return await super().call(slot, work, access)

    async def query_each(
        self, commands: Sequence[tuple[int, Words]], read: Callable[[Any], Result]
    ) -> list[Result | StoreError]:
        """See Servers."""
        if not self._is_checked:
            await self.check_format()
        return await super().query_each(commands, read)

    async def primaries(self) -> tuple[Node, ...]:
        """See Servers."""
        if not self._is_checked:
            await self.check_format()
        return await super().primaries()

    async def check_format(self) -> int:
        """The format of the store. From now on it is that of this release. Raises StoreError for a newer one."""
        found, is_marked = await self._read_format(Access.READ), self._read_only
        if not self._read_only:
            key = self._partition.format
            work = _OPEN.work([key], [STORE_FORMAT, OLD_ENTRIES_UP_TO, _MARK], _read_format)
            # What a server that refuses writes has can be read. Its format is written later.
            with suppress(StoreError):
                found, is_marked = await super().call(self._partition.slot, work, Access.WRITE), True
        refuse_newer(f"on the {self.label}", found)
        self._is_checked = is_marked
        return found

    async def _read_format(self, access: Access) -> int:
        found = 0
        with suppress(DamagedEntry):
            look_up = command("GET", self._partition.format, read=_read_format)
            found = await super().call(self._partition.slot, look_up, access)
        refuse_newer(f"on the {self.label}", found)
        self._is_readable = True
        return found


class EntryRewriter:
    """Rewrites the entries of earlier releases. A process that is killed begins again, and skips what is done."""

    def __init__(self, servers: Servers, layout: Layout, clock: Callable[[], float]) -> None:
        self._servers = servers
        self._layout = layout
        self._clock = clock
        self._format = layout.find(_FORMAT)
        self._pages: AsyncIterator[list[StoredEntry]] | None = None
        self._visited = self._rewritten = self._unreadable = self._total = 0

    async def step(self) -> Rewrite | None:
        """Rewrite the next entries; see Rewritable."""
        pages = self._pages or await self._begin()
        if pages is None:
            return None
        self._pages = None  # if a server fails, the next step begins again
        page = await anext(pages, None)
        for key, data in page or ():
            await self._rewrite(key, data)
        if page is None:
            work = command("SET", self._format.format, STORE_FORMAT, read=read_anything)
            await self._servers.call(self._format.slot, work, Access.WRITE)
        else:
            self._pages = pages
        return Rewrite(self._visited, self._total, self._rewritten, self._unreadable, is_done=page is None)

    async def _begin(self) -> AsyncIterator[list[StoredEntry]] | None:
        """The entries, if the store can have some of an earlier release."""
        work = command("GET", self._format.format, read=read_data)
        if not (await self._servers.call(self._format.slot, work, Access.READ) or b"").endswith(_MARK):
            return None
        self._visited = self._rewritten = self._unreadable = 0
        self._total = await count_keys(self._servers)
        return scan_entries(self._servers, self._layout, page=REWRITE_PAGE)

    async def _rewrite(self, key: str, data: bytes) -> None:
        self._visited += 1
        if not has_old_layout(data):
            return
        entry = unpack(key, data) if is_readable(key, data) else None
        if entry is None:
            self._unreadable += 1
            return
        left = int((entry.stale_until - self._clock()) * 1000)
        if left > 0:
            partition = self._layout.find(key)
            work = _REPLACE.work([partition.entry(key)], [data, pack(entry), left], read_number)
            self._rewritten += await self._servers.call(partition.slot, work, Access.WRITE)


async def survey(servers: CheckedServers, layout: Layout, limit: int) -> Survey:
    """See Surveyable."""
    result = Survey(await servers.check_format(), total=await count_keys(servers))
    async for page in scan_entries(servers, layout):
        result = result.add(page)
        if result.visited >= limit:
            break
    return result


async def count_keys(servers: Servers) -> int:
    """The number of keys on all servers."""
    size = command("DBSIZE", read=read_number)
    return sum([await servers.call_node(node, size) for node in await servers.primaries()])


def _read_format(reply: Any) -> int:
    digits = (read_data(reply) or b"").partition(b" ")[0]
    return int(digits) if digits.isdigit() else 0
