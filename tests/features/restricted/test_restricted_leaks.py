"""No output of the proxy but the answer to a reader has a restricted value, and nothing of the process keeps it."""

from __future__ import annotations

import asyncio
import gc
import gzip
import time
from pathlib import Path
from typing import Any, Final

import pytest

from app.assembly.core import open_core
from app.assembly.settings import Settings
from app.cli.main import main
from app.features.assistants.names import OwnNames
from app.features.assistants.tools import ToolBounds, Tools
from app.features.lists.batch import build_batches
from app.features.options import ENV_PREFIX
from tests.clock import Clock
from tests.cluster.processes import until
from tests.features.native_listener.listening import TRANSPORTS, listening
from tests.features.restricted.challenging import NAME, SECRET, ChallengingServer, marker
from tests.features.restricted.world import BEARER, PATH, TOKEN, write_file
from tests.table import table
from tests.web.proxy import Proxy, running, running_with

pytestmark = pytest.mark.anyio

ADMIN: Final = "correct-horse-battery-staple"
#: Paths of every kind, asked as any client asks them.
PATHS: Final = (
    f"/{NAME}", f"/{NAME}?noredirect", f"/{NAME}?noredirect&auth", f"/{NAME}?noredirect&type=EMAIL", f"/{NAME}?cert",
    f"/{NAME}?action=showurls", f"/api/handles/{NAME}", f"/api/handles/{NAME}?auth", f"/api/handles/{NAME}?type=EMAIL",
    f"/api/handles/{NAME}?index=2", f"/api/proof/{NAME}", f"/help/{NAME}", f"/doiRA/{NAME}", "/10.1000/stafff", "/",
    f"/api/resolve?name={NAME}", "/metrics", "/status", "/status/runbook", "/healthz", "/readyz", "/privacy",
    "/openapi.json", "/robots.txt", PATH,
)  # fmt: skip
ADMIN_PATHS: Final = ("/admin/changes", f"/admin/entries/{NAME}", f"/admin/explain/{NAME}", "/status", "/admin/stats")


def settings_of(folder: Path, server: ChallengingServer, **changed: Any) -> dict[str, Any]:
    """The settings of a proxy with a store, and all that could tell of a value."""
    usual = {"upstream_url": server.url, "upstream_private_servers": True, "native_restricted": write_file(folder)}
    return {**usual, "store_url": f"sqlite:///{folder}/store.db", "admin_token": ADMIN, **changed}


async def read_values(proxy: Proxy) -> None:
    """A client and a reader read the name."""
    assert (await proxy.get(f"/api/handles/{NAME}")).status == 200
    for _ in range(3):
        got = await proxy.get(PATH, authorization=BEARER)
        assert (marker() in got.text, got["cache-control"]) == (True, "private, no-store")


def holders(text: str) -> list[str]:
    """What in this process has a text: the objects that Python tracks, and what they refer to."""
    wanted = text.encode()
    seen = {id(wanted), id(text)}
    found: list[str] = []
    for known in gc.get_objects():
        layer = [known]
        # Structures that Python does not track are known to their holders alone.
        while layer:
            new = [
                (one, value)
                for one in layer
                for value in gc.get_referents(one)
                if id(value) not in seen and not gc.is_tracked(value)
            ]
            seen.update(id(value) for _, value in new)
            found += [f"{type(one)} has {type(value)}" for one, value in new if _has(value, wanted)]
            layer = [value for _, value in new]
    return found


def _has(value: object, wanted: bytes) -> bool:
    if isinstance(value, str):
        return wanted.decode() in value
    return isinstance(value, bytes | bytearray) and wanted in value


async def test_no_answer_of_any_path_has_the_value(tmp_path: Path) -> None:
    async with ChallengingServer() as server, listening(**settings_of(tmp_path, server)) as listener:
        proxy, told = listener.proxy, {}
        await read_values(proxy)
        for target in (*PATHS, *PATHS):
            told[target] = (await proxy.get(target, client="127.0.0.1")).body

        async def is_stored() -> bool:
            feed = await proxy.get("/admin/changes", authorization=f"Bearer {ADMIN}")
            return NAME.upper().encode() in gzip.decompress(feed.body).upper()

        await until(is_stored, 30.0, "the record is in the store")
        for target in ADMIN_PATHS:
            got = await proxy.get(target, authorization=f"Bearer {ADMIN}")
            told[f"admin {target}"] = gzip.decompress(got.body) if got["content-encoding"] == "gzip" else got.body
        told["list"] = (await proxy.post("/api/resolve", f"{NAME}\n", content_type="text/plain")).body
        for by in TRANSPORTS:
            response = await listener.resolve(NAME, by=by)
            told[f"native {by}"] = repr(response.body).encode()
    assert [name for name, body in told.items() if marker().encode() in body] == []
    for secret in (SECRET, TOKEN.encode()):
        assert [name for name, body in told.items() if secret in body] == []


@table("level", [0, 1, 2, 3])
async def test_no_line_of_any_log_has_the_value(tmp_path: Path, capfd: pytest.CaptureFixture[str], level: int) -> None:
    async with ChallengingServer() as server:
        settings = settings_of(tmp_path, server, access_log="text", privacy_level=level, log_level="debug")
        async with running(**settings) as proxy:
            await read_values(proxy)
            server.refusal = 403
            assert (await proxy.get(PATH, authorization=BEARER)).status == 502
    printed = capfd.readouterr()
    lines = printed.out + printed.err
    assert "route=operation" in lines
    assert [word for word in (marker(), SECRET.decode(), TOKEN, "Bearer") if word in lines] == []


async def test_no_file_of_the_store_and_no_export_has_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with ChallengingServer() as server:
        async with running_with(None, clock=Clock(time.time()), **settings_of(tmp_path, server)) as proxy:
            await read_values(proxy)
        monkeypatch.setenv(f"{ENV_PREFIX}NATIVE_RESTRICTED", str(tmp_path / "restricted.toml"))
        output, bundle = tmp_path / "records.ndjson", tmp_path / "bundle.tar.gz"
        flags = ["--store-url", store, "--upstream-url", server.url]
        assert await asyncio.to_thread(main, ["cache", "export", *flags[:2], "--output", str(output)]) == 0
        assert await asyncio.to_thread(main, ["support-bundle", "--port", "9", *flags, "--output", str(bundle)]) == 0
        assert await asyncio.to_thread(main, ["config", *flags]) == 0
        assert await asyncio.to_thread(main, ["check", "--offline", *flags]) in (0, 1)
    assert NAME.upper().encode() in output.read_bytes().upper()
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    files["bundle"], files["output"] = gzip.decompress(files.pop(bundle.name)), b"".join(capsysbinary.readouterr())
    assert b"restricted.toml" in files["output"] and b"restricted.toml" in files["bundle"]
    assert {"store.db", "records.ndjson", "bundle", "output"} <= set(files)
    assert [name for name, content in files.items() if marker().encode() in content] == []
    secret = [name for name, content in files.items() if SECRET in content or TOKEN.encode() in content]
    assert secret == ["identity.key", "readers.tokens"] or set(secret) == {"identity.key", "readers.tokens"}


@pytest.mark.slow
async def test_no_object_of_the_process_keeps_the_value(tmp_path: Path) -> None:
    async with ChallengingServer(keeps_tcp=True) as server, running(**settings_of(tmp_path, server)) as proxy:
        await read_values(proxy)
        gc.collect()
        assert holders(marker()) == []
        # The search finds what is kept.
        got = await proxy.get(PATH, authorization=BEARER)
        assert holders(marker()) and marker() in got.text


async def report(done: int, total: int) -> None:
    """Take no notice."""


async def test_the_tools_of_assistants_have_public_values(tmp_path: Path) -> None:
    async with ChallengingServer() as server:
        settings = Settings(upstream_url=server.url, native_restricted=write_file(tmp_path))
        core = open_core(settings)
        try:
            tools = Tools(OwnNames(build_batches(settings, core)), ToolBounds(), None, frozenset())
            shown = (await tools.call("resolve", {"name": NAME}, report, None)).model_dump_json()
            assert "target.example" in shown and marker() not in shown
        finally:
            await core.resolver.close()
            await core.upstream.source.aclose()
            await core.cache.close()
