"""What strangers send to the native listener: forged packets, wrong lengths, smuggled requests.

What holds for every listener is in tests/server/test_listener_contract.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.features.native_listener.responder import MAX_REQUEST_BYTES
from doi_proxy.features.native_listener.stream import MAX_ANSWERS, MAX_NETWORKS, MAX_WAITING, AnswerLimit
from doi_proxy.server.connections import HEAD_TIMEOUT
from handle_protocol.wire.message import Filters, OpFlag, Query, decode_response, encode_query
from handle_protocol.wire.site_value import U32
from tests.constants import MOST_WAITING
from tests.features.native_listener.listening import LOCAL, Listening, listening, post
from tests.table import table

pytestmark = pytest.mark.anyio

NAME: Final = "10.1000/182"
REQUEST: Final = encode_query(Query(Filters(NAME.encode()), 7, 1_900_000_000))
#: The address of a packet that anyone can have sent.
FORGED: Final = "198.51.100.7"


def _code(answer: bytes | None) -> int:
    assert answer
    return decode_response(answer, digest_requested=False).code


def _write(name: str, flags: int = OpFlag.PUBLIC_ONLY) -> bytes:
    return encode_query(Query(Filters(name.encode()), 7, 0, flags))


def _watch_answers(proxy: Listening) -> list[tuple[float, str, int]]:
    """The time, the host and the length of each packet that the listener sends from now on."""
    sent: list[tuple[float, str, int]] = []
    loop = asyncio.get_running_loop()

    def note(data: bytes, source: Any, target: Any) -> list[float]:
        if source[1] == proxy.port:
            sent.append((loop.time(), target[0], len(data)))
        return [0.0]

    proxy.network.fate_of_datagrams = note
    return sent


@table("victim", ["198.51.100.{}", "2001:db8:1:2{:02x}::1"])
async def test_a_network_whose_addresses_are_forged_gets_five_small_packets_a_second(victim: str) -> None:
    async with listening(native_listen_udp=True) as proxy:
        proxy.upstream.put(NAME, url="https://example.org/" + "a" * 300)
        await proxy.resolve(NAME)
        sent = _watch_answers(proxy)
        for step in range(500):
            proxy.send_packet(REQUEST, (victim.format(step % 256), 4_000 + step))
            await asyncio.sleep(4 / 500)
        # Four seconds have passed. No second of them, whenever it begins, has more than five packets.
        assert len(sent) == 4 * MAX_ANSWERS
        times = [at for at, _, _ in sent]
        assert all(later - earlier >= 1 for earlier, later in zip(times, times[MAX_ANSWERS:], strict=False))
        assert {length for _, _, length in sent} <= set(range(300, 513))
        proxy.send_packet(REQUEST, ("203.0.113.1", 1))
        await asyncio.sleep(0.01)
        assert [host for _, host, _ in sent[4 * MAX_ANSWERS :]] == ["203.0.113.1"]


async def test_programs_of_this_machine_are_answered_by_udp_without_a_limit() -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url="https://example.org/")
        assert _code(await proxy.exchange(REQUEST, by="udp")) == 1
        sent = _watch_answers(proxy)
        for port in range(10 * MAX_ANSWERS):
            proxy.send_packet(REQUEST, (LOCAL, 4_000 + port))
        await asyncio.sleep(0.01)
        assert len(sent) == 10 * MAX_ANSWERS


async def test_a_network_of_the_allow_list_is_answered_by_udp_without_a_limit(tmp_path: Path) -> None:
    allowed = tmp_path / "networks.txt"
    allowed.write_text("198.51.100.0/24\n")
    async with listening(native_listen_udp=True, client_allow_file=allowed, client_rate=0.001, client_burst=1) as proxy:
        proxy.upstream.put(NAME, url="https://example.org/")
        assert _code(await proxy.exchange(REQUEST)) == 1
        sent = _watch_answers(proxy)
        for network, answers in (("198.51.100", 10 * MAX_ANSWERS), ("203.0.113", MAX_ANSWERS)):
            sent.clear()
            for number in range(10 * MAX_ANSWERS):
                proxy.send_packet(REQUEST, (f"{network}.{number}", 4_000))
            await asyncio.sleep(0.01)
            assert len(sent) == answers


def test_a_flood_of_networks_does_not_free_the_answers_of_one() -> None:
    limit = AnswerLimit()
    assert [limit.admit("victim", 0.0) for _ in range(6)] == [True] * 5 + [False]
    admitted = [limit.admit(f"network {number}", 0.5) for number in range(2 * MAX_NETWORKS)]
    assert admitted.count(True) == MAX_NETWORKS - 1
    assert not limit.admit("victim", 0.9)
    assert limit.admit("victim", 1.1) and limit.admit("another", 1.6)


async def test_udp_drops_what_is_long_or_broken() -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url="https://example.org/" + "a" * 600)
        assert _code(await proxy.exchange(REQUEST)) == 1
        part = REQUEST[:2] + b"\x22" + REQUEST[3:]
        for packet in (REQUEST, b"", REQUEST[:20], REQUEST[:-1], REQUEST + b"\0", part, b"\xff" * 512):
            assert await proxy.exchange(packet, by="udp") is None


async def test_cold_names_by_udp_have_few_places() -> None:
    async with listening() as proxy:
        for number in range(MAX_WAITING + 100):
            proxy.upstream.hold(f"10.1000/{number}")
            proxy.send_packet(_write(f"10.1000/{number}"), (f"198.51.{number}.7", 7))
        await asyncio.sleep(0)
        assert 'native_listener_messages_total{result="dropped"} 100.0' in (await proxy.proxy.get("/metrics")).text


async def test_queries_of_forged_addresses_are_not_charged_to_their_network() -> None:
    async with listening(**{MOST_WAITING: 4, "upstream_max_concurrency": 4}) as proxy:
        sent = _watch_answers(proxy)
        for number in range(40):
            proxy.upstream.hold(f"10.1000/{number}")
            proxy.send_packet(_write(f"10.1000/{number}"), (FORGED, 7))
            # Of a network, five packets a second are read.
            await asyncio.sleep(0.25)
            if sent:
                break
        # The sender of these packets is over its share, and a client of its network by HTTP is not.
        assert sent
        proxy.upstream.put("10.1000/by-http", url="https://target.example/")
        asked = asyncio.ensure_future(proxy.proxy.ask("GET", "/10.1000/by-http", client="198.51.100.8"))
        await asyncio.sleep(0.1)
        for waiting in range(number):
            proxy.upstream.release(f"10.1000/{waiting}")
        assert (await asked).status == 302


@pytest.mark.parametrize("flag", [OpFlag.AUTHORITATIVE, OpFlag.CERTIFIED])
@pytest.mark.parametrize(("address", "queries"), [(FORGED, 0), (LOCAL, 1)])
async def test_a_forged_address_does_not_bypass_the_cache(flag: int, address: str, queries: int) -> None:
    async with listening() as proxy:
        proxy.send_packet(_write(NAME, flag), (address, 7))
        await asyncio.sleep(1)
        assert proxy.upstream.queries(NAME) == queries


async def test_udp_is_for_this_machine_alone_by_default() -> None:
    async with listening(native_listen="0.0.0.0:0") as proxy:
        assert await proxy.exchange(REQUEST, by="udp") is None
        assert _code(await proxy.exchange(REQUEST)) == 100
    async with listening(native_listen="0.0.0.0:0", native_listen_udp=True) as proxy:
        assert _code(await proxy.exchange(REQUEST, by="udp")) == 100


@table("length", [MAX_REQUEST_BYTES, 0x7FFF_FFFF, 0xFFFF_FFFF, 0, 23])
async def test_a_length_that_no_request_has_is_answered_at_once(length: int) -> None:
    async with listening() as proxy:
        assert _code(await proxy.send(REQUEST[:16] + U32.pack(length) + REQUEST[20:])) == 4


async def test_the_time_for_a_head_of_http_begins_with_the_connection() -> None:
    async with listening() as proxy:
        reader, writer = await proxy.connect()
        await asyncio.sleep(HEAD_TIMEOUT - 5)
        writer.write(b"POST ")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        assert asyncio.get_running_loop().time() < HEAD_TIMEOUT + 5


@table(
    "head, status",
    [
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 0", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999", 415),
        (b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0", 415),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close", 405),
        (b"A" * 70_000, 431),
    ],
)
async def test_a_request_of_http_is_not_smuggled(head: bytes, status: int) -> None:
    async with listening() as proxy:
        answer = await proxy.send(head + b"\r\n\r\n" + post(REQUEST), end=True)
        assert answer.startswith(b"HTTP/1.1 %d " % status) or (status == 431 and answer.startswith(b"HTTP/1.1 4"))
        assert answer.count(b"HTTP/1.1 ") == 1
