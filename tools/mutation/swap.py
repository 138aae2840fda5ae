"""Functions of a running program get other code: that of a changed module."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from types import CodeType, FunctionType


def find_functions(paths: Collection[str]) -> dict[str, list[FunctionType]]:
    """The functions that exist now, by the file of their module."""
    gc.unfreeze()  # what is frozen is not listed
    found = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename in paths:
            found[thing.__code__.co_filename].append(thing)
    gc.freeze()
    return found


def list_swaps(functions: Iterable[FunctionType], module: CodeType) -> list[tuple[FunctionType, CodeType]]:
    """The functions whose code differs in the changed module, each with that code.

    A function keeps its code if the module has two of its name in one line. They are lambdas.
    """
    codes = list(_walk(module))
    counts = Counter(map(_identify, codes))
    changed = {_identify(code): code for code in codes if counts[_identify(code)] == 1}
    pairs = ((function, changed.get(_identify(function.__code__))) for function in functions)
    return [(function, code) for function, code in pairs if code is not None and code != function.__code__]


def swap(swaps: Iterable[tuple[FunctionType, CodeType]]) -> None:
    """Give functions their other code."""
    for function, code in swaps:
        function.__code__ = code


def _walk(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _walk(constant)


def _identify(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno
