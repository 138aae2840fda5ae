"""A query parameter that looks like a known one is an error on our own endpoints, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute

from doi_proxy.endpoints.operators import list_parameters, refuse_slips
from doi_proxy.errors import InvalidParameter
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

RESOLVE = frozenset({"output", "fields", "only", "extract", "suggest", "match", "column", "echo", "encoding"})


@table(
    ("sent", "meant"),
    [
        ("sugest", "suggest"),
        ("suggestion", "suggest"),
        ("Output", "output"),
        ("collumn", "column"),
        ("field", "fields"),
        ("matches", "match"),
    ],
)
def test_a_slip_names_the_parameter_that_was_meant(sent: str, meant: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^{sent}: this parameter is not known. Did you mean {meant}\\?$"):
        refuse_slips(["echo", sent], RESOLVE)


def test_parameters_of_other_programs_are_ignored() -> None:
    refuse_slips(["_", "v", "utm_source", "fbclid", "lang", "id", "", "sugest" * 4, *RESOLVE], RESOLVE)


def test_a_request_with_very_many_parameters_is_compared_in_part() -> None:
    refuse_slips([*(f"p{number}" for number in range(10_000)), "sugest"], RESOLVE)


async def test_a_parameter_of_a_model_is_known_by_the_names_of_its_members() -> None:
    async with Proxy() as proxy:
        app: Any = proxy.app
        known = {
            route.path: list_parameters(route.dependant)
            for route in app._operations.app.routes
            if isinstance(route, APIRoute)
        }
    assert known["/api/resolve"] == RESOLVE
    assert known["/api/extract"] == {"output"}
    assert known["/status"] == {"format", "refresh"}


@table(
    ("method", "target"),
    [
        ("POST", "/api/resolve?sugest=true"),
        ("POST", "/api/extract?ouput=csv"),
        ("POST", "/api/parse?colum=a"),
        ("GET", "/api/parse?doi=10.1000/182&dois=1"),
        ("HEAD", "/api/parse?doi=10.1000/182&dois=1"),
        ("GET", "/status?fromat=json"),
        ("GET", "/admin/explain?doi=10.1000/182&fetsh=1"),
    ],
)
async def test_our_own_endpoints_refuse_slips(method: str, target: str) -> None:
    async with Proxy(admin_token="a" * 40, status_networks="0.0.0.0/0, ::/0") as proxy:
        got = await proxy.ask(
            method, target, body="10.1000/182", content_type="text/plain", authorization=f"Bearer {'a' * 40}"
        )
    assert got.status == 400
    assert method == "HEAD" or (
        got.json["type"].endswith("#invalid-parameter") and "Did you mean" in got.json["detail"]
    )


@table(
    "target",
    ["/10.1000/182?noredirct", "/api/handles/10.1000/182?tpye=URL", "/ra/10.1000/182?nmaes=1", "/docs?fromat=x"],
)
async def test_paths_of_names_and_pages_ignore_what_they_do_not_know(target: str) -> None:
    async with Proxy() as proxy:
        proxy.upstream.put("10.1000/182", url="https://example.org/")
        assert (await proxy.get(target)).status in (200, 302)
