"""`python -m tools.complete LOG`: whether a log of `make test` shows all tests, and only skips that are permitted."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: A run that selects fewer tests has lost some.
FLOOR: Final = 6_000
#: Reasons for which a test may be skipped in CI, as regular expressions.
PERMITTED: Final[tuple[str, ...]] = ()
_PASSED: Final = re.compile(r"\b([0-9]+) passed\b")
_SKIPPED: Final = re.compile(r"^SKIPPED \[[0-9]+\] (\S+): (.*)$", re.MULTILINE)


def find_missing(log: str) -> Iterator[str]:
    """What a run of the tests lacks, each as a sentence."""
    passed = sum(int(number) for number in _PASSED.findall(log))
    if passed < FLOOR:
        yield f"{passed} tests passed; {FLOOR} are the floor (tools/complete.py)."
    for place, reason in _SKIPPED.findall(log):
        if not any(re.search(permitted, reason) for permitted in PERMITTED):
            yield f"{place} was skipped: {reason}"


def main() -> int:
    """Print what is missing. Returns 1 if anything is."""
    missing = list(find_missing(Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace")))
    print("\n".join(missing) or "No test is missing.")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
