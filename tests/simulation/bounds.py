"""What may not grow: nothing of a service has more bytes, keys, connections or tasks than its bound."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from doi_proxy.cache.store import MAX_ANNOUNCEMENTS
from doi_proxy.server.prepared_answers import MAX_ANSWER_BYTES
from tests.simulation.history import ALL, Setup
from tests.world.service import Instance
from tests.world.valkey_data import Stream
from tests.world.world import World

GROWS: Final = "nothing grows beyond its bound"
#: Of each instance whose store has what its memory has not: a third of what the names of a history take.
MEMORY_BYTES: Final = 131_072
STORE_BYTES: Final = 2 * 1024 * 1024
#: Of each instance: a part of what the answers of a history take.
PREPARED_BYTES: Final = 65_536
CONNECTIONS: Final = 1_000
#: Keys of Valkey that are not one of a name: counters, notes, purges and announcements.
_OTHER_KEYS: Final = 100
#: An entry, and the last purge of the name.
_KEYS_OF_A_NAME: Final = 2
#: Tasks of an instance that has nothing to do, more than at its start: what it began when it was first needed.
_MORE_TASKS: Final = 8
_MEMORY: Final = re.compile(r"^doi_proxy_memory_bytes (\S+)$", re.MULTILINE)


def count_prepared(instance: Instance) -> int:
    """The bytes of the prepared answers of an instance."""
    prepared: Any = instance.application.prepared
    ages = [age for answers in (prepared._usual, prepared._rare) for age in (answers._young, answers._old)]
    replies = chain.from_iterable(found for age in ages for found in age.values())
    return sum({id(reply): reply.size for reply in replies}.values())


class Bounds:
    """See the module. `report` takes an invariant that does not hold, and how."""

    def __init__(self, world: World, setup: Setup, report: Callable[[str, str], None]) -> None:
        self._world, self._setup, self._report = world, setup, report
        self._tasks_at_start = max(map(self._count_tasks, world.instances))

    @staticmethod
    def settings(setup: Setup) -> dict[str, Any]:
        """Small bounds, which a history reaches."""
        small = {"cache_memory_bytes": MEMORY_BYTES, "store_max_bytes": STORE_BYTES} if setup.store == "file" else {}
        return {**small, "max_connections": CONNECTIONS, "express_memory_bytes": PREPARED_BYTES}

    def check(self) -> None:
        """Judge what can be seen from outside of the processes."""
        if self._setup.store == "file":
            path = self._world.store_path
            files = [path, path.with_name(f"{path.name}-wal")]
            self._require(
                "bytes of the store", sum(file.stat().st_size for file in files if file.exists()), STORE_BYTES
            )
        if self._setup.store == "valkey":
            values = self._world.valkey.keys.values
            self._require("keys of Valkey", len(values), _KEYS_OF_A_NAME * len(ALL) + _OTHER_KEYS)
            longest = max((len(value.entries) for value in values if isinstance(value, Stream)), default=0)
            self._require("announcements", longest, 2 * MAX_ANNOUNCEMENTS)
        for instance in self._world.instances:
            self._require("connections", instance.connections, CONNECTIONS)
            # A map of them has one more than its weight.
            self._require("bytes of prepared answers", count_prepared(instance), PREPARED_BYTES + 4 * MAX_ANSWER_BYTES)

    def check_end(self) -> None:
        """Judge a service that has had nothing to do for a while."""
        for number, instance in enumerate(self._world.instances):
            self._require("tasks", self._count_tasks(instance), self._tasks_at_start + _MORE_TASKS)
            client = self._world.client("127.0.0.1", number)
            with suppress(ConnectionError):
                shown = _MEMORY.search(self._world.get("/metrics", client).body.decode())
                if shown and self._setup.store == "file":
                    self._require("bytes of memory", int(float(shown[1])), MEMORY_BYTES)

    def _count_tasks(self, instance: Instance) -> int:
        return self._world.loop.count_tasks(instance.process)

    def _require(self, what: str, amount: int, most: int) -> None:
        if amount > most:
            self._report(GROWS, f"{amount} {what}, of at most {most}")
