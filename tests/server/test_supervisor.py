"""The supervisor sees at once that a worker is gone."""

from __future__ import annotations

import signal

import pytest
from uvicorn import Config
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from app.server.supervisor import Supervisor


def test_a_worker_that_dies_while_it_is_asked_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # A supervisor takes over the signals of its process, and starts workers in place of those that do not run.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(Multiprocess, "keep_subprocess_alive", lambda _: None)
    config = Config("app.main:create_from_environment", factory=True)
    supervisor, worker = Supervisor(config, sockets=[]), Process(config, [])
    supervisor.processes = [worker]
    assert not worker.parent_conn.poll()
    supervisor.keep_subprocess_alive()
    # Nobody holds the other end: there is its end to read, and no answer to wait for.
    assert worker.parent_conn.poll()
    assert not worker.ping()
    # As uvicorn does with a worker that does not answer.
    worker.child_conn.close()
