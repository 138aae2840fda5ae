"""Hostile handle servers, floods of tokens and slow readers at the path of restricted values."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from app.features.native.wire.response import AnswerText, Response
from app.features.native.wire.value import Value
from app.server.connections import Reason
from tests.cluster.processes import until
from tests.features.native.encoder import encode_response
from tests.features.native.keys import dsa_key, sign
from tests.features.native.lies import LIES, Hangup
from tests.features.native.server import write_bootstrap
from tests.features.restricted.challenging import HIDDEN, MARKER_BACKWARDS, NAME, RESTRICTED, ChallengingServer, marker
from tests.features.restricted.test_restricted_leaks import holders
from tests.features.restricted.world import BEARER, PATH, World, worlds, write_file
from tests.server.served import PATIENCE, served
from tests.table import table

pytestmark = pytest.mark.anyio

#: Seconds for which a silent server is waited for.
SHORT: Final = 1.0
#: What only a signature shows.
_SIGNED: Final = ("signature", "other-key", "unsigned", "old-version")
#: Interfaces of the server that may be used for one read without UDP, and once more after a lost connection.
_MOST_PROOFS: Final = 4
#: Bytes of an answer that has no end. The proxy closes the connection long before.
_ENDLESS: Final = 8 * 2**20
_CHUNK: Final = b"1\r\nx\r\n"


def huge(response: Response) -> Any:
    """A megabyte where 16 bytes are expected."""
    return replace(response, body=AnswerText(bytes(2**20)))


def chunks(response: Response) -> Any:
    """Chunks of one byte, without an end."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-hdl-message\r\nTransfer-Encoding: chunked\r\n\r\n"
    raise Hangup(head + _CHUNK * (_ENDLESS // len(_CHUNK)))


def headers(response: Response) -> Any:
    """Header lines without an end."""
    raise Hangup(b"HTTP/1.1 200 OK\r\n" + b"X-Line: of many\r\n" * (_ENDLESS // 17))


HOSTILE: Final[dict[str, Callable[[Response], Any]]] = {
    "huge": huge, **{name: lie for name, lie in LIES.items() if name not in _SIGNED},
}  # fmt: skip


async def is_usable(world: World) -> bool:
    """Whether an honest server, after the attack, is read as before."""
    world.server.change_challenge = world.server.change_answer = lambda response: response
    got = await world.read()
    return got.status == 200 and marker() in got.text


# A challenge may open any session.
@pytest.mark.slow
@table("lie", [lie for lie in HOSTILE if lie != "session"])
async def test_no_lie_in_place_of_a_challenge_gets_a_proof(tmp_path: Path, lie: str) -> None:
    async with worlds(tmp_path, upstream_timeout=SHORT, upstream_breaker_failures=100) as world:
        world.server.change_challenge = HOSTILE[lie]
        got = await world.read()
        assert (got.status in (502, 503, 504), marker() in got.text) == (True, False), lie
        assert world.server.proofs == [], lie
        assert await is_usable(world), lie


@pytest.mark.slow
@table("lie", list(HOSTILE))
async def test_no_lie_after_the_proof_reaches_the_reader(tmp_path: Path, lie: str) -> None:
    async with worlds(tmp_path, upstream_timeout=SHORT, upstream_breaker_failures=100) as world:
        world.server.change_answer = HOSTILE[lie]
        got = await world.read()
        assert (got.status in (502, 503, 504), marker() in got.text) == (True, False), lie
        assert 1 <= len(world.server.proofs) <= _MOST_PROOFS, lie
        assert await is_usable(world), lie


@pytest.mark.parametrize("lie", [chunks, headers, huge])
async def test_an_answer_without_end_through_the_tunnel_is_not_read_to_its_end(tmp_path: Path, lie: Any) -> None:
    async with worlds(tmp_path, ChallengingServer(transports=frozenset({"http"}))) as world:
        for place in ("change_challenge", "change_answer"):
            setattr(world.server, place, lie)
            got = await world.read()
            assert (got.status, marker() in got.text) == (502, False)
            setattr(world.server, place, lambda response: response)
        assert await is_usable(world)


@pytest.mark.parametrize("place", ["challenge", "answer"])
async def test_a_server_with_a_known_key_signs_both_messages(tmp_path: Path, place: str) -> None:
    async with ChallengingServer() as server:
        (tmp_path / "root.json").write_bytes(write_bootstrap(server))
        async with worlds(tmp_path, server, upstream_bootstrap=tmp_path / "root.json") as world:
            for lie in _SIGNED:
                if place == "challenge":
                    server.lie(NAME, lie)
                else:
                    server.change_answer = partial(_forge, lie, server)
                got = await world.read()
                assert (got.status, got.json["type"]) == (502, "/docs#signature-invalid"), lie
                assert marker() not in got.text, lie
                server.lie(NAME, "")
            assert len(server.proofs) == (0 if place == "challenge" else len(_SIGNED))
            assert await is_usable(world)


def _forge(lie: str, server: ChallengingServer, response: Response) -> bytes:
    if lie == "unsigned":
        return encode_response(response)
    if lie == "old-version":
        response = replace(response, envelope=replace(response.envelope, minor=10))
    signed = sign(response, dsa_key() if lie == "other-key" else server.key)
    if lie == "signature":
        signed = replace(signed, envelope=replace(signed.envelope, flags=signed.envelope.flags ^ 1))
    return encode_response(signed)


async def test_a_challenge_for_one_name_is_not_answered_for_another(tmp_path: Path) -> None:
    async with worlds(tmp_path) as world:
        first: list[Response] = []

        def replay(response: Response) -> Response:
            first.append(response)
            return replace(response, digest=first[0].digest, body=first[0].body)

        world.server.change_challenge = replay
        assert (await world.read()).status == 200
        got = await world.read(f"/api/restricted/{HIDDEN}")
        assert (got.status, marker() in got.text) == (502, False)
        assert len(world.server.proofs) == 1


async def test_a_flood_of_right_tokens_keeps_the_budget_and_other_clients_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget: dict[str, Any] = {"upstream_max_concurrency": 4, "upstream_burst": 60, "upstream_rate": 0.001}
    # Nothing but the order of the clients decides, however slow the machine is.
    monkeypatch.setattr("app.web.conditions.REQUEST_SECONDS", 60.0)
    monkeypatch.setattr("app.features.restricted.reader.TIMEOUT", 60.0)
    async with worlds(tmp_path, **budget, upstream_queue_timeout=60.0) as world:
        world.server.put("10.1000/open", url="https://open.example/")
        reads = [asyncio.ensure_future(world.read(client=f"198.51.100.{number % 2}")) for number in range(200)]
        got = await world.proxy.get("/10.1000/open", client="203.0.113.5")
        statuses = Counter([(await read).status for read in reads])
    assert got.status == 302
    assert set(statuses) <= {200, 429, 503} and statuses[200] > 0
    assert world.server.max_in_flight <= 4
    # A read is two messages.
    assert world.server.queries() + len(world.server.proofs) <= 60


async def test_a_flood_of_wrong_tokens_from_many_networks_stops_no_reader(tmp_path: Path) -> None:
    async with worlds(tmp_path) as world:
        statuses = Counter[int]()
        for number in range(1_000):
            client = f"203.{number // 250}.{number % 250}.7"
            statuses[(await world.proxy.get(PATH, client=client, authorization="Bearer wrong")).status] += 1
        assert statuses == {401: 1_000}
        assert world.server.queries() == 0
        assert (await world.read()).status == 200


async def test_a_token_of_eight_kilobytes_and_a_prefix_of_a_token_are_wrong(tmp_path: Path) -> None:
    async with worlds(tmp_path) as world:
        for token in (
            "x" * 8_000,
            "a-token-of-a-reader-000",
            "a-token-of-a-reader-0001a",
            "a-token-of-a-reader-0001,x",
        ):
            assert (await world.proxy.get(PATH, authorization=f"Bearer {token}")).status == 401, token
        assert world.server.queries() == 0


@pytest.mark.slow
async def test_a_reader_that_does_not_read_loses_its_connection_and_nothing_keeps_its_answer(tmp_path: Path) -> None:
    marked = Value(2, b"EMAIL", ("x" * 150_000 + MARKER_BACKWARDS + "wols").encode(), permissions=RESTRICTED)
    async with ChallengingServer() as server:
        server.put_values(NAME, marked)
        settings: dict[str, Any] = {
            "upstream_url": server.url, "native_restricted": write_file(tmp_path), "upstream_private_servers": True,
            "client_write_timeout": SHORT,
        }  # fmt: skip
        async with served(**settings) as proxy:
            proxy.shrink_send_buffers()
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", proxy.port))
            request = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: {BEARER}\r\n\r\n".encode()
            await asyncio.get_running_loop().sock_sendall(client, request)

            async def is_blocked() -> bool:
                return proxy.unsent > 0

            await until(is_blocked, PATIENCE, "the answer waits for the reader")
            got = await proxy.exchange(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert marker().encode() in got and got.startswith(b"HTTP/1.1 200")
            await proxy.closed(Reason.WRITE_TIMEOUT)
            client.close()
            del got
            gc.collect()
            assert holders(f"slow{marker()}") == []
