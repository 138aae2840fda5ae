"""A supervisor replaces killed workers, and ends if they cannot start."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import re
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from doi_proxy.commands.supervisor import MAX_SILENCE, Supervisor
from doi_proxy.commands.worker import PipeMessage
from doi_proxy.server.http_server import Events

pytestmark = [
    pytest.mark.process,
    # The service forks from one thread; the process that runs the tests has more.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

_STANDARD_ERROR = 2


def fail(_: Connection) -> None:
    raise SystemExit(3)


def obey(pipe: Connection) -> None:
    pipe.send(PipeMessage.READY)
    while (message := pipe.recv()) != PipeMessage.END:
        pipe.send(PipeMessage.RELOADED if message == "settings" else PipeMessage.ALIVE)


def report_handlers(pipe: Connection) -> None:
    """Exit with 0 only if no signal is blocked or handled as in the supervisor, and no other pipe is open."""
    open_pipes = [held for held in gc.get_objects() if isinstance(held, Connection) and not held.closed]
    terminated = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ignored = {signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)} == {signal.SIG_IGN}
    is_alone = all(held is pipe for held in open_pipes)
    if not (terminated and ignored and is_alone and not signal.pthread_sigmask(signal.SIG_BLOCK, ())):
        raise SystemExit(4)
    obey(pipe)


class Watched:
    """A supervisor of two workers; `steps` run one after the other, whenever all workers answer."""

    def __init__(self, work: Callable[[Connection], None], *steps: Callable[[Watched], Any]) -> None:
        #: The workers of each step.
        self.workers: list[list[BaseProcess]] = []
        self.draining = False
        self._steps = list(steps)
        self.ends: list[tuple[str, str, str]] = []
        events = Events(self._answers, self._drain, ended=lambda *end: self.ends.append(end))
        self.supervisor = Supervisor(
            work,
            2,
            [socket.socket()],
            events,
            reload=lambda: "settings",
            seconds_to_end=1.0,
        )

    def _answers(self) -> None:
        self.workers.append(list(multiprocessing.active_children()))
        self._steps.pop(0)(self)

    def _drain(self) -> None:
        self.draining = True

    def statuses(self) -> list[list[int | None]]:
        """The exit statuses of the workers of each step."""
        return [sorted((worker.exitcode for worker in workers), key=str) for workers in self.workers]


def signal_self(number: signal.Signals) -> Callable[[Watched], None]:
    return lambda _: os.kill(os.getpid(), number)


def test_a_service_whose_workers_cannot_start_ends_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    assert Watched(fail).supervisor.run() is False
    assert "ended with status 3" in caplog.text
    assert multiprocessing.active_children() == []


def test_a_reload_reaches_the_workers_and_a_signal_ends_them() -> None:
    watched = Watched(obey, signal_self(signal.SIGHUP), signal_self(signal.SIGTERM))
    assert watched.supervisor.run() is True
    assert (watched.draining, watched.statuses()) == (True, [[0, 0], [0, 0]])


def test_a_worker_that_is_killed_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    def kill(watched: Watched) -> None:
        victim = watched.workers[0][0]
        victim.kill()
        victim.join()
        # All of them have to answer once more, so the next step waits for the replacement.
        os.kill(os.getpid(), signal.SIGHUP)

    watched = Watched(obey, kill, signal_self(signal.SIGINT))
    assert watched.supervisor.run() is True
    assert watched.statuses() == [[-signal.SIGKILL, 0], [0, 0]]
    line = r"was ended by SIGKILL, and another one takes its place; if .*Out of memory.*, lower cache_memory_bytes"
    assert re.search(line, caplog.text)
    assert watched.ends in ([("worker 1", "signal", "SIGKILL")], [("worker 2", "signal", "SIGKILL")])


def test_a_worker_that_a_signal_without_a_name_has_killed_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    def kill(watched: Watched) -> None:
        victim = watched.workers[0][0]
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGRTMIN + 1)
        victim.join()
        os.kill(os.getpid(), signal.SIGHUP)

    watched = Watched(obey, kill, signal_self(signal.SIGINT))
    assert watched.supervisor.run() is True
    assert "was ended by SIGRTMIN+1, and another one takes its place; if no program of yours" in caplog.text
    assert [sign for _, _, sign in watched.ends] == ["SIGRTMIN+1"]


def obey_with_stack(pipe: Connection) -> None:
    faulthandler.enable(_STANDARD_ERROR)
    obey(pipe)


@pytest.mark.parametrize(("is_stopped", "seconds"), [(True, 0.0), (False, 600.0)], ids=["stopped", "hanging"])
def test_a_worker_that_is_silent_writes_its_stack_if_it_can_and_is_replaced(
    is_stopped: bool,
    seconds: float,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("doi_proxy.commands.supervisor.ABORT_SECONDS", seconds)

    def let_hang(watched: Watched) -> None:
        worker = watched.supervisor._workers[0]
        if is_stopped:
            os.kill(worker.process.pid or 0, signal.SIGSTOP)
        worker.heard_at -= MAX_SILENCE
        # The next step comes when the replacement answers.
        watched.supervisor._answering = worker.ready = False

    watched = Watched(obey_with_stack, let_hang, signal_self(signal.SIGTERM))
    assert watched.supervisor.run() is True
    assert watched.ends == [("worker 1", "silent", "")]
    (line,) = [message for message in caplog.messages if "worker 1" in message]
    assert line.startswith("worker 1 (process ") and " has not answered for 6" in line
    assert line.endswith(" s: it is killed and replaced; its stack follows if it can run")
    assert ("in obey_with_stack" in capfd.readouterr().err) is not is_stopped


def test_a_worker_that_is_silent_during_the_shutdown_is_not_replaced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doi_proxy.commands.supervisor.ABORT_SECONDS", 0.0)

    def hang_and_end(watched: Watched) -> None:
        worker = watched.supervisor._workers[0]
        os.kill(worker.process.pid or 0, signal.SIGSTOP)
        worker.heard_at -= MAX_SILENCE
        os.kill(os.getpid(), signal.SIGTERM)

    watched = Watched(obey, hang_and_end)
    assert watched.supervisor.run() is True
    (line,) = [message for message in caplog.messages if "worker 1" in message]
    assert line.endswith(" s: it is killed; its stack follows if it can run")
    assert len(watched.workers) == 1 and watched.ends == []


def test_a_worker_that_does_not_end_in_time_is_killed_with_a_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doi_proxy.commands.supervisor.END_MARGIN", -1.0)

    def hang_and_end(watched: Watched) -> None:
        os.kill(watched.supervisor._workers[0].process.pid or 0, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGTERM)

    watched = Watched(obey, hang_and_end)
    assert watched.supervisor.run() is True
    (line,) = [message for message in caplog.messages if "worker 1" in message]
    assert line.endswith(" has not ended 0 s after the signal to end: it is killed")


def test_a_worker_holds_nothing_of_the_supervisor() -> None:
    watched = Watched(report_handlers, signal_self(signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    assert watched.supervisor.run() is True
    assert watched.statuses() == [[0, 0]]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_change_by_a_worker_reaches_the_others_once() -> None:
    seen, writes = multiprocessing.Pipe(duplex=False)

    def announce(pipe: Connection) -> None:
        pipe.send(PipeMessage.READY)
        while (message := pipe.recv()) != PipeMessage.END:
            if message == PipeMessage.CHANGED:
                writes.send(os.getpid())
            else:
                pipe.send(PipeMessage.CHANGED)
                pipe.send(PipeMessage.RELOADED)

    with seen, writes:
        watched = Watched(announce, signal_self(signal.SIGHUP), signal_self(signal.SIGTERM))
        assert watched.supervisor.run() is True
        workers = {worker.pid for worker in watched.workers[0]}
        assert {seen.recv(), seen.recv()} == workers
        assert not seen.poll()


def test_a_worker_that_reads_nothing_does_not_stop_the_supervisor() -> None:
    def announce(pipe: Connection) -> None:
        pipe.send(PipeMessage.READY)
        # Far more changes than a pipe holds.
        assert pipe.recv() == "settings"
        for _ in range(2_000):
            pipe.send(PipeMessage.CHANGED)
        pipe.send(PipeMessage.RELOADED)
        while pipe.recv() != PipeMessage.END:
            pass

    watched = Watched(announce, signal_self(signal.SIGHUP), signal_self(signal.SIGTERM))
    assert watched.supervisor.run() is True
    assert watched.statuses() == [[0, 0], [0, 0]]
