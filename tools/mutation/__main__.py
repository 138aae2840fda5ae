"""`python -m tools.mutation [--mutants N] [--seed N] [--least SHARE] [FOLDER …]`: do the tests notice changed code?

Each mutant is one changed operator, constant or branch in a function. The in-process tests are collected once, and each
of their files runs in a fork that notes which tests enter the statement of each mutant. Then each mutant is put into
another fork, and the tests that enter it run there until one fails: those of the mirrored folder first, and of them the
cheapest. After `make near ARGS=--all`, files of tests that enter no changed module are left out from the start. A test
that fails by itself in a fork without the mutant does not count. Exit status 1 if a mutant survives that equivalent.txt
does not list, or if a test fails without a change. With `--least SHARE`, survivors are allowed while the tests notice
that share of the mutants that they enter: a new draw of a large program always has some.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import os
import random
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

import pytest

from tools.mutation.forks import run_apart
from tools.mutation.mutants import NOTE, Mutant, build_mutant, compile_notes, count_mutants
from tools.mutation.swap import find_functions, list_swaps, swap
from tools.near.notes import read_notes

#: Lines `path: before -> after: reason`.
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")
#: A test may take this many times as long as without a change, and this many seconds more.
_SLOWER, _EXTRA_SECONDS = 10, 20
#: Seconds for the tests of a file, without a change.
_FILE_SECONDS: Final = 900
#: What these tests use. Without the other installed plugins, pytest starts in 2.0 instead of 5.3 s of CPU.
_PLUGINS: Final = ("-p", "anyio", "-p", "_hypothesis_pytestplugin")
_IN_PROCESS: Final = "not process and not repository and not simulation and not nightly"
#: Address space of each process, in bytes: a mutant may allocate without end.
_MEMORY: Final = 8 << 30

Swaps = list[tuple[FunctionType, CodeType]]


class Drawn(NamedTuple):
    """A mutant, the path of its module below the root, and its number there."""

    path: str
    number: int
    mutant: Mutant

    def __str__(self) -> str:
        return f"{self.path}:{self.mutant.line} {self.mutant.before} -> {self.mutant.after}"


class Noted(NamedTuple):
    """What a test took, whether it failed, and the mutants whose statements it entered, without a change."""

    cpu_seconds: float
    seconds: float
    failed: bool
    entered: list[int]


class Trials:
    """A plugin of pytest that runs the collected tests against mutants."""

    def __init__(self, root: Path, mutants: Sequence[Drawn], jobs: int) -> None:
        self._root = root
        self._mutants = mutants
        self._jobs = jobs
        self._session: pytest.Session
        self._noted: dict[int, Noted] = {}
        self.failed: list[str] = []
        self.survivors: list[str] = []
        self.unentered: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Note what the tests enter, then try the mutants."""
        if session.testsfailed:
            raise session.Interrupted("a file cannot be collected")
        self._session = session
        self._leave_out_far_files()
        functions = self._find_functions()
        started = time.monotonic()
        self._note_tests(functions)
        print(f"mutants: noted {len(self._noted)} tests in {time.monotonic() - started:.0f} s", flush=True)
        tasks = [partial(self._try, drawn, name, functions) for name, drawn in enumerate(self._mutants)]
        for name, survived in run_apart(tasks, self._jobs):
            if survived:
                tests = len(self._list_covering(name))
                (self.survivors if tests else self.unentered).append(str(self._mutants[name]))
                print(f"{self._mutants[name]}  (in-process tests tried: {tests})", flush=True)
        return True

    def _leave_out_far_files(self) -> None:
        """Leave out the files of tests whose notes of `make near` have no function of a changed module."""
        modules, notes = {drawn.path for drawn in self._mutants}, read_notes(self._root)
        far = {
            self._root / file
            for file, noted in notes.items()
            if modules.isdisjoint(function.partition(":")[0] for function in noted.functions)
        }
        self._session.items[:] = [item for item in self._session.items if item.path not in far]

    def _find_functions(self) -> dict[str, list[FunctionType]]:
        paths = {drawn.path for drawn in self._mutants}
        for path in sorted(paths):
            name = path.removeprefix("app/").removesuffix(".py").replace("/", ".")
            importlib.import_module(name.removesuffix(".__init__"))
        return find_functions({str(self._root / path) for path in paths})

    def _note_tests(self, functions: Mapping[str, list[FunctionType]]) -> None:
        numbers: dict[str, dict[int, int]] = defaultdict(dict)
        for name, drawn in enumerate(self._mutants):
            numbers[drawn.path][drawn.number] = name
        swaps: Swaps = []
        for path, names in numbers.items():
            file = self._root / path
            code = compile_notes(file.read_text(encoding="utf-8"), str(file), names)
            swaps += list_swaps(functions[str(file)], code)
        files: dict[Path, list[int]] = defaultdict(list)
        for place, item in enumerate(self._session.items):
            files[item.path].append(place)
        groups = list(files.values())
        for number, rows in run_apart([partial(self._note_file, group, swaps) for group in groups], self._jobs):
            if rows is None:
                self.failed.append(f"{self._session.items[groups[number][0]].path}: the process ended")
                continue
            self._noted |= {place: Noted(*row) for place, row in zip(groups[number], rows, strict=True)}
        self.failed += [self._session.items[place].nodeid for place, noted in self._noted.items() if noted.failed]

    def _note_file(self, places: Sequence[int], swaps: Swaps) -> list[Noted]:
        entered: set[int] = set()
        setattr(builtins, NOTE, entered.add)
        self._begin(swaps)
        signal.alarm(_FILE_SECONDS)
        rows = []
        for place, following in zip(places, [*places[1:], None], strict=True):
            entered.clear()
            cpu, clock = time.process_time(), time.monotonic()
            failed = self._fails(place, following)
            rows.append(Noted(time.process_time() - cpu, time.monotonic() - clock, failed, sorted(entered)))
        return rows

    def _list_covering(self, name: int) -> list[int]:
        """The tests that enter a mutant: first those of the folder that mirrors its own, and the cheapest of them.

        A statement that one test of a file enters may run once in a process, for all tests of the file: it fills a
        cache or belongs to a fixture. So the others of the file are tried after all.
        """
        entering = [place for place, noted in self._noted.items() if name in noted.entered and not noted.failed]
        files: dict[Path, list[int]] = defaultdict(list)
        for place in entering:
            files[self._session.items[place].path].append(place)
        alone = {path for path, places in files.items() if len(places) == 1}
        others = [
            place
            for place, noted in self._noted.items()
            if self._session.items[place].path in alone and place not in entering and not noted.failed
        ]
        folder = self._root / Path("tests", *Path(self._mutants[name].path).parent.parts[1:])

        def cost(place: int) -> tuple[bool, float]:
            return not self._session.items[place].path.is_relative_to(folder), self._noted[place].cpu_seconds

        return [*sorted(entering, key=cost), *sorted(others, key=cost)]

    def _try(self, drawn: Drawn, name: int, functions: Mapping[str, list[FunctionType]]) -> bool:
        """Whether no test notices a mutant."""
        file = str(self._root / drawn.path)
        code = compile(drawn.mutant.tree, file, "exec", dont_inherit=True)
        swaps = list_swaps(functions[file], code)
        places = self._list_covering(name)
        while places:
            left = self._run(places, swaps)
            if left is None:
                return False  # the process ended: it hung, or used too much memory
            if not left:
                return True
            if self._run(left[:1], []) == []:
                return False
            places = left[1:]  # that test fails by itself
        return True

    def _run(self, places: list[int], swaps: Swaps) -> list[int] | None:
        """Run tests in a fork until one fails. Returns that one and those after it. None if the process ended."""
        [(_, left)] = run_apart([partial(self._run_here, places, swaps)])
        return left if left is None else places[len(places) - left :] if left else []

    def _run_here(self, places: list[int], swaps: Swaps) -> int:
        self._begin(swaps)
        for number, place in enumerate(places):
            following = places[number + 1] if number + 1 < len(places) else None
            signal.alarm(int(self._noted[place].seconds * _SLOWER) + _EXTRA_SECONDS)
            if self._fails(place, following):
                return len(places) - number
        return 0

    def _begin(self, swaps: Swaps) -> None:
        self._session.config.pluginmanager.unregister(name="terminalreporter")  # it writes to the terminal itself
        swap(swaps)

    def _fails(self, place: int, following: int | None) -> bool:
        item, before = self._session.items[place], self._session.testsfailed
        following_item = None if following is None else self._session.items[following]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following_item)
        return self._session.testsfailed > before


def main() -> int:
    """Try the mutants and print those that no test noticed."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description="Do tests notice changed code?")
    parser.add_argument("folder", nargs="*", default=["app"], help="folders with the changed modules (default: app)")
    parser.add_argument("--mutants", type=int, default=60, help="how many (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="which mutants are drawn (default 1)")
    parser.add_argument(
        "--tests", nargs="+", default=[], metavar="PATH", help="only tests of these paths (default: all)"
    )
    parser.add_argument("--least", type=float, default=1.0, metavar="SHARE", help="share to notice (default 1.0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a processor)")
    options = parser.parse_args()
    root = Path.cwd()
    if missing := [folder for folder in options.folder if not (root / folder).is_dir()]:
        parser.error(f"{root} has no folder {', '.join(missing)}")
    started = time.monotonic()
    drawn = draw_mutants(root, options.folder, options.mutants, options.seed)
    trials = Trials(root, drawn, options.jobs)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.environ |= {"CI": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    arguments: list[Any] = ["-q", "-p", "no:cacheprovider", *_PLUGINS, "-m", _IN_PROCESS, *options.tests]
    status = pytest.main(arguments, plugins=[trials])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return 1
    for name in trials.failed:
        print(f"mutants: fails without a change: {name}")
    entered, seconds = len(drawn) - len(trials.unentered), time.monotonic() - started
    noticed = entered - len(trials.survivors)
    share = noticed / entered if entered else 1.0
    print(
        f"mutants: tests noticed {noticed} of {entered} ({share:.1%}, at least {options.least:.0%}) in {seconds:.0f} s;"
        f" no in-process test enters {len(trials.unentered)} more"
    )
    return 1 if share < options.least or trials.failed else 0


def draw_mutants(root: Path, folders: Sequence[str], number: int, seed: int) -> list[Drawn]:
    """Draw mutants that are not listed as equivalent. The same seed and the same code give the same mutants."""
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    sources = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    places = [(path, place) for path, source in sources.items() for place in range(count_mutants(source))]
    equivalent = _EQUIVALENT.read_text(encoding="utf-8")
    drawn: list[Drawn] = []
    random.Random(seed).shuffle(places)
    for path, place in places:
        if len(drawn) == number:
            break
        mutant = build_mutant(sources[path], place)
        if f"{path}: {mutant.before} -> {mutant.after}: " not in equivalent:
            drawn.append(Drawn(path, place, mutant))
    return drawn


if __name__ == "__main__":
    sys.exit(main())
