"""The keys of the store on its servers. In a cluster they are spread over partitions.

A command of a cluster has keys of one hash slot. The record of a name, its lease, the purges that concern it and the
announcement of its change are therefore in one partition: their keys have one hash tag. Each partition has a stream of
announcements and a table of purges. https://valkey.io/topics/cluster-spec/ (hash tags)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final
from zlib import crc32

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from doi_proxy.features.valkey.url import StoreKind
from doi_proxy.store.stored_entry import STORE_FORMAT

#: The prefix of our keys on the server, with the format of the store. Programs of two formats can share a server.
KEY_PREFIX: Final = f"doi-proxy:{STORE_FORMAT}:"
#: Partitions of a cluster, and the most primaries that share the keys. Three primaries have 10 or 11 partitions each.
PARTITIONS: Final = 32
_ENTRY: Final = "entry:"


@dataclass(frozen=True, slots=True)
class Partition:
    """Keys with one prefix, in one hash slot."""

    prefix: str
    slot: int

    def entry(self, key: str) -> str:
        """The key of an entry."""
        return f"{self.prefix}{_ENTRY}{key}"

    def lease(self, key: str) -> str:
        """The key of the lease of a name."""
        return f"{self.prefix}lease:{key}"

    def bucket(self, name: str) -> str:
        """The key of a token bucket."""
        return f"{self.prefix}bucket:{name}"

    @property
    def announcements(self) -> str:
        """The key of the stream of announcements."""
        return f"{self.prefix}announcements"

    def note(self, name: str) -> str:
        """The key of a note. Its name is a word that no other key begins with."""
        return f"{self.prefix}{name}"

    @property
    def purges(self) -> str:
        """The key of the purges."""
        return f"{self.prefix}purges"


class Layout:
    """The partitions of a store."""

    def __init__(self, partitions: tuple[Partition, ...], entry_pattern: str) -> None:
        """`entry_pattern` is the glob-style pattern of what precedes the name in the key of an entry."""
        self.partitions = partitions
        self.entry_pattern = entry_pattern

    def find(self, key: str) -> Partition:
        """The partition of a name, or of a bucket."""
        if len(self.partitions) == 1:
            return self.partitions[0]
        return self.partitions[crc32(key.encode(errors="surrogatepass")) % len(self.partitions)]


def find_layout(kind: StoreKind) -> Layout:
    """The layout of the keys of a store."""
    if kind is StoreKind.CLUSTER:
        return partitions_of_cluster()
    return Layout((Partition(KEY_PREFIX, 0),), f"{KEY_PREFIX}{_ENTRY}")


def partitions_of_cluster() -> Layout:
    """The layout of a cluster."""
    partitions = tuple(Partition(f"{KEY_PREFIX}{{{tag}}}:", slot) for tag, slot in _choose_tags())
    return Layout(partitions, f"{KEY_PREFIX}{{*}}:{_ENTRY}")


def split_entry_key(name: str) -> tuple[str, str]:
    """The prefix of the partition and the name of the record in the key of an entry."""
    prefix, _, key = name.partition(_ENTRY)
    return prefix, key


def _choose_tags() -> Iterator[tuple[str, int]]:
    """The first number in each of PARTITIONS equal parts of the hash slots. Primaries have ranges of slots."""
    found: dict[int, tuple[str, int]] = {}
    for number in count():
        slot = key_slot(str(number).encode())
        found.setdefault(slot * PARTITIONS // REDIS_CLUSTER_HASH_SLOTS, (str(number), slot))
        if len(found) == PARTITIONS:
            break
    yield from (found[part] for part in sorted(found))
