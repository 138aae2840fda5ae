"""Which functions of app/ each in-process test enters, in a file in build/near/ for each file of tests."""

from __future__ import annotations

import builtins
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tools.changes import ROOT
from tools.mutation.swap import find_functions, list_swaps, swap
from tools.near.functions import NOTE, compile_notes

FOLDER: Final = ROOT / "build" / "near"


class Noted(NamedTuple):
    """What the tests of a file enter."""

    #: The digest of the file of tests that was noted.
    content: str
    #: As `app/x.py:name`.
    functions: list[str]
    #: By the id of a test, its seconds of processor time, and the places of its functions in that list.
    tests: dict[str, tuple[float, list[int]]]

    def find_tests(self, functions: frozenset[str]) -> dict[str, float]:
        """The tests that enter one of these functions, with their seconds.

        What one test of a file enters may run once for all of them: it fills a cache or belongs to a fixture. It
        stands for all tests of the file.
        """
        wanted = {place for place, name in enumerate(self.functions) if name in functions}
        counts = Counter(place for _, entered in self.tests.values() for place in entered)
        if any(counts[place] == 1 for place in wanted):
            return {test: seconds for test, (seconds, _) in self.tests.items()}
        return {test: seconds for test, (seconds, entered) in self.tests.items() if not wanted.isdisjoint(entered)}


def digest(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_notes(root: Path = ROOT) -> dict[str, Noted]:
    """The notes, by the path of the file of tests. Those of a file that has changed since are left out."""
    found = {}
    folder = root / FOLDER.relative_to(ROOT)
    for path in folder.rglob("*.json"):
        tests = path.relative_to(folder).with_suffix(".py")
        if (root / tests).exists():
            noted = Noted(**json.loads(path.read_text(encoding="utf-8")))
            if noted.content == digest(root / tests):
                found[tests.as_posix()] = noted
    return found


class Noter:
    """A plugin of pytest that notes what each test enters."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._entered: set[int] = set()
        self._tests: dict[str, tuple[float, list[str]]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Give the functions of all modules that are imported code that notes them."""
        files = {
            str(path)
            for module in list(sys.modules.values())
            if (path := Path(getattr(module, "__file__", None) or "/")).is_relative_to(ROOT / "app")
        }
        setattr(builtins, NOTE, self._entered.add)
        for file, functions in find_functions(files).items():
            path = Path(file)
            swap(list_swaps(functions, compile_notes(path.read_text("utf-8"), file, self._counter(path))))

    def _counter(self, path: Path) -> Any:
        place = path.relative_to(ROOT).as_posix()

        def number(name: str) -> int:
            self._names.append(f"{place}:{name}")
            return len(self._names) - 1

        return number

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
        """Note a test, and write the notes of a file after its last test."""
        self._entered.clear()
        began = time.process_time()
        result = yield
        names = sorted({self._names[number] for number in self._entered})
        self._tests[item.nodeid] = (round(time.process_time() - began, 3), names)
        if nextitem is None or nextitem.path != item.path:
            self._write(item.path)
            self._tests = {}
        return result

    def _write(self, tests: Path) -> None:
        functions = sorted({name for _, names in self._tests.values() for name in names})
        places = {name: place for place, name in enumerate(functions)}
        rows = {test: (seconds, [places[name] for name in names]) for test, (seconds, names) in self._tests.items()}
        path = FOLDER / tests.relative_to(ROOT).with_suffix(".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(Noted(digest(tests), functions, rows)._asdict()), encoding="utf-8")
