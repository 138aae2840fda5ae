"""A supervisor replaces killed workers, and ends if they cannot start."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import pytest

from app.server.http_server import Events
from app.server.supervisor import Supervisor
from app.server.worker import PipeMessage

pytestmark = pytest.mark.process

SPAWN = multiprocessing.get_context("spawn")


def fail(_: Connection) -> None:
    raise SystemExit(3)


def obey(pipe: Connection) -> None:
    pipe.send(PipeMessage.READY)
    while (message := pipe.recv()) != PipeMessage.END:
        pipe.send(PipeMessage.RELOADED if message == "settings" else PipeMessage.ALIVE)


class Watched:
    """A supervisor of two processes; `steps` run one after the other, whenever all workers answer."""

    def __init__(self, target: Callable[[Connection], None], *steps: Callable[[Watched], Any]) -> None:
        self.started: list[SpawnProcess] = []
        self.draining = False
        self._steps = list(steps)
        self._target = target
        events = Events(ready=lambda: self._steps.pop(0)(self), draining=self._drain)
        self.supervisor = Supervisor(
            self._create, 2, [socket.socket()], events, reload=lambda: "settings", seconds_to_end=lambda: 1.0
        )

    def _create(self, pipe: Connection) -> SpawnProcess:
        self.started.append(SPAWN.Process(target=self._target, args=(pipe,)))
        return self.started[-1]

    def _drain(self) -> None:
        self.draining = True


def signal_self(number: signal.Signals) -> Callable[[Watched], None]:
    return lambda _: os.kill(os.getpid(), number)


def test_a_service_whose_workers_cannot_start_ends_with_an_error() -> None:
    watched = Watched(fail)
    assert watched.supervisor.run() is False
    assert all(process.exitcode == 3 for process in watched.started)


def test_a_reload_reaches_the_workers_and_a_signal_ends_them() -> None:
    watched = Watched(obey, signal_self(signal.SIGHUP), signal_self(signal.SIGTERM))
    assert watched.supervisor.run() is True
    assert (watched.draining, [process.exitcode for process in watched.started]) == (True, [0, 0])


def test_a_worker_that_is_killed_is_replaced() -> None:
    def kill(watched: Watched) -> None:
        watched.started[0].kill()
        watched.started[0].join()
        # All of them have to answer once more, so the next step waits for the replacement.
        os.kill(os.getpid(), signal.SIGHUP)

    watched = Watched(obey, kill, signal_self(signal.SIGINT))
    assert watched.supervisor.run() is True
    assert [process.exitcode for process in watched.started] == [-signal.SIGKILL, 0, 0]
