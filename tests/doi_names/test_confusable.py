"""What a name may contain and is likely a mistake."""

from __future__ import annotations

import pytest

from doi_names.name import MAX_NAME_BYTES, MAX_WARNINGS, HandleName, find_warnings
from tests.table import table

TABLE = [
    ("10.1000/a\u2013b", "look-alike", 'U+2013 EN DASH at character 10 looks like "-".'),
    ("10.1000\u2215182", "look-alike", 'U+2215 DIVISION SLASH at character 8 looks like "/".'),
    ("10.1000/\uff11", "look-alike", 'U+FF11 FULLWIDTH DIGIT ONE at character 9 looks like "1".'),
    ("10.1000/b\u0441", "mixed-scripts", "U+0441 CYRILLIC SMALL LETTER ES at character 10 is Cyrillic"),
    ("10.1000/\u03b1-ray", "mixed-scripts", "U+0072"),
    ("10.1000/a\u00adb", "formatting-character", "U+00AD SOFT HYPHEN at character 10"),
    ("10.1000/a\u2028b", "formatting-character", "U+2028 LINE SEPARATOR at character 10"),
    ("10.1000/\ue000", "private-use-character", "U+E000 at character 9"),
    ("10.1000/\uffff\u0378", "unassigned-code-point", "U+FFFF at character 9"),
    ("10.1000/a/b", "reserved-form", "The suffix begins with one character and a slash, at character 9"),
]


@table(("text", "code", "message"), TABLE)
def test_a_warning_has_a_code_and_a_position(text: str, code: str, message: str) -> None:
    first = find_warnings(HandleName(text))[0]
    assert first.code == code
    assert first.message.startswith(message.partition("U+0072")[0])


@pytest.mark.parametrize(
    "text",
    [
        "10.1000/182",
        "10.1000/ab/c",
        "10.1000/äöß",
        "10.1000/статья",
        "10.1000/日本語-カタカナ-abc",
        "10.1000/µm",
        "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O",
        "20.500/a/b",
    ],
)
def test_an_ordinary_name_has_no_warning(text: str) -> None:
    assert find_warnings(HandleName(text)) == ()


@pytest.mark.parametrize("character", ["\u00ad", "\u2013", "\ue000", "\u0301", "\u0441"])
def test_the_warnings_of_a_long_name_are_bounded(character: str) -> None:
    name = HandleName("10.1000/" + character * ((MAX_NAME_BYTES - 8) // len(character.encode())))
    assert len(find_warnings(name)) <= MAX_WARNINGS
