"""Bundles: seconds and peak memory of `doi-proxy cache export` and `doi-proxy cache import`."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.findings import Section, Table
from bench.names import HOT, synthetic
from bench.plan import Plan, build_store, entries_in
from bench.records import TEN_YEARS, entry_of
from bench.servers import plain_environment, program
from bench.tools import NotMeasured

RECORDS: Final = 100_000
_HELP_PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Finished:
    """A successful command: its duration in seconds, and its peak memory in bytes."""

    seconds: float
    peak: int


def bundle(plan: Plan) -> tuple[Section, ...]:
    """Export a store, and import it into an empty one. Raises NotMeasured."""
    command = [program("doi-proxy"), "cache"]
    asked = subprocess.run([*command, "export", "--help"], capture_output=True, timeout=_HELP_PATIENCE, check=False)
    if asked.returncode:
        raise NotMeasured("not measured: this version has no `doi-proxy cache export`")
    now = time.time()
    full, empty = plan.folder / "export.sqlite3", plan.folder / "import.sqlite3"
    build_store(full, (entry_of(name, now, TEN_YEARS) for name in (HOT, *synthetic(RECORDS - 1))))
    build_store(empty, ())
    lines = plan.folder / "bundle.ndjson"
    exported = run([*command, "export"], full, writes=lines)
    imported = run([*command, "import", "-"], empty, reads=lines)
    arrived = entries_in(empty)
    if arrived != RECORDS:
        raise NotMeasured(f"not measured: {arrived:,} of {RECORDS:,} records arrived in the other store")
    rows = tuple(
        (what, f"{done.seconds:.1f} s", f"{RECORDS / done.seconds:,.0f}", f"{done.peak / 2**20:.0f} MiB")
        for what, done in (("export", exported), ("import", imported))
    )
    return (
        Section(
            title="Bundles",
            method=(
                f"`doi-proxy cache export` of a SQLite store of {RECORDS:,} records into a file of "
                f"{lines.stat().st_size / 2**20:.0f} MiB, then `doi-proxy cache import` of it into an empty store."
            ),
            tables=(Table((f"{RECORDS:,} records", "time", "records/s", "peak memory"), rows),),
        ),
    )


def run(command: list[str], store: Path, *, reads: Path | None = None, writes: Path | None = None) -> Finished:
    """Run a command with a store to its end. Raises NotMeasured if it fails."""
    environment = {**plain_environment(), "DOI_PROXY_STORE_URL": f"sqlite:///{store}"}
    with (
        Path(reads or os.devnull).open("rb") as source,
        Path(writes or os.devnull).open("wb") as sink,
        store.with_suffix(".log").open("w+b") as log,
    ):
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=source, stdout=sink, stderr=log, env=environment)
        # wait4 returns the peak of this process; getrusage would return the peak of all children.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            raise NotMeasured(f"not measured: {' '.join(command[1:])} failed: {log.read()[-300:]!r}")
    return Finished(seconds, usage.ru_maxrss * 1024)
