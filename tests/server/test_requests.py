"""One request gets one answer, whatever a client sends and however TCP splits it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doi_proxy.server.connections import Reason
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.web.application import Application
from tests.clock import Clock
from tests.examples import examples
from tests.server.served import TARGET, Served, finish, reset, served, statuses
from tests.server.ways import Server
from tests.table import table
from tests.world.loop import WorldLoop

pytestmark = pytest.mark.anyio

LAST = b"GET /10.1000/182 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
GET = b"GET /10.1000/182 HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"GET /10.1000/182 HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"


#: Heads with two different lengths for one request (RFC 9112, sections 5.2, 6.1 and 6.3).
AMBIGUOUS = (
    "Content-Length: 4\r\nContent-Length: 5",
    "Content-Length: 4, 5",
    "Content-Length: +4",
    "Content-Length: -1",
    "Content-Length: 0x4",
    "Content-Length: 4 4",
    "Content-Length:",
    "Content-Length: 99999999999999999999999",
    "Transfer-Encoding: chunked\r\nContent-Length: 4",
    "Content-Length: 4\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding:\x0bchunked",
    "X: a\r\n continued",
    "X : a",
)


lanes = pytest.mark.parametrize("lane", [True, False], ids=["lane", "no lane"])


@lanes
@pytest.mark.parametrize("size", [1_000, 60_000, 100_000, 130_000])
async def test_an_unread_body_gets_one_answer_and_ends_the_connection(size: int, lane: bool) -> None:
    async with served(express_lane=lane) as server:
        head = b"GET /10.1000/182 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
        answers = await server.exchange(head, *[b"a" * 1_000] * (size // 1_000), end=True)
        assert statuses(answers) == [302]
        assert b"connection: close\r\n" in answers


@lanes
@pytest.mark.parametrize("line", [b"Connection: close", b"connection: close", b"Connection: Close"])
async def test_the_answer_to_connection_close_is_the_last_one(line: bytes, lane: bool) -> None:
    async with served(express_lane=lane) as server:
        last = LAST.replace(b"Connection: close", line)
        for answers in [await server.exchange(last + GET) for _ in range(3)]:
            assert statuses(answers) == [302]
            assert b"\r\nconnection: close\r\n" in answers
        await server.closed(Reason.FINISHED)


@lanes
async def test_a_body_that_looks_like_a_request_is_not_parsed_as_one(lane: bool) -> None:
    async with served(express_lane=lane) as server:
        head = b"GET /10.1000/182 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(GET)
        assert statuses(await server.exchange(head + GET + GET, end=True)) == [302]


@lanes
async def test_a_body_that_is_read_keeps_the_connection(lane: bool) -> None:
    async with served(express_lane=lane) as server:
        form = b"hdl=10.1000/182"
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        answers = await server.exchange(
            # Zeros may stand before it (RFC 9110, section 8.6).
            head + b"Content-Length: 00%d\r\n\r\n" % len(form) + form,
            head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(form) + form + b"\r\n0\r\n\r\n" + LAST,
        )
        assert statuses(answers) == [302, 302, 302]


async def test_a_body_beside_an_upgrade_is_refused() -> None:
    async with served() as server:
        answers = await server.exchange(UPGRADE + b"Content-Length: 3\r\n\r\nabc", end=True)
        assert statuses(answers) == [400]


@lanes
@table(
    ("wrong", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x/..\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET http://user@x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\nHost: x y\r\n\r\n", 400),
        (b"GET http://x HTTP/1.1\r\n\r\n", 400),
        (b"\0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 70_000, 431),
    ],
)
async def test_a_wrong_request_is_refused_after_the_answers_before_it(wrong: bytes, status: int, lane: bool) -> None:
    async with served(express_lane=lane) as server:
        assert statuses(await server.exchange(GET + GET + wrong + GET, end=True)) == [302, 302, status]
        assert statuses(await server.exchange(wrong + GET, end=True)) == [status]


@lanes
@table("lines", AMBIGUOUS)
async def test_an_ambiguous_length_is_refused_and_nothing_after_it_is_read(lines: str, lane: bool) -> None:
    async with served(express_lane=lane) as server:
        wrong = f"POST /10.1000/182 HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n0\r\n\r\n".encode("latin-1")
        assert statuses(await server.exchange(wrong + GET, end=True)) == [400]


async def test_a_body_that_is_too_long_has_one_answer() -> None:
    async with served() as server:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        answers = await server.exchange(head + b"Content-Length: 1000000\r\n\r\n", *[b"x" * 10_000] * 100, end=True)
        assert statuses(answers) == [413]


@lanes
@table(
    ("request_", "detail"),
    [
        (b"GET /10.5555/\xf0\x9f\x98\x80 HTTP/1.1\r\nHost: x\r\n\r\n", "percent-encode"),
        (b"GET /10.5555/a?type=\xe4 HTTP/1.1\r\nHost: x\r\n\r\n", "percent-encode"),
        (b"GET / HTTP/1.1\r\n\r\n", "no Host header"),
        (b"GET / HTTP/1.1\r\nHost: x y\r\n\r\n", "Host header is not a host name"),
    ],
)
async def test_a_refusal_of_the_server_is_a_problem_that_any_page_may_read(
    request_: bytes, detail: str, lane: bool
) -> None:
    async with served(express_lane=lane) as server:
        head, _, body = (await server.exchange(request_, end=True)).partition(b"\r\n\r\n")
        assert {b"access-control-allow-origin: *", b"content-type: application/problem+json"} <= set(
            head.split(b"\r\n")
        )
        found = json.loads(body)
        assert (found["status"], found["type"]) == (400, "/docs#invalid-request")
        assert detail in found["detail"]


async def test_the_type_of_a_refusal_is_below_the_path_of_the_public_url() -> None:
    async with served(public_url="https://www.example.edu/doi") as server:
        _, _, body = (await server.exchange(b"GET / HTTP/1.1\r\n\r\n", end=True)).partition(b"\r\n\r\n")
        assert json.loads(body)["type"] == "/doi/docs#invalid-request"


@lanes
async def test_an_absolute_target_names_the_host_whatever_the_host_header_says(lane: bool) -> None:
    # RFC 9112, section 3.2.2.
    async with served(express_lane=lane) as server:
        alias = {"index": 1, "type": "HS_ALIAS", "data": {"format": "string", "value": "10.1000/182"}, "ttl": 86_400}
        server.upstream.put("10.5555/alias", [alias])
        for target in (b"http://y.example:81/10.5555/alias", b"HTTPS://y.example:81/10.5555/alias"):
            answer = await server.exchange(GET.replace(b"/10.1000/182", target), end=True)
            assert statuses(answer) == [301]
            assert b"\r\nlocation: http://y.example:81/10.1000/182\r\n" in answer


@lanes
@table("target", [b"http://y.example", b"http://y.example?noredirect", b"http://y.example/"])
async def test_an_absolute_target_without_a_path_is_the_home_page(target: bytes, lane: bool) -> None:
    async with served(express_lane=lane) as server:
        home = await server.exchange(GET.replace(b"/10.1000/182", b"/"), end=True)
        assert (await server.exchange(GET.replace(b"/10.1000/182", target), end=True)).partition(b"\r\n\r\n")[2] == (
            home.partition(b"\r\n\r\n")[2]
        )


@pytest.mark.parametrize("target", [b"/10.1000/182#a", b"/10.1000/182?a#b", b"http://x/10.1000/182", b"//10.1000/182"])
async def test_every_form_of_a_target_gets_the_answer_of_its_path(target: bytes) -> None:
    async with served(express_lane=False) as server:
        answers = await server.exchange(GET.replace(b"/10.1000/182", target) + LAST)
        assert answers.count(b"\r\nlocation: " + TARGET.encode() + b"\r\n") == 2


async def test_an_error_in_an_answer_without_a_task_is_logged_and_the_full_path_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(Clock(), ServerProtocol, express_lane=False)
    with patch.object(Application, "begin", side_effect=ValueError("a bug")):
        answer, _ = await server.answers(GET)
    assert statuses(answer) == [302]
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a bug"]


@pytest.mark.parametrize("host", [b"", b"x", b"x:80", b"[::1]:80", b"a%20b", b"x."])
async def test_a_valid_host_is_answered(host: bytes) -> None:
    async with served() as server:
        answers = await server.exchange(b"GET / HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n")
        assert statuses(answers) == [200]


async def test_http_1_0_needs_no_host() -> None:
    async with served() as server:
        assert statuses(await server.exchange(b"GET / HTTP/1.0\r\n\r\n")) == [200]


@pytest.mark.parametrize(
    ("begun", "piece", "status"),
    [
        # Nobody reads this body, so no more than the beginning of the trailers is read.
        (b"3\r\nabc\r\n0\r\n", b"X-A: " + b"a" * 9_000 + b"\r\n", 408),
        (b"1;", b"x" * 9_000, 431),
    ],
    ids=["trailers", "extension"],
)
async def test_what_frames_chunks_without_end_is_refused(begun: bytes, piece: bytes, status: int) -> None:
    async with served() as server:
        assert statuses(await server.exchange(CHUNKED + begun, *[piece] * 9)) == [status]


@lanes
async def test_a_half_closed_client_gets_all_its_answers(lane: bool) -> None:
    async with served(express_lane=lane) as server:
        # The second name is unknown, so its answer takes a task that waits for the upstream.
        answers = await server.exchange(GET + GET.replace(b"182", b"unknown") + GET, end=True)
        assert statuses(answers) == [302, 404, 302]


@lanes
async def test_requests_are_parsed_only_as_their_answers_are_read(lane: bool) -> None:
    async with served(express_lane=lane) as server:
        await server.put("10.1000/BIG", size=200_000)
        big = GET.replace(b"/10.1000/182", b"/api/handles/10.1000/big")
        _, writer = await server.connect()
        writer.write(big * 2_000 + LAST)
        # The server stops reading before it has seen it all: a client cannot make it hold 400 MB.
        await asyncio.sleep(1)
        assert 0 < server.unsent < 2 * 1024 * 1024
        reset(writer)
        await server.closed(Reason.CLIENT)


pieces = st.sampled_from(
    [
        GET,
        GET.replace(b"GET", b"HEAD"),
        GET.replace(b"182", b"none"),
        GET.replace(b"/10.1000", b"/api/handles/10.1000"),
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\nhdl=10.1000/182",
        CHUNKED + b"4\r\n\r\n\r\n\r\n1;a=b\r\nx\r\n0\r\nT: v\r\n\r\n",
        b"GET /10.1000/182 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nGET / HTT",
        UPGRADE + b"\r\n",
        b"\r\n",
        b"GET /10.1000/182 HTTP/1.0\r\n\r\n",
        b"GET /10.1000/182 HTTP/1.1\r\n\r\n",
        b"\0",
    ]
)


async def answers_of(server: Served, chunks: list[bytes]) -> tuple[list[int], int]:
    """The statuses of the answers on one connection, and how many lead to the target."""
    reader, writer = await server.connect()
    for chunk in chunks:
        writer.write(chunk)
        await writer.drain()
    answers = await finish(reader, writer)
    return statuses(answers), answers.count(TARGET.encode())


@pytest.mark.hypothesis
def test_the_same_bytes_get_the_same_answers_however_they_are_cut() -> None:
    with asyncio.Runner(loop_factory=WorldLoop) as runner:
        stack = AsyncExitStack()
        servers = [runner.run(stack.enter_async_context(served(express_lane=lane))) for lane in (True, False)]
        for server in servers:
            runner.run(server.put("10.1000/NONE"))

        @settings(max_examples=examples(2), deadline=None)
        @given(stream=st.lists(pieces, min_size=1, max_size=6), cuts=st.lists(st.integers(1, 500), max_size=6))
        def compare(stream: list[bytes], cuts: list[int]) -> None:
            whole = b"".join(stream) + LAST
            edges = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
            chunks = [whole[start:end] for start, end in pairwise(edges)]
            found = [runner.run(answers_of(server, sent)) for server in servers for sent in ([whole], chunks, chunks)]
            assert found == found[:1] * len(found)

        compare()
        runner.run(stack.aclose())
