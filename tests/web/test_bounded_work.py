"""What one record can cost is bounded: the sizes of pages and answers, what is parsed, and that it is parsed once.

`python -m bench.attacks records` measures such records in milliseconds.
"""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any, Final

import pytest

from doi_names.name import HandleName
from doi_proxy.resolver.resolution import Client
from doi_proxy.resolver.target import choose_location, list_candidates, read_own_locations
from doi_proxy.web.api import MAX_PRETTY_BYTES, MAX_PRETTY_DEPTH
from doi_proxy.web.locations import MAX_CHARACTERS, write_locations
from doi_proxy.web.shown_values import (
    MAX_BYTES_SHOWN,
    MAX_CONTAINERS_SHOWN,
    MAX_MEMBERS_SHOWN,
    MAX_VALUE_BYTES_SHOWN,
    MAX_VALUES_SHOWN,
)
from handle_protocol.location import MAX_NETWORKS, Location
from handle_protocol.value import MAX_VALUES, read_values
from tests.table import table
from tests.values import value
from tests.web.proxy import Proxy

NAME: Final = "10.5555/hostile"
JSON_LINK: Final = f'<a href="/api/handles/{NAME}">'
#: The largest page: every byte of the shown JSON as an entity in a link and in its text, and the rows themselves.
MAX_PAGE_BYTES: Final = 20 * MAX_BYTES_SHOWN


def data(content: object) -> dict[str, Any]:
    return {"index": 1, "type": "X", "data": {"format": "odd", "value": content}}


def loc(index: int, xml: str) -> dict[str, Any]:
    return value(index, "10320/loc", xml)


async def page_of(values: list[dict[str, Any]]) -> str:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, values)
        got = await proxy.get(f"/{NAME}?noredirect", accept="text/html")
    assert got.status == 200
    assert len(got.body) <= MAX_PAGE_BYTES
    return got.text


@pytest.mark.anyio
@table(
    ("values", "said"),
    [
        ([data([0] * 5_000)], f"{5_000 - MAX_MEMBERS_SHOWN} more items"),
        ([data({str(n): 0 for n in range(1_500)})], f"{1_500 - MAX_MEMBERS_SHOWN} more items"),
        ([data([[0, 1]] * 400)], "more items"),
        ([data([[0]] * MAX_CONTAINERS_SHOWN)], "These data are too large to show here"),
        ([data([[[[[[[[0]] * 9]]]]]] * 30)], "…"),
        ([data([0] * MAX_VALUE_BYTES_SHOWN)], "These data are too large to show here"),
        ([data([0] * 100_000)], "These data are too large to show here"),
        ([data(["'"] * 3_000)], "more items"),
        ([{"index": 1, "type": "X", "data": {"format": "vlist", "value": [{"handle": "a", "index": 1}] * 501}}],
         "1 more items"),
        ([value(n, "EMAIL", "a@" + "." * 9_990 + "@") for n in range(20)], "14 more values"),
        ([value(n, "X", "") for n in range(MAX_VALUES)], f"{MAX_VALUES - MAX_VALUES_SHOWN} more values"),
        ([value(n, "URL", "https://x/" + "'" * 9_000) for n in range(28)], "more values"),
        ([value(n, "10.1/" + "\u00e9" * 4_000, "10.1/" + "\u00e9" * 4_000) for n in range(5)], "more values"),
    ],
)  # fmt: skip
async def test_a_page_is_bounded_and_links_to_the_json_for_the_rest(values: list[dict[str, Any]], said: str) -> None:
    text = await page_of(values)
    assert said in text
    assert JSON_LINK in text


def test_networks_of_one_name_are_bounded_and_parsed_once() -> None:
    networks = ",".join(["192.0.2.0/24"] * 300)
    many = [Location((("addresses", networks), ("href", str(number)))) for number in range(50)]
    own = Location((("addresses", "203.0.113.0/24"), ("href", "own")))
    client = Client(address=ip_address("203.0.113.7"))
    assert choose_location([*many[:1], own], "address", client, ()).location is own
    assert choose_location([*many[: MAX_NETWORKS // 300 + 1], own], "address", client, ()).location is not own
    assert many[0].networks is many[0].networks


def test_showurls_is_bounded_and_names_the_json_for_the_rest() -> None:
    record = read_values(json.dumps([value(n, "URL", "http://a/" + "&" * 900) for n in range(200)]).encode())
    body = write_locations(HandleName(NAME), record, read_own_locations(record))
    assert len(body) < MAX_CHARACTERS + 1_000
    shown = body.count(b"<location ")
    left = len(list_candidates(record, read_own_locations(record))) - shown
    assert f"<!-- {left} more locations are not shown here; all values: /api/handles/{NAME} -->".encode() in body


@pytest.mark.anyio
async def test_records_beyond_the_limit_of_one_name_are_left_out_and_the_answer_says_so() -> None:
    async with Proxy() as proxy:
        names = [f"10.5555/part-{n}" for n in range(8)]
        for n, name in enumerate(names):
            proxy.upstream.put(name, [loc(1, f"<l><location href='http://{n}/'/>{' ' * 30_000}</l>")])
        proxy.upstream.put(NAME, [loc(1, f"<l include='{' '.join(names)}'/>")])
        got = await proxy.get(f"/{NAME}?action=showurls")
    assert got.text.count("<location ") == 4
    assert got.text.count("more XML than is read for one name") == 4


async def pretty(proxy: Proxy, content: object) -> int:
    proxy.upstream.put(NAME, [data(content)])
    plain, indented = [(await proxy.get(f"/api/handles/{NAME}{query}")).body for query in ("?auth", "?pretty")]
    assert json.loads(plain) == json.loads(indented)
    return len(indented) - len(plain)


@pytest.mark.anyio
async def test_large_and_deep_answers_are_not_indented() -> None:
    async with Proxy() as proxy:
        nested: object = ["]" * 50, '"']
        for _ in range(MAX_PRETTY_DEPTH - 5):
            nested = [nested]
        assert await pretty(proxy, nested) > 0
        for _ in range(10):
            nested = [nested]
        assert await pretty(proxy, nested) == 0
        assert await pretty(proxy, "x" * MAX_PRETTY_BYTES) == 0


@pytest.mark.anyio
@pytest.mark.parametrize("query", ["", "type=X." + "&type=URL." * 150, "index=7" + "&index=3" * 150])
async def test_filters_of_any_number_answer(query: str) -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, [value(n, "URL", "x") for n in range(10)])
        got = json.loads((await proxy.get(f"/api/handles/{NAME}?{query}")).body)
    assert len(got["values"]) == (2 if "index" in query else 10)
