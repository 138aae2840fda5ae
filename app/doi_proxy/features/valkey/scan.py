"""Reads all stored entries of the servers, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from doi_proxy.errors import StoreError
from doi_proxy.features.valkey.layout import Layout, split_entry_key
from doi_proxy.features.valkey.node import Access, command
from doi_proxy.features.valkey.replies import read_data
from doi_proxy.features.valkey.servers import Servers, query_each

#: Keys that one step visits.
PAGE: Final = 500
#: Entries that are read together. A record has at most 256 KiB, and the texts of a reply have a bound.
_READ_TOGETHER: Final = 100

#: The key of a record, and its stored bytes.
StoredEntry = tuple[str, bytes]


async def scan_entries(
    servers: Servers, layout: Layout, prefix: str = "", *, page: int = PAGE
) -> AsyncIterator[list[StoredEntry]]:
    """The stored entries whose key begins with `prefix`. The order is undefined, and one may appear twice.

    Raises StoreError, also if other servers have the keys at the end.
    """
    primaries = await servers.primaries()
    pattern = f"{layout.entry_pattern}{_literal(prefix)}*"
    for node in primaries:
        cursor = 0
        while True:
            scan = command("SCAN", cursor, "MATCH", pattern, "COUNT", page, read=_read_keys)
            cursor, names = await node.call(scan, Access.READ)
            for start in range(0, len(names), _READ_TOGETHER):
                yield await _read_entries(servers, layout, names[start : start + _READ_TOGETHER])
            if cursor == 0:
                break
    if await servers.primaries() != primaries:
        raise StoreError("The servers of the store changed while it was read; repeat the command.")


def _read_keys(reply: Any) -> tuple[int, list[tuple[str, bytes]]]:
    """The next cursor, and the keys as text and as bytes."""
    cursor, names = reply
    return int(cursor), [(name.decode(errors="replace"), name) for name in names]


async def _read_entries(servers: Servers, layout: Layout, names: list[tuple[str, bytes]]) -> list[StoredEntry]:
    """The data of entries by the name of the record. One command has keys of one partition."""
    groups: dict[int, list[tuple[str, bytes]]] = {}
    for text, name in names:
        prefix, key = split_entry_key(text)
        slot = next((partition.slot for partition in layout.partitions if partition.prefix == prefix), None)
        if slot is not None:
            groups.setdefault(slot, []).append((key, name))
    works = [(slot, command("MGET", *(name for _, name in group), read=_read_values)) for slot, group in groups.items()]
    entries = list[StoredEntry]()
    for group, values in zip(groups.values(), await query_each(servers, works), strict=True):
        if isinstance(values, StoreError):
            raise values
        # A broken server can return fewer values than were requested.
        entries += [(key, data) for (key, _), data in zip(group, values, strict=False) if data is not None]
    return entries


def _read_values(reply: Any) -> list[bytes | None]:
    return [read_data(value) for value in reply]


def _literal(text: str) -> str:
    """Escape `text` for a glob-style pattern."""
    return "".join(f"\\{c}" if c in "*?[]^-\\" else c for c in text)
