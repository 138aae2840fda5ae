"""How long the answers of a seed count."""

from __future__ import annotations

from pathlib import Path

import pytest

from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.bundles.import_bundle import Seed
from tests.cache.entries import NOW, bundle, entry, missing
from tests.clock import Clock

pytestmark = pytest.mark.anyio


async def test_a_not_found_ends_with_its_own_ttl_and_only_that_of_a_prefix_is_kept_as_long_as_a_record(
    tmp_path: Path,
) -> None:
    clock, path = Clock(), tmp_path / "seed.ndjson"
    path.write_bytes(bundle(entry("10.1000/A"), missing("10.1000/B"), missing("10.1000")))
    memory = MemoryStore(1_000_000, clock=clock)
    await Seed(path, TieredStore(memory, None, clock=clock, ceiling=1e9), clock, 1_000.0, 30.0).start()
    served = {}
    for seconds in (29, 30, 999, 1_000):
        clock.advance(NOW + seconds - clock())
        served[seconds] = {found.key async for found in memory.scan() if found.is_usable(clock())}
        memory.drop_expired()
        assert memory.entries == (3 if seconds < 30 else 2)
    assert served == {29: {"10.1000/A", "10.1000/B", "10.1000"}, 30: {"10.1000/A"}, 999: {"10.1000/A"}, 1_000: set()}
