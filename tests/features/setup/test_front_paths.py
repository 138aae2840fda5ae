"""The generated front files in their real programs: each flag, closed paths in every spelling, and long lists."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.commands.main import main
from tests.certificates import self_signed
from tests.cluster.front_proxy import program
from tests.cluster.processes import Proxy
from tests.features.setup.generated_front import GeneratedFront
from tests.features.setup.test_front_files import foreign

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.process]

KINDS: Final = ("nginx", "apache", "caddy")
TOKEN: Final = "a-token-of-the-operators"
NOWHERE: Final = "http://127.0.0.1:9"
#: Spellings of the path of an action. {0} is the path without its first slash.
SPELLINGS: Final = (
    "/{0}", "/{0}/", "/{0}?x=/../", "/{0}%00", "/{0}/..", "/{0}/.", "/{0}%2f", "/{0};x", "/{0}/../{0}",
    "/{0}%2f..%2f{0}", "//{0}", "/%2f{0}", "/./{0}", "/%2e/{0}", "/?/{0}", "/%23/../{0}", "/x/../{0}",
    "/x/..%2f{0}", "/x/%2e%2e/{0}",
    "/10.1/../{0}", "/10.1/%2e%2e/{0}", "/10.1/..%2f{0}", "/10.1%2f..%2f{0}", "/10.1/x/../../{0}",
    "/10.1\\..\\{0}",
    "/static/../{0}", "/api/../{0}", "/api/resolve/../../{0}", "/.well-known/doi-proxy/../../{0}",
)  # fmt: skip
#: Paths that begin below the closed /admin/, and lead out of it for a program that removes dot segments.
LEADING_OUT: Final = (
    "/admin/../10.1/x", "/admin/..%2f10.1/x", "/admin/%2e%2e/10.1/x", "/admin/%2e%2e%2f10.1/x", "/admin/.%2e/10.1/x",
    "/admin/%2e./10.1/x", "/admin/%2E%2e%2F10.1/x", "/admin/./../10.1/x", "/admin//../../10.1/x",
    "/admin/x/../../10.1/x",
    "/admin/settings/../../10.1/x", "/admin/entries/../../10.1/x", "/admin/entries/10.1/x/../../../../10.1/x",
    "/admin/settings%2f..%2f..%2f10.1%2fx", "/admin/..", "/admin/../", "/admin/%2E%2E", "/admin/..;/10.1/x",
    "/admin/..\\10.1/x", "/admin/..%5c10.1/x", "/admin/%252e%252e/10.1/x", "/admin/..%252f10.1/x",
    "/admin/../api/resolve",
    "/admin%2f..%2f10.1/x", "/%61dmin/../10.1/x", "/ADMIN/../10.1/x", "/Admin/settings", "/%61dmin/settings",
)  # fmt: skip
SPELLED: Final = (
    *LEADING_OUT,
    *(one.format(path) for path in ("admin/settings", "metrics", "status") for one in SPELLINGS),
)
#: What an operator gets at these paths, and what the gate says.
CONTENT: Final = re.compile(rb"admin_token|doi_proxy_requests|hit_share|Bearer realm")


def proxy(folder: Path) -> Proxy:
    settings = {"mode": "sealed", "admin_token": TOKEN, "status_networks": "0.0.0.0/0, ::/0", "access_log": "off"}
    return Proxy(folder, NOWHERE, f"sqlite:///{folder}/store.sqlite3", **settings)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_spelling_of_a_closed_path_reaches_the_gate(kind: str, tmp_path: Path) -> None:
    program({"apache": "apache2"}.get(kind, kind))
    async with (
        proxy(tmp_path) as running,
        GeneratedFront(tmp_path / "front", kind, [running.port], change=foreign) as front,
    ):
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}):
            for target in SPELLED:
                answer = await front.ask(target.encode(), headers=headers)
                assert answer.status not in (401, 429), (target, headers, answer.status)
                assert "www-authenticate" not in answer.headers, target
                assert not CONTENT.search(answer.body), (target, headers)
        # The control: without the front file, the same token reaches the content.
        direct = await running.ask("/admin/settings", headers={"Authorization": f"Bearer {TOKEN}"})
        assert (direct.status, bool(CONTENT.search(direct.body))) == (200, True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("flags", "base"),
    [([], "/doi"), (["certificate"], ""), (["cache"], ""), (["certificate", "cache"], "/doi"), (["tls"], "")],
)
async def test_each_flag_makes_a_file_that_its_program_runs(
    kind: str,
    flags: list[str],
    base: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program({"apache": "apache2"}.get(kind, kind))
    if "cache" in flags and kind != "nginx":
        pytest.skip("only nginx has a cache")
    monkeypatch.setenv("DOI_PROXY_PUBLIC_URL", f"https://127.0.0.1{base}")
    if "tls" in flags:
        certificate, key = self_signed(tmp_path)
        monkeypatch.setenv("DOI_PROXY_TLS_CERT", str(certificate))
        monkeypatch.setenv("DOI_PROXY_TLS_KEY", str(key))

    def write(more: Sequence[str]) -> str:
        files = {"certificate": "fullchain.pem", "certificate-key": "key.pem"} if "certificate" in flags else {}
        paths = [f"--{name}=/etc/ssl/127.0.0.1/{file}" for name, file in files.items()]
        cache = ["--cache"] if "cache" in flags else []
        assert main(["gen-config", kind, *more, *paths, *cache]) == 0
        return capsys.readouterr().out

    async with GeneratedFront(tmp_path / "front", kind, [9, 10], write=write) as front:
        # No proxy answers behind it.
        answer = await front.ask(f"{base}/10.1000/182")
        assert answer.status in (502, 503), front.process.log


@pytest.mark.parametrize("kind", KINDS)
async def test_a_list_of_1_mb_that_arrives_slowly_passes(kind: str, tmp_path: Path) -> None:
    program({"apache": "apache2"}.get(kind, kind))
    async with proxy(tmp_path) as running, GeneratedFront(tmp_path / "front", kind, [running.port]) as front:
        body = (b"#" * 65_000 + b"\n") * 16 + b"10.1000/182\n" * 100
        head = "POST /api/resolve HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        for at in range(0, len(body), 65_536):
            writer.write(body[at : at + 65_536])
            await writer.drain()
        answer: Any = await reader.read(-1)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200 ")
        # A chunk may end within a word (RFC 9112, section 7.1).
        assert re.sub(rb"\r\n[0-9a-f]+\r\n", b"", answer).count(b'"verdict"') == 100
