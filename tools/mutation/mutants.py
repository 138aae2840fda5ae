"""The mutants of a module: one operator, constant or branch of a function is another one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, NamedTuple

_SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip

#: The function that `compile_notes` calls. It is a builtin while tests are noted.
NOTE: Final = "_note_mutant"
#: Types and declarations: mypy finds a change there, or the program does not read them.
_DECLARATIONS: Final = frozenset({"annotation", "returns", "decorator_list", "bases", "keywords", "format_spec"})
#: Python reads the name of an encoding without regard to such characters.
_ENCODINGS: Final = frozenset({"ascii", "latin-1", "utf-8"})
_DECLARED_NAMES: Final = frozenset({"TYPE_CHECKING", "Literal", "TypeVar"})


class Place(NamedTuple):
    """A statement of a function, and the block that it stands in."""

    block: list[ast.stmt]
    statement: ast.stmt


class Change(NamedTuple):
    """A new value for a field of a node, the first line of the node, and its statement."""

    node: ast.AST
    field: str
    value: Any
    line: int
    place: Place


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed module. The changed line as `ast` lays it out, before and after, and where it begins in the file."""

    line: int
    before: str
    after: str
    tree: ast.Module


def count_mutants(source: str) -> int:
    """Return how many mutants a module has."""
    return sum(1 for _ in _list_changes(ast.parse(source)))


def build_mutant(source: str, number: int) -> Mutant:
    """Build one mutant of a module. Numbers begin with 0 and follow the order of the source."""
    tree = ast.parse(source)
    before = ast.unparse(tree)
    change = list(_list_changes(tree))[number]
    setattr(change.node, change.field, change.value)
    ast.fix_missing_locations(tree)
    pairs = zip(before.splitlines(), ast.unparse(tree).splitlines(), strict=False)
    old, new = next((old.strip(), new.strip()) for old, new in pairs if old != new)
    return Mutant(change.line, old, new, tree)


def compile_notes(source: str, path: str, names: Mapping[int, int]) -> CodeType:
    """Compile a module that calls `NOTE` with the name of each mutant of `names` before its statement."""
    tree = ast.parse(source)
    changes = list(_list_changes(tree))
    for number, name in names.items():
        block, statement = changes[number].place
        note = ast.Expr(ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(name)], []))
        block.insert(block.index(statement), ast.copy_location(note, statement))
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def _list_changes(node: ast.AST, place: Place | None = None, line: int = 1) -> Iterator[Change]:
    """All changes below a node. `place` is None outside functions."""
    line = getattr(node, "lineno", line)
    if place is not None:
        for field, value in _list_values(node):
            yield Change(node, field, value, line, place)
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for field, child in ast.iter_fields(node):
        if field in _DECLARATIONS and not isinstance(node, ast.Call):
            continue
        for part in child if isinstance(child, list) else [_shown_whole(node, child)]:
            is_message = isinstance(node, ast.JoinedStr) and isinstance(part, ast.Constant)
            if not isinstance(part, ast.AST) or is_message or _is_declaration(part):
                continue
            is_inside = place is not None or (is_function and field == "body")
            inner = Place(child, part) if is_inside and isinstance(part, ast.stmt) else place
            yield from _list_changes(part, inner, line)


def _shown_whole(node: ast.AST, child: Any) -> Any:
    """The child of a node. How much a message shows is wording, as in `{name[:100]}` and `f"{error}"[:200]`."""
    match node, child:
        case (ast.FormattedValue(), ast.Subscript(value=value, slice=ast.Slice())):
            return value
        case (ast.Subscript(value=ast.JoinedStr()), ast.Slice()):
            return None
    return child


def _is_declaration(node: ast.AST) -> bool:
    """Docstrings, type variables and literal types, and what only a type checker runs."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id=name)) | ast.Subscript(value=ast.Name(id=name)) | ast.Call(func=ast.Name(id=name)):
            return name in _DECLARED_NAMES
    return False


def _list_values(node: ast.AST) -> Iterator[tuple[str, Any]]:
    match node:
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                yield "ops", [*ops[:place], *_swap(operator), *ops[place + 1 :]]
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) | ast.BoolOp(op=operator):
            yield from (("op", other) for other in _swap(operator))
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Constant):
            yield from (("test", ast.Constant(result)) for result in (True, False))
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield "test", ast.Constant(False)
        case ast.UnaryOp(op=ast.Not()):
            yield "operand", ast.UnaryOp(ast.Not(), node.operand)
        case ast.comprehension(ifs=[_, *_]):
            yield "ifs", []
        case ast.Constant(value=value):
            yield from (("value", other) for other in _change_constant(value))


def _swap(operator: ast.AST) -> list[ast.AST]:
    return [_SWAPS[type(operator)]()] if type(operator) in _SWAPS else []


def _change_constant(value: object) -> list[object]:
    """Return another value of the same type. A text with a blank is a message and stays, as does an encoding.

    A circumflex changes a regular expression and a set of characters too.
    """
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1]
        case str() if " " not in value and value not in _ENCODINGS:
            return [value + "^"]
        case bytes() if b" " not in value:
            return [value + b"^"]
    return []
