"""The log of the program. With `json`, each line is one object, also the lines of libraries."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.assembly.lifecycle import begin_logging
from doi_proxy.assembly.settings import Settings
from tests.cluster.processes import Proxy

LOG = logging.getLogger("doi_proxy.example")


@pytest.fixture(autouse=True)
def unchanged_logging() -> Iterator[None]:
    root, hook = logging.getLogger(), sys.excepthook
    handlers, level = root.handlers[:], root.level
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield
        logging.captureWarnings(False)
    root.handlers[:], sys.excepthook = handlers, hook
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What was written to standard error; fails if a line is not a JSON object."""
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(isinstance(one, dict) for one in found)
    return found


def test_a_line_has_a_time_a_level_a_logger_and_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    begin_logging(Settings(log_format="json"))
    LOG.warning("the store %r\nis down \udcff", "sqlite")
    [line] = lines(capsys)
    assert set(line) == {"time", "level", "logger", "message"}
    assert (line["level"], line["logger"]) == ("warning", "doi_proxy.example")
    assert line["message"] == "the store 'sqlite'\nis down \\udcff"
    assert line["time"].endswith("Z")


@pytest.mark.parametrize(("level", "priority"), [(logging.DEBUG, 7), (logging.INFO, 6), (logging.ERROR, 3)])
def test_in_the_journal_each_line_has_its_priority_and_no_time_of_its_own(
    level: int, priority: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    begin_logging(Settings(log_level="debug"))
    LOG.log(level, "the store\nis down")
    name = logging.getLevelName(level)
    assert capfd.readouterr().err == f"<{priority}>{name} doi_proxy.example: the store\n<{priority}>is down\n"


def test_a_pipe_that_is_not_the_journal_gets_the_time(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "1:1")
    begin_logging(Settings())
    LOG.warning("down")
    assert capfd.readouterr().err[:2] == "20"


def test_an_exception_is_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    begin_logging(Settings(log_format="json"))
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        LOG.error("failed", exc_info=error)
    [line] = lines(capsys)
    assert line["message"] == "failed"
    assert line["exception"].startswith("Traceback") and line["exception"].endswith("ValueError: a\nb")


def test_libraries_warnings_and_a_crash_are_lines_too(capsys: pytest.CaptureFixture[str]) -> None:
    begin_logging(Settings(log_format="json"))
    logging.getLogger("uvicorn.error").info("started")
    warnings.warn("old", DeprecationWarning, stacklevel=1)
    sys.excepthook(ValueError, ValueError("crash"), None)
    assert [line["logger"] for line in lines(capsys)] == [
        "uvicorn.error",
        "py.warnings",
        "doi_proxy.assembly.lifecycle",
    ]


def test_text_is_the_default_and_the_level_counts(capsys: pytest.CaptureFixture[str]) -> None:
    begin_logging(Settings(log_level="warning"))
    LOG.info("not written")
    LOG.warning("written")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING doi_proxy.example: written")


@pytest.mark.process
@pytest.mark.anyio
async def test_every_line_of_a_service_is_an_object(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    # Port 9 is "discard" (RFC 863): nothing listens there.
    settings = {"log_format": "json", "log_level": "debug"}
    async with Proxy(tmp_path, "http://127.0.0.1:9", store, **settings) as proxy:
        assert (await proxy.ask("/10.5555/unknown")).status == 502
        proxy.process.terminate()
    found = [json.loads(line) for line in proxy.process.read_log().splitlines()]
    assert "uvicorn.error" in {line["logger"] for line in found}
