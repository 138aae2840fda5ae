"""The progress line of long commands, and that it is on a terminal alone."""

from __future__ import annotations

import io

import pytest

from app.system.progress import LineBar, NoBar, progress, show_duration
from tests.clock import Clock


@pytest.mark.parametrize(
    ("total", "in_bytes", "line"),
    [
        (1_000, False, "warming: 100 of 1,000; 20 a second; 0:00:45 left"),
        (None, False, "warming: 100; 20 a second"),
        (50, False, "warming: 100 of 50; 20 a second; 0:00:00 left"),
        (2_000_000, True, "warming: 0.0 MB of 2.0 MB; 0.0 MB a second; 27:46:35 left"),
    ],
)
def test_the_line_has_the_count_the_pace_and_the_time_left(
    total: float | None, in_bytes: bool, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, clock = io.StringIO(), Clock()
    monkeypatch.setattr("sys.stderr", stream)
    bar = LineBar("reading", total, clock, in_bytes=in_bytes)
    bar.advance(60)
    assert stream.getvalue() == "\r\x1b[Kreading"
    clock.advance(5.0)
    bar.describe("warming")
    bar.advance(40)
    assert stream.getvalue() == f"\r\x1b[Kreading\r\x1b[K{line}"
    bar.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("warming", 10) as bar:
        assert isinstance(bar, NoBar)
        bar.advance(10)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3_599.0, "0:59:59"), (90_061.0, "25:01:01")]
)
def test_a_duration_has_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text
