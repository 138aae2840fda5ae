"""What a mutant is, which lines have none, and which tests it meets."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

import pytest

from tools.mutation.mutants import build_mutant, count_mutants
from tools.near.notes import Noted, digest

pytestmark = pytest.mark.repository


def changes(source: str) -> list[str]:
    """All mutants of the body of a function, each as its changed line."""
    source = "def f():\n" + textwrap.indent(source, "    ")
    return [build_mutant(source, number).after for number in range(count_mutants(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a < b <= c", ["x = a <= b <= c", "x = a < b < c"]),
        ("x = a == b", ["x = a != b"]),
        ("x = a is None", ["x = a is not None"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a + b", ["x = a - b"]),
        ("x = a // b", ["x = a * b"]),
        ("x -= a", ["x += a"]),
        ("x = a and b", ["x = a or b"]),
        ("x = not a", ["x = not not a"]),
        ("x = 1_000", ["x = 1001"]),
        ("x = 0.5", ["x = 1.5"]),
        ("x = True", ["x = False"]),
        ("x = 'key'", ["x = 'key^'"]),
        ("x = b'key'", ["x = b'key^'"]),
        ("x = a if b else c", ["x = a if True else c", "x = a if False else c"]),
        ("if a:\n    b()", ["if True:", "if False:"]),
        ("while a:\n    b()", ["while False:"]),
        ("x = [a for a in b if a]", ["x = [a for a in b]"]),
        ("f(limit=2)", ["f(limit=3)"]),
    ],
)
def test_an_operator_a_constant_or_a_branch_changes(source: str, expected: list[str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "x: Literal[1] = a",
        "def f(a: A | None) -> Literal['b']: ...",
        "@dataclass(frozen=True)\nclass A: ...",
        "T = TypeVar('T')",
        "if TYPE_CHECKING:\n    import a",
        "raise A('The name is too long.')",
        "raise A(f'no {name[:100]}'[:200])",
        "x = a | b",
        "x = a.decode('utf-8')",
    ],
)
def test_types_declarations_messages_and_encodings_have_no_mutants(source: str) -> None:
    assert changes(source) == []


@pytest.mark.parametrize("source", ["x = 1", "class A:\n    x = 1", "def f(x=1): ...", "f = lambda: 1"])
def test_what_a_module_runs_when_it_is_imported_has_no_mutants(source: str) -> None:
    assert count_mutants(source) == 0


def test_a_mutant_tells_its_line_in_the_file_and_keeps_the_rest() -> None:
    source = "# A comment.\nx = 1\n\n\ndef f():\n    return (\n        x\n        + 2\n    )\n"
    mutant = build_mutant(source, 1)
    assert (mutant.line, mutant.before, mutant.after) == (8, "return x + 2", "return x + 3")
    assert ast.dump(mutant.tree) == ast.dump(ast.parse(source.replace("2", "3")))


_INI: Final = """
[pytest]
addopts = --import-mode=importlib
pythonpath = .
markers =
    process
    repository
    simulation
    nightly
"""
_MODULE: Final = """
from functools import cache

@cache
def double(x: int) -> int:
    return x * 2

def choose(x: int) -> str:
    if x < 5:
        return "few"
    return "many"

def leave() -> int:
    return 7
"""
_TESTS: Final = """
from names.name import choose, double

def test_doubles() -> None:
    double(3)

def test_doubles_again() -> None:
    assert double(3) == 6

def test_chooses() -> None:
    assert choose(1) == "few" and choose(9) == "many"

def test_fails() -> None:
    assert choose(1) == "many"
"""


def write_notes(root: Path, tests: str, functions: list[str]) -> None:
    """A file of tests whose notes say which functions it enters. Its test fails if it is run."""
    (root / tests).parent.mkdir()
    (root / tests).write_text("def test_fails() -> None:\n    assert False\n")
    notes = (root / "build/near" / tests).with_suffix(".json")
    notes.parent.mkdir(parents=True)
    notes.write_text(json.dumps(Noted(digest(root / tests), functions, {})._asdict()))


def run_mutation(root: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Try all mutants of a small program with these tests."""
    for name, text in (("app/names/name.py", _MODULE), ("tests/test_name.py", tests), ("pytest.ini", _INI)):
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)
    (root / "app/names/__init__.py").touch()
    command = [sys.executable, "-m", "tools.mutation", "--jobs", "2", *options, "--tests", "tests"]
    paths = os.pathsep.join((str(root / "app"), str(Path(__file__).parents[2])))
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def test_each_mutant_meets_the_tests_that_enter_it(tmp_path: Path) -> None:
    write_notes(tmp_path, "tests/test_far.py", ["app/other.py:f"])
    (tmp_path / "test_left_out.py").write_text("raise AssertionError\n")
    run = run_mutation(tmp_path, _TESTS, "--least", "0.75")
    printed = sorted(line for line in run.stdout.splitlines() if "app/names/name.py:" in line or "mutants: " in line)
    assert run.returncode == 1, run.stderr
    assert printed == [
        "app/names/name.py:14 return 7 -> return 8  (in-process tests tried: 0)",
        "app/names/name.py:9 if x < 5: -> if x < 6:  (in-process tests tried: 3)",
        "app/names/name.py:9 if x < 5: -> if x <= 5:  (in-process tests tried: 3)",
        "mutants: fails without a change: tests/test_name.py::test_fails",
        *(line for line in printed if line.startswith("mutants: noted 4 tests")),
        *(line for line in printed if line.startswith("mutants: tests noticed 6 of 8 (75.0%, at least 75%) ")),
    ]


@pytest.mark.parametrize(("options", "status"), [((), 1), (("--least", "0.75"), 0)], ids=str)
def test_survivors_are_allowed_while_the_least_share_is_noticed(
    options: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    tests, _, _ = _TESTS.partition("def test_fails")
    run = run_mutation(tmp_path, tests, *options)
    assert run.returncode == status, run.stdout + run.stderr
