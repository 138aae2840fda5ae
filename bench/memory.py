"""Memory: the bytes of a record in the memory tier and in a proxy, and the cost of a hit among many names."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from bench.contestants import proxy_command, proxy_environment
from bench.findings import Claim, Section, Table
from bench.loads import each_once
from bench.names import HOT, path_of, synthetic
from bench.plan import Plan, store_of
from bench.records import values_of
from bench.servers import Server, python, served
from bench.tools import NotMeasured

#: Sizes of the records' JSON, in bytes.
SIZES: Final = (1_200, 300)
#: The limit of a record in the memory tier: a multiple of its JSON, plus a fixed number of bytes.
_SHARE: Final = 1.6
_FIXED: Final = 500
_MAX_GROWTH: Final = 1.3
_SERVED: Final = 30_000
#: The memory for a million names, with a reserve, in bytes.
_NEEDED: Final = 4 * 2**30
_LONGEST: Final = 180.0


def memory(plan: Plan) -> tuple[Section, ...]:
    """The bytes of a record, and the time of a hit among a thousand and among a million names."""
    tables, claims, missing = [], [], []
    for part in (_records, _hits):
        try:
            table, shown = part(plan)
        except NotMeasured as reason:
            missing.append(str(reason))
            continue
        tables.append(table)
        claims += shown
    return (
        Section(
            title="Memory",
            method=(
                "Bytes a record: the growth of the resident memory of a separate process, divided by the number of "
                f"records. In the tier: 100,000 records. In a proxy: {_SERVED:,} records from its SQLite store, each "
                "answered once, including the prepared answers. A hit: the whole application without server, socket "
                "and express lane; names are drawn evenly, from few and from many names in turn. A lookup: the memory "
                "tier alone."
            ),
            tables=tuple(tables),
            claims=tuple(claims),
            not_measured=tuple(missing),
        ),
    )


def _records(plan: Plan) -> tuple[Table, list[Claim]]:
    rows, claims = [], []
    for size in SIZES:
        measured = _child(plan, "fill", str(size))["bytes"]
        rows.append(_row("memory tier", size, measured))
        claims.append(Claim(f"bytes of a {size:,} B record in memory", measured, "<=", bound(size), "B"))
    size = len(values_of(HOT))
    rows += [_row(what, size, measured) for what, measured in _in_a_proxy(plan)]
    return Table(("Where", "JSON", "bytes a record", f"{_SHARE} x JSON + {_FIXED} B"), tuple(rows)), claims


def bound(size: int) -> float:
    """The limit of a record with `size` bytes of JSON in the memory tier, in bytes."""
    return _SHARE * size + _FIXED


def _row(what: str, size: int, measured: float) -> tuple[str, ...]:
    return what, f"{size:,} B", f"{measured:,.0f} B", f"{bound(size):,.0f} B"


def _in_a_proxy(plan: Plan) -> list[tuple[str, float]]:
    names = synthetic(_SERVED)
    store = store_of(plan.folder / "memory.sqlite3", names)
    unreachable = "http://127.0.0.1:9"
    chosen = proxy_environment(unreachable, f"sqlite:///{store}")
    with served(proxy_command, cores=plan.cores.server, environment=chosen, path=path_of(HOT)) as server:
        before = server.resident()
        paths = [path_of(name) for name in names]
        redirects = _after(plan, server, paths) - before
        both = _after(plan, server, ["/api/handles" + path for path in paths]) - before
    return [
        ("proxy, after a redirect of each", redirects / _SERVED),
        ("proxy, after a redirect and a REST answer of each", both / _SERVED),
    ]


def _after(plan: Plan, server: Server, paths: Sequence[str]) -> int:
    each_once(server.url, paths, plan.cores.load)
    return server.resident()


def _hits(plan: Plan) -> tuple[Table, list[Claim]]:
    if psutil.virtual_memory().available < _NEEDED:
        raise NotMeasured(f"not measured: hits among a million names need {_NEEDED / 2**30:.0f} GiB of free memory")
    found = _child(plan, "hits")
    rows, claims = [], []
    for what in ("hit", "lookup"):
        few, many = found[what]
        rows.append((what, f"{few * 1e6:.2f} µs", f"{many * 1e6:.2f} µs", f"{many / few:.2f}x"))
    few, many = found["hit"]
    claims.append(Claim("a hit among 1 M names / among 1 k names", many / few, "<=", _MAX_GROWTH, "x"))
    return Table(("Cost", "1,000 names", "1,000,000 names", "ratio"), tuple(rows)), claims


def _child(plan: Plan, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        python("-m", "bench.resident", *arguments),
        capture_output=True,
        text=True,
        timeout=_LONGEST,
        cwd=Path(__file__).parent.parent,
        check=False,
    )
    if done.returncode:
        raise NotMeasured(f"not measured: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
