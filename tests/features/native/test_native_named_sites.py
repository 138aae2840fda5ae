"""The servers of a site that the operator has in a file."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.native.opening import find_native_problems
from doi_proxy.main import create
from doi_proxy.system.check import Inspection
from handle_protocol.json_sites import MAX_BOOTSTRAP_BYTES, read_site_file, write_json_values
from handle_protocol.wire.site_value import (
    Interface,
    Purpose,
    ServiceSite,
    TransportProtocol,
    Value,
    encode_site,
    pack_address,
)
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


def _values(*sites: ServiceSite) -> list[dict[str, Any]]:
    values = [Value(number, b"HS_SITE", encode_site(site)) for number, site in enumerate(sites, 1)]
    found: list[dict[str, Any]] = json.loads(write_json_values(values))
    return found


def _zip(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", compression) as content:
        for name, data in files.items():
            # The time would give a test another id in each collection.
            content.writestr(zipfile.ZipInfo(name), data, compression)
    return archive.getvalue()


def _write(form: str, site: ServiceSite) -> bytes:
    if form.startswith("sitebndl"):
        name = "siteinfo.bin" if form == "sitebndl-8.zip" else "svr_1/siteinfo.json"
        other = {"admpub.bin": b"\0key", "contactdata.dct": b"[]", "replpub.bin": b"\0key"}
        return _zip({**other, name: _write(name[-13:].removeprefix("/"), site)})
    if form == "siteinfo.bin":
        return encode_site(site)
    (value,) = _values(site)
    if form == "siteinfo.json":
        return json.dumps(value["data"]["value"]).encode()
    return json.dumps({"responseCode": 1, "handle": "0.NA/20.500.12345", "values": [value]}).encode()


@pytest.mark.parametrize("form", ["siteinfo.json", "siteinfo.bin", "sites.json", "sitebndl.zip", "sitebndl-8.zip"])
async def test_the_hash_of_a_name_selects_a_server_of_the_file(tmp_path: Path, form: str) -> None:
    async with HandleServer() as first, HandleServer(serial=1) as second:
        (one,), (two,) = first.site().servers, second.site().servers
        file = tmp_path / form
        file.write_bytes(_write(form, replace(first.site(), servers=(one, replace(two, id=2)))))
        names = [f"20.500.12345/{number}" for number in range(20)]
        for name in names:
            for server in (first, second):
                server.put(name, url=f"https://{server.port}.example/")
        async with Proxy(upstream_routes=f"20.500.12345=hdl:{file}", resolve="any") as proxy:
            for name in names:
                got = await proxy.get(f"/api/handles/{name}?cert")
                assert got.status == 200 and (got["cache-status"] or "").endswith("; detail=verified")
            # A client repeats packets on a busy machine, so the names count, not the queries.
            asked = set(first.counts), set(second.counts)
            assert all(asked) and not asked[0] & asked[1] and len(asked[0] | asked[1]) == 20
            assert proxy.upstream.queries() == 0


async def test_a_mirror_replaces_a_primary_site_that_is_down_but_for_auth(tmp_path: Path) -> None:
    async with HandleServer() as primary:
        pass
    async with HandleServer() as mirror:
        mirror.put("10.5072/x", url="https://mirror.example/")
        file = tmp_path / "sites.json"
        file.write_bytes(json.dumps({"values": _values(primary.site(), mirror.site(kind=0))}).encode())
        async with Proxy(upstream_url=f"hdl:{file}") as proxy:
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


@table("start", [b"", b"\xef\xbb\xbf", b"\r\n  ", b"\xef\xbb\xbf\n"])
def test_a_file_of_an_editor_is_read(start: bytes) -> None:
    """It begins with a byte order mark or blanks, and an interface has no member that would be false."""
    interface = {"query": True, "protocol": "TCP", "port": 2641}
    server = {"serverId": 1, "address": "192.0.2.10", "interfaces": [interface]}
    site = {"serialNumber": 1, "primarySite": True, "servers": [server]}
    for content in (site, {"values": [{"index": 1, "type": "HS_SITE", "data": {"format": "site", "value": site}}]}):
        (found,) = read_site_file(start + json.dumps(content).encode()).sites
        assert found.servers[0].interfaces == (Interface(Purpose.QUERY, TransportProtocol.TCP, 2641),)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.json cannot be read"):
        create(Settings(upstream_url=f"hdl:{tmp_path}/none.json", store_url="memory:"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (_zip({"contactdata.dct": b"[]"}), "the archive has no siteinfo.json and no siteinfo.bin"),
        (_zip({"siteinfo.json": b"{}"})[:-30], "the archive cannot be read"),
        (b"PK\x03\x04", "the archive cannot be read"),
        (_zip({"siteinfo.json": bytes(MAX_BOOTSTRAP_BYTES + 1)}), "in the archive has over 1048576 bytes"),
        (_zip({"siteinfo.json": b"{}"}, zipfile.ZIP_LZMA), "is encrypted or compressed by an unusual method"),
        (_zip({"siteinfo.json": b"{}"}).replace(b"{}", b"[]"), "the file has no site|the archive cannot be read"),
        (_zip({"siteinfo.json": b"{}"}), "the file has no site that can be read"),
    ],
)
def test_an_archive_without_a_site_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "sitebndl.zip"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"sitebndl\.zip: .*({problem}).*; see docs/native\.md"):
        create(Settings(upstream_url=f"hdl:{file}", store_url="memory:"))


def _outside(site: ServiceSite, *addresses: str) -> ServiceSite:
    (server,) = site.servers
    moved = tuple(
        replace(server, id=number, address=pack_address(ip_address(text))) for number, text in enumerate(addresses, 1)
    )
    return replace(site, servers=moved)


async def test_a_server_behind_an_address_translator_is_queried_at_its_address_inside(tmp_path: Path) -> None:
    async with HandleServer() as server:
        server.put("10.5072/x", url="https://inside.example/")
        file = tmp_path / "sitebndl.zip"
        file.write_bytes(_write("sitebndl.zip", _outside(server.site(), "203.0.113.7")))
        async with Proxy(upstream_routes=f"10.5072=hdl:{file}?203.0.113.7=127.0.0.1") as proxy:
            got = await proxy.get("/10.5072/x?cert")
            assert got["location"] == "https://inside.example/"
            assert (got["cache-status"] or "").endswith("; detail=verified")


async def test_the_addresses_inside_hold_for_all_that_the_root_leads_to(tmp_path: Path) -> None:
    outside = ("93.184.216.34", "93.184.216.35")
    async with HandleServer() as root, HandleServer(serial=2) as home:
        file = tmp_path / "root.json"
        moved = [_outside(server.site(), address) for server, address in zip((root, home), outside, strict=True)]
        file.write_bytes(_write("sites.json", moved[0]).replace(b"0.NA/20.500.12345", b"0.NA/0.NA"))
        root.put_values("0.NA/10.1000", Value(1, b"HS_SITE", encode_site(moved[1])))
        home.put("10.1000/x", url="https://inside.example/")
        # A registrant can name any address: one that the operator did not name is still refused.
        root.put_values("0.NA/10.1001", home.site_value())
        home.put("10.1001/x", url="https://inside.example/")
        url = "hdl:?" + "&".join(f"{address}=127.0.0.1" for address in outside)
        async with Proxy(upstream_url=url, upstream_bootstrap=file) as proxy:
            got = await proxy.get("/10.1000/x?cert")
            assert got["location"] == "https://inside.example/"
            assert (got["cache-status"] or "").endswith("; detail=verified")
            assert (await proxy.get("/10.1001/x")).status == 502
            assert home.queries("10.1001/x") == 0


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ("203.0.113.9=10.0.0.9", "no server of the file is at 203.0.113.9; its addresses are 203.0.113.7"),
        ("203.0.113.7", "'203.0.113.7' is not a pair of addresses; write OUTSIDE=INSIDE"),
        ("203.0.113.7=10.0.0", "is not a pair of addresses"),
        ("203.0.113.7=10.0.0.7&", "'' is not a pair of addresses"),
    ],
)
async def test_a_map_that_cannot_be_used_is_refused(tmp_path: Path, pairs: str, problem: str) -> None:
    async with HandleServer() as server:
        file = tmp_path / "siteinfo.json"
        file.write_bytes(_write("siteinfo.json", _outside(server.site(), "203.0.113.7")))
    with pytest.raises(ConfigurationError, match=problem):
        create(Settings(upstream_url=f"hdl:{file}?{pairs}", store_url="memory:"))


@pytest.mark.parametrize("setting", ["upstream_url", "upstream_routes"])
def test_a_map_without_a_file_needs_the_root_and_pairs(setting: str, tmp_path: Path) -> None:
    url = "hdl:?203.0.113.7=10.0.0"
    value = url if setting == "upstream_url" else f"10.5072={url}"
    with pytest.raises(ValidationError, match="needs upstream_bootstrap"):
        Settings.model_validate({setting: value})
    file = tmp_path / "root.json"
    file.write_bytes(b"{}")
    with pytest.raises(ConfigurationError, match=r"hdl:\?203.0.113.7=10.0.0: .* is not a pair of addresses"):
        create(Settings.model_validate({setting: value, "upstream_bootstrap": file, "store_url": "memory:"}))


async def test_the_check_says_without_a_network_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    async with HandleServer() as server:
        (one,) = server.site().servers
        bare = replace(server.site(kind=0), servers=(replace(one, public_key=b""),))
    file = tmp_path / "siteinfo.bin"
    settings = Settings(upstream_url=f"hdl:{file}", store_url="memory:")
    for is_offline in (False, True):
        inspection = Inspection(settings, offline=is_offline)
        (missing,) = find_native_problems(inspection)
        assert (missing.severity, missing.source) == ("error", "upstream_url") and "cannot be read" in missing.problem
    file.write_bytes(encode_site(bare))
    found = list(find_native_problems(inspection))
    assert [finding.severity for finding in found] == ["warning", "warning"]
    assert "has no key" in found[0].problem and "no primary site" in found[1].problem
    file.write_bytes(encode_site(server.site()))
    assert not list(find_native_problems(inspection))


@pytest.mark.real_time  # A check of the settings runs an event loop of its own.
async def test_the_check_does_not_query_the_root_without_its_file_and_says_which_addresses_are_refused(
    tmp_path: Path,
) -> None:
    file = tmp_path / "root.json"
    settings = Settings(upstream_url="hdl:", upstream_bootstrap=file, store_url="memory:")
    inspection = Inspection(settings, offline=False)
    (missing,) = await asyncio.to_thread(lambda: list(find_native_problems(inspection)))
    assert missing.source == "upstream_bootstrap"
    async with HandleServer() as server:
        file.write_bytes(write_bootstrap(server))
        (refused,) = await asyncio.to_thread(lambda: list(find_native_problems(inspection)))
        assert server.queries() == 0
    assert refused.source == "upstream_url" and "upstream_private_servers" in refused.remedy
