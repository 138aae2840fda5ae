"""The standard streams: how a command line names them in place of a file, and texts of others on a terminal."""

from __future__ import annotations

import json
from typing import Any, Final

from doi_names.code_point import CodePoint

STANDARD_INPUT: Final = "-"
STANDARD_OUTPUT: Final = "-"


def printable(text: str) -> str:
    """A text for a terminal. A character that is not graphic becomes its notation, such as <U+200B>."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else f"<{CodePoint(character, 0).notation}>" for character in text
    )


def print_json(value: Any) -> None:
    """Print a JSON value in one line. Characters that are not graphic are escaped, whoever wrote the text."""
    text = json.dumps(value, ensure_ascii=False)
    print("".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text))
