"""`POST /api/resolve`: formats in and out, errors before and after the first row, limits."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import gzip
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import pytest

from doi_proxy.errors import InvalidParameter
from doi_proxy.features.lists.answer import (
    FAIR_SECONDS,
    FAIR_SHORT_SECONDS,
    SHORT_BYTES,
    SHORT_PLACES,
    OpenBatches,
    OpenList,
)
from doi_proxy.features.lists.feature import TooManyBatches
from doi_proxy.features.lists.verdict import FIELDS, ListRow, not_a_doi, read_fields
from doi_proxy.list_formats.body import BodyBuffer
from doi_proxy.list_formats.streamed_answer import Output, choose_output
from tests.constants import MAX_NAMES, MAX_OPEN
from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

URL: Final = "http://example.org/"
TEXT: Final = "text/plain"


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        for letter in "abc":
            proxy.upstream.put(f"10.5555/{letter}", url=URL + letter)
        yield proxy


async def send(proxy: Proxy, body: str | bytes, query: str = "", content_type: str = TEXT, **headers: str) -> Reply:
    return await proxy.post(f"/api/resolve{query}", body, content_type=content_type, **headers)


def rows(got: Reply) -> list[dict[str, Any]]:
    assert got.status == 200, got.body
    return [json.loads(line) for line in got.body.decode().splitlines()]


async def test_each_line_has_a_row_with_every_member(proxy: Proxy) -> None:
    got = await send(proxy, "https://doi.org/10.5555/A\n10.5555/none\nhello\n")
    assert got["content-type"] == "application/x-ndjson"
    assert got["cache-control"] == "no-store"
    assert rows(got) == [
        {"input": "https://doi.org/10.5555/A", "doi": "10.5555/A", "verdict": "resolved", "url": f"{URL}a",
         "ra": None, "age": 0, "stale": False, "message": None, "line": 1, "key": None, "reason": None},
        {"input": "10.5555/none", "doi": "10.5555/none", "verdict": "not_found", "url": None,
         "ra": None, "age": 0, "stale": False, "message": None, "line": 2, "key": None, "reason": None},
        {"input": "hello", "doi": None, "verdict": "not_a_doi", "url": None, "ra": None, "age": None, "stale": False,
         "message": "This is not a DOI name: a DOI name begins with “10.” and has a slash after its prefix.",
         "line": 3, "key": None, "reason": "no-doi"},
    ]  # fmt: skip


@table("query", ["", "?suggest=true"])
@table("output", ["ndjson", "csv", "json"])
@table(
    ("content_type", "body", "message"),
    [
        ("application/json", rb'["\ud800"]', r"Item 1 is not JSON: \ud800 is half a surrogate pair"),
        ("application/json", rb'[{"\udfff": "x"}]', r"Item 1 is not JSON: \udfff is half a surrogate pair"),
        ("application/x-ndjson", rb'"\ud800\ud800"', r"Line 1 is not JSON: \ud800 is half a surrogate pair"),
        ("application/x-ndjson", b"7", "Line 1 is neither a string nor an object"),
    ],
)
async def test_an_unreadable_item_is_a_row_in_every_form(
    proxy: Proxy, content_type: str, body: bytes, message: str, output: str, query: str
) -> None:
    got = await send(proxy, body, f"{query or '?'}&output={output}", content_type)
    assert got.status == 200
    if output == "csv":
        (row,) = csv.DictReader(got.text.splitlines())
    else:
        (row,) = got.json if output == "json" else rows(got)
    assert row["verdict"] == "not_a_doi"
    assert row["message"].startswith(message)
    assert ("suggestions" in row) == bool(query)


async def test_a_json_array_has_any_number_of_rows(proxy: Proxy) -> None:
    got = await send(proxy, "10.5555/a\n" + "hello\n" * 2_000, accept="application/json")
    assert (got["content-type"], len(got.json)) == ("application/json", 2_001)


async def test_the_parameters_are_those_of_the_list(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/50%25", url=URL)
    names = "10.5555/50%25\n10.5555/a"
    literal = await send(proxy, names, "?encoding=literal&output=csv&fields=doi,verdict,url")
    assert list(csv.reader(literal.text.splitlines())) == [
        ["doi", "verdict", "url"], ["10.5555/50%25", "resolved", URL], ["10.5555/a", "resolved", f"{URL}a"],
    ]  # fmt: skip
    cached = await send(proxy, "10.5555/a\n10.5555/b", "?only=cached&fields=ra,verdict")
    assert [row["verdict"] for row in rows(cached)] == ["resolved", "unverified"]
    assert proxy.upstream.queries("10.5555/b") == 0
    packed = [await send(proxy, "10.5555/a", content_encoding=encoding) for encoding in ("br", "gzip")]
    assert [(got.status, "gzip data is damaged" in got.text) for got in packed] == [(415, False), (400, True)]


async def test_a_registration_agency_that_is_requested_is_looked_up(proxy: Proxy) -> None:
    xml = "<namespace><locs>10.SERV/DATACITE</locs></namespace>"
    value = {"index": 1, "type": "HS_NAMESPACE", "data": {"format": "string", "value": xml}, "ttl": 86400}
    proxy.upstream.put("10.5555", [value])
    proxy.upstream.put("10.SERV/DATACITE", url=URL)
    assert [row["ra"] for row in rows(await send(proxy, "10.5555/a\n10.5555/b"))] == [None, None]
    got = await send(proxy, "10.5555/a\n10.5555/b", "?fields=ra")
    assert rows(got) == [{"ra": "DataCite"}, {"ra": "DataCite"}]


@table("line", ["\n", "#\n"])
async def test_a_list_without_names_ends_and_one_with_few_of_them_is_answered(proxy: Proxy, line: str) -> None:
    refused = await send(proxy, line * 101_000)
    assert (refused.status, refused.json["title"]) == (400, "The list of names cannot be read")
    assert "remove empty lines and comments" in refused.json["detail"]
    answered = await send(proxy, f"{line * 99_000}10.1000/182\n{line * 99}10.1000/182")
    assert [row["doi"] for row in rows(answered)] == ["10.1000/182", "10.1000/182"]


@table("output", ["", "?output=csv", "?output=json"])
async def test_an_empty_list_has_no_rows(proxy: Proxy, output: str) -> None:
    got = await send(proxy, "", output)
    assert got.status == 200
    assert got.body.decode().strip() in ("", ",".join(FIELDS), "[\n]")


@table(
    ("query", "content_type", "body", "status", "detail"),
    [
        ("?output=xml", TEXT, "", 400, "output"),
        ("?fields=doi,isbn", TEXT, "", 400, "'isbn' is not one of input, doi, verdict"),
        ("?fields=suggestions", TEXT, "", 400, "'suggestions' is not one of"),
        ("?only=fresh", TEXT, "", 400, "only"),
        ("?suggest=some", TEXT, "", 400, "suggest: write true, false or checked."),
        ("", "application/xml", "<a/>", 415, "send it as text/plain, "),
    ],
)
async def test_an_error_before_the_first_row_is_a_problem(
    proxy: Proxy, query: str, content_type: str, body: str | bytes, status: int, detail: str
) -> None:
    got = await send(proxy, body, query, content_type)
    assert (got.status, got["content-type"]) == (status, "application/problem+json")
    assert detail in got.json["detail"]
    assert proxy.upstream.queries() == 0


async def test_an_error_after_the_first_row_is_the_last_row() -> None:
    async with Proxy(**{MAX_NAMES: 2}) as proxy:
        proxy.upstream.put("10.5555/a", url=URL)
        body = "\n".join(["10.5555/a"] * 3)
        lines = rows(await send(proxy, body))
        assert [line.get("verdict") for line in lines] == ["resolved", "resolved", None]
        assert lines[-1]["error"]["status"] == 413
        assert "more than 2 names" in lines[-1]["error"]["detail"]
        table = (await send(proxy, body, "?output=csv")).body.decode().splitlines()
        assert "error 413: The list has more than 2 names" in table[-1]


async def test_the_rows_are_counted_by_verdict(proxy: Proxy) -> None:
    await send(proxy, "10.5555/a\n10.5555/b\nhello")
    metrics = (await proxy.get("/metrics")).body.decode()
    assert 'doi_proxy_batch_rows_total{verdict="resolved"} 2.0' in metrics
    assert 'doi_proxy_batch_rows_total{verdict="not_a_doi"} 1.0' in metrics


@pytest.mark.parametrize(
    ("path", "body"),
    [("/api/resolve", "hello\n" * 100), ("/api/parse", "hello\n" * 100), ("/api/extract", "a" * 102_400)],
)
async def test_a_list_is_charged_for_its_names_and_a_text_for_its_kilobytes(path: str, body: str) -> None:
    async with Proxy(client_rate=0.001, client_burst=102) as proxy:
        assert (await proxy.post(path, body, content_type=TEXT)).status == 200
        assert [(await proxy.get("/10.5555/a")).status == 429 for _ in range(2)] == [False, True]
    async with Proxy(client_rate=0.001, client_burst=102) as proxy:
        packed = gzip.compress(body.encode())
        assert (await proxy.post(path, packed, content_type=TEXT, content_encoding="gzip")).status == 200
        assert [(await proxy.get("/10.5555/a")).status == 429 for _ in range(2)] == [False, True]


class Body(BodyBuffer):
    """A body of which so many bytes arrived in so many seconds. It is complete without seconds."""

    def __init__(self, received: int = 1_000, seconds: float = 0.0) -> None:
        super().__init__(0, timer=lambda: seconds)
        self._received, self._waits_since = received, 0.0 if seconds else None


def test_a_client_alone_has_all_lists_and_another_takes_one_of_them() -> None:
    refused: list[str] = []
    places = OpenBatches(3, refused.append)
    with places.enter("a", OpenList(Body())), places.enter("a", OpenList(Body())), places.enter("a", OpenList(Body())):
        with pytest.raises(TooManyBatches, match="answering 3 lists") as error, places.enter("a", OpenList(Body())):
            pass
        assert error.value.retry_after > 0
        with places.enter("b", OpenList(Body())):
            assert len(places) == 3
            # Each has one more than the third would have.
            with pytest.raises(TooManyBatches), places.enter("b", OpenList(Body())):
                pass
    assert (len(places), refused) == (0, ["batches", "batches"])


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        # The slowest input gives way, not the largest share.
        ([("a", Body(10_000, 5.0)), ("a", Body(10_000, 5.0)), ("b", Body(100, 5.0))], 2),
        ([("a", Body(100, 5.0)), ("b", Body(10, 5.0)), ("c", Body(1, 5.0))], 2),
        # A list that is complete waits for the upstream, and one that has just begun may be quick.
        ([("a", Body()), ("b", Body(1, 0.9)), ("c", Body(99_999, 5.0))], 2),
        ([("a", Body()), ("b", Body()), ("a", Body(1, 0.9))], 2),
        ([("a", Body()), ("b", Body()), ("c", Body(1, 0.9))], None),
    ],
)
def test_at_the_limit_the_list_with_the_slowest_input_gives_way(
    bodies: list[tuple[str, Body]], expected: int | None
) -> None:
    ended: list[int] = []

    class Numbered(OpenList):
        def __init__(self, number: int, body: Body) -> None:
            super().__init__(body)
            self.number = number

        def give_way(self) -> None:
            ended.append(self.number)

    places = OpenBatches(3, lambda reason: None)
    with contextlib.ExitStack() as stack:
        for number, (client, body) in enumerate(bodies):
            stack.enter_context(places.enter(client, Numbered(number, body)))
        with contextlib.suppress(TooManyBatches), places.enter("newcomer", OpenList(Body())):
            pass
    assert ended == ([] if expected is None else [expected])


def test_a_short_list_has_a_place_beside_long_ones_of_as_many_networks() -> None:
    places = OpenBatches(2, lambda reason: None)
    with contextlib.ExitStack() as stack:
        for client in "ab":
            stack.enter_context(places.enter(client, OpenList(Body(), length=SHORT_BYTES + 1)))
        for number in range(2 * SHORT_PLACES):
            stack.enter_context(places.enter(f"short-{number}", OpenList(Body(), length=SHORT_BYTES)))
        with pytest.raises(TooManyBatches), places.enter("c", OpenList(Body(), length=SHORT_BYTES)):
            pass


@pytest.mark.parametrize(
    ("length", "seconds"), [(None, FAIR_SECONDS), (SHORT_BYTES + 1, FAIR_SECONDS), (1, FAIR_SHORT_SECONDS)]
)
def test_a_list_of_a_fair_time_gives_its_place_to_a_client_without_one(length: int | None, seconds: float) -> None:
    now, ended = 0.0, list[str]()

    class Named(OpenList):
        def __init__(self, name: str) -> None:
            super().__init__(body := BodyBuffer(0, timer=lambda: now), length=length)
            body._is_complete = True
            self.name = name

        def give_way(self) -> None:
            ended.append(self.name)

    most = SHORT_PLACES if length == 1 else 1
    places = OpenBatches(1, lambda reason: None)
    with contextlib.ExitStack() as stack:
        for name in "abcd"[:most]:
            stack.enter_context(places.enter(name, Named(name)))
        now = seconds
        with pytest.raises(TooManyBatches), places.enter("early", Named("early")):
            pass
        now = seconds + 1.0
        with pytest.raises(TooManyBatches), places.enter("a", Named("second of a")):
            pass
        stack.enter_context(places.enter("newcomer", Named("newcomer")))
    assert ended == ["a"]


async def test_a_short_list_with_a_row_a_second_keeps_its_place() -> None:
    now = 0.0

    async def groups() -> AsyncGenerator[list[ListRow]]:
        yield [not_a_doi("x", "")] * 12

    place = OpenList(BodyBuffer(0, timer=lambda: now), length=SHORT_BYTES)
    async for _ in place.limit(groups()):
        pass
    now = 12.0
    assert not place.is_overdue
    now = 12.1
    assert place.is_overdue


async def test_a_list_that_gives_way_ends_with_the_reason_after_its_rows() -> None:
    async def groups() -> AsyncGenerator[list[ListRow]]:
        yield [not_a_doi("first", "")]
        await asyncio.Event().wait()

    place, rows_seen = OpenList(Body()), []
    with pytest.raises(TooManyBatches, match="Another client needed the place"):
        async for group in place.limit(groups()):
            rows_seen.append(group[0].input)
            asyncio.get_running_loop().call_soon(place.give_way)
    assert rows_seen == ["first"]


async def test_a_list_that_gives_way_while_a_row_is_sent_ends_its_connection() -> None:
    async def groups() -> AsyncGenerator[list[ListRow]]:
        yield [not_a_doi("first", "")]
        yield [not_a_doi("second", "")]

    aborted: list[str] = []
    place = OpenList(Body(), lambda: aborted.append("ended"))
    with pytest.raises(TooManyBatches):
        async for _ in place.limit(groups()):
            place.give_way()
    assert aborted == ["ended"]


async def test_lists_of_many_networks_are_bounded_together() -> None:
    async with Proxy(**{MAX_OPEN: 3}) as proxy:
        # The document of the API, which answers are compared with, takes seconds of the event loop: build it first.
        await send(proxy, "x")
        proxy.upstream.put("10.5555/a", url=URL)
        proxy.upstream.hold("10.5555/a")
        lists = [
            asyncio.create_task(
                proxy.ask("POST", "/api/resolve", body="10.5555/a", client=f"10.{number}.0.1", content_type=TEXT)
            )
            for number in range(20)
        ]
        await proxy.upstream.arrived("10.5555/a")
        async with asyncio.timeout(30):
            # Short lists have twice the places.
            while sum(one.done() for one in lists) < 14:
                await asyncio.wait([one for one in lists if not one.done()], return_when=asyncio.FIRST_COMPLETED)
        refused = [one.result() for one in lists if one.done()]
        assert {got.status for got in refused} == {429} and all(got["retry-after"] for got in refused)
        proxy.upstream.release("10.5555/a")
        answered = [got for got in await asyncio.gather(*lists) if got.status == 200]
        assert [rows(got)[0]["verdict"] for got in answered] == ["resolved"] * 6
        assert proxy.upstream.queries("10.5555/a") == 1
        assert rows(await send(proxy, "10.5555/a"))[0]["verdict"] == "resolved"


async def test_cached_names_are_answered_while_the_upstream_hangs(proxy: Proxy) -> None:
    await send(proxy, "10.5555/a")
    proxy.upstream.hold("10.5555/b")
    first = asyncio.create_task(send(proxy, "10.5555/b"))
    await proxy.upstream.arrived("10.5555/b")
    assert rows(await send(proxy, "10.5555/a\n" * 100))[99]["verdict"] == "resolved"
    assert (await proxy.get("/10.5555/a")).status == 302
    assert not first.done()
    proxy.upstream.release("10.5555/b")
    assert rows(await first)[0]["verdict"] == "resolved"


@table(
    ("output", "accept", "sent", "media_type"),
    [
        (None, None, TEXT, "application/x-ndjson"),
        (None, "*/*", TEXT, "application/x-ndjson"),
        (None, "text/html, text/csv;q=0.9", TEXT, "text/csv"),
        (None, "application/json", TEXT, "application/json"),
        ("csv", "application/json", TEXT, "text/csv"),
        (None, None, "application/json", "application/json"),
        (None, "*/*", "application/json", "application/json"),
        (None, "application/x-ndjson", "application/json", "application/x-ndjson"),
        ("ndjson", "*/*", "application/json", "application/x-ndjson"),
    ],
)
def test_the_output_is_that_of_the_query_then_of_accept_then_of_the_body(
    output: str | None, accept: str | None, sent: str, media_type: str
) -> None:
    assert choose_output(output, accept, sent) == media_type


def test_fields_keep_the_order_of_the_request() -> None:
    assert read_fields(None, suggests=False) == FIELDS
    assert read_fields(None, suggests=True) == (*FIELDS, "suggestions", "best")
    assert read_fields("url, doi,url", suggests=False) == ("url", "doi")
    with pytest.raises(InvalidParameter):
        read_fields("", suggests=False)


PROSE = "Jones (10.5555/a), see http://dx.doi.org/10.5555/dead, and again 10.5555/A."


async def test_every_name_of_a_text_has_its_verdict_and_its_place(proxy: Proxy) -> None:
    found = rows(await send(proxy, PROSE, "?extract=true"))
    assert [(row["doi"], row["verdict"]) for row in found] == [
        ("10.5555/a", "resolved"),
        ("10.5555/dead", "not_found"),
        ("10.5555/A", "resolved"),
    ]
    assert [PROSE[row["start"] : row["end"]] for row in found] == [row["input"] for row in found]
    chosen = rows(await send(proxy, PROSE, "?extract=true&fields=doi,start,confidence", content_type="text/html"))
    assert chosen[0] == {"doi": "10.5555/a", "start": 7, "confidence": "likely"}
    assert (await send(proxy, "[]", "?extract=true", content_type="application/json")).status == 415
    assert (await send(proxy, PROSE, "?fields=start")).status == 400


@table("media_type, begins", [("application/x-ndjson", b""), ("application/json", b"["), ("text/csv", b"input,")])
async def test_the_head_does_not_wait_for_a_row(media_type: str, begins: bytes) -> None:
    sent: list[Any] = []
    head_sent = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        head_sent.set()

    async with Output(send, lambda: False).open_rows(media_type, FIELDS) as rows:
        await head_sent.wait()  # without the head, this waits for ever
        assert await rows.write([not_a_doi("x", "why").members()])
    assert [message["type"] for message in sent] == ["http.response.start"] + ["http.response.body"] * 3
    assert sent[0]["status"] == 200 and sent[1]["body"].startswith(begins)
    assert b"not_a_doi" in sent[2]["body"] and [one["more_body"] for one in sent[1:3]] == [True, True]
