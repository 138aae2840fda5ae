"""The admin API on real sockets."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.proxy_client import Exchange, open_client, parse_server
from doi_proxy.server.listening import UNIX
from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import START_DEADLINE, until
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.process]

NAME: Final = "10.5072/admin"
TARGET: Final = "https://www.example.org/target"
TOKEN: Final = "correct-horse-battery-staple"
BEARER: Final = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def ask_apart(address: str, method: str, path: str, body: Any = None, *, token: str | None = TOKEN) -> tuple[int, Any]:
    """Send a request to the listener of the admin API. Returns the status and the JSON."""
    server = parse_server(address if address.startswith(UNIX) else f"http://{address}", "address")
    with Exchange(server, START_DEADLINE) as exchange:
        headers = {**BEARER, "Authorization": f"Bearer {token}"}
        if token is None:
            del headers["Authorization"]
        status = exchange.send(method, path, headers, None if body is None else json.dumps(body).encode())
        return status, json.loads(exchange.read(1_000_000))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["unix", "port"])
async def test_the_admin_api_has_an_address_of_its_own(
    short_folder: Path, store_file: str, start_upstream: StartUpstream, start_proxy: StartProxy, kind: str
) -> None:
    address = f"unix:{short_folder}/admin.sock" if kind == "unix" else f"127.0.0.1:{free_port()}"
    upstream = start_upstream({NAME: TARGET})
    settings = {"admin_token": TOKEN, "management_listen": address, "status_networks": "192.0.2.0/24"}
    proxy = start_proxy(upstream.url, store_file, **settings)
    await asyncio.gather(upstream.ready(), proxy.ready())
    assert (await proxy.ask(f"/{NAME}")).status == 302

    def ask(*arguments: Any, **more: Any) -> Awaitable[tuple[int, Any]]:
        return asyncio.to_thread(ask_apart, address, *arguments, **more)

    async def is_shown() -> bool:
        status, entry = await ask("GET", f"/admin/entries?doi={NAME}")
        return status == 200 and entry["response_code"] == 1

    # The store writes in the background.
    await until(is_shown, START_DEADLINE, "the entry is shown")
    assert (await ask("GET", "/admin/settings", token="wrong"))[0] == 401
    assert (await ask("GET", "/admin/settings", token=None))[0] == (200 if kind == "unix" else 401)
    assert (await ask("POST", "/admin/purge", {"doi": NAME}, token=None))[0] == 401
    client = open_client(Settings(management_listen=[address], admin_token=None if kind == "unix" else TOKEN), None)
    assert (await asyncio.to_thread(client.explain, {"doi": NAME}))["status"] == 302
    assert (await ask("GET", "/readyz"))[0] == 200
    assert (await ask("POST", "/admin/purge", {"doi": NAME}))[1]["entries"] == 1
    # The main address answers as it does without a token.
    for path, status in (("/admin/settings", 400), ("/status", 403)):
        assert (await proxy.ask(path, headers=BEARER)).status == status
    assert (await ask("GET", "/status"))[0] == 200
    # A service that has ended leaves its socket behind; the next one replaces it.
    proxy.process.terminate()
    proxy.restart()
    await proxy.ready()
    assert (await ask("GET", "/admin/settings"))[0] == 200
