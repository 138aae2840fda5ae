"""`doi-proxy parse` says what texts are, without a proxy and without the upstream."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.commands.main import main


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that is standard input."""
    path = tmp_path / "lines.txt"
    path.touch()
    with path.open(encoding="utf-8") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", file)
        yield path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["parse", *arguments])
    return status, capsys.readouterr().out


def test_names_alone_are_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = printed(capsys, "doi:10.1000/182", "10/abcde")
    assert (status, text.splitlines()) == (0, ["doi        10.1000/182", "short_doi  10/abcde"])


def test_other_text_is_a_failure_with_the_reason_and_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = printed(capsys, "10.1000/182", "see 10.1000/18\u20132 and more")
    assert status == 1
    assert text.splitlines()[1:4] == [
        "not_a_doi  see 10.1000/18\u20132 and more",
        "  A DOI prefix must not contain white space: U+0020 SPACE at character 4.",
        '  warning: U+2013 EN DASH at character 15 looks like "-".',
    ]
    assert any(line.startswith("  suggestion: 10.1000/18") for line in text.splitlines())


def test_json_is_the_object_of_the_api_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = printed(
        capsys, "--format", "json", "--public-url", "https://doi.example.org/", "10.1000/182", "10.1000"
    )
    found: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert status == 1
    assert [(row["kind"], row["url"]) for row in found] == [
        ("doi", "https://doi.example.org/10.1000/182"),
        ("prefix", "https://doi.example.org/10.1000"),
    ]


def test_lines_of_standard_input_are_read_without_arguments(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines.write_bytes(b"\xef\xbb\xbf10.1000/182\r\n\xff\n\n# a comment\n" + b"a" * 70_000 + b"\n10.1000/183")
    status, text = printed(capsys, "--format", "json")
    rows = [json.loads(line) for line in text.splitlines()]
    assert status == 1
    assert [row["kind"] for row in rows] == ["doi", "not_a_doi", "not_a_doi", "doi"]
    assert [row["input"] for row in rows] == ["10.1000/182", "ÿ", "a" * 200, "10.1000/183"]
    assert [row["message"] for row in rows[1:3]] == [
        'A DOI name begins with "10." at character 1.',
        "Line 5 is longer than 65536 bytes; shorten it.",
    ]


@pytest.mark.usefixtures("lines")
def test_no_line_is_a_failure_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse"]) == 1
    assert capsys.readouterr() == ("", "standard input has no texts\n")


def test_a_wrong_argument_is_wrong_use() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["parse", "--jsno"])
    assert ended.value.code == 2


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = printed(capsys, "10.1000/\x1b[31m", "\u202e10.1000/x")
    assert "\x1b" not in text and "\u202e" not in text
    assert "10.1000/<U+001B>[31m" in text


@pytest.mark.process
def test_the_web_framework_is_not_imported() -> None:
    code = (
        "from doi_proxy.commands.main import main; main(['parse', '10.1000/182']); import sys\n"
        "print(*{'fastapi', 'starlette', 'httpx', 'lxml', 'redis', 'jinja2'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.splitlines() == ["doi        10.1000/182", ""]
