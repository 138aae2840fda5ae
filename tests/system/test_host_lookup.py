"""Look-ups of hosts: what the system says, and a name server that does not answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from doi_proxy.errors import UpstreamTimeout
from doi_proxy.system.check import MAX_LOOKUPS, look_up, write_address
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
