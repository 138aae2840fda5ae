"""`python -m tools.near [--since REF]`: run the in-process tests that enter what changed since a commit (default HEAD).

`--then-others` runs the others after them. `--all` runs all of them, and notes which functions each enters. A file of
tests without notes is chosen if it lies in the folder that mirrors that of a changed module.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tools.changes import ROOT, list_changes, run_git
from tools.near.functions import find_changed
from tools.near.notes import Noted, Noter, read_notes

_IN_PROCESS: Final = (
    "-q",
    "-rs",
    "--forks",
    "2",
    "-m",
    "not process and not repository and not simulation and not nightly",
)


class Choice(NamedTuple):
    """Files of which all tests are chosen, and tests of other files, with their seconds."""

    files: frozenset[str]
    tests: dict[str, float]

    def limit(self, seconds: float) -> Choice:
        """The cheapest tests that take so many seconds together."""
        tests: dict[str, float] = {}
        for test, cost in sorted(self.tests.items(), key=lambda pair: pair[1]):
            if (seconds := seconds - cost) < 0:
                break
            tests[test] = cost
        return Choice(self.files, tests)

    def has(self, test: str) -> bool:
        """Whether a test is chosen."""
        return test in self.tests or test.partition("::")[0] in self.files


class _Chosen:
    """A plugin of pytest that leaves out what is not chosen, or runs it later."""

    def __init__(self, choice: Choice, *, then_others: bool) -> None:
        self._choice, self._then_others = choice, then_others

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._then_others:
            items.sort(key=lambda item: not self._choice.has(item.nodeid))
            return
        left_out = [item for item in items if not self._choice.has(item.nodeid)]
        items[:] = [item for item in items if self._choice.has(item.nodeid)]
        config.hook.pytest_deselected(items=left_out)


def find_functions(changes: Iterable[str], since: str) -> frozenset[str]:
    """The functions that changed, as `app/x.py:name`."""
    found: set[str] = set()
    for path in changes:
        file = ROOT / path
        if path.startswith("app/") and file.suffix == ".py" and file.exists():
            before = run_git("show", f"{since}:{path}", check=False)
            found.update(f"{path}:{name}" for name in find_changed(before, file.read_text("utf-8")))
    return frozenset(found)


def mirror(path: str) -> frozenset[str]:
    """The files of tests in the folder that mirrors that of a path of app/."""
    # tests/x/ mirrors app/doi_proxy/x/, and tests/doi_names/ mirrors app/doi_names/.
    folder = (ROOT / "tests" / path.removeprefix("app/").removeprefix("doi_proxy/")).parent
    while not folder.is_dir():
        folder = folder.parent
    is_shared = folder in (ROOT / "tests", ROOT / "tests" / "features")
    files = folder.glob("test_*.py") if is_shared else folder.rglob("test_*.py")
    return frozenset(file.relative_to(ROOT).as_posix() for file in files)


def choose(changes: list[str], functions: frozenset[str], notes: Mapping[str, Noted]) -> Choice:
    """The tests that enter these functions, the files of tests that changed, and those near them without notes."""
    files = {path for path in changes if Path(path).name.startswith("test_") and (ROOT / path).exists()}
    for path in changes:
        if path.startswith("app/"):
            is_module = any(function.startswith(f"{path}:") for function in functions)
            # A template or a table of texts is in no note.
            files |= {test for test in mirror(path) if not is_module or test not in notes}
        elif path.startswith("tests/") and path.endswith(".py") and path not in files:
            name = path.removesuffix(".py").replace("/", ".")
            files.update(run_git("grep", "-l", "--fixed-strings", name, "--", "tests/*test_*.py", check=False).split())
    tests: dict[str, float] = {}
    for file, noted in notes.items():
        if file not in files:
            tests |= noted.find_tests(functions)
    return Choice(frozenset(files), tests)


def main() -> int:
    """Choose the tests, say why, and run them."""
    parser = argparse.ArgumentParser(prog="python -m tools.near", description="Run the tests near a change.")
    parser.add_argument("--since", default="HEAD", help="the commit to compare with (default HEAD)")
    parser.add_argument("--seconds", type=float, default=60, help="processor time of the tests that enter functions")
    parser.add_argument("--then-others", action="store_true", help="run the other in-process tests after them")
    parser.add_argument("--all", action="store_true", help="run all in-process tests, and note what they enter")
    options, of_pytest = parser.parse_known_args()
    if options.all:
        return int(pytest.main([*_IN_PROCESS, *of_pytest], plugins=[Noter()]))
    changes, notes = list_changes(options.since), read_notes()
    functions = find_functions(changes, options.since)
    choice = choose(changes, functions, notes)
    chosen = choice.limit(options.seconds)
    print(f"near: {len(changes)} paths and {len(functions)} functions of app/ changed since {options.since}")
    print(f"near: {len(choice.tests)} tests enter them, {len(chosen.tests)} of them within {options.seconds:.0f} s")
    print(f"near: all tests of {len(choice.files)} files: they changed, or lie near a change and have no notes")
    if not notes:
        print("near: there are no notes; `make near ARGS=--all` runs all in-process tests and writes them")
    files = sorted({test.partition("::")[0] for test in chosen.tests} | chosen.files)
    if not files and not options.then_others:
        return 0
    sys.stdout.flush()
    chosen_files = [] if options.then_others else files
    plugin = _Chosen(chosen, then_others=options.then_others)
    status: Any = pytest.main([*_IN_PROCESS, *chosen_files, *of_pytest], plugins=[plugin])
    return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else int(status)


if __name__ == "__main__":
    sys.exit(main())
