"""The doctor has no complaint about the generated configurations, and names the line of a faulty one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from app.features.setup.doctor import Examination, examine
from app.features.setup.probe import sign_token
from app.features.setup.probes import Prober
from app.proxy_client.server import parse_server
from tests.cluster.front_proxy import program
from tests.cluster.processes import Proxy
from tests.features.setup.generated_front import GeneratedFront

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.process]

KEY: Final = "a-token-for-the-tests-of-the-doctor"
#: The note that this machine cannot see what strangers reach.
LOCAL_CLIENT: Final = ("note", "probe /admin/")
NOWHERE: Final = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
async def ports(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[int, int]]:
    """Two sealed proxies, which need no upstream."""
    folder = tmp_path_factory.mktemp("proxies")
    settings = {"mode": "sealed", "admin_token": KEY}
    proxies = [Proxy(folder, NOWHERE, f"sqlite:///{folder}/store.sqlite3", **settings) for _ in range(2)]
    try:
        await asyncio.gather(*(one.ready() for one in proxies))
        yield proxies[0].port, proxies[1].port
    finally:
        for one in proxies:
            one.process.kill()


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
    front = GeneratedFront(folder, kind, ports, cached=cached, change=change)
    try:
        await front.ready()
        prober = Prober(parse_server(front.url, "--url", verifies=False), sign_token(key, int(time.time()) + 60))
        return await asyncio.to_thread(examine, prober, None)
    finally:
        front.process.kill()


@pytest.mark.parametrize(("kind", "cached"), [("nginx", False), ("nginx", True), ("apache", False), ("caddy", False)])
async def test_a_generated_configuration_has_no_fault(
    kind: str, cached: bool, ports: tuple[int, int], tmp_path: Path
) -> None:
    found = await examined(tmp_path, kind, ports, cached=cached)
    # The only finding is that a client of this machine is no stranger.
    assert (found.front, [(one.severity, one.source) for one in found.findings]) == (kind, [LOCAL_CLIENT])


@dataclass(frozen=True)
class Faulty:
    """A fault, the change that makes it, and a part of each remedy that the doctor must give."""

    id: str
    kind: str
    changes: dict[str, str]
    remedy: str
    cached: bool = False


RAW: Final = "proxy_pass http://doi_proxy;"
FAULTS: Final = [
    # With a proxy_pass that decodes, nginx also merges slashes unless merge_slashes is off.
    Faulty(
        "merged slashes",
        "nginx",
        {"merge_slashes off;": "merge_slashes on;", RAW: "proxy_pass http://doi_proxy/;"},
        "`merge_slashes off;`",
    ),
    Faulty("decoded path", "nginx", {RAW: "proxy_pass http://doi_proxy/;"}, f"`{RAW}`"),
    Faulty(
        "cache without Vary",
        "nginx",
        {"proxy_ignore_headers Expires;": "proxy_ignore_headers Expires Vary;"},
        "remove Vary from `proxy_ignore_headers`",
        cached=True,
    ),
    Faulty(
        "cache of private answers",
        "nginx",
        {"headers Expires;": "headers Expires Cache-Control; proxy_cache_valid 200 60s;"},
        "remove Cache-Control from `proxy_ignore_headers`",
        cached=True,
    ),
    Faulty(
        "cache key without the query",
        "nginx",
        {"$http_host$request_uri;": "$http_host$uri;"},
        "`proxy_cache_key $scheme$http_host$request_uri;`",
        cached=True,
    ),
    Faulty("no scheme", "nginx", {"proxy_set_header X-Forwarded-Proto $scheme;": ""}, "X-Forwarded-Proto $scheme"),
    Faulty("no client", "nginx", {"proxy_set_header X-Forwarded-For $remote_addr;": ""}, "X-Forwarded-For $remote"),
    Faulty("forged client", "nginx", {"For $remote_addr": "For $http_x_forwarded_for"}, "$remote_addr"),
    Faulty("other host", "nginx", {"$http_host;": "doi.example.org;"}, "`proxy_set_header Host $http_host;`"),
    Faulty(
        "short request", "nginx", {"large_client_header_buffers 4 64k;": ""}, "`large_client_header_buffers 4 64k;`"
    ),
    Faulty("short header", "nginx", {"proxy_buffer_size 64k;": ""}, "proxy_buffer_size 64k"),
    Faulty(
        "own error pages", "nginx", {"errors off;": "errors on; error_page 404 /x;"}, "`proxy_intercept_errors off;`"
    ),
    Faulty("short lists", "nginx", {"client_max_body_size 0;": ""}, "client_max_body_size 0;"),
    Faulty("Apache decodes", "apache", {" nocanon": ""}, "nocanon"),
    Faulty("Apache refuses %2F", "apache", {"AllowEncodedSlashes NoDecode": ""}, "`AllowEncodedSlashes NoDecode`"),
    Faulty("Apache merges", "apache", {"MergeSlashes Off": "", " nocanon": ""}, "`MergeSlashes Off`"),
    Faulty(
        "Caddy rewrites",
        "caddy",
        {"\treverse_proxy ": "\turi path_regexp /{2,} /\n\treverse_proxy "},
        "remove `rewrite`",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[one.id for one in FAULTS])
async def test_a_fault_is_named_with_the_line_to_change(fault: Faulty, ports: tuple[int, int], tmp_path: Path) -> None:
    def change(text: str) -> str:
        for old, new in fault.changes.items():
            assert old in text
            text = text.replace(old, new)
        return text

    found = await examined(tmp_path, fault.kind, ports, cached=fault.cached, change=change)
    assert any(fault.remedy in one.remedy for one in found.findings), found.findings
    others = [one for one in found.findings if (one.severity, one.source) != LOCAL_CLIENT]
    assert {one.severity for one in others} == {"error"}


async def test_another_key_gets_no_answer_to_its_probes(ports: tuple[int, int], tmp_path: Path) -> None:
    (found,) = (await examined(tmp_path, "nginx", ports, key="another key of a stranger")).findings
    assert "no doi-proxy with this admin_token answered: HTTP 404" in found.problem
