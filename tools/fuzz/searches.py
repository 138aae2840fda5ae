"""Searches that do not use atheris: random requests to a proxy, and random examples of the property tests.

Each runs for a time, and prints what repeats a finding.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.hostile.conftest import ADMIN_TOKEN, hostile_upstream, started

_ROOT: Final = Path(__file__).resolve().parents[2]
_PROPERTY_TESTS: Final = (sys.executable, "-m", "pytest", "-q", "-m", "hypothesis")


def search_requests(seconds: float) -> bool:
    """Send valid and invalid requests of random seeds. Returns whether the document describes all answers."""
    # Tests of this module do without Schemathesis, whose import takes 1.4 s of processor time.
    from schemathesis.generation import GenerationMode  # noqa: PLC0415

    from tests.hostile.documented_requests import DocumentedRequests  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as work, hostile_upstream(Path(work)) as upstream:
        proxy = started(Path(work), upstream, admin_token=ADMIN_TOKEN)
        try:
            modes = [DocumentedRequests(proxy.url, mode) for mode in GenerationMode]
            ends = time.monotonic() + seconds
            while time.monotonic() < ends and not any(mode.undocumented for mode in modes):
                number = random.randrange(2**32)
                for mode in modes:
                    mode.send_round(number, lambda: time.monotonic() >= ends)
                    if mode.undocumented:
                        print(f"seed {number}: {mode.undocumented}")
            print(f"Done: {sum(mode.sent for mode in modes)} requests")
            return not any(mode.undocumented for mode in modes)
        finally:
            proxy.process.kill()


def property_tests(folder: Path) -> list[str]:
    """The files of a folder that have tests with the marker `hypothesis`, as paths from the project's folder."""
    command = [*_PROPERTY_TESTS, "--collect-only", str(folder)]
    listed = subprocess.run(command, check=True, cwd=_ROOT, capture_output=True, text=True).stdout
    return sorted({line.partition("::")[0] for line in listed.splitlines() if "::" in line})


def search_properties(seconds: float) -> bool:
    """Run files of property tests in random order, with random examples. Returns whether all hold."""
    files = property_tests(_ROOT / "tests")
    random.shuffle(files)
    ends = time.monotonic() + seconds
    examined = 0
    for file in files:
        command = [*_PROPERTY_TESTS, file]
        done = subprocess.run(
            command,
            check=False,
            cwd=_ROOT,
            env={**os.environ, "HYPOTHESIS_PROFILE": "random"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            print(done.stdout)
            return False
        examined += 1
        if time.monotonic() >= ends:
            break
    print(f"Done: {examined} of {len(files)} files of property tests")
    return True


SEARCHES: Final[dict[str, Callable[[float], bool]]] = {
    "requests": search_requests,
    "properties": search_properties,
}
