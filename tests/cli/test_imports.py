"""What a start imports, and what the garbage collector makes of it."""

from __future__ import annotations

import gc

from app.cli.imports import collect_nothing


def test_the_garbage_collector_leaves_alone_what_is_imported_and_runs_afterwards() -> None:
    try:
        with collect_nothing():
            assert not gc.isenabled()
            kept: list[list[int]] = [[] for _ in range(10)]
        assert gc.isenabled()
        assert gc.get_freeze_count() > len(kept)
    finally:
        gc.unfreeze()
