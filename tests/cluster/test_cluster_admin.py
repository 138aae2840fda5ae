"""The admin API and the status of a service with one and with two workers, on real sockets."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.proxy_client.exchange import Exchange
from doi_proxy.proxy_client.running_proxy import open_client
from doi_proxy.proxy_client.server import parse_server
from doi_proxy.server.listening import UNIX
from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import Proxy, record, until
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.process]

NAME: Final = "10.5072/admin"
TARGET: Final = "https://www.example.org/target"
TOKEN: Final = "correct-horse-battery-staple"
BEARER: Final = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
#: Answers in a row, each on a connection of its own, after which both workers have given some.
IN_A_ROW: Final = 20
PATIENCE: Final = 30.0


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def ask_apart(address: str, method: str, path: str, body: Any = None, *, token: str | None = TOKEN) -> tuple[int, Any]:
    """Send a request to the listener of the admin API. Returns the status and the JSON."""
    server = parse_server(address if address.startswith(UNIX) else f"http://{address}", "address")
    with Exchange(server, PATIENCE) as exchange:
        headers = {**BEARER, "Authorization": f"Bearer {token}"}
        if token is None:
            del headers["Authorization"]
        status = exchange.send(method, path, headers, None if body is None else json.dumps(body).encode())
        return status, json.loads(exchange.read(1_000_000))


async def in_a_row(look: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until every one of IN_A_ROW answers fulfils a condition."""

    async def all_of_them() -> bool:
        for _ in range(IN_A_ROW):
            if not await look():
                return False
        return True

    await until(all_of_them, PATIENCE, what)


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "workers"), [("unix", 2), ("port", 1)])
async def test_the_admin_api_has_an_address_of_its_own(
    short_folder: Path, store_file: str, start_upstream: StartUpstream, start_proxy: StartProxy, kind: str, workers: int
) -> None:
    address = f"unix:{short_folder}/admin.sock" if kind == "unix" else f"127.0.0.1:{free_port()}"
    upstream = start_upstream({NAME: TARGET})
    settings = {"admin_token": TOKEN, "admin_listen": address, "status_networks": "192.0.2.0/24"}
    proxy = start_proxy(upstream.url, store_file, workers=workers, **settings)
    await asyncio.gather(upstream.ready(), proxy.ready())
    assert (await proxy.ask(f"/{NAME}")).status == 302

    def ask(*arguments: Any, **more: Any) -> Awaitable[tuple[int, Any]]:
        return asyncio.to_thread(ask_apart, address, *arguments, **more)

    async def is_shown() -> bool:
        status, entry = await ask("GET", f"/admin/entries/{NAME}")
        return status == 200 and entry["response_code"] == 1

    # The store writes in the background.
    await in_a_row(is_shown, "every worker shows the entry")
    assert (await ask("GET", "/admin/settings", token="wrong"))[0] == 401
    assert (await ask("GET", "/admin/settings", token=None))[0] == (200 if kind == "unix" else 401)
    assert (await ask("POST", "/admin/purge", {"doi": NAME}, token=None))[0] == 401
    client = open_client(Settings(admin_listen=address, admin_token=None if kind == "unix" else TOKEN), None)
    assert (await asyncio.to_thread(client.explain, {"doi": NAME}))["status"] == 302
    assert (await ask("GET", f"/{NAME}"))[0] == 404
    assert (await ask("POST", "/admin/purge", {"doi": NAME}))[1]["entries"] == 1
    # The main address answers as it does without a token.
    for path, status in (("/admin/settings", 400), ("/status", 403)):
        assert {(await proxy.ask(path, headers=BEARER)).status for _ in range(IN_A_ROW)} == {status}

    async def all_are_counted() -> bool:
        return bool((await ask("GET", "/status"))[1]["workers"] == workers)

    # A worker counts from the first time that it writes its figures to the store.
    await in_a_row(all_are_counted, "every worker is counted")
    # A service that has ended leaves its socket behind; the next one replaces it.
    proxy.process.terminate()
    proxy.restart()
    await proxy.ready()
    assert (await ask("GET", "/admin/settings"))[0] == 200


@pytest.mark.nightly
async def test_a_socket_that_another_service_uses_is_not_taken(
    short_folder: Path, store_file: str, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    address = f"unix:{short_folder}/admin.sock"
    upstream = start_upstream({NAME: TARGET})
    first = start_proxy(upstream.url, store_file, admin_token=TOKEN, admin_listen=address)
    await asyncio.gather(upstream.ready(), first.ready())
    second = start_proxy(upstream.url, store_file, admin_token=TOKEN, admin_listen=address)
    assert second.process.ended() == 1
    assert f"cannot listen on {address}: another program uses it" in second.process.log
    assert (await asyncio.to_thread(ask_apart, address, "GET", "/admin/settings"))[0] == 200


async def act(proxy: Proxy, action: str, body: Any) -> None:
    answer = await proxy.ask(f"/admin/{action}", method="POST", headers=BEARER, body=json.dumps(body).encode())
    assert answer.status == 200, answer.body


async def test_a_denial_at_one_worker_holds_at_the_other(
    store_file: str, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream({NAME: TARGET})
    proxy = start_proxy(upstream.url, store_file, workers=2, admin_token=TOKEN)
    await asyncio.gather(upstream.ready(), proxy.ready())

    def answers(status: int) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            return (await proxy.ask(f"/{NAME}", client="127.0.0.2")).status == status

        return look

    await in_a_row(answers(302), "both workers serve the client")
    await act(proxy, "deny", {"network": "127.0.0.2/32", "seconds": 600})
    await in_a_row(answers(403), "both workers refuse the client")
    assert {(await proxy.ask(f"/{NAME}")).status for _ in range(IN_A_ROW)} == {302}
    await act(proxy, "deny", {"network": "127.0.0.2/32", "seconds": 0})
    await in_a_row(answers(302), "both workers serve the client again")


@pytest.mark.nightly
async def test_a_purge_at_one_worker_reaches_the_other_while_the_store_cannot_be_opened(
    tmp_path: Path, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    (tmp_path / "var").touch()
    later, upstream = "https://www.example.org/later", start_upstream({NAME: TARGET})
    store = f"sqlite:///{tmp_path}/var/store.sqlite3"
    proxy = start_proxy(upstream.url, store, workers=2, admin_token=TOKEN)
    await asyncio.gather(upstream.ready(), proxy.ready())

    def leads_to(target: str) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            return (await proxy.ask(f"/{NAME}")).location == target

        return look

    await in_a_row(leads_to(TARGET), "both workers have the record")
    await upstream.tell("put", handle=NAME, values=record(NAME, later)["values"])
    assert {(await proxy.ask(f"/{NAME}")).location for _ in range(IN_A_ROW)} == {TARGET}
    await act(proxy, "purge", {"doi": NAME})
    await in_a_row(leads_to(later), "both workers have dropped the record")
    (tmp_path / "var").unlink()
    (tmp_path / "var").mkdir()

    async def is_open() -> bool:
        ready: str = (await proxy.ask("/readyz")).json["detail"]["store"]
        return ready == "ok"

    await in_a_row(is_open, "both workers have opened the store")
    assert {(await proxy.ask(f"/{NAME}")).location for _ in range(IN_A_ROW)} == {later}


@pytest.mark.nightly
async def test_a_reload_replaces_the_token_in_all_workers(
    tmp_path: Path, store_file: str, start_proxy: StartProxy
) -> None:
    config = tmp_path / "doi-proxy.toml"
    config.write_text('[admin]\ntoken = "first-first-first"\n')
    # Wrong tokens of one network are limited.
    networks = (f"127.{first}.{second}.1" for first in range(1, 255) for second in range(255))
    proxy = start_proxy("http://127.0.0.1:9", store_file, workers=2, config=config)
    await proxy.ready()

    def answers(token: str, status: int) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            reply = await proxy.ask(
                "/admin/settings", headers={"Authorization": f"Bearer {token}"}, client=next(networks)
            )
            return reply.status == status

        return look

    await in_a_row(answers("first-first-first", 200), "both workers have the first token")
    config.write_text('[admin]\ntoken = "other-other-other"\n')
    first = {**BEARER, "Authorization": "Bearer first-first-first"}
    assert (await proxy.ask("/admin/reload", method="POST", headers=first, body=b"{}")).status == 200
    await in_a_row(answers("other-other-other", 200), "both workers have the other token")
    await in_a_row(answers("first-first-first", 401), "both workers have forgotten the first token")


@pytest.mark.nightly
async def test_the_status_of_each_worker_has_the_counts_of_all(
    store_file: str, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream({NAME: TARGET})
    proxy = start_proxy(upstream.url, store_file, workers=2)
    await asyncio.gather(upstream.ready(), proxy.ready())
    for _ in range(IN_A_ROW):
        assert (await proxy.ask(f"/{NAME}")).status == 302
    starts: set[tuple[int, ...]] = set()

    async def is_summed() -> bool:
        status = (await proxy.ask("/status?format=json")).json
        starts.add(tuple(point["start"] for point in status["history"]))
        return bool(status["workers"] == 2 and status["requests"].get("302") == IN_A_ROW and status["history"])

    await in_a_row(is_summed, "each worker shows the sums of both")
    # A point may begin between two answers.
    assert len({points for points in starts if points}) <= 2
