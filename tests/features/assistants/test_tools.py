"""The tools with a resolver in front of a fake upstream, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from doi_proxy.assembly.core import open_core
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import InvalidParameter, InvalidRequest, RequestTooLarge
from doi_proxy.features.assistants.tools import OwnNames, ToolBounds, ToolName, Tools
from doi_proxy.features.lists.batch import build_batches
from tests.constants import split
from tests.fake_upstream import FakeUpstream
from tests.web.proxy import OUT_OF_THE_WAY

pytestmark = pytest.mark.anyio

URL = "http://www.doi.org/hb.html"
BOUNDS = {"result_bytes": 256 * 1024, "calls": 8, "timeout": 30.0}


@dataclass
class Desk:
    """The tools of one process. `reports` are the reports of progress."""

    tools: Tools
    upstream: FakeUpstream
    reports: list[tuple[int, int]]

    async def call(self, tool: ToolName, **arguments: Any) -> dict[str, Any]:
        async def report(done: int, total: int) -> None:
            self.reports.append((done, total))

        return (await self.tools.call(tool, arguments, report)).model_dump(mode="json")


@asynccontextmanager
async def running(settings: dict[str, Any] | None = None, **bounds: Any) -> AsyncIterator[Desk]:
    async with FakeUpstream() as upstream:
        chosen = Settings(
            **(split(OUT_OF_THE_WAY)[1] | {"store_url": "memory:", "upstream_url": upstream.url} | (settings or {}))
        )
        core = open_core(chosen)
        names = OwnNames(build_batches(chosen, core))
        try:
            yield Desk(Tools(names, ToolBounds(**(BOUNDS | bounds)), None, frozenset()), upstream, [])
        finally:
            await core.resolver.close()
            await core.upstream.source.aclose()
            await core.cache.close()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with running() as desk:
        desk.upstream.put("10.1000", url=URL)
        yield desk


async def test_a_list_has_a_row_for_each_line_and_a_summary(desk: Desk) -> None:
    desk.upstream.put("10.1000", url=URL)
    desk.upstream.put("10.1000/182", url=URL)
    lines = ["Smith. Title. https://doi.org/10.1000/182.", "10.1000/none", "no name", "l0.1000/182 there"]
    result = await desk.call("check_list", lines=lines)
    assert [(row["line"], row["input"], row["doi"], row["verdict"], row["url"]) for row in result["lines"]] == [
        (1, lines[0], "10.1000/182", "resolved", URL),
        (2, lines[1], "10.1000/none", "not_found", None),
        (3, lines[2], None, "not_a_doi", None),
        (4, lines[3], "10.1000/182", "resolved", URL),
    ]
    assert [row["shown"] for row in result["lines"]] == [None, None, None, "l0.1000/182"]
    counts = {verdict: count for verdict, count in result["summary"].items() if count}
    assert counts == {"resolved": 2, "not_found": 1, "not_a_doi": 1}
    assert result["left_out"] == 0
    assert desk.reports[-1] == (4, 4)


async def test_the_lines_that_are_resolved_can_be_left_out(desk: Desk) -> None:
    desk.upstream.put("10.1000/182", url=URL)
    result = await desk.call("check_list", lines=["10.1000/182", "10.1000/none"], problems_only=True)
    assert [row["line"] for row in result["lines"]] == [2]
    assert result["summary"]["resolved"] == 1


BIBTEX: Final = """@article{smith2020,
  title = {A title with 10.1000/182 in it},
  doi = {10.1000/182}
}
@book{jones, title = {No name}}
@article{doe, note = {doi:10.1000/none}}
"""


@pytest.mark.parametrize("lines", [BIBTEX, BIBTEX.splitlines(), [BIBTEX]])
async def test_a_bibliography_is_read_in_its_format(desk: Desk, lines: str | list[str]) -> None:
    desk.upstream.put("10.1000", url=URL)
    desk.upstream.put("10.1000/182", url=URL)
    result = await desk.call("check_list", lines=lines)
    assert [(row["line"], row["doi"], row["verdict"], row["reason"]) for row in result["lines"]] == [
        (3, "10.1000/182", "resolved", None),
        (5, None, "not_a_doi", "no-doi"),
        (6, "10.1000/none", "not_found", None),
    ]
    assert result["without_doi"] == 1


async def test_a_bibliography_with_too_many_names_is_refused(desk: Desk) -> None:
    text = "doi,year\n" + "10.1000/182,2020\n" * 501
    with pytest.raises(RequestTooLarge, match="more than 500 names"):
        await desk.call("check_list", lines=text)


async def test_an_entry_without_an_answer_in_time_is_unverified() -> None:
    async with running(timeout=0.0) as desk:
        result = await desk.call("check_list", lines="TY  - JOUR\nDO  - 10.1000/182\nER  - \n")
    assert [(row["input"], row["verdict"]) for row in result["lines"]] == [("10.1000/182", "unverified")]


async def test_every_name_of_a_line_is_checked(desk: Desk) -> None:
    desk.upstream.put("10.1000/182", url=URL)
    result = await desk.call("check_list", lines=["no name", "10.1000/182 and 10.1000/183, again 10.1000/182"])
    many = await desk.call("check_list", lines=[" ".join(f"10.1000/{number}" for number in range(7))])
    assert [(row["line"], row["doi"], row["verdict"]) for row in result["lines"]] == [
        (1, None, "not_a_doi"),
        (2, "10.1000/182", "resolved"),
        (2, "10.1000/183", "not_found"),
    ]
    assert len(many["lines"]) == 5
    assert "not checked: 10.1000/5, 10.1000/6" in many["lines"][0]["message"]


async def test_one_text_is_read_as_its_lines(desk: Desk) -> None:
    desk.upstream.put("10.1000/182", url=URL)
    result = await desk.call("check_list", lines="10.1000/182\n\nno name\n")
    assert [(row["line"], row["verdict"]) for row in result["lines"]] == [(1, "resolved"), (2, "not_a_doi")]


async def test_one_name_has_its_target_and_its_agency(desk: Desk) -> None:
    desk.upstream.put("10.1000/182", url=URL)
    xml = "<namespace><locs>10.SERV/CROSSREF</locs></namespace>"
    desk.upstream.put("10.1000", [{"index": 1, "type": "HS_NAMESPACE", "data": {"format": "string", "value": xml}}])
    desk.upstream.put("10.SERV/CROSSREF", url=URL)
    result = await desk.call("resolve", name="https://doi.org/10.1000/182")
    assert (result["verdict"], result["url"], result["doi"]) == ("resolved", URL, "10.1000/182")
    assert result["ra"] == "Crossref"


@pytest.mark.parametrize("text", ["10.1000", "\x00", "?", ""])
async def test_a_text_that_is_not_a_name_is_not_looked_up(desk: Desk, text: str) -> None:
    result = await desk.call("resolve", name=text)
    assert desk.upstream.queries() == 0
    assert result["verdict"] == "not_a_doi"
    assert result["message"]


async def test_parsing_queries_no_upstream(desk: Desk) -> None:
    result = await desk.call("parse", texts=["doi:10.1000/182", "nothing"])
    assert desk.upstream.queries() == 0
    assert [one["kind"] for one in result["texts"]] == ["doi", "not_a_doi"]


async def test_lines_without_an_answer_in_time_are_unverified() -> None:
    async with running(timeout=0.2) as desk:
        desk.upstream.put("10.1000/182", url=URL)
        desk.upstream.put("10.1000/slow", url=URL)
        desk.upstream.hold("10.1000/slow")
        result = await desk.call("check_list", lines=["no name", "10.1000/slow", "10.1000/182", "no name"])
    assert [row["verdict"] for row in result["lines"]] == ["not_a_doi", "unverified", "unverified", "not_a_doi"]
    assert "call again" in result["lines"][1]["message"]


async def test_a_call_that_is_cancelled_stops_its_lookups(desk: Desk) -> None:
    desk.upstream.hold("10.1000/0")
    names = [f"10.1000/{number}" for number in range(200)]
    call = asyncio.create_task(desk.call("check_list", lines=names))
    await desk.upstream.arrived("10.1000/0")
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    queries = desk.upstream.queries()
    assert queries < 200
    assert (await desk.call("parse", texts=["x"]))["texts"]
    assert desk.upstream.queries() == queries


async def test_more_calls_than_the_limit_are_refused_until_one_ends() -> None:
    async with running(calls=1) as desk:
        desk.upstream.put("10.1000/slow", url=URL)
        desk.upstream.hold("10.1000/slow")
        call = asyncio.create_task(desk.call("resolve", name="10.1000/slow"))
        await desk.upstream.arrived("10.1000/slow")
        with pytest.raises(InvalidRequest, match="wait for one of yours"):
            await desk.call("resolve", name="10.1000/slow")
        assert await desk.call("parse", texts=["x"])
        desk.upstream.release("10.1000/slow")
        assert (await call)["verdict"] == "resolved"


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("check_list", {}, "lines: Field required"),
        ("check_list", {"lines": []}, "lines: "),
        ("check_list", {"lines": 10}, "lines: "),
        ("check_list", {"lines": [1]}, "lines.0: "),
        ("parse", {"texts": ["x"], "more": 1}, "more: "),
        ("resolve", {"name": None}, "name: "),
        ("check_list", {"lines": ["x"] * 501}, "lines: List should have at most 500 items"),
        ("parse", {"texts": ["x"] * 10_000}, "texts: List should have at most 500 items"),
    ],
)
async def test_wrong_arguments_are_named(desk: Desk, tool: ToolName, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        await desk.call(tool, **arguments)


async def test_a_text_that_is_too_long_is_not_read_and_the_others_are(desk: Desk) -> None:
    desk.upstream.put("10.1000/182", url=URL)
    result = await desk.call("check_list", lines=["10.1000/182 " + "x" * 100_000, "10.1000/182"])
    parsed = await desk.call("parse", texts=["x" * 100_000])
    resolved = await desk.call("resolve", name="x" * 100_000)
    assert [row["verdict"] for row in result["lines"]] == ["not_a_doi", "resolved"]
    assert len(result["lines"][0]["input"]) == 500
    for one in (result["lines"][0], parsed["texts"][0], resolved):
        assert "with at most 4096" in one["message"]


async def test_a_result_has_a_largest_size() -> None:
    async with running(result_bytes=2_000) as desk:
        result = await desk.call("check_list", lines=["no name"] * 100)
        parsed = await desk.call("parse", texts=["no name"] * 100)
    assert 0 < len(result["lines"]) == 100 - result["left_out"] < 100
    assert result["summary"]["not_a_doi"] == 100
    assert 0 < len(parsed["texts"]) == 100 - parsed["left_out"] < 100


async def test_a_result_has_no_control_or_formatting_characters(desk: Desk) -> None:
    hidden = "\x00\x1b[31m\u202e\u2028\u200b\U000e0041\x85"
    alias = {"index": 1, "type": "HS_ALIAS", "data": {"format": "string", "value": "10.1000/b\u202e"}}
    desk.upstream.put("10.1000/a", [alias])
    desk.upstream.put("10.1000/b\u202e", url="http://example.org/\u202e")
    results = [
        await desk.call("parse", texts=[f"10.1000/182{hidden}x", hidden]),
        await desk.call("check_list", lines=[f"{hidden} 10.1000/182{hidden}x", "10.1000/a", f"x {hidden}"]),
        await desk.call("resolve", name="10.1000/a"),
    ]
    assert results[2]["verdict"] == "alias"
    assert all(text.isprintable() for result in results for text in texts_in(result))


def texts_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for member in value.values() for text in texts_in(member)]
    if isinstance(value, list):
        return [text for item in value for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


async def test_a_lone_surrogate_is_part_of_no_name(desk: Desk) -> None:
    text = "10.1000/\ud800"
    assert (await desk.call("resolve", name=text))["verdict"] == "not_a_doi"
    assert (await desk.call("check_list", lines=[text]))["lines"][0]["verdict"] == "not_a_doi"
    assert (await desk.call("parse", texts=[text]))["texts"][0]["kind"] == "not_a_doi"


async def test_a_line_without_a_doi_is_told_apart_from_a_broken_one(desk: Desk) -> None:
    lines = "Smith J. A title. 2010/11\nDoe 10.1000\nshort https://doi.org/10/aabbe"
    result = await desk.call("check_list", lines=lines)
    assert [line["reason"] for line in result["lines"]] == ["no-doi", None, None]
    assert result["without_doi"] == 1
    assert result["lines"][2]["doi"] == "10/aabbe"


async def test_a_name_that_is_broken_at_the_end_of_a_line_is_joined(desk: Desk) -> None:
    desk.upstream.put("10.1000/182", url=URL)
    lines = ["Smith J. A title. https://doi.org/10.1000/", "182.", "Jones K. 10.1000/182", "no name"]
    result = await desk.call("check_list", lines=lines)
    assert [(row["line"], row["doi"], row["verdict"]) for row in result["lines"]] == [
        (1, "10.1000/182", "resolved"),
        (3, "10.1000/182", "resolved"),
        (4, None, "not_a_doi"),
    ]
