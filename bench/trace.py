"""What a request enters: files, classes and crossings of the journeys of `bench.journeys`.

    python -m bench.trace              prints them beside the recorded ones, and names what grew
    python -m bench.trace --files cold prints the files of one journey too
    python -m bench.trace --record     makes them the recorded ones, in bench/journeys.json

Also printed: how many modules decide a header that says how long an answer may be kept.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.journeys import APP, find_growth, read_table, record_table, trace_journeys

DECIDED: Final = ("cache-control", "expires", "vary", "age", "cache-status", "etag")
#: Modules that name such a header and decide none.
NOT_DECIDING: Final = frozenset(
    {
        "doi_proxy/features/record_headers/headers.py",  # the headers that a record cannot set
        "doi_proxy/features/admin/gate.py",  # replaces them all on answers of /admin
        "doi_proxy/features/setup/doctor.py",  # the name of a fault
        "doi_proxy/features/setup/probe.py",  # the answers with which `doctor` tests a front proxy
        "doi_proxy/features/tracing/spans.py",  # reads
        "doi_proxy/features/explain/explainer.py",  # a request that the cache alone answers
        "doi_proxy/features/admin/http.py",  # the age of an entry, a key in JSON
        "doi_proxy/features/lists/verdict.py",  # the age in a row of a list
        "doi_proxy/list_formats/writing.py",
    }
)


def deciders(header: str) -> list[str]:
    """The modules of app/ that write a header by its name."""
    found = []
    for path in sorted(Path(APP).rglob("*.py")):
        names = {
            node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, (bytes, str))
        }
        module = str(path).removeprefix(APP)
        if header in names and module not in NOT_DECIDING:
            found.append(module)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables. Returns 1 if a journey grew."""
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description="The journeys of requests through app/.")
    parser.add_argument("--files", metavar="JOURNEY", help="print the files of this journey")
    parser.add_argument("--record", action="store_true", help="record the figures in bench/journeys.json")
    options = parser.parse_args(arguments)
    recorded, traces = read_table(), trace_journeys()
    print(f"{'journey':16} {'files':>6} {'classes':>8} {'crossings':>10}   recorded")
    for name, found in traces.items():
        now, before = found.figures, recorded.get(name)
        last = "none" if before is None else f"{before.files} {before.classes} {before.crossings}"
        print(f"{name:16} {now.files:6} {now.classes:8} {now.crossings:10}   {last}")
        if name == options.files:
            print("".join(f"    {file}\n" for file in found.files), end="")
    _print_deciders()
    measured = {name: found.figures for name, found in traces.items()}
    if options.record:
        record_table(measured)
        return 0
    growth = find_growth(recorded, measured)
    print("".join(f"{sentence}\n" for sentence in growth), end="", file=sys.stderr)
    return 1 if growth else 0


def _print_deciders() -> None:
    print(f"\n{'header':20} {'decided in':>10}")
    for header in DECIDED:
        modules = deciders(header)
        print(f"{header:20} {len(modules):10}  {' '.join(modules)}")


if __name__ == "__main__":
    sys.exit(main())
