"""Which functions changed, and which tests are near them."""

from __future__ import annotations

import builtins

import pytest

from tests.table import table
from tools.near.__main__ import Choice, choose, mirror
from tools.near.functions import NOTE, compile_notes, find_changed
from tools.near.notes import Noted

pytestmark = pytest.mark.repository

MODULE = '''
LIMIT = 3

def first(x):
    """Says something."""
    return x + 1

class Thing:
    def method(self):
        def inner():
            return 2
        return inner()
'''
PATH = "app/doi_names/name.py"
TESTS = "tests/doi_names/test_doi.py"


@table(
    ("old", "new", "changed"),
    [
        ("x + 1", "x + 2", {"first"}),
        ("return 2", "return 3", {"Thing.method"}),
        ("Says something.", "Says more.", set()),
        ("def first", "# A comment.\ndef first", set()),
        ("LIMIT = 3", "LIMIT = 4", {"first", "Thing.method"}),
        ("class Thing:", "def second(): ...\n\nclass Thing:", {"second"}),
    ],
)
def test_a_function_has_changed_if_its_code_differs(old: str, new: str, changed: set[str]) -> None:
    assert find_changed(MODULE, MODULE.replace(old, new)) == changed


def test_a_function_is_noted_when_it_is_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    entered: set[int] = set()

    def number(name: str) -> int:
        names.append(name)
        return len(names) - 1

    monkeypatch.setattr(builtins, NOTE, entered.add, raising=False)
    module: dict[str, object] = {}
    exec(compile_notes(MODULE, "module.py", number), module)
    assert entered == set()
    assert eval("Thing().method()", module) == 2
    assert {names[place] for place in entered} == {"Thing.method"}


def noted(**tests: list[int]) -> dict[str, Noted]:
    rows = {f"{TESTS}::{name}": (0.5, entered) for name, entered in tests.items()}
    return {TESTS: Noted("", [f"{PATH}:f", f"{PATH}:g"], rows)}


def test_tests_that_enter_a_changed_function_are_chosen() -> None:
    notes = noted(test_a=[0], test_b=[0, 1], test_c=[1])
    choice = choose([PATH], frozenset({f"{PATH}:f"}), notes)
    assert set(choice.tests) == {f"{TESTS}::test_a", f"{TESTS}::test_b"}


def test_what_one_test_of_a_file_enters_stands_for_all_its_tests() -> None:
    choice = choose([PATH], frozenset({f"{PATH}:g"}), noted(test_a=[0, 1], test_b=[0]))
    assert set(choice.tests) == {f"{TESTS}::test_a", f"{TESTS}::test_b"}


def test_without_notes_the_files_of_the_mirrored_folder_are_chosen() -> None:
    choice = choose([PATH], frozenset({f"{PATH}:f"}), {})
    assert choice.files == mirror(PATH) != frozenset()
    assert all(file.startswith("tests/doi_names/test_") for file in choice.files)


def test_the_cheapest_tests_are_kept() -> None:
    choice = Choice(frozenset(), {"a": 3.0, "b": 1.0, "c": 1.5})
    assert set(choice.limit(2.6).tests) == {"b", "c"}


def test_a_changed_file_of_tests_and_the_users_of_a_changed_module_are_chosen() -> None:
    assert choose([TESTS, "tests/table.py"], frozenset(), {}).files >= {"tests/test_table.py"}
