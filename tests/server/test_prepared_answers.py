"""Every way to an answer gives the same bytes and lines; what is prepared dies with its record; uvicorn's inside is
as we know it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import Entry
from doi_proxy.main import create
from doi_proxy.server.plain_head import read_plain
from doi_proxy.server.prepared_answers import CLIENT_SAMPLE, MAX_HEADS, PreparedAnswers, Shelf
from doi_proxy.server.protocol import USED, ServerProtocol, application_of
from doi_proxy.web.application import Application
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock
from tests.examples import examples
from tests.server.ways import NOWHERE, URL, FullPathProtocol, Server, Ways, Wire, lane_uses
from tests.table import table

BROWSER = ("Accept: text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Language: de, en;q=0.5", "Cookie: a=b")


def get(path: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: x", *headers, "", ""]).encode()


paths = st.sampled_from(
    ["/10.1000/182", "/10.1000%2F182", "/doi:10.1000/182", "/DOI:10.1000/182", "//10.1000/182", "/urn:doi:10.1000:182",
     "/10.1000/%C3%84", "/10.1000/mail", "/10.1000/none", "/10.1000/script", "/10.1000/alias", "/10.1000/links",
     "/10.1000/loc", "/10.1000/182?noredirect", "/10.1000/182?", "/10.1000/182?urlappend=%3Fx", "/10.1000/loc?locatt=x",
     "/api/handles/10.1000/182", "/api/handles/10.1000/loc?callback=f",
     "/API/handles/10.1000%2f182", "/api/handles/10.1000/loc", "/api/handles/10.1000/182?type=URL",
     "/api/handles/10.1000/alias",
     "/api/handles/10.1000/182?pretty", "/", "/foo/bar", "/robots.txt", "/10.1000/%ZZ", "/api/foo",
     "/10.1000/182?auth", "/10.1000/182?urlappend=%00%ff", "/10.1000/182?format=bibtex", "/10.1000/182?a#b",
     "/api/handles/10.1000/missing?auth=true", "/10.1000/long?action=api", "/10.1000/182?type=X", "/10.1000/182?\xe9"]
)  # fmt: skip
plain_paths = st.sampled_from(
    ["/10.1000/182", "/10.1000%2F182", "/10.1000/links", "/api/handles/10.1000/182", "/10.1000/mail",
     "/10.1000/182?noredirect", "/10.1000/none", "/10.1000/script", "/10.1000/missing", "/10.1000/182.",
     "/api/handles/10.1000/missing", "/api/handles/10.1000/182?type=URL&index=1", "/10.1000/182?urlappend=%3Fx",
     "/10.1000/long?noredirect", "/api/handles/10.1000/long", "/10.1000/alias", "/10.1000/alias?noredirect"]
)  # fmt: skip
header_lines = st.lists(
    st.sampled_from(
        ["Accept: */*", "Accept: text/html,application/xhtml+xml,*/*;q=0.8", "Accept: application/x-bibtex", "Accept:",
         "accept: text/html", "Accept: application/json;q=0.9, text/html;q=0.5", "User-Agent: curl/8.0",
         "User-Agent: Mozilla/5.0",
         "Accept-Language: de", "Accept-Language: fr;q=0.9, es;q=0.8", "Accept-Encoding: zstd, gzip",
         "Cookie: a=b", "Accept: application/json", "Authorization: Basic YTpi",
         "Connection: keep-alive", "Connection: close", "Connection: Keep-Alive",
         "If-None-Match: *", 'If-None-Match: "x"', "Proxy-Connection: close",
         "Proxy-Connection: keep-alive", "Content-Length: 0", "Accept-Encoding: gzip", "X-Odd:  spaced \t",
         "Origin: https://app.example", "Expect: 100-continue", "Host: y",
         "X-Request-ID: mine", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 198.51.100.7, 127.0.0.1",
         "X-Forwarded-For:", "X-Forwarded-Proto: https", "X-Bytes: \u00e9"]
    ),
    max_size=4,
)  # fmt: skip
#: One of each kind: redirects, JSON, "not found", a page, the page of a redirect that has no target.
OVER_TIME = ("/10.1000/182", "/10.1000/links", "/10.1000/182?urlappend=%3Fx", "/api/handles/10.1000/182?type=URL",
             "/api/handles/10.1000/182", "/api/handles/10.1000/missing", "/10.1000/182?noredirect", "/10.1000/missing",
             "/10.1000/none")  # fmt: skip
requests = st.builds(
    lambda path, headers, method, version: get(path, *headers, method=method, version=version),
    st.one_of(plain_paths, paths),
    header_lines,
    st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "DELETE"]),
    st.sampled_from(["1.1", "1.1", "1.1", "1.0"]),
)
#: Seconds between requests: inside one second, over its edge, into the last minutes of an entry's life and past it. The
#: negative ones are those of a clock that is set back.
steps = st.sampled_from([0.0, 0.0, 0.3, 0.7, 1.0, 60.0, 77_000.0, 86_100.0, -0.4, -5.0])


@pytest.fixture(scope="module", params=[None, 0, 3], ids=["no log", "log with clients", "log without clients"])
def compare(request: pytest.FixtureRequest) -> Iterator[Callable[[Sequence[tuple[Sequence[bytes], float]]], None]]:
    with asyncio.Runner() as runner:
        lanes = Ways(privacy=request.param)

        def run(asked: Sequence[tuple[Sequence[bytes], float]]) -> None:
            logging.disable(logging.CRITICAL)
            try:
                runner.run(lanes.compare(asked))
            finally:
                logging.disable(logging.NOTSET)

        yield run


@pytest.mark.nightly
@settings(max_examples=examples(3), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked=st.lists(st.tuples(requests, steps), min_size=1, max_size=12))
def test_every_way_gives_the_same_bytes_and_lines(compare: Any, asked: Sequence[tuple[bytes, float]]) -> None:
    compare([([request], step) for request, step in asked])


@settings(max_examples=examples(2), deadline=None)
@given(asked=st.lists(requests, min_size=1, max_size=6), cuts=st.lists(st.integers(0, 400), max_size=4))
def test_pipelined_and_split_requests_are_answered_alike(
    compare: Any, asked: Sequence[bytes], cuts: Sequence[int]
) -> None:
    stream = b"".join(asked)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    compare([([stream[start:end] for start, end in pairwise(edges) if start < end], 0.0)])


def test_the_numbers_of_each_moment_are_those_of_the_full_path(compare: Any) -> None:
    """From the first second of a record to a day past its end. No query is answered, so an outage begins on the way."""
    asked = [get(path) for path in OVER_TIME] + [get("/10.1000/182", method="HEAD")]
    steps = (
        0.4,
        0.6,
        1.0,
        57.3,
        240.0,
        0.9,
        3_600.0,
        73_860.0 - 0.5,
        0.5,
        8_340.0,
        299.0,
        0.7,
        0.3,
        1.0,
        86_400.0,
        2.0,
    )
    compare([([request], step if request is asked[-1] else 0.0) for step in steps for request in asked])


def test_a_head_that_was_prepared_after_a_clock_was_set_back_is_written_anew(compare: Any) -> None:
    redirect = get("/10.1000/182")
    steps = [([get("/api/handles/10.1000/182")], -5.0), *(([redirect], step) for step in (0.0, 0.0, 1.0, 7.0, 1.0))]
    compare(steps)


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["/doi:10.1000/182", "/10.1000/LINKS", "/api/handles/10.1000/182"])
async def test_a_plain_request_takes_the_lane_from_the_second_time(path: str) -> None:
    server = Server(Clock(), ServerProtocol)
    uses = lane_uses(server.application)
    await server.answers(get(path))
    assert uses == []
    await server.answers(get(path) + get(path, method="HEAD"))
    status = 200 if path.startswith("/api") else 302
    assert uses == [("GET", status), ("HEAD", status)]


@pytest.mark.parametrize(
    "path",
    ["/10.1000/loc", "/10.1000/alias", "/10.1000/182?auth", "/10.1000/182?cert", "/10.1000/182?format=bibtex", "/",
     "/api/handles/10.1000/182?cert=true", "/foo/bar"],
)  # fmt: skip
async def test_what_is_not_plain_never_takes_the_lane(path: str) -> None:
    server = Server(Clock(), ServerProtocol)
    uses = lane_uses(server.application)
    for _ in range(4):
        await server.answers(get(path))
    assert uses == []


@table(
    ("path", "status"),
    [
        ("/10.1000/182?urlappend=%3Fx", 302),
        ("/10.1000/182?locatt=x", 302),
        ("/10.1000/182?action=api", 200),
        ("/10.1000/182?type=NONE", 200),
        ("/10.1000/182?noredirect", 200),
        ("/10.1000/none", 200),
        ("/10.1000/missing", 404),
        ("/api/handles/10.1000/182?type=URL", 200),
        ("/api/handles/10.1000/182?index=1&pretty", 200),
        ("/api/handles/10.1000/missing", 404),
        ("/api/handles/10.1000/none?type=URL", 200),
    ],
)
async def test_pages_and_targets_with_a_query_take_the_lane_from_the_third_time(path: str, status: int) -> None:
    server = Server(Clock(), ServerProtocol)
    uses = lane_uses(server.application)
    for _ in range(2):
        await server.answers(get(path, *BROWSER))
    assert uses == []
    await server.answers(get(path, *BROWSER) + get(path, *BROWSER, method="HEAD"))
    assert uses == [("GET", status), ("HEAD", status)]


async def test_prepared_answers_are_counted_for_their_clients_once_in_a_sample() -> None:
    server, counted = Server(Clock(), ServerProtocol), list[tuple[str, int]]()
    prepared = server.application.prepared
    assert isinstance(prepared, PreparedAnswers)
    prepared._count_client = lambda client, requests: counted.append((client, requests))
    await server.answers(get("/10.1000/182"))
    await server.answers(get("/10.1000/182", "X-Forwarded-For: 203.0.113.9") * 2 * CLIENT_SAMPLE)
    assert counted == [("203.0.113.9", CLIENT_SAMPLE)] * 2


@table("header", ["X-Forwarded-For: {}", "x-forwarded-for: {}"])
async def test_a_prepared_answer_is_logged_for_the_client_that_its_front_proxy_names(header: str) -> None:
    server = Server(Clock(), ServerProtocol, privacy=0)
    clients = ["203.0.113.9", "203.0.113.9", "198.51.100.7", "198.51.100.7", "203.0.113.9"]
    for language, client in enumerate(clients):
        await server.answers(get("/10.1000/182", f"Accept-Language: x-{language}", header.format(client)))
    assert [json.loads(line)["client"] for line in server.lines] == clients


async def test_a_client_that_left_before_its_request_was_read_has_an_empty_address() -> None:
    server, wire = Server(Clock(), FullPathProtocol, privacy=0), Wire(peername=None)
    protocol = FullPathProtocol(server._config, server.state, {})
    protocol.connection_made(wire)
    protocol.data_received(get("/10.1000/182"))
    await asyncio.gather(*server.state.tasks)
    assert wire.written.startswith(b"HTTP/1.1 302 ")


async def test_an_alias_has_a_prepared_answer_if_the_service_knows_its_own_url() -> None:
    server = Server(Clock(), ServerProtocol, public_url="https://doi.example.org")
    uses = lane_uses(server.application)
    for _ in range(2):
        assert b"location: https://doi.example.org/10.1000/182\r\n" in (await server.answers(get("/10.1000/alias")))[0]
    assert uses == [("GET", 301)]
    server.memory.drop("10.1000/182")
    assert (await server.answers(get("/10.1000/alias")))[0].startswith(b"HTTP/1.1 502 ")


async def test_each_language_and_coding_has_its_own_prepared_page() -> None:
    server = Server(Clock(), ServerProtocol)
    choices = [
        (f"Accept-Language: {language}", f"Accept-Encoding: {coding}")
        for language in ("en", "de", "fr")
        for coding in ("identity", "gzip")
    ]
    first = {one: (await server.answers(get("/10.1000/long?noredirect", *one)))[0] for one in choices}
    assert len(set(first.values())) == len(choices)
    for one in choices:
        await server.answers(get("/10.1000/long?noredirect", *one))
    uses = lane_uses(server.application)
    for one in choices:
        written, _ = await server.answers(get("/10.1000/long?noredirect", *one))
        assert written == first[one]
        assert (b"content-encoding: gzip" in written) == (one[1] == "Accept-Encoding: gzip")
    assert len(uses) == len(choices)


async def test_a_page_about_a_missing_name_dies_when_more_is_known_about_a_suggested_one() -> None:
    server = Server(Clock(), ServerProtocol)
    server.memory.drop("10.1000/182")
    for _ in range(3):
        written, _ = await server.answers(get("/10.1000/182."))
    uses = lane_uses(server.application)
    assert (await server.answers(get("/10.1000/182.")))[0] == written
    assert len(uses) == 1
    now = server.clock()
    server.memory.keep(Entry("10.1000/182", Answer(ResponseCode.HANDLE_NOT_FOUND), now, now + 600, now + 600))
    changed, _ = await server.answers(get("/10.1000/182."))
    assert len(uses) == 1
    assert b"10.1000/182<" in written.replace(b"<wbr>", b"") and changed != written


async def test_a_prepared_page_about_a_missing_name_is_as_old_as_what_it_is_about() -> None:
    server = Server(Clock(), ServerProtocol)
    for _ in range(3):
        await server.answers(get("/10.1000/missing"))
    server.clock.advance(60)
    now = server.clock()
    server.memory.keep(Entry("10.1000/MISSING", Answer(ResponseCode.HANDLE_NOT_FOUND), now, now + 600, now + 600))
    uses = lane_uses(server.application)
    await server.answers(get("/10.1000/missing"))
    assert uses == []
    server.memory.drop("10.1000/MISSING")
    assert (await server.answers(get("/10.1000/missing")))[0].startswith(b"HTTP/1.1 502 ")


def held(application: Application) -> int:
    """The bytes of all that is prepared."""
    lane = application.prepared
    assert isinstance(lane, PreparedAnswers)
    halves = [half for shelf in (lane._usual, lane._rare) for half in (shelf._young, shelf._old)]
    sizes = [len(target) + 200 + sum(reply.size for reply in half[target]) for half in halves for target in half]
    return sum(sizes)


async def test_every_line_that_the_server_puts_first_stands_alone() -> None:
    server = Server(Clock(), ServerProtocol)
    server.state.default_headers = [*server.state.default_headers, (b"connection", b"close")]
    sent, _ = await server.answers(get("/10.1000/182"))
    lines = sent.split(b"\r\n")
    assert {b"date: Sat, 21 Nov 2026 12:00:00 GMT", b"connection: close"} <= set(lines)


async def test_random_queries_and_headers_evict_no_frequent_answer_and_stay_within_the_memory() -> None:
    most = 400_000
    server = Server(Clock(), ServerProtocol, express_memory_bytes=most)
    uses = lane_uses(server.application)
    for _ in range(2):
        await server.answers(get("/10.1000/182"))
    for number in range(600):
        await server.answers(
            get(f"/10.1000/182?urlappend={number}", f"Accept-Language: {number}")
            + get(f"/10.1000/mail?x={number}") * 3
            + get("/10.1000/links", f"Accept: a/{number};q=0.1, */*", f"X-Anything: {number}")
        )
        if number % 100 == 0:
            await server.answers(get("/10.1000/182"))
    assert held(server.application) <= most
    del uses[:]
    await server.answers(get("/10.1000/182"))
    assert len(uses) == 1


async def test_the_hash_of_a_head_depends_on_a_secret_of_the_process() -> None:
    one, other = (Server(Clock(), ServerProtocol).application.prepared for _ in range(2))
    assert isinstance(one, PreparedAnswers) and isinstance(other, PreparedAnswers)
    assert len(one._secret) == 16 and one._secret != other._secret


async def test_header_lines_that_are_remembered_are_bounded_and_have_no_client() -> None:
    server = Server(Clock(), ServerProtocol)
    lane = server.application.prepared
    assert isinstance(lane, PreparedAnswers)
    uses = lane_uses(server.application)
    for number in range(3 * MAX_HEADS):
        await server.answers(get("/10.1000/182", f"X-Anything: {number}"))
        known = len(lane._heads)
        await server.answers(get("/10.1000/182", f"COOKIE: {number}", f"Forwarded: for=198.51.100.{number % 250}"))
        assert len(lane._heads) == known <= MAX_HEADS
    assert len(uses) == 2 * 3 * MAX_HEADS


@pytest.mark.parametrize("header", ["Accept-Language", "Accept", "Accept-Encoding"])
async def test_a_huge_header_that_selects_a_page_takes_the_full_path(header: str) -> None:
    server = Server(Clock(), ServerProtocol)
    uses = lane_uses(server.application)
    for _ in range(4):
        await server.answers(get("/10.1000/182?noredirect", f"{header}: {'de, ' * 600}en"))
    assert uses == []


async def test_a_new_look_drops_what_is_prepared(tmp_path: Path) -> None:
    (tmp_path / "branding.toml").write_text('languages = ["en", "de"]\n')
    server = Server(Clock(), ServerProtocol, branding_folder=tmp_path)
    for _ in range(3):
        german, _ = await server.answers(get("/10.1000/none", "Accept-Language: de"))
    assert b'lang="de"' in german
    (tmp_path / "branding.toml").write_text('languages = ["en"]\n')
    server.lifecycle.reload(server.settings)
    assert b'lang="en"' in (await server.answers(get("/10.1000/none", "Accept-Language: de")))[0]


@pytest.mark.parametrize("first", ["/10.1000/loc", "/10.1000/182"])
@pytest.mark.parametrize("express", [True, False])
async def test_a_long_row_of_pipelined_requests_is_answered_in_order(first: str, express: bool) -> None:
    # Each is answered where its predecessor ended: answered inside it, they would be as deep as the row is long.
    server = Server(Clock(), ServerProtocol, express_lane=express)
    await server.answers(get("/10.1000/182"))
    row = [first, *["/10.1000/182", "/10.1000/mail"] * 600]
    written, _ = await server.answers(b"".join(get(path) for path in row))
    locations = re.findall(rb"location: (\S+)", written)
    assert locations[1:] == [b"http://www.doi.org/hb.html", b"mailto:a@example.org"] * 600


async def test_a_prepared_answer_dies_with_its_entry() -> None:
    server = Server(Clock(), ServerProtocol)
    for _ in range(2):
        await server.answers(get("/10.1000/182"))
    now = server.clock()
    new = Answer(ResponseCode.SUCCESS, b"[" + URL.replace(b"hb.html", b"new.html") + b"]")
    server.memory.keep(Entry("10.1000/182", new, now, now + 60, now + 600))
    written, _ = await server.answers(get("/10.1000/182"))
    assert b"location: http://www.doi.org/new.html" in written


async def test_a_record_renewed_within_the_second_tells_its_new_times() -> None:
    server = Server(Clock(), ServerProtocol)
    for _ in range(2):
        await server.answers(get("/10.1000/182"))
    now = server.clock()
    same = Answer(ResponseCode.SUCCESS, b"[" + URL + b"]")
    server.memory.keep(Entry("10.1000/182", same, now - 5, now + 600, now + 6000))
    uses = lane_uses(server.application)
    written, _ = await server.answers(get("/10.1000/182"))
    assert len(uses) == 1
    assert b"cache-status: doi-proxy; hit; ttl=600" in written


async def test_the_answers_of_one_second_are_those_of_the_record_at_each_of_them() -> None:
    """The window before the end of its TTL, in which a record is refreshed, begins within a second."""
    server = Server(Clock(), ServerProtocol)
    for _ in range(2):
        await server.answers(get("/10.1000/182"))
    uses = lane_uses(server.application)
    server.clock.advance(0.9 * 86_400 - 0.5)
    for _ in range(3):
        await server.answers(get("/10.1000/182"))
    assert len(uses) == 3
    server.clock.advance(0.5)
    await server.answers(get("/10.1000/182"))
    assert len(uses) == 3


async def test_prepared_answers_are_admitted_and_a_refusal_takes_the_full_path() -> None:
    server = Server(Clock(), ServerProtocol, client_rate=1.0, client_burst=3)
    uses = lane_uses(server.application)
    statuses = [(await server.answers(get("/10.1000/182")))[0].split(b" ")[1] for _ in range(4)]
    assert statuses == [b"302", b"302", b"302", b"429"]
    assert uses == [("GET", 302)] * 3
    server.clock.advance(1)
    assert (await server.answers(get("/10.1000/182")))[0].startswith(b"HTTP/1.1 302 ")
    assert len(uses) == 4


async def test_the_lane_can_be_switched_off() -> None:
    application = create(
        Settings(store_url="memory:", upstream_url=NOWHERE, express_lane=False, upstream_contact="mailto:a@example.org")
    )
    assert application.prepared is None


async def test_the_application_is_found_behind_what_a_server_wraps_around() -> None:
    server = Server(Clock(), ServerProtocol)

    class Wrapper:
        app = server.application

    application: object = application_of(Wrapper())
    assert application is server.application
    assert application_of(object()) is None


@pytest.mark.parametrize(
    "line",
    [
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "Upgrade: h2c",
        "If-None-Match: *",
        "Expect: 100-continue",
        "Authorization: Bearer x",
        "Cache-Control: max-age=0",
    ],
)
def test_headers_that_change_the_answer_are_not_plain(line: str) -> None:
    assert read_plain(b"Host: x\r\n\r\n") == {b"host": "x"}
    assert read_plain(f"Host: x\r\n{line}\r\n\r\n".encode()) is None


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\r\n",
        b"Host x\r\n\r\n",
        b"Host: x\n\r\n\r\n",
        b"A: b\r\n folded\r\n\r\n",
        b"A: \x00\r\n\r\n",
        b"A : b\r\n\r\n",
    ],
)
def test_a_head_that_parsers_disagree_about_is_not_plain(head: bytes) -> None:
    assert read_plain(head) is None


async def test_what_is_prepared_is_bounded_by_bytes() -> None:
    most, largest = 56_000, 0
    server = Server(Clock(), ServerProtocol, express_memory_bytes=most)
    now = server.clock()
    for number in range(200):
        key = f"10.1000/{number}"
        answer = Answer(ResponseCode.SUCCESS, b"[" + URL + b"]")
        server.memory.keep(Entry(key.upper(), answer, now, now + 86_400, now + 10**6))
        await server.answers(get(f"/doi:{key}") * 3 + get(f"/{key}?urlappend=x") * 4)
        largest = max(largest, held(server.application))
    assert most * 3 // 4 < largest <= most
    uses = lane_uses(server.application)
    for number in range(200):
        await server.answers(get(f"/doi:10.1000/{number}"))
    assert uses == []
    await server.answers(get("/doi:10.1000/199"))
    assert len(uses) == 1


@pytest.mark.parametrize("path", ["/10.1000/182", "/10.1000%2F182", "/10.1000/%C3%84"])
async def test_a_usual_redirect_is_prepared_at_its_first_request(path: str) -> None:
    server, other = Server(Clock(), ServerProtocol), Server(Clock(), FullPathProtocol)
    uses = lane_uses(server.application)
    for method in ("GET", "HEAD", "GET"):
        assert await server.answers(get(path, method=method)) == await other.answers(get(path, method=method))
    assert uses == [("GET", 302), ("HEAD", 302), ("GET", 302)]


@pytest.mark.parametrize(
    "path",
    [
        "/10.1000/182 x",
        "/10.1000/182 HTTP/1.1",
        "/10.1000/links?/10.1000/182 HTTP/1.1",
        "/10.1000/182#x",
        "/10.1000/\xe4",
        "/10.1000/%e4",
        "/10.1000/%zz",
        "/10.1000/18%00",
    ],
)
async def test_a_target_that_is_no_name_takes_the_full_path(path: str) -> None:
    server, other = Server(Clock(), ServerProtocol), Server(Clock(), FullPathProtocol)
    uses, request = lane_uses(server.application), get("/PATH").replace(b"/PATH", path.encode("latin-1"))
    assert await server.answers(request) == await other.answers(request)
    assert uses == []


@table(
    ("path", "tasks"),
    [
        ("/10.1000/182", 0),
        ("/10.1000%2F182", 0),
        ("/api/handles/10.1000/182?type=URL&pretty", 0),
        ("/10.1000/loc", 0),
        ("/10.1000/alias", 0),
        ("/10.1000/182?urlappend=%3Fx", 0),
        ("/10.1000/182?action=api", 0),
        ("/10.1000/182?noredirect", 0),
        ("/10.1000/182?auth", 1),
        ("/api/handles/10.1000/unknown", 1),
        ("/10.1000/%ZZ", 0),
    ],
)
async def test_only_what_has_to_be_waited_for_or_chosen_takes_a_task(path: str, tasks: int) -> None:
    server = Server(Clock(), ServerProtocol, express_lane=False)
    started = []
    start = HttpToolsProtocol._start_asgi_task

    def counted(protocol: HttpToolsProtocol, *arguments: Any) -> None:
        started.append(arguments)
        start(protocol, *arguments)

    with patch.object(HttpToolsProtocol, "_start_asgi_task", counted):
        written, _ = await server.answers(get(path, "Cookie: a=b"))
    assert written.startswith(b"HTTP/1.1 ")
    assert len(started) == tasks


def test_what_is_kept_is_bounded_and_what_is_used_stays() -> None:
    shelf = Shelf(50_000)
    for number in range(10_000):
        shelf.put(b"%04d" % number, ())
        assert shelf.get(b"0000") is not None
    assert 100 < sum(shelf.get(b"%04d" % number) is not None for number in range(10_000)) <= 50_000 // 204


def test_uvicorn_has_everything_that_the_lane_relies_on() -> None:
    # Fails when an upgrade changes what doi_proxy.server.protocol uses; look at that module, then at USED.
    assert [name for name in USED if not callable(getattr(HttpToolsProtocol, name, None))] == []
    attributes = {
        "client",
        "cycle",
        "flow",
        "headers",
        "loop",
        "parser",
        "pipeline",
        "scheme",
        "server_state",
        "transport",
    }
    protocol = HttpToolsProtocol(Config(lambda: None, log_config=None), ServerState(), {}, asyncio.new_event_loop())
    missing = attributes - set(vars(protocol))
    protocol.loop.close()
    assert missing == set()
    # doi_proxy.server.plain_head sets these itself.
    flow = FlowControl(asyncio.Transport())
    assert set(vars(flow)) == {"_transport", "read_paused", "write_paused", "_is_writable_event"}
