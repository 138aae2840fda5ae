"""Look-ups of hosts: what the system says, and a name server that does not answer."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
from collections.abc import Iterator

import pytest

from doi_proxy.errors import UpstreamTimeout
from doi_proxy.system.check import MAX_LOOKUPS, look_up, write_address
from doi_proxy.system.progress import Bar, LineBar, progress, show_duration
from tests.clock import Clock
from tests.parts import usual_api


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The name server does not answer until the event is set."""
    answers, system = threading.Event(), socket.getaddrinfo

    def wait(host: str, *more: object, **named: object) -> object:
        if host == "silent.example":
            answers.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return system(host, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    yield answers
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "host-lookup":
            thread.join()


def test_the_addresses_of_a_host_are_those_of_the_system() -> None:
    found = asyncio.run(look_up("localhost", 80))
    assert found == socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    assert {write_address(one[4]) for one in found} <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_as_text_takes_no_thread(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", None)
    assert [write_address(found[4]) for found in asyncio.run(look_up(host, 80))] == [host]


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 64 + ".example", "\N{LATIN SMALL LETTER SHARP S}." * 200])
def test_a_host_without_an_address_is_an_os_error(host: str) -> None:
    with pytest.raises(OSError, match=r"."):
        asyncio.run(look_up(host, 80))


def test_the_end_does_not_wait_for_a_name_server_that_is_silent(silence: threading.Event) -> None:
    async def query() -> None:
        api = usual_api("http://silent.example", total_timeout=0.2)
        with pytest.raises(UpstreamTimeout):
            await api.probe()
        await api.aclose()

    asyncio.run(query())
    assert not silence.is_set()


def test_a_silent_name_server_holds_back_no_other_work(silence: threading.Event) -> None:
    async def work() -> int:
        waiting = [asyncio.create_task(look_up("silent.example", 80)) for _ in range(MAX_LOOKUPS)]
        await asyncio.sleep(0)
        done = await asyncio.to_thread(lambda: 7)
        with pytest.raises(OSError, match="wait for the name server"):
            await look_up("localhost", 80)
        for task in waiting:
            task.cancel()
        return done

    assert asyncio.run(work()) == 7
    assert not silence.is_set()


def test_a_late_answer_to_a_loop_that_has_ended_is_dropped(silence: threading.Event) -> None:
    async def leave() -> None:
        task = asyncio.create_task(look_up("silent.example", 80))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    silence.set()


# --- The progress line of long commands, and that it is on a terminal alone ------------------------------------------


@pytest.mark.parametrize(
    ("total", "in_bytes", "line"),
    [
        (1_000, False, "warming: 100 of 1,000; 20.0 a second; 0:00:45 left; resolved 90"),
        (None, False, "warming: 100; 20.0 a second; resolved 90"),
        (50, False, "warming: 100 of 50; 20.0 a second; 0:00:00 left; resolved 90"),
        (2_000_000, True, "warming: 0.0 MB of 2.0 MB; 0.0 MB a second; 27:46:35 left; resolved 90"),
    ],
)
def test_the_line_has_the_count_the_pace_and_the_time_left(
    total: float | None, in_bytes: bool, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, clock = io.StringIO(), Clock()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("COLUMNS", "200")
    bar = LineBar("warming", total, clock, in_bytes=in_bytes)
    bar.advance(60)
    assert stream.getvalue() == "\r\x1b[Kwarming"
    clock.advance(5.0)
    bar.describe(lambda: "resolved 90")
    bar.advance(40)
    assert stream.getvalue() == f"\r\x1b[Kwarming\r\x1b[K{line}"
    bar.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_job_that_goes_on_has_the_pace_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = io.StringIO(), Clock()
    monkeypatch.setattr("sys.stderr", stream)
    bar = LineBar("resolving", 1_000, clock, before=800)
    clock.advance(10.0)
    bar.advance(100)
    assert stream.getvalue().endswith("resolving: 900 of 1,000; 10.0 a second; 0:00:10 left")


def test_the_line_is_drawn_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = io.StringIO(), Clock()
    monkeypatch.setattr("sys.stderr", stream)
    bar = LineBar("warming", None, clock)
    for _ in range(4):
        clock.advance(0.1)
        bar.advance(1)
    assert stream.getvalue() == "\r\x1b[Kwarming\r\x1b[Kwarming: 3; 10.0 a second"


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("warming", 10) as bar:
        assert type(bar) is Bar
        bar.advance(10)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3_599.0, "0:59:59"), (90_061.0, "25:01:01")]
)
def test_a_duration_has_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text
