"""The classes into which `bench.suggestions` sorts dirty inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.suggestions import main, sort

pytestmark = pytest.mark.repository


@pytest.mark.parametrize(
    ("text", "expected", "kind"),
    [
        ("doi:10.1000/182", "10.1000/182", "resolves as it stands"),
        ("https://doi.org/10.1000/ABC", "10.1000/abc", "resolves as it stands"),
        ("10.1000/182).", "10.1000/182", "right suggestion first"),
        ("10.1000/182,10.1000/183", "10.1000/183", "right suggestion later"),
        ("10.1000/182).", "10.1000/183", "wrong suggestion only"),
        ("ten thousand", "10.1000/182", "no suggestion, although a DOI is in it"),
        ("ten thousand", None, "none in it"),
        ("10.1000/182).", None, "none in it, something suggested"),
    ],
)
def test_an_input_is_of_one_class(text: str, expected: str | None, kind: str) -> None:
    assert sort(text, expected) == kind


def write(path: Path, *rows: dict[str, str | None]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_the_classes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = write(tmp_path / "inputs", {"input": "10.1000/182."}, {"input": "x"}, {"input": "10.1000/183."})
    expected = write(
        tmp_path / "expected",
        {"input": "10.1000/182.", "doi": "10.1000/182"},
        {"input": "x", "doi": None},
        {"input": "10.1000/183.", "doi": "10.1000/183"},
    )
    monkeypatch.setattr("sys.argv", ["suggestions", inputs, expected])
    main()
    assert capsys.readouterr().out.splitlines() == ["     2 right suggestion first", "     1 none in it"]


def test_without_the_names_the_suggestions_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["suggestions", write(tmp_path / "inputs", {"input": "10.1000/182."})])
    main()
    assert capsys.readouterr().out == '"10.1000/182."\t10.1000/182 (trailing-punctuation)\n'
