"""What the operator and generated clients see of restricted values: the description, the counter, and `/status`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Final

import pytest

from app.features.restricted.gate import RESTRICTED_PATH
from app.features.restricted.metrics import RESULTS
from tests.features.openapi.described import Description
from tests.features.restricted.challenging import NAME, marker
from tests.features.restricted.world import PATH, World, worlds
from tests.web.proxy import Got, running

pytestmark = pytest.mark.anyio

TEMPLATE: Final = "/api/restricted/{handle}"
OTHER: Final = "/api/restricted/10.2000/1"


async def count(world: World) -> dict[str, float]:
    """The requests by result, without those that did not occur."""
    shown = (await world.proxy.get("/metrics")).text
    found = re.findall(r'doi_proxy_restricted_reads_total\{result="([^"]+)"\} ([0-9.]+)', shown)
    assert {name for name, _ in found} == set(RESULTS)
    return {name: float(number) for name, number in found if float(number)}


async def test_every_answer_is_described(tmp_path: Path) -> None:
    async with worlds(tmp_path) as world:
        document = (await world.proxy.get("/openapi.json")).json
        description, seen = Description(document), []

        async def check(method: str, target: str, **headers: str) -> Got:
            got = await world.proxy.ask(
                method, target, **{"authorization": "Bearer a-token-of-a-reader-0001", **headers}
            )
            path = target.partition("?")[0].encode()
            assert description.template(method, path) == TEMPLATE
            description.check(method, path, got.status, dict(got.fields), extra=(), probes=False)
            seen.append(got.status)
            return got

        await check("GET", PATH)
        await check("HEAD", PATH)
        await check("GET", "/api/restricted/10.1000/none")
        await check("GET", OTHER)
        await check("GET", f"{PATH}?index=x")
        await check("GET", PATH + "x" * 9_000)
        await check("GET", PATH, origin="https://evil.example")
        for _ in range(11):
            await check("GET", PATH, authorization="Bearer wrong")
        world.server.refusal = 403
        await check("GET", PATH)
        assert (await check("OPTIONS", PATH)).status == 405
    assert set(seen) == {200, 404, 400, 414, 403, 401, 429, 502, 405}
    assert set(document["paths"][TEMPLATE]) == {"get", "head"}
    assert document["paths"][TEMPLATE]["get"]["security"] == [{"reader": []}, {}]
    assert document["components"]["securitySchemes"]["reader"] == {"type": "http", "scheme": "bearer"}
    example = document["paths"][TEMPLATE]["get"]["responses"]["200"]["content"]["application/json"]["example"]
    assert example["values"][0]["permissions"] == "1100"


async def test_the_description_has_the_path_only_where_it_is_open() -> None:
    assert TEMPLATE.startswith(RESTRICTED_PATH.decode())
    async with running(admin_token="a" * 40) as proxy:
        document = (await proxy.get("/openapi.json")).json
    assert TEMPLATE not in document["paths"]
    assert "reader" not in document["components"]["securitySchemes"]
    assert "Cross-Origin-Resource-Policy" not in str(document["paths"])


@pytest.mark.parametrize(("language", "words"), [
    ("de", "Eingeschränkte Werte lesen"), ("fr", "Lire des valeurs restreintes"), ("es", "Leer valores restringidos"),
])  # fmt: skip
async def test_the_documentation_describes_the_path_in_each_language(tmp_path: Path, language: str, words: str) -> None:
    async with worlds(tmp_path) as world:
        assert words in (await world.proxy.get("/docs", accept_language=language)).text


async def test_requests_are_counted_by_result_and_by_nothing_else(tmp_path: Path) -> None:
    async with worlds(tmp_path) as world:
        assert await count(world) == {}
        await world.read()
        await world.read("/api/restricted/10.1000/none")
        await world.proxy.get(PATH)
        await world.read(OTHER)
        world.server.change_answer = lambda response: b"nonsense"
        await world.read()
        world.server.change_answer = lambda response: response
        world.server.refusal = 403
        # The second one is refused without a query.
        await world.read()
        await world.read()
        assert await count(world) == {"answered": 2.0, "refused": 2.0, "untrusted": 1.0, "identity-refused": 2.0}
        shown = (await world.proxy.get("/metrics")).text
    assert not [word for word in (NAME, "10.1000", marker(), "198.51.100.9") if word in shown]


async def test_a_read_without_an_answer_is_counted_as_failed(tmp_path: Path) -> None:
    async with worlds(tmp_path, upstream_burst=1, upstream_rate=0.001) as world:
        await world.read()
        assert await count(world) == {"failed": 1.0}


async def test_status_has_a_line_while_it_is_on_and_a_problem_while_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine delays the event loop, which would be one more problem.
    monkeypatch.setattr("app.features.status.summary._DELAY", math.inf)

    async def show(world: World) -> tuple[Any, str]:
        status = (await world.proxy.get("/status?format=json")).json
        return status, (await world.proxy.get("/status?format=html")).text

    async with worlds(tmp_path, status_access="public") as world:
        status, page = await show(world)
        assert (status["restricted"], status["summary"]["problems"]) == ("ok", [])
        assert "authorised readers get them" in page and "cannot be read" not in page
        world.server.change_answer = lambda response: b"nonsense"
        await world.read()
        assert (await show(world))[0]["restricted"] == "failing"
        # "Not found" is an answer of the server too.
        await world.read("/api/restricted/10.1000/none")
        assert (await show(world))[0]["restricted"] == "ok"
        world.server.change_answer, world.server.refusal = (lambda response: response), 403
        await world.read()
        status, page = await show(world)
        assert (status["restricted"], status["summary"]["problems"]) == ("failing", ["restricted"])
        assert "Restricted values cannot be read" in page and "see the log" in page
        assert 'id="restricted"' in (await world.proxy.get("/status/runbook")).text
        assert (await world.proxy.get("/readyz")).json["detail"]["restricted"] == "failing"
    async with running(status_access="public") as proxy:
        status = (await proxy.get("/status?format=json")).json
        assert status["restricted"] is None
        assert "Restricted values" not in (await proxy.get("/status?format=html")).text
