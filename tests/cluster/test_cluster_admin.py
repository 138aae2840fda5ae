"""The admin API and the status of a service with one and with two workers, on real sockets."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.proxy_client.exchange import Exchange
from doi_proxy.proxy_client.running_proxy import open_client
from doi_proxy.proxy_client.server import parse_server
from doi_proxy.server.listening import UNIX
from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import START_DEADLINE, Proxy, record, until
from tests.cluster.raw_http import Answered
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.process]

NAME: Final = "10.5072/admin"
TARGET: Final = "https://www.example.org/target"
TOKEN: Final = "correct-horse-battery-staple"
BEARER: Final = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
#: Requests that a service counts.
REQUESTS: Final = 20


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


async def all_workers(proxy: Proxy, path: str, fulfil: Callable[[Answered], bool], what: str, **more: Any) -> None:
    """Wait until an answer of each worker fulfils a condition."""

    async def all_of_them() -> bool:
        return all(map(fulfil, await proxy.ask_each(path, **more)))

    await until(all_of_them, START_DEADLINE, what)


def leads_to(target: str) -> Callable[[Answered], bool]:
    return lambda answer: answer.location == target


def has(status: int) -> Callable[[Answered], bool]:
    return lambda answer: answer.status == status


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
    await until(is_shown, START_DEADLINE, "the entry is shown")
    assert (await ask("GET", "/admin/settings", token="wrong"))[0] == 401
    assert (await ask("GET", "/admin/settings", token=None))[0] == (200 if kind == "unix" else 401)
    assert (await ask("POST", "/admin/purge", {"doi": NAME}, token=None))[0] == 401
    client = open_client(Settings(admin_listen=address, admin_token=None if kind == "unix" else TOKEN), None)
    assert (await asyncio.to_thread(client.explain, {"doi": NAME}))["status"] == 302
    assert (await ask("GET", f"/{NAME}"))[0] == 404
    assert (await ask("POST", "/admin/purge", {"doi": NAME}))[1]["entries"] == 1
    # The main address answers as it does without a token.
    for path, status in (("/admin/settings", 400), ("/status", 403)):
        assert {answer.status for answer in await proxy.ask_each(path, headers=BEARER)} == {status}

    async def all_are_counted() -> bool:
        return bool((await ask("GET", "/status"))[1]["workers"] == workers)

    # A worker counts from the first time that it writes its figures to the store.
    await until(all_are_counted, START_DEADLINE, "every worker is counted")
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

    async def answer(status: int) -> None:
        what = f"both workers answer the client with {status}"
        await all_workers(proxy, f"/{NAME}", has(status), what, clients=repeat("127.0.0.2"))

    await answer(302)
    await act(proxy, "deny", {"network": "127.0.0.2/32", "seconds": 600})
    await answer(403)
    assert all(map(has(302), await proxy.ask_each(f"/{NAME}")))
    await act(proxy, "deny", {"network": "127.0.0.2/32", "seconds": 0})
    await answer(302)


@pytest.mark.nightly
async def test_a_purge_at_one_worker_reaches_the_other_while_the_store_cannot_be_opened(
    tmp_path: Path, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    (tmp_path / "var").touch()
    later, upstream = "https://www.example.org/later", start_upstream({NAME: TARGET})
    store = f"sqlite:///{tmp_path}/var/store.sqlite3"
    proxy = start_proxy(upstream.url, store, workers=2, admin_token=TOKEN)
    await asyncio.gather(upstream.ready(), proxy.ready())
    await all_workers(proxy, f"/{NAME}", leads_to(TARGET), "both workers have the record")
    await upstream.tell("put", handle=NAME, values=record(NAME, later)["values"])
    assert all(map(leads_to(TARGET), await proxy.ask_each(f"/{NAME}")))
    await act(proxy, "purge", {"doi": NAME})
    await all_workers(proxy, f"/{NAME}", leads_to(later), "both workers have dropped the record")
    (tmp_path / "var").unlink()
    (tmp_path / "var").mkdir()

    def is_open(answer: Answered) -> bool:
        return bool(answer.json["detail"]["store"] == "ok")

    await all_workers(proxy, "/readyz", is_open, "both workers have opened the store")
    assert all(map(leads_to(later), await proxy.ask_each(f"/{NAME}")))


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

    async def answer(token: str, status: int) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        what = f"both workers answer {token} with {status}"
        await all_workers(proxy, "/admin/settings", has(status), what, headers=headers, clients=networks)

    await answer("first-first-first", 200)
    config.write_text('[admin]\ntoken = "other-other-other"\n')
    first = {**BEARER, "Authorization": "Bearer first-first-first"}
    assert (await proxy.ask("/admin/reload", method="POST", headers=first, body=b"{}")).status == 200
    await answer("other-other-other", 200)
    await answer("first-first-first", 401)


@pytest.mark.nightly
async def test_the_status_of_each_worker_has_the_counts_of_all(
    store_file: str, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    upstream = start_upstream({NAME: TARGET})
    proxy = start_proxy(upstream.url, store_file, workers=2)
    await asyncio.gather(upstream.ready(), proxy.ready())
    for _ in range(REQUESTS):
        assert (await proxy.ask(f"/{NAME}")).status == 302

    async def is_summed() -> bool:
        states = [answer.json for answer in await proxy.ask_each("/status?format=json")]
        # A point may begin between two answers.
        points = {tuple(point["start"] for point in state["history"]) for state in states}
        sums = {(state["workers"], state["requests"].get("302")) for state in states}
        return sums == {(2, REQUESTS)} and len(points) == 1 and () not in points

    await until(is_summed, START_DEADLINE, "each worker shows the sums of both, and the same points")
