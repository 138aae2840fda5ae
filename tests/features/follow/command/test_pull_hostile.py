"""`doi-proxy cache pull` from servers that are slow, busy, hostile or no primary: a message, nothing applied."""

from __future__ import annotations

import select
import socket
import time

import pytest

from app.features.bundles.lines import to_line
from app.features.follow.pull import PullLimits
from tests.cache.entries import entry
from tests.features.follow.command.primaries import NOW, Place, hostile, open_store, page, raw_server, serving

pytestmark = pytest.mark.anyio

NDJSON = "Content-Type: application/x-ndjson"
RECORD = to_line(entry("10.1000/BAD", fetched_at=NOW))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (page(RECORD).replace(b"hb.html", b"xx.html"), "checksum is wrong"),
        (page(RECORD)[:-40], "checksum is wrong"),
        (page(RECORD, since="c1.other"), "does not continue"),
        (page(RECORD, following="", more=True), "does not continue"),
        (page(RECORD).replace(b'{"delta":1', b'{"delta":2', 1), "checksum is wrong"),
        (b"<html>hello", "checksum is wrong"),
        (b"\n" * 20_000, "more than 10000 lines"),
        (b" " * 17_000_000, "larger than"),
    ],
)
async def test_nothing_of_a_page_that_is_not_right_is_applied(
    place: Place, body: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.replica, "10.1000/OWN")
    with hostile(lambda _: body) as url:
        assert await place.pull(url) == 1
    assert message in capsys.readouterr().err
    assert await place.names(place.replica) == ["10.1000/OWN"]
    assert await place.primaries() == ()


async def test_a_primary_without_an_end_is_left_at_the_limit(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    def endless(target: str) -> bytes:
        since = target.partition("?cursor=")[2]
        return page(since=since, following=f"c{len(since)}{since[-40:]}x", more=True)

    with hostile(endless) as url:
        assert await place.pull_within(url, PullLimits(bytes=5_000)) == 1
    assert "the limit of 5000 bytes is reached" in capsys.readouterr().err


async def test_lies_about_names_and_times_do_not_stay(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    name = "10.1000/FUTURE"
    lie = to_line(entry(name, "http://lie.example/", fetched_at=NOW + 10 * 365 * 86_400))
    truth = to_line(entry(name, "http://true.example/", fetched_at=NOW))
    bad_name = RECORD.replace(b"10.1000/BAD", b"10.1000/\\u0007")
    bad_url = b'{"registry":"10.1000/X","url":"http://x.example/\\n","agency":"A\\u0000","date":1}\n'
    pages = [page(lie, bad_name, bad_url), page(truth, since="c1.next")]
    with hostile(lambda _: pages.pop(0)) as url:
        assert await place.pull(url) == 1
        assert capsys.readouterr().err.count("a line is refused") == 2
        assert await place.pull(url) == 0
    assert await place.url(place.replica, name) == "http://true.example/"


async def test_dates_in_the_future_are_not_taken(place: Place) -> None:
    name, later = "10.1000/FUTURE", NOW + 10 * 365 * 86_400
    lie = to_line(entry(name, "http://lie.example/", fetched_at=later))
    record = b'{"registry":"10.1000/FILE","url":"http://x.example/","agency":"A","date":%d}\n' % later
    with hostile(lambda _: page(lie, record)) as url:
        assert await place.pull(url) == 0
    store = open_store(place.replica)
    found, of_file = await store.get(name), await store.get("10.1000/FILE")
    await store.close()
    assert found is not None and of_file is not None
    assert (found.fetched_at, found.fresh_until) == (0.0, 0.0)
    assert of_file.fetched_at <= time.time()


async def test_a_primary_that_was_restored_from_a_backup_is_pulled_from_its_start(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.primary, "10.1000/A")
    backup = place.primary.read_bytes()
    await place.put(place.primary, "10.1000/B", "10.1000/C")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    async with serving(place.primary, at=port) as url:
        assert await place.pull(url) == 0
    place.primary.write_bytes(backup)
    await place.put(place.primary, "10.1000/D")
    capsys.readouterr()
    async with serving(place.primary, at=port) as url:
        assert await place.pull(url) == 0
    assert "everything was pulled" in capsys.readouterr().err
    assert await place.names(place.replica) == ["10.1000/A", "10.1000/B", "10.1000/C", "10.1000/D"]


async def test_a_line_over_the_limit_is_left_out_and_reported(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with hostile(lambda _: page(b"x" * (4 * 1024 * 1024 + 1) + b"\n", RECORD)) as url:
        assert await place.pull(url) == 1
    shown = capsys.readouterr()
    assert "a line is refused: longer than 524288 bytes" in shown.err
    assert "new 1, kept 0, expired 0, refused 1" in shown.out


async def test_cursors_in_a_circle_are_noticed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    following = {"": "c1.a", "c1.a": "c1.b", "c1.b": "c1.c", "c1.c": "c1.a"}

    def circle(target: str) -> bytes:
        since = target.partition("?cursor=")[2]
        return page(since=since, following=following[since], more=True)

    with hostile(circle) as url:
        assert await place.pull(url) == 1
    assert "go in a circle" in capsys.readouterr().err


def head(status: str, *fields: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *fields, "", "")).encode()


PROBLEM = b'{"detail":"Come back another time."}'


@pytest.mark.parametrize(
    ("answer", "messages"),
    [
        (head("302 Found", "Location: https://user:secret@other.example/x"), ["redirects to 'https://"]),
        (head("308 Permanent Redirect"), ["redirects to 'another URL'"]),
        (head("200 OK", "Content-Type: text/html") + b"<html>", ["answers with 'text/html', not with changes"]),
        (head("401 Unauthorized") + PROBLEM, ["the token is wrong", "admin_replica_token"]),
        (head("403 Forbidden") + PROBLEM, ["Come back another time."]),
        (head("404 Not Found") + b"<html>", ["status 404; this is not a doi-proxy, or an older one"]),
        (head("429 Too Many Requests", "Retry-After: 700") + PROBLEM, ["Come back another time.", "again later"]),
        (head("503 Service Unavailable", "Retry-After: 700") + b"<html>", ["status 503", "again later"]),
        (head("503 Service Unavailable") + PROBLEM, ["2 pages were fetched again", "Come back another time."]),
        (head("500 Internal Server Error") + b"[" * 100_000, ["status 500"]),
        (b"SSH-2.0-OpenSSH\r\n", ["no answer", "check the URL"]),
        (b"", ["no answer", "check the URL"]),
        (head("200 OK", NDJSON, "Content-Length: 500") + b"{", ["the answer ended early"]),
        (head("200 OK", NDJSON, "Content-Encoding: gzip") + b"\x1f\x8b\x08xxxxxxxxxxx", ["its gzip data is damaged"]),
        (head("200 OK", NDJSON, *["X: y"] * 200), ["no answer", "more than 100 headers"]),
    ],
)
async def test_an_answer_that_is_not_a_page_is_explained(
    place: Place, answer: bytes, messages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.replica, "10.1000/OWN")
    with raw_server(lambda connection, _: connection.sendall(answer)) as url:
        assert await place.pull(url) == 1
    shown = capsys.readouterr().err
    assert [one for one in messages if one not in shown] == []
    assert "secret" not in shown
    assert await place.names(place.replica) == ["10.1000/OWN"]
    assert await place.primaries() == ()


async def test_a_redirect_does_not_carry_the_token_to_another_server(place: Place) -> None:
    targets: list[str] = []
    with raw_server(lambda _, target: targets.append(target)) as other:
        redirect = head("307 Temporary Redirect", f"Location: {other}/admin/changes")
        with raw_server(lambda connection, _: connection.sendall(redirect)) as url:
            assert await place.pull(url) == 1
    assert targets == []


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nX: ", head("200 OK", NDJSON) + b"{"])
async def test_a_primary_that_drips_is_left_at_the_end_of_the_time_for_a_page(
    place: Place, begin: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    def drip(connection: socket.socket, _: str) -> None:
        connection.sendall(begin)
        # Until the client has closed the connection, which makes it readable.
        while not select.select([connection], [], [], 0.01)[0]:
            connection.sendall(b"x")

    with raw_server(drip) as url:
        assert await place.pull_within(url, PullLimits(page=0.3)) == 1
    assert "the answer took longer than 0.3 s" in capsys.readouterr().err


async def test_a_body_without_an_end_is_left_at_the_limit_of_a_page(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    def endless(connection: socket.socket, _: str) -> None:
        connection.sendall(head("200 OK", NDJSON))
        while True:
            connection.sendall(b" " * 65_536)

    with raw_server(endless) as url:
        assert await place.pull(url) == 1
    assert "larger than 16777216 bytes; this is not a doi-proxy" in capsys.readouterr().err
