"""`python -m bench [PART …]` measures and prints.

A run of all parts writes bench/RESULTS.md, and renews the chart and the tables of the manual that come from it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Final

from bench import machine
from bench.documents import renew_pages
from bench.findings import Section
from bench.names import MAX_NAMES, read_names, synthetic
from bench.plan import LARGE, ROUNDS, ZIPF_EXPONENT, Plan
from bench.progress import Progress, continue_run
from bench.report import write_report, write_section
from bench.rows import ROWS
from bench.tools import NotMeasured
from doi_proxy.system.version import read_version

_HERE: Final = Path(__file__).parent
#: The module and the function that measure each part.
_PARTS: Final = {
    "throughput": ("bench.throughput", "throughput"),
    "latency": ("bench.throughput", "latency"),
    "service": ("bench.service", "service"),
    "cold": ("bench.cold", "cold"),
    "native": ("bench.native", "native"),
    "units": ("bench.units", "units"),
    "memory": ("bench.memory", "memory"),
    "startup": ("bench.startup", "startup"),
    "bundle": ("bench.bundle", "bundle"),
    "batch": ("bench.batch", "batch"),
    "failover": ("bench.failover", "failover"),
    "scale": ("bench.scale", "scale"),
    "spike": ("bench.spike", "spike"),
    "connections": ("bench.connections", "connections"),
    "large": ("bench.large_store", "large_store"),
}
#: Throughput includes latency.
_WHOLE: Final = tuple(part for part in _PARTS if part != "latency")
#: The sections of a run of all parts so far.
_RUN: Final = "RESULTS.json"
_MAX_REASON: Final = 300

Measurement = Callable[[Plan], tuple[Section, ...]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen parts. Returns the exit status."""
    chosen = _parser().parse_args(arguments)
    # The report of a single part goes into a folder of its own. It must not replace the results of a whole run.
    work = _HERE / ".work"
    work.mkdir(exist_ok=True)
    whole = "all" in chosen.part
    if chosen.is_continued and not whole:
        raise SystemExit("bench: --continue is for a run of all parts; name no part")
    plan = _plan(chosen, work)
    names = ("names", f"{len(plan.names):,}, {plan.names_from}")
    facts = (("doi-proxy", read_version()), *machine.describe(), names)
    run = Progress(datetime.now(UTC).strftime("%Y-%m-%d"), facts, {})
    if chosen.is_continued:
        run = continue_run(work / _RUN, facts)
    for part in _WHOLE if whole else chosen.part:
        if part not in run.parts:
            run.parts[part] = _measure(part, plan)
            if whole:
                run.keep(work / _RUN)
    _write(_HERE if whole else work, run)
    if whole:
        renew_pages()
        (work / _RUN).unlink(missing_ok=True)
    _tidy(work)
    return 0


def _tidy(work: Path) -> None:
    """Delete all files but the large store, which the next run uses, the last report, and a run that was stopped."""
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith((LARGE, "RESULTS")):
            path.unlink()


def _measure(part: str, plan: Plan) -> tuple[Section, ...]:
    began = time.monotonic()
    print(f"# {part} …", file=sys.stderr, flush=True)
    module, function = _PARTS[part]
    measure: Measurement = getattr(import_module(module), function)
    try:
        sections = measure(plan)
    except NotMeasured as reason:
        sections = (_empty_section(part, str(reason)),)
    except Exception as error:  # one part that fails must not cost the results of the others
        traceback.print_exc()
        sections = (_empty_section(part, f"failed: {type(error).__name__}: {error}"[:_MAX_REASON]),)
    for section in sections:
        print(write_section(section), flush=True)
    print(f"# {part}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return sections


def _empty_section(part: str, reason: str) -> Section:
    return Section(part.capitalize(), "Nothing was measured.", not_measured=(reason,))


def _write(folder: Path, run: Progress) -> None:
    report = write_report(run.date, run.facts, list(chain.from_iterable(run.parts.values())))
    (folder / "RESULTS.md").write_text(report, encoding="utf-8")
    print(f"# written: {(folder / 'RESULTS.md').relative_to(_HERE.parent)}", file=sys.stderr)


def _plan(chosen: argparse.Namespace, work: Path) -> Plan:
    names = synthetic(MAX_NAMES) if chosen.names is None else read_names(chosen.names)
    if not names:
        raise SystemExit(f"bench: {chosen.names} has no DOI name; it needs one a line")
    return Plan(
        seconds=chosen.seconds,
        rounds=chosen.rounds,
        names=tuple(names),
        names_from="generated" if chosen.names is None else "from a list of real ones",
        folder=work,
        cores=machine.cores(),
        batch_sizes=tuple(chosen.batch_sizes),
        zipf_exponent=chosen.zipf_exponent,
        records=chosen.records,
        spike_records=chosen.spike_records,
        rows=tuple(chosen.row),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure doi-proxy on this machine.")
    parser.add_argument(
        "part", nargs="*", default="all", choices=["all", *_PARTS], help="what to measure (default: all)"
    )
    parser.add_argument(
        "--continue",
        dest="is_continued",
        action="store_true",
        help="measure the parts that are left of a run of all parts that was stopped",
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of each load in each round (default 1)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each load (default {ROUNDS})")
    parser.add_argument(
        "--batch-sizes",
        type=int,
        nargs="+",
        default=[1_000, 20_000],
        metavar="LINES",
        help="lines of the lists of names (default 1000 20000)",
    )
    parser.add_argument(
        "--zipf-exponent",
        type=float,
        default=ZIPF_EXPONENT,
        help=f"exponent of the popularity of names in the part scale (default {ZIPF_EXPONENT}, see docs/scale.md)",
    )
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="registry records of the large store (default 1000000)"
    )
    parser.add_argument(
        "--spike-records", type=int, default=1_000_000, help="registry names of the spike (default 1000000)"
    )
    parser.add_argument(
        "--row",
        nargs="+",
        default=[],
        choices=[row.key for row in ROWS],
        metavar="ROW",
        help="rows of the part service (default: all)",
    )
    parser.add_argument(
        "--names", type=Path, metavar="FILE", help="DOI names, one a line, also gzip (default: generated)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
