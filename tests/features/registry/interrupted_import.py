"""Imports registry files in a process that kills itself at its n-th step: `python -m ... STORE SOURCE STEP`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from doi_proxy.features.registry import import_files
from doi_proxy.features.registry.import_files import ImportRequest, RegistryReport, import_registry
from doi_proxy.system.progress import Bar

NOW = 1_800_000_000.0
#: Small sizes, so that there are several runs and several transactions.
RUN_ROWS = 7
BATCH = 5


class KillingBar(Bar):
    """A bar that kills its process with SIGKILL after some steps. A negative number never does."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def advance(self, done: float) -> None:
        """Take one step."""
        self._steps -= bool(done)
        if self._steps == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(store: Path, source: str, steps: int = -1) -> RegistryReport:
    """Import with small runs and transactions."""
    bar = KillingBar(steps)

    @contextmanager
    def show(label: str, total: float | None, in_bytes: bool) -> Generator[Bar]:
        yield bar

    import_files._BATCH = BATCH  # type: ignore[misc]
    request = ImportRequest(source, None, 0, None, False, 2, RUN_ROWS)
    return import_registry(request, store, show, clock=lambda: NOW)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
