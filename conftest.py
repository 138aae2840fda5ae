"""For every test: asyncio for async tests, repeatable examples, no network but loopback, no unmarked process."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any, Final
from weakref import WeakSet

import aiohttp
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from doi_proxy.system.version import read_version
from tests.world.loop import WorldLoop
from tests.zygote import Zygote, can_fork

pytest_plugins = ["tools.parallel"]

# Tests generate the same examples each time and everywhere, so their result depends only on the commit. `make nightly`
# sets the variable to "thorough", and `make fuzz` to "random".
settings.register_profile("fixed", derandomize=True, database=None, deadline=None, max_examples=10)
settings.register_profile("thorough", settings.get_profile("fixed"), max_examples=50)
settings.register_profile("random", deadline=None, print_blob=True)
_PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "fixed")
settings.load_profile(_PROFILE)


def _no_constants() -> Any:
    return providers._local_constants


if _PROFILE != "random":
    # Hypothesis reads the constants of all modules of ours that are imported, and takes some as examples. So the
    # examples of a test would depend on the tests before it, and each process would read a thousand files.
    assert callable(providers._get_local_constants)
    providers._get_local_constants = _no_constants

#: Markers of tests that start a process of their own.
_WITH_PROCESSES: Final = ("browser", "valkey")
#: Markers of async tests that do not run in virtual time.
_IN_REAL_TIME: Final = ("process", "repository", "real_time")


class NotLoopback(RuntimeError):
    """A test tried to reach another machine. Not an OSError, which the tested code handles as a failed upstream."""


class UnmarkedProcess(RuntimeError):
    """A test without the marker `process` tried to start one."""


_current: pytest.Item | None = None


# Before pytest itself, which selects tests by their markers here.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest file first, then those that wait for processes: at the end, all forks have work."""
    for item in items:
        if any(item.get_closest_marker(name) for name in _WITH_PROCESSES):
            item.add_marker("process")
    waiting = {item.path for item in items if item.get_closest_marker("process")}
    items.sort(key=lambda item: (not item.get_closest_marker("simulation"), item.path not in waiting))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported and collected: a tenth of the time of tests with an application."""
    gc.collect()
    gc.freeze()
    # An application asks git for the version of its checkout, once in a process.
    read_version()
    gc.set_threshold(50_000, 20, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Note the test that runs, for `only_marked_processes`."""
    global _current  # noqa: PLW0603 - pytest has no other place that a session fixture can read
    _current = item
    return (yield)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Async tests run on asyncio, as the server does."""
    return "asyncio", {"loop_factory": _create_loop}


def _create_loop() -> asyncio.AbstractEventLoop:
    """Async tests run in virtual time, except those whose promise needs real sockets or processes."""
    is_real = _current is not None and any(_current.get_closest_marker(name) for name in _IN_REAL_TIME)
    return asyncio.new_event_loop() if is_real else WorldLoop()


@pytest.fixture
def western_machine() -> Iterator[None]:
    """The machine's local time is eleven hours before UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "West11")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """Sockets reach only 127.0.0.0/8, ::1 and Unix paths, and only the name "localhost" resolves."""
    connect, connect_ex, look_up = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _refuse_others(self.family, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _refuse_others(self.family, address)
        return connect_ex(self, address)

    def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_local_name(host):
            raise socket.gaierror(socket.EAI_NONAME, f"tests resolve no names: {host!r}")
        return look_up(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        patch.setattr(socket, "getaddrinfo", guarded_look_up)
        yield


@pytest.fixture(scope="session", autouse=True)
def only_marked_processes() -> Iterator[None]:
    """A test that starts a process has the marker `process`, because `make quick` leaves such tests out."""
    start_command, start_worker = subprocess.Popen.__init__, BaseProcess.start

    def guarded_command(self: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
        _require_marker()
        start_command(self, *args, **kwargs)

    def guarded_worker(self: BaseProcess) -> None:
        _require_marker()
        start_worker(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", guarded_command)
        patch.setattr(BaseProcess, "start", guarded_worker)
        yield


@pytest.fixture(scope="session", autouse=True)
def starts_by_fork() -> Iterator[None]:
    """A test that starts `python -m doi_proxy` gets a fork of a process that has imported it; see tests/zygote.py."""
    if not can_fork():
        yield
        return
    zygote = Zygote(subprocess._fork_exec)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "_fork_exec", zygote.start)
        yield
    zygote.close()


@pytest.fixture(scope="module", autouse=True)
def no_open_session(opened_sessions: WeakSet[aiohttp.ClientSession]) -> Iterator[None]:
    """The tests of a file close the HTTP clients that they open. Otherwise a test of another file would fail, the one
    during which they are collected.
    """
    before = set(opened_sessions)
    yield
    left = sum(not session.closed for session in opened_sessions - before)
    assert not left, f"{left} aiohttp sessions of this file are still open"


@pytest.fixture(scope="session")
def opened_sessions() -> Iterator[WeakSet[aiohttp.ClientSession]]:
    """The aiohttp sessions of this process that are in use."""
    opened: WeakSet[aiohttp.ClientSession] = WeakSet()
    initialise = aiohttp.ClientSession.__init__

    def noted(self: aiohttp.ClientSession, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        opened.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aiohttp.ClientSession, "__init__", noted)
        yield opened


def _require_marker() -> None:
    marked = _current is None or any(_current.get_closest_marker(name) for name in ("process", "repository"))
    if not marked:
        raise UnmarkedProcess("a test that starts a process needs `pytestmark = pytest.mark.process`")


def _refuse_others(family: int, address: Any) -> None:
    if family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(str(address[0])):
        raise NotLoopback(f"a test may not connect to {address!r}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_local_name(host: Any) -> bool:
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if text is None or text == "localhost":
        return True
    try:
        ipaddress.ip_address(str(text).partition("%")[0])
    except ValueError:
        return False
    return True
