"""The access log: what a line holds at each privacy level, and what no request can make it hold."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import UNSET

from doi_proxy.features.privacy.line_writer import (
    MAX_PATH,
    AccessLog,
    LineFormat,
    LogLine,
    escape,
    format_path,
    mask_address,
)
from doi_proxy.web.freshness import NO_STORE
from doi_proxy.web.request import Request
from doi_proxy.web.responses import Message, Reply, Scope, send_reply
from tests.table import table
from tests.web.proxy import Proxy

anyio = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[3]
#: 2023-11-14T22:13:20.125Z in seconds since the epoch.
THEN = 1_700_000_000.125
REDIRECT = Reply(302, ((b"location", b"http://example.org/"), (b"cache-status", b"doi-proxy; hit; ttl=590")), b"body")


async def logged(
    scope: dict[str, Any] | None = None,
    reply: Reply = REDIRECT,
    *,
    form: Literal["json", "text"] = "json",
    level: int = 2,
) -> tuple[bytes, list[Message]]:
    """The line about a request, and the messages that were sent on."""
    lines: list[LogLine] = []
    sent: list[Message] = []
    times = iter((10.0, 10.0015))
    log = AccessLog(
        privacy_level=level, clock=lambda: THEN, timer=lambda: next(times), new_id=lambda: "made", write=lines.append
    )
    whole: Scope = {
        "method": "GET",
        "raw_path": b"/10.1000/182",
        "query_string": b"",
        "headers": [],
        "client": ("192.0.2.7", 50000),
        **(scope or {}),
    }

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("the log reads no body")

    request = Request(whole, receive, public_url=None, sub_path=b"")
    await send_reply(reply, log.watch(request, "resolve", send), head_only=request.head_only)
    (line,) = lines
    return LineFormat(form, level)(line), sent


# --- A line -------------------------------------------------------------------------------------------------------


@anyio
async def test_a_json_line_is_one_object_with_these_members() -> None:
    line, _ = await logged()
    assert line.endswith(b"}\n") and line.count(b"\n") == 1
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.125Z",
        "request_id": "made",
        "method": "GET",
        "path": "/10.1000/182",
        "route": "resolve",
        "status": 302,
        "bytes": 4,
        "ms": 1.5,
        "cache": "hit; ttl=590",
    }


@anyio
async def test_a_text_line_has_the_same_words() -> None:
    line, _ = await logged(form="text", level=1)
    assert line.decode() == (
        "time=2023-11-14T22:13:20.125Z request_id=made client=192.0.2.0 method=GET path=/10.1000/182 route=resolve "
        'status=302 bytes=4 ms=1.5 cache="hit; ttl=590"\n'
    )
    assert len(shlex.split(line.decode())) == 10


@anyio
async def test_without_a_cache_status_there_is_no_verdict() -> None:
    line, _ = await logged(reply=Reply(400, (), b""))
    assert json.loads(line)["cache"] is None
    line, _ = await logged(reply=Reply(400, (), b""), form="text")
    assert b"cache" not in line


@anyio
async def test_the_answer_to_head_has_no_bytes() -> None:
    line, _ = await logged({"method": "HEAD"})
    assert json.loads(line)["bytes"] == 0


# --- The privacy level --------------------------------------------------------------------------------------------


@anyio
@pytest.mark.parametrize(
    ("level", "client", "path"),
    [
        (0, "192.0.2.7", "/10.1000/182?locatt=id:1"),
        (1, "192.0.2.0", "/10.1000/182"),
        (2, None, "/10.1000/182"),
        (3, None, None),
    ],
)
@pytest.mark.parametrize("form", ["json", "text"])
async def test_a_level_decides_what_is_told_of_client_and_name(
    form: Literal["json", "text"], level: int, client: str | None, path: str | None
) -> None:
    line, _ = await logged({"query_string": b"locatt=id:1"}, form=form, level=level)
    if form == "json":
        assert (json.loads(line).get("client"), json.loads(line).get("path")) == (client, path)
    assert (b"192.0.2" in line) is (client is not None)
    assert (b"1000" in line) is (path is not None)


@pytest.mark.parametrize(
    ("address", "whole", "network"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.0"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.0"),
        ("fe80::1%eth0", "fe80::1", "fe80::"),
        ("", None, None),
        ("unix:", None, None),
        ("x\r\ny", None, None),
    ],
)
def test_an_address_is_told_whole_by_its_network_or_not_at_all(
    address: str, whole: str | None, network: str | None
) -> None:
    addresses = [mask_address(address, level) for level in range(4)]
    assert addresses == [UNSET if shown is None else shown for shown in (whole, network, None, None)]


# --- What a request cannot do -------------------------------------------------------------------------------------

HOSTILE = [
    b"/10.1000/182\r\nforged=1",
    b"/10.1000/182\nforged",
    b'/10.1000/"quoted\\',
    b"/10.1000/\x1b[31mred",
    b"/10.1000/\x00\x07\x7f",
    b"/10.1000/\x9b31m\xe2\x80\xa8\xff",
    b"/10.1000/a b=c",
    b"/" + b"\n" * 50_000,
]


@anyio
@table("raw", HOSTILE)
@table("form", ["json", "text"])
async def test_no_path_or_query_forges_a_line_or_writes_a_control(form: Literal["json", "text"], raw: bytes) -> None:
    scope = {"raw_path": raw, "query_string": raw, "method": "GET\r\n" * 50}
    line, _ = await logged(scope, form=form, level=0)
    assert line.count(b"\n") == 1
    assert all(0x20 <= byte < 0x7F for byte in line[:-1])
    assert len(line) < 4096
    if form == "text":
        assert [word.partition("=")[0] for word in shlex.split(line.decode())] == [
            "time", "request_id", "client", "method", "path", "route", "status", "bytes", "ms", "cache",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, 0.0), (0.0000104, 0.01), (0.0000106, 0.011), (1.2345678, 1234.568), (61.0, 61000.0)]
)
def test_a_duration_is_told_to_the_microsecond(seconds: float, shown: float) -> None:
    line = LogLine(0.0, "id", "", "GET", b"/", b"", "doi", 302, 0, seconds)
    assert json.loads(LineFormat("json", 2)(line))["ms"] == shown


def test_networks_are_remembered_for_a_second_and_addresses_never() -> None:
    form, moment = LineFormat("json", 1), 1_700_000_000.0

    def show(address: str, moment: float) -> str:
        line = LogLine(moment, "id", address, "GET", b"/", b"", "doi")
        return str(json.loads(form(line)).get("client"))

    assert [show(f"198.51.{number % 3}.7", moment) for number in range(6)] == [
        "198.51.0.0",
        "198.51.1.0",
        "198.51.2.0",
    ] * 2
    assert sorted(map(str, form._networks.values())) == ["198.51.0.0", "198.51.1.0", "198.51.2.0"]
    assert show("203.0.113.9", moment + 0.999) == "203.0.113.0"
    assert show("203.0.113.9", moment + 1) == "203.0.113.0"
    assert list(form._networks.values()) == ["203.0.113.0"]


def test_a_long_path_is_cut_and_says_so() -> None:
    assert format_path(b"/" + b"x" * (MAX_PATH - 1), b"", 2) == "/" + "x" * (MAX_PATH - 1)
    assert format_path(b"/" + b"x" * MAX_PATH, b"", 2) == "/" + "x" * (MAX_PATH - 1) + "..."


def test_what_is_graphic_stays_as_it_was_sent() -> None:
    raw = b"/10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O%2F"
    assert escape(raw) == raw.decode()


# --- The request's identifier -------------------------------------------------------------------------------------


@anyio
@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (("abc-123_X.y",), "abc-123_X.y"),
        (("a" * 64,), "a" * 64),
        *(((text,), "made") for text in ("a" * 65, "", "a b", "a\nb", "a;b", "é")),
        ((), "made"),
        (("a", "b"), "made"),
    ],
)
async def test_a_plain_identifier_of_a_request_is_taken_over_and_sent_back(given: tuple[str, ...], taken: str) -> None:
    headers = [(b"x-request-id", text.encode("latin-1")) for text in given]
    line, sent = await logged({"headers": headers}, Reply(404, (), b"", (NO_STORE,)))
    assert json.loads(line)["request_id"] == taken
    assert dict(sent[0]["headers"])[b"x-request-id"] == taken.encode()
    assert (b"access-control-expose-headers", b"X-Request-ID") in sent[0]["headers"]


# --- In the application -------------------------------------------------------------------------------------------


@asynccontextmanager
async def logging_proxy(**settings: Any) -> AsyncIterator[Proxy]:
    async with Proxy(access_log="json", **settings) as proxy:
        proxy.upstream.put("10.5555/a", url="http://example.org/a", ttl=100)
        yield proxy


def written(capture: pytest.CaptureFixture[bytes]) -> list[dict[str, Any]]:
    """The lines of a proxy that has ended."""
    return [json.loads(line) for line in capture.readouterr().out.splitlines()]


@anyio
async def test_each_request_has_a_line_with_its_route_status_and_bytes(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    async with logging_proxy() as proxy:
        for target in ("/10.5555/a", "/api/handles/10.5555/a", "/", "/ra/10.5555", "/healthz", "/no-doi"):
            await proxy.get(target)
    lines = written(capfdbinary)
    assert [(one["route"], one["status"]) for one in lines] == [
        ("resolve", 302), ("api", 200), ("home", 200), ("which_ra", 200), ("operation", 200), ("resolve", 400),
    ]  # fmt: skip
    assert lines[0]["cache"] == "fwd=uri-miss; stored; ttl=100"
    assert lines[1]["cache"] == "hit; ttl=100"
    assert all(one["bytes"] > 0 and one["ms"] >= 0 and len(one["request_id"]) == 16 for one in lines)
    assert not any("client" in one for one in lines)


@anyio
@pytest.mark.parametrize(("target", "echoed"), [("/10.5555/a", False), ("/robots.txt", False), ("/no-doi", True)])
async def test_the_log_has_the_identifier_of_a_client_and_a_public_answer_has_not(
    capfdbinary: pytest.CaptureFixture[bytes], target: str, echoed: bool
) -> None:
    async with logging_proxy() as proxy:
        answers = [(await proxy.get(target, x_request_id="mine"))["x-request-id"] for _ in range(2)]
        own = (await proxy.get(target))["x-request-id"]
    assert answers == (["mine", "mine"] if echoed else [None, None])
    lines = written(capfdbinary)
    assert [one["request_id"] for one in lines] == ["mine", "mine", own]


@anyio
async def test_hot_names_are_logged_too(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    async with logging_proxy() as proxy:
        for _ in range(5):
            await proxy.get("/10.5555/a")
    assert len(written(capfdbinary)) == 5


@anyio
async def test_at_level_3_no_line_holds_what_was_asked_for(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    async with logging_proxy(privacy_level=3) as proxy:
        for target in ("/10.5555/a", "/openurl?id=doi:10.5555/a", "/10.5555/broken"):
            await proxy.get(target)
    lines = written(capfdbinary)
    assert len(lines) == 3
    assert "10.5555" not in json.dumps(lines) and "192.0.2" not in json.dumps(lines)


@anyio
async def test_off_writes_nothing_and_sends_only_the_identifier_of_the_client(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    async with Proxy() as proxy:
        assert (await proxy.get("/no-doi", x_request_id="mine"))["x-request-id"] == "mine"
        assert (await proxy.get("/no-doi"))["x-request-id"] is None
        assert capfdbinary.readouterr().out == b""


def test_the_page_about_privacy_has_every_member_of_a_line() -> None:
    page = (ROOT / "docs/privacy.md").read_text("utf-8")
    members = ("time", "request_id", "client", "method", "path", "route", "status", "bytes", "ms", "cache")
    assert [one for one in members if f"`{one}`" not in page] == []
