"""`/api/proof/<name>` and `doi-proxy verify`: what holds, and what does not."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.commands.main import main
from handle_protocol.errors import HandleProtocolError
from handle_protocol.json_sites import read_bootstrap
from handle_protocol.proof import MAX_PROOF_BYTES
from handle_protocol.proof_document import verify_document
from handle_protocol.wire.site_value import ServiceSite, Value, encode_site
from tests.handle_protocol.keys import dsa_key, public_bytes
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

NAME: Final = "10.1000/182"
TOKEN: Final = "correct-horse-battery-staple"
OTHER: Final = "10.1000/183"
URL: Final = "https://target.example/"
Document = dict[str, Any]


@dataclass(frozen=True)
class World:
    """A proxy with a root, a home of 10.1000 and one of 10.2000."""

    proxy: Proxy
    root: HandleServer
    home: HandleServer
    other: HandleServer
    folder: Path
    settings: dict[str, Any]

    async def prove(self, name: str) -> Document:
        """Request a name with `cert`, and its proof."""
        assert (await self.proxy.get(f"/api/handles/{name}?cert")).status in (200, 404)
        got = await self.proxy.get(f"/api/proof/{name}")
        assert got.status == 200, got.text
        document: Document = got.json
        return document

    def check(self, document: Document, at: float = 0.0) -> str:
        """What the document proves. Raises HandleProtocolError."""
        root = read_bootstrap((self.folder / "root.json").read_bytes())
        return verify_document(json.dumps(document).encode(), root, at)

    def refusal(self, document: Document, at: float = 0.0) -> str:
        """The sentence of what is wrong with a document."""
        with pytest.raises(HandleProtocolError) as caught:
            self.check(document, at)
        return caught.value.message


@asynccontextmanager
async def worlds(folder: Path, **settings: Any) -> AsyncIterator[World]:
    async with (
        HandleServer() as root,
        HandleServer(serial=2, key=dsa_key()) as home,
        HandleServer(serial=3) as other,
    ):
        (folder / "root.json").write_bytes(write_bootstrap(root))
        root.put_values("0.NA/10.1000", home.site_value())
        root.put_values("0.NA/10.2000", other.site_value())
        home.put(NAME, url=URL)
        home.put(OTHER, url="https://other.example/")
        other.put("10.2000/1", url=URL)
        usual = {"upstream_url": "hdl:", "upstream_bootstrap": folder / "root.json", "upstream_private_servers": True}
        async with Proxy(**usual, **settings) as proxy:
            yield World(proxy, root, home, other, folder, usual)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with worlds(tmp_path) as world:
        yield world


async def test_a_certified_answer_has_a_proof(world: World) -> None:
    document = await world.prove(NAME)
    assert (document["handle"], document["result"]) == (NAME, "values")
    assert document["values"][0]["data"]["value"] == URL
    assert [one["handle"] for one in document["messages"]] == ["0.NA/10.1000", NAME]
    assert "has these 1 values: 2 signatures lead from the root to it" in world.check(document)


async def test_an_answer_without_signature_has_none(world: World) -> None:
    assert (await world.proxy.get(f"/api/handles/{NAME}")).status == 200
    for name in (NAME, "10.1000/never-asked"):
        got = await world.proxy.get(f"/api/proof/{name}")
        assert (got.status, got["content-type"]) == (404, "application/problem+json")
        assert got.json["type"].endswith("#not-verified")


async def test_a_proof_that_is_too_large_to_be_kept_is_said_to_be_so(world: World) -> None:
    world.home.put(OTHER, url="https://other.example/" + "a" * MAX_PROOF_BYTES)
    assert (await world.proxy.get(f"/api/handles/{OTHER}?cert")).status == 200
    got = await world.proxy.get(f"/api/proof/{OTHER}")
    assert (got.status, got.json["type"].partition("#")[2]) == (404, "not-verified")
    assert "its proof was not kept: it has over 65536 bytes" in got.json["detail"]


async def test_without_handle_servers_nothing_has_a_proof() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url=URL)
        assert (await proxy.get(f"/api/handles/{NAME}?cert")).status == 200
        assert (await proxy.get(f"/api/proof/{NAME}")).json["type"].endswith("#not-verified")


async def test_always_keeps_the_proof_of_each_name(tmp_path: Path) -> None:
    async with worlds(tmp_path, upstream_verify="always") as world:
        assert (await world.proxy.get(f"/{NAME}")).status == 302
        assert world.check((await world.proxy.get(f"/api/proof/{NAME}")).json)


async def test_the_absence_of_a_name_and_of_a_prefix_is_proven(world: World) -> None:
    document = await world.prove("10.1000/none")
    assert "10.1000/none does not exist" in world.check(document)
    absent = await world.prove("10.3000/none")
    assert [one["handle"] for one in absent["messages"]] == ["0.NA/10.3000"]
    assert "10.3000/none does not exist" in world.check(absent)
    # The absence of one prefix says nothing about another.
    assert "no answer about" in world.refusal({**absent, "handle": NAME})


async def test_a_service_handle_and_a_referral_are_part_of_the_way(world: World) -> None:
    world.root.put_values("0.NA/10.4000", Value(2, b"HS_SERV", b"0.SERV/A"))
    world.root.put_values("0.NA/0.SERV", world.home.site_value())
    world.home.put_values("0.SERV/A", world.other.site_value())
    world.other.put("10.4000/1", url=URL)
    document = await world.prove("10.4000/1")
    assert [one["handle"] for one in document["messages"]] == ["0.NA/10.4000", "0.NA/0.SERV", "0.SERV/A", "10.4000/1"]
    assert world.check(document)
    world.home.refer("10.1000.5", world.other.site_value(b"HS_SITE.PREFIX"))
    world.root.put_values("0.NA/10.1000.5", world.home.site_value())
    world.other.put("10.1000.5/1", url=URL)
    document = await world.prove("10.1000.5/1")
    assert [one["handle"] for one in document["messages"]] == ["0.NA/10.1000.5", "10.1000.5/1", "10.1000.5/1"]
    assert world.check(document)


async def test_two_service_handles_of_one_prefix_need_its_record_once(world: World) -> None:
    world.root.put_values("0.NA/10.4000", Value(2, b"HS_SERV", b"0.SERV/A"))
    world.root.put_values("0.NA/0.SERV", world.home.site_value())
    world.home.put_values("0.SERV/A", Value(2, b"HS_SERV", b"0.SERV/B"))
    world.home.put_values("0.SERV/B", world.other.site_value())
    world.other.put("10.4000/1", url=URL)
    document = await world.prove("10.4000/1")
    assert "5 signatures" in world.check(document)


async def test_a_restarted_proxy_and_a_purge(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    async with worlds(tmp_path, store_url=store) as world:
        document = await world.prove(NAME)
    settings = {"upstream_url": "hdl:", "upstream_bootstrap": tmp_path / "root.json", "admin_token": TOKEN}
    async with Proxy(**settings, store_url=store) as proxy:
        assert (await proxy.get(f"/api/proof/{NAME}")).json["messages"] == document["messages"]
        token = {"authorization": f"Bearer {TOKEN}"}
        purge = json.dumps({"doi": NAME})
        assert (await proxy.post("/admin/purge", purge, content_type="application/json", **token)).status == 200
        assert (await proxy.get(f"/api/proof/{NAME}")).status == 404


async def test_a_service_that_was_kept_is_part_of_a_proof(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    async with worlds(tmp_path) as world:
        # The end of a proxy makes its writes visible.
        async with Proxy(**world.settings, store_url=store) as first:
            await replace(world, proxy=first).prove(NAME)
        world.root.delete("0.NA/10.1000")
        async with Proxy(**world.settings, store_url=store) as later:
            assert world.check(await replace(world, proxy=later).prove(OTHER))


@pytest.mark.parametrize(
    "record",
    [
        'prefix = "10.1000"\ndeny = "By order of a court."',
        f'doi = "{NAME}"\ntombstone = {{ reason = "By order of a court.", date = 2026-03-01 }}',
        f'doi = "{NAME}"\ntarget = "https://ours.example/"',
    ],
)
async def test_what_a_local_record_answers_or_denies_has_no_proof(tmp_path: Path, record: str) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    async with worlds(tmp_path) as world:
        async with Proxy(**world.settings, store_url=store) as first:
            await replace(world, proxy=first).prove(NAME)
        (tmp_path / "records.toml").write_text(f"[[record]]\n{record}\n")
        async with Proxy(**world.settings, store_url=store, local_records=tmp_path / "records.toml") as later:
            assert (await later.get(f"/api/proof/{NAME}")).status == 404
            assert "/api/proof/" not in (await later.get(f"/{NAME}?noredirect", accept="text/html")).text


async def test_the_record_of_a_prefix_has_a_proof_without_cert(world: World) -> None:
    assert (await world.proxy.get(f"/{NAME}")).status == 302
    for spelling in ("10.1000", "0.NA/10.1000", "0.na/10.1000"):
        assert "0.NA/10.1000 has these" in world.check((await world.proxy.get(f"/api/proof/{spelling}")).json)
    got = await world.proxy.get("/api/proof/0.NA/10.9999")
    assert (got.status, got.json["type"].partition("#")[2]) == (404, "not-verified")
    assert "the cache has no proof of this name" in got.json["detail"].lower()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "the file is not the handle API's answer about 0.NA/0.NA"),
        ("{}", "the file is not the handle API's answer about 0.NA/0.NA"),
        ('{"responseCode":1,"handle":"0.NA/0.NA","values":[]}', "the file names no server of the root"),
    ],
)
def test_a_root_that_cannot_be_used_is_named_by_its_setting(
    tmp_path: Path, content: str | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root.json"
    if content is not None:
        root.write_text(content)
    assert main(["verify", str(tmp_path / "proof.json"), "--upstream-bootstrap", str(root)]) == 2
    said = capsys.readouterr().err
    assert f"upstream_bootstrap: {root}" in said
    assert reason in said


async def test_a_root_without_keys_and_a_foreign_root_say_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    (world.folder / "proof.json").write_text(json.dumps(await world.prove(NAME)))
    async with HandleServer(key=dsa_key()) as stranger:
        (world.folder / "stranger.json").write_bytes(write_bootstrap(stranger))
    bare = json.loads((world.folder / "root.json").read_bytes())
    for server in bare["values"][0]["data"]["value"]["servers"]:
        del server["publicKey"]
    (world.folder / "bare.json").write_text(json.dumps(bare))
    words = ["verify", str(world.folder / "proof.json"), "--upstream-bootstrap"]
    assert main([*words, str(world.folder / "bare.json")]) == 2
    assert "bare.json has no key of a server of the root" in capsys.readouterr().err
    assert main([*words, str(world.folder / "stranger.json")]) == 1
    assert "is not signed by a key of this root" in capsys.readouterr().err


async def test_the_page_of_a_record_links_its_proof(world: World) -> None:
    link = f'href="/api/proof/{NAME}"'
    assert link not in (await world.proxy.get(f"/{NAME}?noredirect", accept="text/html")).text
    await world.prove(NAME)
    assert link in (await world.proxy.get(f"/{NAME}?noredirect", accept="text/html")).text


# --- what does not hold ------------------------------------------------------------------------------------------


def _flip(text: str, place: int) -> str:
    data = bytearray(b64decode(text))
    data[place] ^= 1
    return b64encode(data).decode()


async def test_one_changed_bit_proves_nothing_else(world: World) -> None:
    document = await world.prove(NAME)
    proven, refused = world.check(document), 0
    for number, member in ((n, m) for n in (0, 1) for m in ("request", "answer")):
        text = document["messages"][number][member]
        length = len(b64decode(text))
        for place in range(0, length, 7 if member == "answer" else 3):
            changed = json.loads(json.dumps(document))
            changed["messages"][number][member] = _flip(text, place)
            # A few bits of an envelope and a credential are not signed, and say nothing.
            try:
                assert world.check(changed) == proven
            except HandleProtocolError:
                refused += 1
            else:
                assert member == "answer", place
                assert place < 20 or place > length - 350
    assert refused > 100


@table(
    "change",
    [
        lambda d: d.update(result="handle-not-found"),
        lambda d: d["values"][0]["data"].update(value="https://evil.example/"),
        lambda d: d.update(expires="2099-01-01T00:00:00Z"),
        lambda d: d["messages"][1].update(key=d["messages"][0]["key"]),
        lambda d: d["messages"][1].update(signed=d["messages"][0]["signed"]),
        lambda d: d["messages"][1].update(expires="2099-01-01T00:00:00Z"),
        lambda d: d.update(note="also true"),
        lambda d: d["messages"].pop(0),
        lambda d: d["messages"].pop(1),
        lambda d: d["messages"].append(d["messages"][1]),
        lambda d: d.update(messages=[]),
        lambda d: d["messages"][1].update(request=""),
        lambda d: d.update(handle=OTHER),
        lambda d: d.update(handle="10.2000/1"),
        lambda d: d.update(proof=2),
        lambda d: d.update(root=["AAAA"]),
        lambda d: d.update(messages=d["messages"] * 100),
    ],
)
async def test_a_changed_document_is_refused(world: World, change: Callable[[Document], object]) -> None:
    document = json.loads(json.dumps(await world.prove(NAME)))
    change(document)
    assert world.refusal(document)


async def test_the_answer_of_another_request_and_of_another_name_is_refused(world: World) -> None:
    first, other = await world.prove(NAME), await world.prove(OTHER)
    world.proxy.clock.advance(90_000)
    again = await world.prove(NAME)
    for foreign in (other, again):
        mixed = json.loads(json.dumps(first))
        mixed["messages"][1]["answer"] = foreign["messages"][1]["answer"]
        assert "another request" in world.refusal(mixed)
    # A right proof of the other name says nothing about this one.
    assert world.refusal({**other, "handle": NAME})


async def test_the_key_of_another_prefix_proves_nothing(world: World) -> None:
    document, evil = await world.prove(NAME), await world.prove("10.2000/1")
    world.root.put_values("0.NA/10.1000", world.other.site_value())
    world.other.put(NAME, url="https://evil.example/")
    document["messages"][0] = evil["messages"][0]
    assert world.refusal(document)
    both = {**document, "messages": [*evil["messages"], *document["messages"]]}
    assert world.refusal(both)


async def test_another_root_is_refused(world: World) -> None:
    document = await world.prove(NAME)
    async with HandleServer(key=dsa_key()) as stranger:
        (world.folder / "root.json").write_bytes(write_bootstrap(stranger))
    assert world.refusal(document)


async def test_an_expired_proof_is_refused(world: World) -> None:
    document = await world.prove(NAME)
    assert world.check(document, at=1.0)
    assert f"expired at {document['expires']}" in world.refusal(document, at=5e9)


@table("text", ["", "null", "[]", "{}", '{"proof": 1}', "[" * 100_000, '{"proof": 1e999}', "\x00"])
async def test_what_is_not_a_document_is_refused(world: World, text: str) -> None:
    with pytest.raises(HandleProtocolError):
        verify_document(text.encode(), read_bootstrap((world.folder / "root.json").read_bytes()), 0.0)


async def test_a_root_with_new_keys_is_part_of_the_proof(world: World) -> None:
    world.root.put_values(
        "0.NA/0.NA", Value(1, b"HS_SITE", encode_site(_with_key(world.root, public_bytes(dsa_key()))))
    )
    await world.prove(NAME)
    await world.root.arrived("0.NA/0.NA")
    await world.root.settle()
    world.root.key = dsa_key()
    for number in range(100):
        # The refresh of the root is beside the answers.
        world.root.put_values(f"0.NA/10.6{number}", world.other.site_value())
        world.other.put(f"10.6{number}/1", url=URL)
        if (await world.proxy.get(f"/api/handles/10.6{number}/1?cert")).status == 200:
            break
    document = (await world.proxy.get(f"/api/proof/10.6{number}/1")).json
    assert len(document["root"]) == 1
    assert "3 signatures" in world.check(document)
    assert world.refusal({**document, "root": []})


def _with_key(server: HandleServer, key: bytes) -> ServiceSite:
    site = server.site(serial=7)
    return replace(site, servers=(replace(site.servers[0], public_key=key),))
