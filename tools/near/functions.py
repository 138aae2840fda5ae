"""Functions of a module: which of them differ between two texts, and code that notes that one is entered."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
#: The function that noting code calls. It is a builtin while tests are noted.
NOTE: Final = "_note_function"


def find_changed(before: str, after: str) -> frozenset[str]:
    """The functions and methods of a module that are new or differ. All of them if anything outside them differs."""
    old, new = _read(before), _read(after)
    if old.pop("") != new.pop(""):
        return frozenset(new)
    return frozenset(name for name, text in new.items() if old.get(name) != text)


def _read(source: str) -> dict[str, str]:
    """The functions of a module without comments and docstrings, and under "" what is left of it."""
    tree = ast.parse(source)
    found: dict[str, str] = {}
    for name, function in _list_functions(tree):
        del function.body[: _count_docstrings(function)]
        found[name] = ast.dump(function)
    return found | {"": ast.dump(_WithoutFunctions().visit(tree))}


class _WithoutFunctions(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        return None

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        return None


def _list_functions(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Functions of a module and methods of its classes, by their qualified names."""
    for child in node.body:
        if isinstance(child, Function):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _list_functions(child, f"{prefix}{child.name}.")


def _count_docstrings(function: Function) -> int:
    return 1 if ast.get_docstring(function, clean=False) is not None else 0


def compile_notes(source: str, path: str, number: Callable[[str], int]) -> CodeType:
    """Compile a module whose functions call `NOTE` with their number when they are entered."""
    tree = ast.parse(source)
    for name, function in _list_functions(tree):
        for inner in ast.walk(function):
            if isinstance(inner, Function):
                note = ast.Expr(ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(number(name))], []))
                inner.body.insert(_count_docstrings(inner), ast.copy_location(note, inner.body[-1]))
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
