"""What systemd is told: that the service does not hang."""

from __future__ import annotations

import os
import socket
from math import inf
from pathlib import Path

import pytest

from doi_proxy.commands.systemd import Notifier, read_watchdog
from tests.clock import Clock


def test_a_service_that_does_not_hang_says_so_three_times_in_each_deadline(tmp_path: Path) -> None:
    clock = Clock(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        notifier = Notifier(str(tmp_path / "notify"), watchdog=60.0, timer=clock)
        messages = list[bytes]()
        for _ in range(60):
            notifier.alive()
            clock.advance(1)
            try:
                messages.append(manager.recv(100))
            except BlockingIOError:
                continue
    assert messages == [b"WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, inf),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, inf),
        ({"WATCHDOG_USEC": "soon"}, inf),
        ({"WATCHDOG_USEC": "0"}, inf),
    ],
)
def test_the_deadline_is_that_of_the_unit_for_this_process(environment: dict[str, str], seconds: float) -> None:
    assert read_watchdog(environment) == seconds


def test_the_deadline_of_this_process_by_its_id_counts() -> None:
    # The id is that of a fork, and not of the process that collected the tests.
    assert read_watchdog({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}) == 60.0


def test_without_a_deadline_it_sends_nothing(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        Notifier(str(tmp_path / "notify")).alive()
        with pytest.raises(BlockingIOError):
            manager.recv(100)
