"""Restricted values: who gets them, how the identity is proven, and what a server can make of it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from app.features.native.wire.response import AnswerText, Digest, Response, Values
from app.features.native.wire.value import Value
from tests.features.native.keys import dsa_key, rsa_key
from tests.features.native.server import HandleServer, write_bootstrap
from tests.features.restricted.challenging import NAME, SECRET, ChallengingServer, marker
from tests.features.restricted.world import PATH, READER, World, worlds, write_pem
from tests.table import table
from tests.web.proxy import Got

pytestmark = pytest.mark.anyio

PUBLIC_URL: Final = "https://doi.example.org"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with worlds(tmp_path) as world:
        yield world


def types(got: Got) -> list[str]:
    assert got.status == 200, got.text
    return [value["type"] for value in got.json["values"]]


async def test_a_reader_with_a_token_gets_the_values_of_the_identity(world: World) -> None:
    got = await world.read()
    assert (got.status, got["cache-control"]) == (200, "private, no-store")
    assert types(got) == ["URL", "EMAIL"]
    assert (got.json["handle"], got.json["responseCode"]) == (NAME, 1)
    assert got.json["values"][1]["data"]["value"] == f"{marker()}@staff.example"
    assert got.json["values"][1]["permissions"] == "1100"
    # The query and the proof went by TCP. Only the site of the server is found by UDP.
    assert dict(world.server.by_transport) == {"tcp": 1, "tcp proof": 1}


async def test_every_answer_forbids_every_cache_and_every_page_of_another_site(world: World) -> None:
    for got in (await world.read(), await world.proxy.get(PATH), await world.read("/api/restricted/10.2000/1")):
        assert got["cache-control"] == "private, no-store"
        assert got["access-control-allow-origin"] is None
        assert got["cross-origin-resource-policy"] == "same-origin"
        assert got["etag"] is got["cache-status"] is got["expires"] is None


async def test_types_and_indexes_select_values_and_keys_are_never_shown(world: World) -> None:
    assert types(await world.read(f"{PATH}?type=EMAIL")) == ["EMAIL"]
    assert types(await world.read(f"{PATH}?index=1")) == ["URL"]
    got = await world.read(f"{PATH}?type=HS_SECKEY&index=300")
    assert (types(got), got.json["responseCode"]) == ([], 200)
    assert (await world.read(f"{PATH}?index=x")).status == 400
    assert (await world.proxy.head(PATH, authorization=f"Bearer {'x' * 20}")).body == b""
    assert (await world.proxy.ask("DELETE", PATH)).status == 405


async def test_a_record_without_restricted_values_needs_no_proof(world: World) -> None:
    world.server.put("10.1000/open", url="https://open.example/")
    assert types(await world.read("/api/restricted/10.1000/open")) == ["URL"]
    got = await world.read("/api/restricted/10.1000/none")
    assert (got.status, got.json["responseCode"]) == (404, 100)
    assert world.server.proofs == []


@pytest.mark.parametrize("key", [rsa_key(), dsa_key()], ids=["RSA", "DSA"])
async def test_a_private_key_proves_the_identity(tmp_path: Path, key: Any) -> None:
    (tmp_path / "identity.pem").write_bytes(write_pem(key))
    lines = {"secret_key": None, "private_key": '"identity.pem"'}
    async with worlds(tmp_path, ChallengingServer(proves=key.public_key()), lines) as world:
        assert types(await world.read()) == ["URL", "EMAIL"]


async def test_the_tunnel_carries_the_challenge_too(tmp_path: Path) -> None:
    async with worlds(tmp_path, ChallengingServer(transports=frozenset({"http"}))) as world:
        assert types(await world.read()) == ["URL", "EMAIL"]
        assert world.server.by_transport["http proof"] == 1


# Readers


async def test_without_a_valid_token_no_server_is_queried(world: World) -> None:
    got = await world.proxy.get(PATH)
    assert (got.status, got["www-authenticate"]) == (401, 'Bearer realm="doi-proxy restricted"')
    for sent in (
        "Bearer a-token-of-a-reader-0002",
        "Bearer ",
        "Bearer é",
        "Basic eDp5",
        "bearer a-token-of-a-reader-000",
    ):
        assert (await world.proxy.get(PATH, authorization=sent)).status == 401
    assert world.server.queries() == 0


async def test_a_flood_of_wrong_tokens_is_limited_and_right_ones_still_count(world: World) -> None:
    statuses = [(await world.proxy.get(PATH, authorization="Bearer wrong")).status for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert (await world.read()).status == 200
    assert (await world.proxy.get(PATH, client="203.0.113.1")).status == 401


async def test_a_client_of_a_network_is_a_reader_at_our_own_host_alone(tmp_path: Path) -> None:
    lines = {"tokens": None, "networks": '["198.51.100.0/24"]'}
    async with worlds(tmp_path, lines=lines, public_url=PUBLIC_URL) as world:
        assert types(await world.proxy.get(PATH, client=READER)) == ["URL", "EMAIL"]
        assert types(await world.proxy.get(PATH, client=READER, authorization="Basic eDp5")) == ["URL", "EMAIL"]
        seen = world.server.queries()
        # Another address; an address that a page of another site reaches by a name of its own; a wrong token.
        assert (await world.proxy.get(PATH, client="192.0.2.1")).status == 401
        assert (await world.proxy.get(PATH, client="192.0.2.1", x_forwarded_for=READER)).status == 401
        assert (await world.proxy.get(PATH, client=READER, host="evil.example")).status == 401
        assert (await world.proxy.get(PATH, client=READER, authorization="Bearer wrong")).status == 401
        for headers in ({"origin": "https://evil.example"}, {"sec_fetch_site": "cross-site"}):
            assert (await world.proxy.get(PATH, client=READER, **headers)).status == 403
        assert world.server.queries() == seen


async def test_a_path_of_restricted_values_is_nothing_without_the_setting(tmp_path: Path) -> None:
    async with worlds(tmp_path, native_restricted=None) as world:
        assert (await world.read()).status == 404


@table("name", ["10.2000/1", "10.1000.5/1", "0.NA/10.1000", "10.1000", "10.10001/1"])
async def test_only_names_of_the_prefixes_are_read(world: World, name: str) -> None:
    got = await world.read(f"/api/restricted/{name}")
    assert (got.status, got.json["type"]) == (404, "/docs#not-restricted")
    assert world.server.queries() == 0


async def test_a_local_record_is_not_passed_by(tmp_path: Path) -> None:
    records = tmp_path / "records.toml"
    records.write_text(
        f'[[record]]\ndoi = "{NAME}"\ntombstone = {{ reason = "withdrawn", date = 2026-01-01 }}\n', "utf-8"
    )
    async with worlds(tmp_path, local_records=records) as world:
        assert (await world.read()).status == 403
        assert world.server.queries() == 0


# Servers


def with_digest(code: int, digest: bytes) -> Any:
    return lambda response: replace(response, digest=Digest(code, digest))


def with_nonce(nonce: bytes | None) -> Any:
    return lambda response: replace(response, body=AnswerText(nonce))


def with_envelope(**changed: Any) -> Any:
    return lambda response: replace(response, envelope=replace(response.envelope, **changed))


def without_digest(response: Response) -> Response:
    return replace(response, digest=None, header=replace(response.header, flags=0))


CHALLENGES: Final = {
    "the digest of a request of the attacker": with_digest(3, bytes(32)),
    "a short digest": with_digest(1, bytes(16)),
    "no digest": without_digest,
    "no nonce": with_nonce(None),
    "a nonce of 15 bytes": with_nonce(bytes(15)),
    "a nonce that begins a message": with_nonce(bytes(65)),
    "no session": with_envelope(session_id=0),
    "another request id": with_envelope(request_id=1),
}


@table(("what", "change"), list(CHALLENGES.items()), ids=list(CHALLENGES))
async def test_a_challenge_that_is_not_about_the_query_is_not_answered(world: World, what: str, change: Any) -> None:
    world.server.change_challenge = change
    got = await world.read()
    assert (got.status, marker() in got.text, world.server.proofs) == (502, False, [])


def with_values(handle: bytes) -> Any:
    return lambda response: replace(response, body=Values(handle, (Value(1, b"URL", b"https://evil.example/"),)))


ANSWERS: Final = {
    "another name": with_values(b"10.1000/other"),
    "the answer to another request": with_digest(3, bytes(32)),
    "an answer without digest": without_digest,
    "another session": with_envelope(session_id=77),
    "another request": with_envelope(request_id=1),
    "bytes": lambda response: b"HTTP/1.1 200 OK\r\n\r\n" + bytes(100),
}


@table(("what", "change"), list(ANSWERS.items()), ids=list(ANSWERS))
async def test_an_answer_after_the_proof_that_is_not_about_the_query_is_refused(
    world: World, what: str, change: Any
) -> None:
    world.server.change_answer = change
    got = await world.read()
    assert (got.status, "evil" in got.text) == (502, False)


@table(("code", "token"), [
    (400, "identity-refused"), (401, "upstream-refused"), (402, "identity-refused"), (403, "identity-refused"),
    (405, "identity-refused"), (500, "upstream-refused"), (100, None), (200, None),
])  # fmt: skip
async def test_a_refusal_after_the_proof_is_told_without_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, token: str | None
) -> None:
    async with worlds(tmp_path) as world:
        world.server.refusal = code
        got = await world.read()
    if token is None:
        assert got.json["responseCode"] == code
    else:
        assert (got.status, got.json["type"]) == (502, f"/docs#{token}")
    assert not {SECRET.decode(), "a-token-of-a-reader"} & {
        word for word in (got.text, caplog.text) if SECRET.decode() in word
    }


async def test_a_wrong_key_is_logged_once_and_the_server_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "identity.key").write_bytes(b"another secret key")
    with caplog.at_level(logging.WARNING):
        async with worlds(tmp_path) as world:
            first, second = await world.read(), await world.read()
    assert [first.json["type"], second.json["type"]] == ["/docs#identity-refused"] * 2
    assert (first["retry-after"], len(world.server.proofs)) == ("60", 1)
    lines = [line for line in caplog.text.splitlines() if "restricted values of" in line]
    assert len(lines) == 1
    assert "10.1000 cannot be read as 300:10.1000/ADMIN: response code 403" in lines[0]
    assert "another secret" not in caplog.text and NAME not in lines[0]


async def test_nothing_is_proven_to_a_server_that_does_not_sign_with_its_known_key(tmp_path: Path) -> None:
    async with ChallengingServer() as server:
        (tmp_path / "root.json").write_bytes(write_bootstrap(server))
        async with worlds(tmp_path, server, upstream_bootstrap=tmp_path / "root.json") as world:
            assert types(await world.read()) == ["URL", "EMAIL"]
            server.key = dsa_key()
            got = await world.read()
        assert (got.status, got.json["type"], len(server.proofs)) == (502, "/docs#signature-invalid", 1)


@pytest.mark.parametrize("url", ["hdl:", "hdl:?203.0.113.7=127.0.0.1"])
async def test_from_the_root_signatures_lead_to_the_server_whatever_the_settings_say(tmp_path: Path, url: str) -> None:
    async with HandleServer() as root:
        (tmp_path / "root.json").write_bytes(write_bootstrap(root))
        settings: dict[str, Any] = {
            "upstream_url": url,
            "upstream_bootstrap": tmp_path / "root.json",
            "upstream_verify": "never",
        }
        async with worlds(tmp_path, ChallengingServer(serial=2, key=dsa_key()), **settings) as world:
            root.put_values("0.NA/10.1000", world.server.site_value())
            root.lie("0.NA/10.1000", "unsigned")
            assert (await world.proxy.get(f"/api/handles/{NAME}")).status == 200
            got = await world.read()
            assert (got.status, world.server.proofs) == (502, [])
            root.lie("0.NA/10.1000", "")
            assert types(await world.read()) == ["URL", "EMAIL"]


async def test_a_slow_server_and_an_empty_budget_are_told(tmp_path: Path) -> None:
    async with worlds(tmp_path, upstream_timeout=0.05) as world:
        world.server.hold(NAME)
        assert (await world.read()).status == 504
        world.server.release(NAME)
    # The proof is a message of its own, which needs a token of the budget.
    async with worlds(tmp_path, upstream_burst=1, upstream_rate=0.001) as world:
        assert (await world.read()).json["type"] == "/docs#budget-spent"
        assert world.server.proofs == []


async def test_an_http_api_is_never_asked_for_restricted_values(tmp_path: Path) -> None:
    async with ChallengingServer() as server:
        urls = f"{server.url} http://127.0.0.1:9"
        async with worlds(tmp_path, server, upstream_url=urls) as world:
            server.refusal = 401
            assert (await world.read()).json["type"] == "/docs#upstream-refused"
