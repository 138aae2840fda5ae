"""`python -m tools.audit`: compare the locked versions with advisories, and list the licences of the locked packages.

Exit status 1 if an advisory concerns a locked version, or if a package of the program has a licence that is not one of
`_PERMITTED`. A list of advisories that cannot be reached is named, and is not a failure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_TOOLS: Final = _ROOT / "build/audit/bin"
#: dev.lock has the packages of runtime.lock and build.lock too.
_LOCKS: Final = ("dev.lock", "clients.lock", "openapi.lock", "helm.lock", "audit.lock", "uv.lock")
_ENVIRONMENTS: Final = (".venv", "build/clients", "build/openapi", "build/helm", "build/audit")
#: Seconds for one lock, whose packages are looked up one after the other.
_TIMEOUT: Final = 120.0
#: Licences that the program may depend on, by words of their names. Each permits use beside Apache-2.0.
_PERMITTED: Final = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|Zope|ZPL|MPL|Mozilla|0BSD|CC0", re.IGNORECASE
)
_NOT_PERMITTED: Final = re.compile(r"GPL|General Public")
_LOCKED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def main() -> int:
    """Print what is known. Returns the exit status."""
    known = [_audit(lock) for lock in _LOCKS]
    packages = sum(len(_read(lock)) for lock in _LOCKS)
    print(summarise(sum(compared for compared, _ in known), packages, date.today()))
    refused = _list_licences()
    return 1 if refused or any(found for _, found in known) else 0


def summarise(compared: int, packages: int, day: date) -> str:
    """What is known, and what is not. No list is shipped: one of another day would call a vulnerable version safe."""
    if not compared:
        return "No list of advisories can be reached from here: nothing is known about the locked versions."
    known = f"{compared} of {packages} locked packages were compared with the advisories of {day.isoformat()}"
    return f"{known}." if compared == packages else f"{known}; nothing is known about the others."


# --- Advisories ---------------------------------------------------------------------------------------------------


def _audit(lock: str) -> tuple[int, list[str]]:
    """The number of packages of a lock that were compared, and the advisories."""
    command = [str(_TOOLS / "pip-audit"), "--requirement", f"requirements/{lock}", "--no-deps", "--disable-pip"]
    options = ["--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(
            [*command, *options], check=False, cwd=_ROOT, capture_output=True, text=True, timeout=_TIMEOUT
        )
        report = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        report = {"dependencies": []}
    compared, found = read_advisories(report)
    print(f"{lock}: {compared} of {len(_read(lock))} packages compared with advisories, {len(found)} found")
    for line in found:
        print(f"  {line}")
    return compared, found


def read_advisories(report: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The number of packages that a report of pip-audit compared, and a line for each advisory."""
    compared = [package for package in report["dependencies"] if "vulns" in package]
    found = [
        f"{package['name']} {package['version']}: {each['id']}, fixed in {', '.join(each['fix_versions']) or 'none'}"
        for package in compared
        for each in package["vulns"]
    ]
    return len(compared), found


# --- Licences -----------------------------------------------------------------------------------------------------


def _list_licences() -> list[str]:
    """Print the licence of each locked package. Returns those of the program that are not permitted."""
    licences: dict[str, str] = {}
    for environment in _ENVIRONMENTS:
        python = _ROOT / environment / "bin/python"
        if python.exists():
            command = [str(_TOOLS / "pip-licenses"), "--python", str(python), "--from", "mixed", "--format", "json"]
            done = subprocess.run([*command, "--with-system"], check=True, cwd=_ROOT, capture_output=True, text=True)
            licences = {to_name(each["Name"]): each["License"] for each in json.loads(done.stdout)} | licences
    locked: dict[str, str] = {}
    for lock in _LOCKS:
        locked |= _read(lock)
    for name in sorted(locked):
        print(f"{name:36}{locked[name]:18}{licences.get(name, 'not installed here')}")
    runtime = _read("runtime.lock")
    refused = find_refused(runtime, licences)
    for line in refused:
        print(f"NOT PERMITTED for the program: {line}")
    return refused


def find_refused(packages: Iterable[str], licences: Mapping[str, str]) -> list[str]:
    """The packages whose licence is unknown, or not permitted. A package that is not installed is left out."""
    return [
        f"{name}: {licences[name]}"
        for name in sorted(packages)
        if name in licences and (_NOT_PERMITTED.search(licences[name]) or not _PERMITTED.search(licences[name]))
    ]


def _read(lock: str) -> dict[str, str]:
    return read_lock((_ROOT / "requirements" / lock).read_text("utf-8"))


def read_lock(text: str) -> dict[str, str]:
    """The packages of a lock with their versions."""
    return {to_name(name): version for name, version in _LOCKED.findall(text)}


def to_name(name: str) -> str:
    """The normalised name of a package (PyPA specifications, Names and normalization)."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
