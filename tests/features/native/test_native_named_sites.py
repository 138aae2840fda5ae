"""The servers of a site that the operator has in a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.assembly.settings import Settings
from app.errors import ConfigurationError
from app.features.native.json_values import write_json_values
from app.features.native.wire.site_value import ServiceSite, encode_site
from app.features.native.wire.value import Value
from app.main import create
from tests.features.native.server import HandleServer
from tests.web.proxy import running

pytestmark = pytest.mark.anyio


def _values(*sites: ServiceSite) -> list[dict[str, Any]]:
    values = [Value(number, b"HS_SITE", encode_site(site)) for number, site in enumerate(sites, 1)]
    found: list[dict[str, Any]] = json.loads(write_json_values(values))
    return found


def _write(form: str, site: ServiceSite) -> bytes:
    if form == "siteinfo.bin":
        return encode_site(site)
    (value,) = _values(site)
    if form == "siteinfo.json":
        return json.dumps(value["data"]["value"]).encode()
    return json.dumps({"responseCode": 1, "handle": "0.NA/20.500.12345", "values": [value]}).encode()


@pytest.mark.parametrize("form", ["siteinfo.json", "siteinfo.bin", "sites.json"])
async def test_the_hash_of_a_name_selects_a_server_of_the_file(tmp_path: Path, form: str) -> None:
    async with HandleServer() as first, HandleServer(serial=1) as second:
        (one,), (two,) = first.site().servers, second.site().servers
        file = tmp_path / form
        file.write_bytes(_write(form, replace(first.site(), servers=(one, replace(two, id=2)))))
        names = [f"20.500.12345/{number}" for number in range(20)]
        for name in names:
            for server in (first, second):
                server.put(name, url=f"https://{server.port}.example/")
        async with running(upstream_routes=f"20.500.12345=hdl:{file}", resolve="any") as proxy:
            for name in names:
                got = await proxy.get(f"/api/handles/{name}?cert")
                assert got.status == 200 and (got["cache-status"] or "").endswith("; detail=verified")
            assert first.queries() and second.queries() and first.queries() + second.queries() == 20
            assert proxy.upstream.queries() == 0


async def test_a_mirror_replaces_a_primary_site_that_is_down_but_for_auth(tmp_path: Path) -> None:
    async with HandleServer() as primary:
        pass
    async with HandleServer() as mirror:
        mirror.put("10.5072/x", url="https://mirror.example/")
        file = tmp_path / "sites.json"
        file.write_bytes(json.dumps({"values": _values(primary.site(), mirror.site(kind=0))}).encode())
        async with running(upstream_url=f"hdl:{file}") as proxy:
            assert (await proxy.get("/10.5072/x"))["location"] == "https://mirror.example/"
            assert (await proxy.get("/10.5072/y?auth")).status == 502


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"{", b"\0\1\2", b'{"values":[]}', b'{"values":[1]}', b'{"servers":1}']
)
def test_a_file_without_a_site_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "siteinfo.json"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"siteinfo\.json: the file .*; see docs/native\.md"):
        create(Settings(upstream_url=f"hdl:{file}", store_url="memory:"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.json cannot be read"):
        create(Settings(upstream_url=f"hdl:{tmp_path}/none.json", store_url="memory:"))
