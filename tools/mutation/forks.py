"""Tasks that run in forks of this process, each with a folder for temporary files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any


def run_apart(tasks: Sequence[Callable[[], Any]], jobs: int = 1) -> Iterator[tuple[int, Any]]:
    """Run each task in a fork, `jobs` at a time. Yields its number and what it returned, as JSON, when it ends.

    None stands for a process that a signal or an exception ended.
    """
    running: dict[int, int] = {}
    # The names are short: tests put Unix sockets below.
    with tempfile.TemporaryDirectory(prefix="m") as name:
        folder = Path(name)
        for number, task in enumerate(tasks):
            if len(running) == jobs:
                yield _await_one(running, folder)
            (folder / str(number)).mkdir()
            running[_start(task, folder / str(number))] = number
        while running:
            yield _await_one(running, folder)


def _start(task: Callable[[], Any], folder: Path) -> int:
    if process := os.fork():
        return process
    status = 1
    try:
        with open(os.devnull, "r+b", buffering=0) as nothing:  # noqa: PTH123 - a number is needed
            for stream in range(3):
                os.dup2(nothing.fileno(), stream)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
        result = task()
        (folder / "result").write_text(json.dumps(result))
        status = 0
    except BaseException:  # the process ends here, whatever a mutant raises
        (folder / "error").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def _await_one(running: dict[int, int], folder: Path) -> tuple[int, Any]:
    process, status = os.wait()
    number = running.pop(process)
    own = folder / str(number)
    result = json.loads((own / "result").read_text()) if status == 0 else None
    shutil.rmtree(own, ignore_errors=True)
    return number, result
