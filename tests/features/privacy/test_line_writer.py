"""The writer of the access log: order, whole lines, and an output that is slow, full or gone."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.features.privacy.line_writer import MAX_PATH, LineFormat, LineWriter, LogLine

ROOT = Path(__file__).resolve().parents[3]
SMALLEST_PIPE = 4_096


def line(number: int, path: bytes = b"/10.1000/182") -> LogLine:
    return LogLine(1_700_000_000.0, str(number), "192.0.2.7", "GET", path, b"", "prepared")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe with room for one page: (reader, writer)."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
    yield reader, writer
    for end in (reader, writer):
        with suppress(OSError):
            os.close(end)


def identifiers(data: bytes) -> list[int]:
    return [int(json.loads(text)["request_id"]) for text in data.splitlines()]


def test_lines_are_written_once_and_in_their_order(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        writer = LineWriter(file.fileno(), LineFormat("json", 0))
        for number in range(5_000):
            writer.write(line(number))
        writer.close()
        assert identifiers((tmp_path / "log").read_bytes()) == list(range(5_000))
        assert writer.lost == 0


def test_a_line_after_the_end_is_written_too(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        writer = LineWriter(file.fileno(), LineFormat("json", 0))
        for number in range(3):
            writer.write(line(number))
            writer.close()
    assert identifiers((tmp_path / "log").read_bytes()) == [0, 1, 2]


def test_each_write_to_a_pipe_is_whole_lines_of_at_most_pipe_buf_bytes(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, descriptor = pipe
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 2**20)
    written: list[bytes] = []
    write = os.write

    def record(to: int, data: bytes) -> int:
        written.append(bytes(data))
        return write(to, data)

    monkeypatch.setattr(os, "write", record)
    writer = LineWriter(descriptor, LineFormat("json", 0))
    hostile = b"/10.1000/" + b'\x00\n"\\\xff' * 1_600
    for number in range(100):
        writer.write(line(number, hostile[: MAX_PATH + 1] if number % 3 else b"/10.1000/182"))
    writer.close()
    assert all(len(data) <= SMALLEST_PIPE and data.endswith(b"\n") for data in written)
    assert identifiers(os.read(reader, 2**20)) == list(range(100))


def test_a_reader_that_stands_still_stops_no_request_and_costs_counted_lines(
    pipe: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    reader, descriptor = pipe
    writer = LineWriter(descriptor, LineFormat("json", 0), max_waiting=100_000)
    with caplog.at_level(logging.WARNING):
        for number in range(2_000):
            writer.write(line(number))
        lost = writer.lost
        received = b""
        while received.count(b"\n") < 2_000 - lost:
            received += os.read(reader, 65_536)
        writer.close()
    assert lost > 1_000
    assert identifiers(received) == sorted(set(identifiers(received)))
    assert writer.lost == lost
    assert f"{lost} lines of the access log were lost" in caplog.text


def test_the_end_gives_up_on_a_reader_that_stands_still(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    reader, descriptor = pipe
    monkeypatch.setattr("doi_proxy.features.privacy.line_writer.CLOSE_TIMEOUT", 0.01)
    writer = LineWriter(descriptor, LineFormat("json", 0))
    for number in range(1_000):
        writer.write(line(number))
    writer.close()
    received = b""
    while received.count(b"\n") < 1_000:
        received += os.read(reader, 65_536)
    assert identifiers(received) == list(range(1_000))


def test_a_full_disk_is_logged_once_and_its_lines_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with Path("/dev/full").open("wb") as full:
        writer = LineWriter(full.fileno(), LineFormat("json", 0))
        for number in range(3):
            writer.write(line(number))
            writer.close()
        assert writer.lost == 3
    assert [record.getMessage() for record in caplog.records] == [
        "the access log cannot be written: No space left on device; its lines are lost until it can"
    ]


class Refusing(LineFormat):
    """A format with a fault: it cannot format every third line."""

    def __call__(self, line: LogLine) -> bytes:
        if int(line.request_id) % 3 == 0:
            raise TypeError("a fault")
        return super().__call__(line)


def test_a_fault_in_the_format_costs_its_lines_alone_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (tmp_path / "log").open("wb") as file:
        writer = LineWriter(file.fileno(), Refusing("json", 0))
        for number in range(9):
            writer.write(line(number))
            if number % 2:
                writer.close()
        writer.close()
    assert identifiers((tmp_path / "log").read_bytes()) == [1, 2, 4, 5, 7, 8]
    assert writer.lost == 3
    assert caplog.messages == ["a line of the access log cannot be formatted and is lost; please report this"]


END = """
import asyncio
from doi_proxy.features.privacy.line_writer import LineService
from doi_proxy.features.privacy.line_writer import LogLine, LineFormat
from doi_proxy.features.privacy.line_writer import LineWriter
service = LineService(LineWriter(1, LineFormat("json", 0)), print)
def run():
    asyncio.run(service.start())
    for number in range(500):
        service._writer.write(LogLine(0.0, str(number), "", "GET", b"/", b"", "prepared"))
    raise SystemExit(3)
run()
"""


def ended(stdout: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", END], cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, check=False, timeout=60
    )


@pytest.mark.process
def test_a_process_that_ends_by_a_fault_writes_its_last_lines() -> None:
    done = ended(subprocess.PIPE)
    assert (done.returncode, identifiers(done.stdout)) == (3, list(range(500)))


@pytest.mark.process
def test_a_standard_output_that_is_gone_harms_no_answer() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = ended(writer)
    os.close(writer)
    assert (done.returncode, done.stderr.count(b"cannot be written: Broken pipe")) == (3, 1)
