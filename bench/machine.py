"""The machine of a run, and the cores of servers and load generators."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import psutil

#: Packages whose versions affect the results.
PACKAGES: Final = ("uvicorn", "uvloop", "httptools", "starlette", "fastapi", "msgspec", "httpx", "cachetools")
#: A higher load (runnable processes) per core disturbs a measurement.
_BUSY: Final = 0.3
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of servers and of the load generator."""

    server: tuple[int, ...]
    load: tuple[int, ...]

    @property
    def apart(self) -> bool:
        """Whether server and load generator have separate cores."""
        return not set(self.server) & set(self.load)


def share_out(available: set[int]) -> Cores:
    """The first core is for the server, the last one for the load generator."""
    ordered = sorted(available)
    return Cores((ordered[0],), (ordered[-1],))


def cores() -> Cores:
    """Divide the cores of this process."""
    return share_out(os.sched_getaffinity(0))


def pinned(command: list[str], to: tuple[int, ...]) -> list[str]:
    """A command that runs only on these cores."""
    return ["taskset", "--cpu-list", ",".join(map(str, to)), *command]


def describe() -> list[tuple[str, str]]:
    """Facts about machine and software, as label and value."""
    shared = cores()
    facts = [
        ("processor", f"{_processor()}, {os.cpu_count()} cores"),
        ("pinning", _pinning(shared)),
        ("memory", f"{psutil.virtual_memory().total / 2**30:.0f} GiB"),
        ("load before the run", _busy(os.getloadavg()[0])),
        ("system", f"{platform.system()} {platform.release()}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}, SQLite {sqlite3.sqlite_version}"),
        ("packages", ", ".join(f"{name} {_installed(name)}" for name in PACKAGES)),
        ("tools", ", ".join(f"{name} {_tool_version(name, *flags)}" for name, flags in _TOOLS.items())),
    ]
    return facts


_TOOLS: Final = {
    "wrk": ("--version",),
    "h2load": ("--version",),
    "nginx": ("-v",),
    "valgrind": ("--version",),
}


def _busy(load: float) -> str:
    is_busy = load > _BUSY * (os.cpu_count() or 1)
    return f"{load:.2f}" + (": the machine was busy, rates are too low and latencies too high" if is_busy else "")


def _pinning(shared: Cores) -> str:
    if not shared.apart:
        return "one core for both server and load generator: the numbers are too low and noisy"
    return f"server on core {shared.server[0]}, load generator and stand-in on core {shared.load[0]}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _tool_version(name: str, *flags: str) -> str:
    try:
        done = subprocess.run([name, *flags], capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return "absent"
    found = _VERSION.search(done.stdout + done.stderr)
    return found[0] if found else "?"
