"""The doctor has no complaint about the generated configurations, and names the line of a faulty one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.features.setup.doctor import Examination, Prober, examine
from doi_proxy.features.setup.probe import sign_token
from doi_proxy.proxy_client import parse_server
from tests.cluster.front_proxy import program
from tests.cluster.processes import Proxy
from tests.features.setup.generated_front import GeneratedFront

pytestmark = [pytest.mark.anyio, pytest.mark.process]

KEY: Final = "a-token-for-the-tests-of-the-doctor"
#: The note that this machine cannot see what strangers reach.
LOCAL_CLIENT: Final = ("note", "probe /admin/")
NOWHERE: Final = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
async def ports(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[int, int]]:
    """Two sealed proxies, which need no upstream."""
    folder = tmp_path_factory.mktemp("proxies")
    settings = {"mode": "sealed", "admin_token": KEY}
    first, second = (Proxy(folder, NOWHERE, f"sqlite:///{folder}/store.sqlite3", **settings) for _ in range(2))
    async with first, second:
        yield first.port, second.port


async def examined(
    folder: Path,
    kind: str,
    ports: tuple[int, int],
    *,
    cached: bool = False,
    change: Callable[[str], str] = str,
    key: str = KEY,
) -> Examination:
    program({"apache": "apache2"}.get(kind, kind))
    async with GeneratedFront(folder, kind, ports, cached=cached, change=change) as front:
        prober = Prober(parse_server(front.url, "--url", verifies=False), sign_token(key, int(time.time()) + 60))
        return await asyncio.to_thread(examine, prober, None)


@pytest.mark.parametrize(("kind", "cached"), [("nginx", False), ("nginx", True), ("apache", False), ("caddy", False)])
async def test_a_generated_configuration_has_no_fault(
    kind: str, cached: bool, ports: tuple[int, int], tmp_path: Path
) -> None:
    found = await examined(tmp_path, kind, ports, cached=cached)
    # The only finding is that a client of this machine is no stranger.
    assert (found.front, [(one.severity, one.source) for one in found.findings]) == (kind, [LOCAL_CLIENT])


RAW: Final = "proxy_pass http://doi_proxy;"


@pytest.mark.parametrize(
    ("kind", "cached", "changes", "remedy"),
    [
        # With a proxy_pass that decodes, nginx also merges slashes unless merge_slashes is off.
        (
            "nginx",
            False,
            {"merge_slashes off;": "merge_slashes on;", RAW: "proxy_pass http://doi_proxy/;"},
            "`merge_slashes off;`",
        ),
        ("nginx", False, {RAW: "proxy_pass http://doi_proxy/;"}, f"`{RAW}`"),
        ("nginx", True, {"ignore_headers Expires;": "ignore_headers Expires Vary;"}, "remove Vary from `proxy_ignore"),
        (
            "nginx",
            True,
            {"headers Expires;": "headers Expires Cache-Control; proxy_cache_valid 200 60s;"},
            "remove Cache-Control from `proxy_ignore_headers`",
        ),
        ("nginx", True, {"$http_host$request_uri;": "$http_host$uri;"}, "_cache_key $scheme$http_host$request_uri;`"),
        ("nginx", False, {"proxy_set_header X-Forwarded-Proto $scheme;": ""}, "X-Forwarded-Proto $scheme"),
        ("nginx", False, {"proxy_set_header X-Forwarded-For $remote_addr;": ""}, "X-Forwarded-For $remote"),
        ("nginx", False, {"For $remote_addr": "For $http_x_forwarded_for"}, "$remote_addr"),
        ("nginx", False, {"$http_host;": "doi.example.org;"}, "`proxy_set_header Host $http_host;`"),
        ("nginx", False, {"large_client_header_buffers 4 64k;": ""}, "`large_client_header_buffers 4 64k;`"),
        ("nginx", False, {"proxy_buffer_size 64k;": ""}, "proxy_buffer_size 64k"),
        ("nginx", False, {"errors off;": "errors on; error_page 404 /x;"}, "`proxy_intercept_errors off;`"),
        ("nginx", False, {"client_max_body_size 0;": ""}, "client_max_body_size 0;"),
        ("apache", False, {" nocanon": ""}, "nocanon"),
        ("apache", False, {"AllowEncodedSlashes NoDecode": ""}, "`AllowEncodedSlashes NoDecode`"),
        ("apache", False, {"MergeSlashes Off": "", " nocanon": ""}, "`MergeSlashes Off`"),
        ("caddy", False, {"\treverse_proxy ": "\turi path_regexp /{2,} /\n\treverse_proxy "}, "remove `rewrite`"),
    ],
)
async def test_a_fault_is_named_with_the_line_to_change(
    kind: str, cached: bool, changes: dict[str, str], remedy: str, ports: tuple[int, int], tmp_path: Path
) -> None:
    def change(text: str) -> str:
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        return text

    found = await examined(tmp_path, kind, ports, cached=cached, change=change)
    assert any(remedy in one.remedy for one in found.findings), found.findings
    others = [one for one in found.findings if (one.severity, one.source) != LOCAL_CLIENT]
    assert {one.severity for one in others} == {"error"}


async def test_another_key_gets_no_answer_to_its_probes(ports: tuple[int, int], tmp_path: Path) -> None:
    (found,) = (await examined(tmp_path, "nginx", ports, key="another key of a stranger")).findings
    assert "no doi-proxy with this admin_token answered: HTTP 404" in found.problem
