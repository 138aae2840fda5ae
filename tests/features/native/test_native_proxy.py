"""A proxy whose upstream is a handle server: fallbacks, routes, verified answers, and the settings for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from pydantic import ValidationError

from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.main import create
from handle_protocol.wire.message import OpFlag
from handle_protocol.wire.site_value import Value
from tests.constants import BYPASSES
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

NAME = "10.1000/182"
URL = "http://www.doi.org/hb.html"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[HandleServer]:
    """A handle server with NAME. Its key is in `root.json`."""
    async with HandleServer() as server:
        (tmp_path / "root.json").write_bytes(write_bootstrap(server))
        server.put(NAME, url=URL)
        yield server


async def test_another_upstream_answers_in_place_of_handle_servers_that_fail() -> None:
    async with HandleServer() as server:
        pass
    async with Proxy() as other, Proxy(upstream_url=f"{server.url},{other.upstream.url}") as proxy:
        other.upstream.put(NAME, url=URL)
        got = await proxy.ask("GET", f"/{NAME}")
        assert (got.status, got["location"]) == (302, URL)
        assert (got["cache-status"] or "").endswith("; detail=upstream-2")
        # From the cache, the answer does not say it again.
        assert "detail" not in ((await proxy.ask("GET", f"/{NAME}"))["cache-status"] or "")


async def test_handle_servers_answer_in_place_of_an_http_api_that_fails() -> None:
    async with HandleServer() as server, Proxy(upstream_url=f"http://127.0.0.1:1,{server.url}") as proxy:
        server.put(NAME, url=URL)
        got = await proxy.ask("GET", f"/{NAME}")
        assert (got.status, got["location"]) == (302, URL)


async def test_a_route_leads_one_prefix_to_a_handle_server() -> None:
    async with HandleServer() as server, Proxy(upstream_routes=f"10.5072={server.url}") as proxy:
        server.put("10.5072/x", url="http://routed.example/")
        proxy.upstream.put(NAME, url=URL)
        assert (await proxy.ask("GET", "/10.5072/x"))["location"] == "http://routed.example/"
        assert (await proxy.ask("GET", f"/{NAME}"))["location"] == URL
        assert (server.queries(NAME), proxy.upstream.queries("10.5072/x")) == (0, 0)


async def test_cert_is_verified_from_the_root(tmp_path: Path) -> None:
    async with HandleServer() as root, HandleServer(serial=2) as home:
        file = tmp_path / "root.json"
        file.write_bytes(write_bootstrap(root))
        root.put_values("0.NA/10.1000", home.site_value())
        home.put(NAME, url=URL)
        settings = {"upstream_url": "hdl:", "upstream_bootstrap": file, "upstream_private_servers": True}
        async with Proxy(**settings) as proxy:
            got = await proxy.ask("GET", f"/api/handles/{NAME}?cert")
            assert got.status == 200
            assert (got["cache-status"] or "").endswith("; detail=verified")
            home.lie(NAME, "signature")
            proxy.clock.advance(86_400)
            got = await proxy.ask("GET", f"/api/handles/{NAME}?cert")
            # The stale record is served in place of an answer that is not proven.
            assert (got["cache-status"] or "").endswith("; detail=signature-invalid")
            home.lie("10.1000/none", "signature")
            got = await proxy.ask("GET", "/api/handles/10.1000/none?cert")
            assert (got.status, got.json["responseCode"]) == (502, 2)


async def test_cert_under_an_absent_prefix_is_answered_by_the_signed_word_of_the_root(
    tmp_path: Path,
) -> None:
    async with HandleServer() as root:
        (tmp_path / "root.json").write_bytes(write_bootstrap(root))
        settings = {"upstream_url": "hdl:", "upstream_bootstrap": tmp_path / "root.json"}
        async with Proxy(**settings, upstream_private_servers=True, upstream_verify="when-asked") as proxy:
            # Without a signature it does not count for `cert`.
            assert (await proxy.get("/api/handles/10.3000/1")).status == 404
            for name in ("10.3000/1", "10.3000/2"):
                got = await proxy.get(f"/api/handles/{name}?cert")
                assert (got.status, got.json["responseCode"]) == (404, 100)
                assert (got["cache-status"] or "").endswith("; detail=verified")
            assert root.queries("0.NA/10.3000") == 2
            root.lie("0.NA/10.4000", "unsigned")
            assert (await proxy.get("/api/handles/10.4000/1?cert")).status == 502


_EVIL: Final = "https://evil.example/"


async def test_a_lookup_that_is_not_signed_leaves_the_name_to_the_next_upstream(tmp_path: Path) -> None:
    async with HandleServer() as root, Proxy() as other:
        file = tmp_path / "root.json"
        file.write_bytes(write_bootstrap(root))
        root.lie("0.NA/10.1000", "unsigned")
        other.upstream.put(NAME, url=URL)
        settings = {"upstream_bootstrap": file, "upstream_private_servers": True}
        async with Proxy(upstream_url=f"hdl:, {other.upstream.url}", **settings) as proxy:
            assert (await proxy.get(f"/{NAME}"))["location"] == URL
            assert (await proxy.get("/10.1000/cert?cert")).status == 502


async def test_a_named_server_without_a_key_answers_without_signatures() -> None:
    async with HandleServer() as server, Proxy(upstream_url=server.url) as proxy:
        server.put(NAME, url=URL)
        assert (await proxy.get(f"/{NAME}"))["location"] == URL
        assert not server.flags[0] & OpFlag.CERTIFIED


async def test_a_wrong_signature_is_not_answered_by_the_next_upstream(server: HandleServer, tmp_path: Path) -> None:
    server.lie(NAME, "unsigned")
    async with (
        Proxy() as other,
        Proxy(upstream_url=f"{server.url},{other.upstream.url}", upstream_bootstrap=tmp_path / "root.json") as proxy,
    ):
        other.upstream.put(NAME, url=URL)
        assert (await proxy.ask("GET", f"/{NAME}?cert")).status == 502
        assert other.upstream.queries(NAME) == 0


async def test_messages_to_handle_servers_are_counted() -> None:
    async with HandleServer() as server, Proxy(upstream_url=server.url) as proxy:
        await proxy.ask("GET", f"/{NAME}")
        text = (await proxy.ask("GET", "/metrics")).text
        sample = 'doi_proxy_upstream_exchanges_total{purpose="name",result="answer",transport="udp",upstream="1"} '
        assert float(text.partition(sample)[2].partition("\n")[0]) >= 1


@pytest.mark.parametrize("url", ["hdl://", "hdl:./x", "hdl://host/path", "hdl://host:0", "hdl://u:p@host", "hdl:x"])
def test_what_is_not_the_url_of_a_handle_server_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        Settings(upstream_url=url)


def test_hdl_needs_the_sites_of_the_root() -> None:
    with pytest.raises(ValidationError, match="upstream_bootstrap"):
        Settings(upstream_url="hdl:, https://doi.org")
    with pytest.raises(ValidationError, match="upstream_bootstrap"):
        Settings(upstream_routes="10.5072=hdl:")


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"responseCode":100,"handle":"0.NA/0.NA"}'])
def test_a_bootstrap_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "root.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"upstream_bootstrap: .*root\.json"):
        create(Settings(upstream_url="hdl:", upstream_bootstrap=file, store_url="memory:"))


async def test_cert_is_answered_by_a_verified_record_of_the_cache(server: HandleServer, tmp_path: Path) -> None:
    settings = {"upstream_url": server.url, "upstream_bootstrap": tmp_path / "root.json", BYPASSES: 1}
    async with Proxy(**settings) as proxy:
        for target in (f"/{NAME}", f"/api/handles/{NAME}"):
            await proxy.ask("GET", f"{target}?cert")
            for query in ("?cert", ""):
                got = await proxy.ask("GET", f"{target}{query}")
                assert got["cache-status"] == "doi-proxy; hit; ttl=86400; detail=verified"
        assert server.queries(NAME) == 1
        # The client has no bypass left.
        assert (await proxy.ask("GET", f"/{NAME}?auth")).status == 429


async def test_an_operator_sees_whether_a_record_is_verified(server: HandleServer, tmp_path: Path) -> None:
    token = "a-token-of-more-than-32-characters"
    async with Proxy(upstream_url=server.url, upstream_bootstrap=tmp_path / "root.json", admin_token=token) as proxy:
        for query, is_verified in (("", False), ("?cert", True)):
            await proxy.ask("GET", f"/{NAME}{query}")
            shown = await proxy.ask("GET", f"/admin/entries?doi={NAME}", authorization=f"Bearer {token}")
            assert shown.json["verified"] is is_verified
        proxy.clock.advance(86_400)
        shown = await proxy.ask("GET", f"/admin/entries?doi={NAME}", authorization=f"Bearer {token}")
        assert (shown.json["state"], shown.json["verified"]) == ("stale", False)


async def test_an_alias_is_verified_with_the_record_that_it_stands_for(server: HandleServer, tmp_path: Path) -> None:
    server.put_values("10.1000/alias", Value(1, b"HS_ALIAS", NAME.encode()))
    async with Proxy(upstream_url=server.url, upstream_bootstrap=tmp_path / "root.json") as proxy:
        await proxy.ask("GET", f"/{NAME}?cert")
        got = await proxy.ask("POST", "/", body=b"hdl=10.1000/alias")
        assert "verified" not in (got["cache-status"] or "")
        got = await proxy.ask("POST", "/", body=b"hdl=10.1000/alias&cert")
        assert (got["location"], got["cache-status"]) == (URL, "doi-proxy; hit; ttl=86400; detail=verified")


async def test_with_always_a_record_that_is_not_verified_is_confirmed(server: HandleServer, tmp_path: Path) -> None:
    settings = {
        "store_url": f"sqlite:///{tmp_path}/store.sqlite3",
        "upstream_url": server.url,
        "upstream_bootstrap": tmp_path / "root.json",
    }
    for name in (NAME, "10.1000/outage"):
        server.put(name, url=URL)
    async with Proxy(**settings, upstream_verify="never") as proxy:
        for name in (NAME, "10.1000/outage"):
            assert (await proxy.ask("GET", f"/{name}"))["location"] == URL
    server.lie("10.1000/outage", "unsigned")
    async with Proxy(**settings, upstream_verify="always") as proxy:
        got = await proxy.ask("GET", "/10.1000/outage")
        assert (got["location"], got["cache-status"]) == (URL, "doi-proxy; hit; ttl=-1; detail=signature-invalid")
        got = await proxy.ask("GET", f"/{NAME}")
        assert (got["cache-status"] or "").endswith("; fwd=stale; stored; ttl=86400; detail=verified")
        got = await proxy.ask("GET", f"/{NAME}")
        assert got["cache-status"] == "doi-proxy; hit; ttl=86400; detail=verified"


@pytest.mark.parametrize(
    ("setting", "others"),
    [
        ("upstream_url", {}),
        ("upstream_url", {"upstream_url": "hdl://handle.example.org,https://user:secret@doi.example"}),
        (
            "upstream_routes",
            {"upstream_url": "hdl://handle.example.org", "upstream_routes": "10.5072=https://user:secret@doi.example"},
        ),
    ],
)
def test_always_refuses_an_http_api_and_says_what_to_do(setting: str, others: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=f"{setting} names an HTTP API") as caught:
        Settings(upstream_verify="always", **others)
    assert "name hdl: or hdl://host:port, or set upstream_verify to lookups" in str(caught.value)


def test_always_refuses_an_http_api_in_the_local_records(tmp_path: Path) -> None:
    file = tmp_path / "local.toml"
    file.write_text('[[record]]\nprefix = "10.5072"\nupstream = "https://handle.example.org"\n')
    settings = Settings(
        upstream_verify="always", upstream_url="hdl://127.0.0.1", local_records=file, store_url="memory:"
    )
    with pytest.raises(ConfigurationError, match=r"handle\.example\.org is an HTTP API"):
        create(settings)
