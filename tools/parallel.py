"""A plugin of pytest: `--forks N` runs the files of tests in N forks of the process that collected them.

A fork takes the next file when it has finished one. The first files are those that took longest in the last run: one
that begins near the end would be waited for alone. The reports of a fork go to the first process, which prints them.
The tests are collected once: that takes 6 s of processor time, 20 s beside a load, in each worker of pytest-xdist too.
"""

from __future__ import annotations

import math
import os
import pickle
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

#: Bytes of the number of a file in the queue.
_NUMBER: Final = 4
#: Where pytest's cache has the seconds of each file, from its last run in a fork.
_SECONDS: Final = "forks/seconds"


class Fork(NamedTuple):
    """A process that runs tests, and the pipe of its reports, in the format of `Connection`.

    A fork has no `Connection`: a test of the program looks for those that a worker inherits.
    """

    process: int
    reports: int


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--forks", type=int, default=0, help="run the files of tests in so many forks of this process")
    parser.addoption("--shuffle", type=int, help="run files and their tests in a random order, that of this seed")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Order the files by their seconds, before other plugins choose. Files with processes and no record are first."""
    if config.getoption("forks"):
        seconds = _read_seconds(config)
        with_processes = {item.path for item in items if item.get_closest_marker("process")}

        def cost(item: pytest.Item) -> float:
            return seconds.get(_find_file(item.nodeid), math.inf if item.path in with_processes else 0.0)

        items.sort(key=cost, reverse=True)
    if (seed := config.getoption("--shuffle")) is not None:
        random.Random(seed).shuffle(items)
    yield


def _read_seconds(config: pytest.Config) -> dict[str, float]:
    # `-p no:cacheprovider` runs without a cache.
    seconds: dict[str, float] = config.cache.get(_SECONDS, {}) if hasattr(config, "cache") else {}
    return seconds


def _find_file(test: str) -> str:
    return test.partition("::")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks, if there is more than one file."""
    files = _group_by_file(session.items)
    number = min(session.config.getoption("forks"), len(files))
    if number < 2 or session.config.option.collectonly or session.testsfailed:
        return None  # pytest's own loop runs them, or says that the collection failed
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        _watch(session, list(_start(session, files, number, Path(folder))))
    return True


def _group_by_file(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    return list(files.values())


# --- The first process --------------------------------------------------------------------------------------------


def _start(session: pytest.Session, files: list[list[pytest.Item]], number: int, folder: Path) -> Iterator[Fork]:
    queue, filling = os.pipe()
    os.write(filling, b"".join(place.to_bytes(_NUMBER) for place in range(len(files))))
    os.close(filling)
    for place in range(number):
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        if process := os.fork():
            os.close(writing)
            yield Fork(process, reading)
        else:
            _become_fork(session, files, queue, writing, folder / str(place))
    os.close(queue)


def _watch(session: pytest.Session, forks: list[Fork]) -> None:
    """Pass reports on until all forks have ended. A test that has not ended has failed."""
    unfinished = {item.nodeid: item for item in session.items}
    running = [Connection(fork.reports, writable=False) for fork in forks]
    ended = set()
    seconds: Counter[str] = Counter()
    try:
        while running:
            for reports in wait(running):
                assert isinstance(reports, Connection)
                try:
                    _report(session, reports.recv(), unfinished, seconds)
                except EOFError:
                    running.remove(reports)
                    reports.close()
            if session.shouldfail or session.shouldstop:
                raise session.Failed(session.shouldfail or session.shouldstop)
    except BaseException:
        unfinished.clear()
        for fork in forks:
            os.kill(fork.process, signal.SIGINT)
        raise
    finally:
        for fork in forks:
            ended.add(os.waitstatus_to_exitcode(os.waitpid(fork.process, 0)[1]))
    if hasattr(session.config, "cache"):
        session.config.cache.set(_SECONDS, _read_seconds(session.config) | seconds)
    for item in unfinished.values():
        text = f"not run to its end: a process of the tests ended with status {sorted(ended - {0})}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        session.config.hook.pytest_runtest_logreport(report=report)


def _report(
    session: pytest.Session, message: dict[str, Any], unfinished: dict[str, pytest.Item], seconds: Counter[str]
) -> None:
    hook = session.config.hook
    if "error" in message:
        print(message["error"], file=sys.stderr)
    elif "finished" in message:
        item = unfinished.pop(message["finished"])
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    else:
        report = hook.pytest_report_from_serializable(config=session.config, data=message)
        seconds[_find_file(report.nodeid)] += report.duration
        hook.pytest_runtest_logreport(report=report)


# --- A fork -------------------------------------------------------------------------------------------------------


class _Sender:
    """Sends what pytest reports."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self._config = config
        self._pipe = os.fdopen(pipe, "wb")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.send({"finished": nodeid})

    def send(self, message: dict[str, Any]) -> None:
        body = pickle.dumps(message)
        self._pipe.write(len(body).to_bytes(4) + body)
        self._pipe.flush()


def _become_fork(session: pytest.Session, files: list[list[pytest.Item]], queue: int, pipe: int, folder: Path) -> None:
    """Run files until none is left, and end this process."""
    # A shell lets its jobs in the background ignore it. Without it, the first process could not end this one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 1
    plugins = session.config.pluginmanager
    plugins.unregister(name="terminalreporter")  # it writes to the terminal itself
    sender = _Sender(session.config, pipe)
    plugins.register(sender)
    folder.mkdir()
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    config: Any = session.config
    # What the tests here start for a whole session ends with this process, the rest with the first one.
    of_all, config._cleanup_stack = config._cleanup_stack, ExitStack()
    session.config.add_cleanup(lambda: of_all)
    try:
        # The forks would share the files that capture output. These stay open: an imported module may have kept one.
        capture: Any = plugins.getplugin("capturemanager")
        shared, capture._global_capturing = capture._global_capturing, None
        session.config.add_cleanup(lambda: shared)
        capture.start_global_capturing()
        capture.suspend_global_capture()
        _run_files(session, files, queue)
        config._cleanup_stack.close()
        status = 0
    except BaseException as error:  # the process ends here, whatever is raised
        session._setupstate.teardown_exact(None)
        config._cleanup_stack.close()
        if not isinstance(error, KeyboardInterrupt):
            sender.send({"error": traceback.format_exc()})
    finally:
        os._exit(status)


def _run_files(session: pytest.Session, files: list[list[pytest.Item]], queue: int) -> None:
    tests = _take_tests(files, queue)
    test = next(tests, None)
    while test is not None:
        following = next(tests, None)
        # Fixtures that the following test does not use end with this one.
        session.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        test = following


def _take_tests(files: list[list[pytest.Item]], queue: int) -> Iterator[pytest.Item]:
    while place := os.read(queue, _NUMBER):
        yield from files[int.from_bytes(place)]
