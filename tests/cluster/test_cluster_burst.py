"""A burst of readers: the store that works is used, however many wait for it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import pytest

from app.assembly.stores import STORE_TIMEOUT
from app.cache.entry import Entry
from app.features.valkey.store import ValkeyStore
from app.handle.answer import Answer, ResponseCode

pytestmark = [pytest.mark.anyio, pytest.mark.valkey, pytest.mark.process]

#: Far more than one process has connections for.
READERS: Final = 3_000


async def test_thousands_of_readers_at_once_all_get_the_record_from_valkey(valkey: Any) -> None:
    store = ValkeyStore(f"valkey://127.0.0.1:{valkey.port}/0", clock=time.time, timeout=STORE_TIMEOUT)
    later = time.time() + 86_400
    kept = Entry("10.1000/182", Answer(ResponseCode.VALUES_NOT_FOUND), 0.0, later, later)
    await store.put(kept)
    found = await asyncio.gather(*(store.get(kept.key) for _ in range(READERS)))
    assert found.count(kept) == READERS
    await store.close()
