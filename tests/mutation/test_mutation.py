"""What a mutant is, which lines have none, and that a run is repeatable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutation.__main__ import try_folder
from tests.mutation.mutants import build_mutant, count_mutants

pytestmark = pytest.mark.repository


def changes(source: str) -> list[str]:
    """All mutants of a source, each as its changed line."""
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
        "raise A(f'no {name}')",
        "x = a | b",
    ],
)
def test_types_declarations_and_messages_have_no_mutants(source: str) -> None:
    assert changes(source) == []


def test_a_mutant_tells_its_line_in_the_file_and_keeps_the_rest() -> None:
    source = "# A comment.\nx = 1\n\n\ndef f():\n    return (\n        x\n        + 2\n    )\n"
    mutant = build_mutant(source, 2)
    assert (mutant.line, mutant.before, mutant.after) == (8, "return x + 2", "return x + 3")
    assert ast.dump(ast.parse(mutant.source)) == ast.dump(ast.parse(source.replace("2", "3")))


def test_a_folder_whose_tests_fail_without_a_change_is_reported_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("app/doi", "tests/doi"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "app/doi/name.py").write_text("x = 1\n")
    (tmp_path / "tests/doi/test_name.py").write_text("def test_fails() -> None:\n    assert not 'a fault'\n")
    assert try_folder(tmp_path, "doi", number=1, seed=1) is None
    printed = capsys.readouterr().out
    assert printed.startswith("doi: its tests fail without a change\n") and "a fault" in printed
