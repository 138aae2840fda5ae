"""Reads all stored entries of the servers, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from app.errors import StoreError
from app.features.valkey.layout import Layout, split_entry_key
from app.features.valkey.node import Node, Words, command, pipeline
from app.features.valkey.servers import Servers

#: Keys that one step visits.
PAGE: Final = 500

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
        cursor = b"0"
        while True:
            scan = command("SCAN", cursor, "MATCH", pattern, "COUNT", page)
            cursor, names = await servers.call_node(node, scan)
            yield await _read_entries(servers, node, names)
            if int(cursor) == 0:
                break
    if await servers.primaries() != primaries:
        raise StoreError("The servers of the store changed while it was read; repeat the command.")


async def _read_entries(servers: Servers, node: Node, names: list[bytes]) -> list[StoredEntry]:
    """The data of entries by the name of the record. One command has keys of one partition."""
    groups: dict[str, list[tuple[str, bytes]]] = {}
    for name in names:
        prefix, key = split_entry_key(name.decode(errors="replace"))
        groups.setdefault(prefix, []).append((key, name))
    if not groups:
        return []
    commands: list[Words] = [("MGET", *(name for _, name in group)) for group in groups.values()]
    replies = await servers.call_node(node, pipeline(commands))
    pairs = zip(groups.values(), replies, strict=True)
    return [
        (key, data) for group, reply in pairs for (key, _), data in zip(group, reply, strict=True) if data is not None
    ]


def _literal(text: str) -> str:
    """Escape `text` for a glob-style pattern."""
    return "".join(f"\\{c}" if c in "*?[]^-\\" else c for c in text)
