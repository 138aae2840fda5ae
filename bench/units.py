"""The time of single operations, and their instructions, which are the same on a busy machine."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from bench.findings import Section, Table
from bench.operations import MARK, OPERATIONS, Operation
from bench.plan import Plan
from bench.servers import python
from bench.tools import NotMeasured, need

#: The length of one timed stretch, in seconds. The result is the median of all stretches.
_STRETCH: Final = 0.1
_STRETCHES: Final = 7
#: The repetitions under callgrind.
_COUNT: Final = 500
#: The deadline of callgrind, in seconds. It runs a program about fifty times slower.
_LONGEST: Final = 400.0
_TOTAL: Final = re.compile(r"^totals: (\d+)", re.MULTILINE)


def units(plan: Plan) -> tuple[Section, ...]:
    """The time and the instructions of every operation."""
    times = {key: nanoseconds(build()) for key, (_, build) in OPERATIONS.items()}
    missing: tuple[str, ...] = ()
    counts: dict[str, int] = {}
    try:
        counts = count_instructions()
    except NotMeasured as reason:
        missing = (f"instructions: {reason}",)
    rows = tuple(
        (label, f"{times[key] / 1000:,.2f} µs", f"{counts[key]:,}" if key in counts else "–")
        for key, (label, _) in OPERATIONS.items()
    )
    return (
        Section(
            title="Single operations",
            method=(
                f"Each operation is repeated in one process: the median of {_STRETCHES} stretches of {_STRETCH:g} s. "
                f"callgrind counts the instructions of {_COUNT:,} repetitions. They hardly differ between runs, also "
                "on a busy machine, so compare them with an earlier table to see what a change costs. The application "
                "is called by ASGI. With the server, uvicorn's protocol gets the bytes of a request without a socket, "
                "so the time of the kernel is not included."
            ),
            tables=(Table(("Operation", "time", "instructions"), rows),),
            not_measured=missing,
        ),
    )


def nanoseconds(operation: Operation) -> float:
    """The time of one operation."""
    count = 1
    while (taken := _timed(operation, count)) < _STRETCH / 4:
        count *= 4
    count = max(1, int(count * _STRETCH / taken))
    gc.collect()
    gc.disable()
    try:
        return median(_timed(operation, count) / count for _ in range(_STRETCHES)) * 1e9
    finally:
        gc.enable()


def _timed(operation: Operation, count: int) -> float:
    began = time.perf_counter()
    operation(count)
    return time.perf_counter() - began


def count_instructions() -> dict[str, int]:
    """The instructions of one repetition of every operation. Raises NotMeasured."""
    need("valgrind")
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder) / "callgrind"
        at = [f"--callgrind-out-file={dumps}", f"--toggle-collect={MARK}", f"--dump-after={MARK}"]
        command = ["valgrind", "--tool=callgrind", *at, *python("-m", "bench.operations", str(_COUNT))]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_LONGEST,
                # The same hashes, and so the same collisions, in each run.
                env={**os.environ, "PYTHONHASHSEED": "0"},
                cwd=Path(__file__).parent.parent,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NotMeasured(f"not measured: callgrind took longer than {_LONGEST:g} s") from error
        totals = [read_total(file.read_text()) for file in sorted(dumps.parent.glob("callgrind.*"), key=_number)]
        # Imports may have called MARK before.
        totals = totals[-len(OPERATIONS) :]
        if done.returncode or len(totals) < len(OPERATIONS):
            raise NotMeasured(f"not measured: callgrind failed: {done.stderr.strip()[-300:]}")
        return {key: round(total / _COUNT) for key, total in zip(OPERATIONS, totals, strict=True)}


def read_total(dump: str) -> int:
    """The total of a dump of callgrind. Raises NotMeasured."""
    found = _TOTAL.search(dump)
    if found is None:
        raise NotMeasured("not measured: callgrind wrote no totals")
    return int(found[1])


def _number(dump: Path) -> int:
    return int(dump.suffix[1:])
