"""Warns of long files and functions of app/: `python -m tools.sizes`, in `make check`. A limit refuses nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_FILE_LINES: Final = 600
MAX_FUNCTION_LINES: Final = 60


def list_long_parts(path: str, text: str) -> Iterator[str]:
    """Return a line for a file that is too long, and one for each such function in it."""
    lines = len(text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{path} has {lines} lines (limit {MAX_FILE_LINES})"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{path}:{node.lineno} {node.name} has {lines} lines (limit {MAX_FUNCTION_LINES})"


def main() -> None:
    """Print a warning for each part that is too long."""
    texts = {path.as_posix(): path.read_text("utf-8") for path in sorted(Path("app").rglob("*.py"))}
    warnings = [line for path, text in texts.items() for line in list_long_parts(path, text)]
    for line in warnings:
        print(f"warning: {line}")


if __name__ == "__main__":
    main()
