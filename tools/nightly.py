"""`python -m tools.nightly [PART …]`: what is too dear for every change. Writes build/nightly/COMMIT.json.

With `--changed`, only the parts that belong to what changed since a base (see `tools/changes.py`); with `--seconds N`,
only those of them that fit; with `--jobs N`, N at a time of the parts that may run beside others. Exit status 1 if a
part fails.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from doi_proxy.system.version import VERSION
from tools.changes import ROOT, find_base, list_changes, run_git

FOLDER: Final = ROOT / "build" / "nightly"
#: Lines of the summary of pytest.
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_SKIPPED: Final = re.compile(r"^SKIPPED .*", re.MULTILINE)
_PACKAGING: Final = ("pyproject.toml", "requirements/*", "packaging/*")


class Part(NamedTuple):
    """A part of the night."""

    #: On two idle cores.
    seconds: int
    #: Patterns of paths. A change of one calls for the part, as does a change of its tests.
    changed: tuple[str, ...] = ()
    #: Folders and files. Their tests with the marker `nightly` belong to the part.
    tests: tuple[str, ...] = ()
    #: What is run in place of tests. SEED stands for a new number. make would pass on the ARGS of `make nightly`.
    command: tuple[str, ...] = ()
    #: Whether it may run beside others: it measures no time, and shares no file with another part.
    beside: bool = False

    def belongs_to(self, path: str) -> bool:
        """Whether a change of a path calls for this part."""
        return path.startswith(self.tests) or any(fnmatchcase(path, pattern) for pattern in self.changed)


def _run_tests(marker: str, *arguments: str) -> tuple[str, ...]:
    # More than half of the time, these tests wait for a process.
    return (sys.executable, "-m", "pytest", "-q", "--forks", "4", "-rfEs", "-m", marker, *arguments)


#: What runs on every Python, and in any order.
_PLAIN: Final = "not process and not repository and not simulation and not kit and not nightly"

PARTS: Final[dict[str, Part]] = {
    "clusters": Part(
        240,
        (
            "app/doi_proxy/server/*",
            "app/doi_proxy/commands/*",
            "app/doi_proxy/features/sqlite/*",
            "app/doi_proxy/features/valkey/*",
        ),
        ("tests/cluster",),
    ),
    "stores": Part(
        180, ("app/doi_proxy/cache/*", "app/doi_proxy/features/valkey/*"), ("tests/cache", "tests/features/valkey")
    ),
    "fronts": Part(
        180,
        ("config/nginx/*", "config/apache/*", "config/caddy/*", "app/doi_proxy/features/setup/*"),
        ("tests/test_front_proxies.py", "tests/features/setup"),
    ),
    "browsers": Part(240, ("app/*.html", "app/*.css", "app/doi_proxy/web/texts/*"), ("tests/browser",)),
    "clients": Part(
        240,
        ("app/doi_proxy/features/openapi/*", "requirements/clients.lock", "requirements/openapi.lock"),
        ("tests/clients", "tests/features/openapi/clients"),
    ),
    "hostile": Part(300, ("app/doi_proxy/server/*",), ("tests/hostile", "tests/test_regular_expressions.py")),
    "kubernetes": Part(
        90,
        ("config/kubernetes/*", "config/helm/*", "requirements/helm.lock"),
        ("tests/test_kubernetes.py", "tests/helm"),
    ),
    "debian": Part(
        400,
        ("docs/operations.md", "config/systemd/*", "config/ansible/*", "config/apparmor/*", *_PACKAGING),
        (
            "tests/test_ansible.py",
            "tests/test_debian_package.py",
            "tests/test_packaging.py",
            "tests/test_release.py",
        ),
    ),
    # A candidate of the version line: its artefacts are built twice and compared.
    "release": Part(
        240,
        ("tools/release/*", "Makefile", "Dockerfile", "docs/conf.py", *_PACKAGING),
        command=("make", "release", f"VERSION={VERSION.removesuffix('.dev')}rc1", "NIGHTLY=skip", "ARGS="),
    ),
    # The image in dist/, if there is one.
    "image": Part(240, ("Dockerfile", ".dockerignore", *_PACKAGING), ("tests/test_image.py",)),
    "tutorial": Part(120, ("docs/tutorial.md",), ("tests/test_tutorial.py",)),
    "benchmarks": Part(240, ("bench/*",), ("bench/tests",)),
    # The tests with the marker `nightly` that no part above has.
    "others": Part(300),
    # Fifty examples of each property in place of ten.
    "examples": Part(
        400,
        command=("env", "HYPOTHESIS_PROFILE=thorough", *_run_tests("hypothesis and not process and not repository")),
        beside=True,
    ),
    "removable": Part(
        900,
        ("app/doi_proxy/assembly/features.py", "tools/removable.py"),
        command=("make", "removable", "ARGS="),
        beside=True,
    ),
    "simulation": Part(600, command=("make", "simulate", "MINUTES=10", "ARGS="), beside=True),
    "fuzz": Part(600, ("tools/fuzz/*",), command=("make", "fuzz", "FUZZ_SECONDS=600", "ARGS="), beside=True),
    "mutants": Part(2_000, command=("make", "mutants", "MUTANTS=100", "SEED=SEED", "ARGS=--least 0.9"), beside=True),
    "calls": Part(1_500, command=(sys.executable, "-m", "tests.simulation.nth_call"), beside=True),
    "pythons": Part(900, command=("make", "pythons", f"ARGS=-m '{_PLAIN}'"), beside=True),
    "order": Part(400, command=(*_run_tests(_PLAIN), "--shuffle", "SEED"), beside=True),
}


def build_command(name: str, seed: int) -> list[str]:
    """The command of a part, with a seed."""
    part = PARTS[name]
    if part.command:
        return [re.sub(r"\bSEED$", str(seed), word) for word in part.command]
    if part.tests:
        return [*_run_tests("nightly", *part.tests)]
    others = [f"--ignore={path}" for other in PARTS.values() for path in other.tests]
    return [*_run_tests("nightly", *others)]


def choose(changes: Iterable[str]) -> list[str]:
    """The parts that belong to changed paths."""
    paths = list(changes)
    return [name for name, part in PARTS.items() if any(map(part.belongs_to, paths))]


def run_part(name: str, seed: int) -> dict[str, Any]:
    """Run a part, with its output in build/nightly/NAME.log. Returns what the record says of it."""
    command, log, began = build_command(name, seed), FOLDER / f"{name}.log", time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    text = log.read_text(encoding="utf-8", errors="replace")
    # After a failure, the last lines are those of make.
    lines = [line for line in text.splitlines() if line and not line.startswith("make")]
    return {
        "result": "ok" if done.returncode == 0 else "failed",
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began),
        "command": " ".join(command),
        "summary": lines[-1] if lines else "",
        "failed": _FAILED.findall(text),
        "skipped": _SKIPPED.findall(text),
    }


def find_record() -> Path:
    """The record of this commit. Uncommitted changes have one of their own: it says nothing of the commit."""
    changes = "+changes" if run_git("status", "--porcelain").strip() else ""
    return FOLDER / f"{run_git('rev-parse', 'HEAD').strip()}{changes}.json"


def write_record(path: Path, parts: dict[str, dict[str, Any]]) -> None:
    """Add parts to a record. It lists those that have not run for its commit as well."""
    with _lock(path.parent):
        known = json.loads(path.read_text(encoding="utf-8"))["parts"] if path.exists() else {}
        known = {name: {"result": "not run"} for name in PARTS} | known | parts
        failed = [name for name, part in known.items() if part["result"] == "failed"]
        missing = [name for name, part in known.items() if part["result"] == "not run"]
        record = {"commit": path.stem, "failed": failed, "not_run": missing, "parts": known}
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keep other threads and other runs of the night from a folder. Closing the folder ends the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def main() -> int:
    """Run the parts, and record each when it ends."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.nightly", description="Run what is too dear for every change."
    )
    parser.add_argument("part", nargs="*", help=f"what to run (default: all): {', '.join(PARTS)}")
    parser.add_argument("--changed", action="store_true", help="only the parts that belong to what changed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="leave out parts that do not fit")
    parser.add_argument("--jobs", type=int, default=1, help="parts at a time, of those that may run beside others")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error("--jobs needs at least 1")
    if unknown := set(options.part) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    base = find_base()
    names = options.part or (choose(list_changes(base)) if options.changed else list(PARTS))
    if options.changed:
        print(f"nightly: parts that belong to the changes since {base}: {', '.join(names) or 'none'}", flush=True)
    ends, seed = time.monotonic() + options.seconds, int(time.time())
    FOLDER.mkdir(parents=True, exist_ok=True)
    record = find_record()

    def run(name: str) -> bool:
        return _run_and_record(name, seed, ends, record)

    failed: list[bool] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for beside, group in groupby(names, key=lambda name: PARTS[name].beside):
            run_each = pool.map if beside else map
            failed += run_each(run, group)
    return 1 if any(failed) else 0


def _run_and_record(name: str, seed: int, ends: float, record: Path) -> bool:
    """Run a part if it fits, and print and record its result. Returns whether it failed."""
    if time.monotonic() + PARTS[name].seconds > ends:
        print(f"{name:12} left to make nightly: its {PARTS[name].seconds} s do not fit", flush=True)
        return False
    result = run_part(name, seed)
    write_record(record, {name: result})
    print(f"{name:12} {result['result']:7} {result['seconds']:5} s", *result["failed"], sep="\n    ", flush=True)
    if result["result"] == "ok":
        return False
    print(f"    its output is in {FOLDER / name}.log", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
