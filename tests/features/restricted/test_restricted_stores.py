"""What a reader is given reaches no server of the store, no replica, no trace, and no page about the name."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from app.cli.main import main
from app.features.stored_entry import unpack
from tests.clock import Clock
from tests.cluster.processes import until
from tests.features.restricted.challenging import HIDDEN, NAME, SECRET, marker
from tests.features.restricted.world import BEARER, PATH, TOKEN, World, worlds
from tests.features.tracing.collector import collecting
from tests.features.valkey.valkey_server import start_valkey

pytestmark = pytest.mark.anyio

ADMIN: Final = "correct-horse-battery-staple"
HIDDEN_PATH: Final = f"/api/restricted/{HIDDEN}"
START: Final = b"the reads of readers begin"
SECRETS: Final = (SECRET, TOKEN.encode(), marker().encode())


@pytest.fixture(scope="module")
def valkey() -> Iterator[Any]:
    server = start_valkey()
    yield server
    server.stop()


def now() -> Clock:
    """The time of the server of the store: entries of another one have expired there."""
    return Clock(time.time())


@asynccontextmanager
async def monitored(port: int) -> AsyncIterator[bytearray]:
    """Every command that the server gets, with its arguments, as the server writes them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seen = bytearray()

    async def read() -> None:
        while piece := await reader.read(65_536):
            seen.extend(piece)

    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    reading = asyncio.create_task(read())
    try:
        yield seen
    finally:
        reading.cancel()
        writer.close()


def dump(port: int) -> bytes:
    """All keys of a server with their values. Stored entries are unpacked."""
    client: Any = Redis(port=port)
    found = []
    for key in client.scan_iter(count=1_000):
        kind = client.type(key)
        if kind == b"string":
            value = client.get(key)
            found += [key, value]
            name = key.rpartition(b":")[2].decode("utf-8", "replace")
            if NAME.upper() in name or HIDDEN.upper() in name:
                found.append(repr(unpack(name, value)).encode())
        else:
            read = {b"hash": client.hgetall, b"zset": lambda key: client.zrange(key, 0, -1), b"set": client.smembers}
            found += [key, repr(read.get(kind, client.xrange)(key)).encode()]
    client.close()
    return b"\n".join(found)


@pytest.mark.valkey
async def test_no_command_to_valkey_has_the_value_or_is_about_the_name(tmp_path: Path, valkey: Any) -> None:
    url = f"valkey://127.0.0.1:{valkey.port}/0"
    async with monitored(valkey.port) as seen, worlds(tmp_path, store_url=url, clock=now()) as world:
        for name in (NAME, HIDDEN):
            assert (await world.proxy.get(f"/api/handles/{name}")).status == 200

        async def are_stored() -> bool:
            content = dump(valkey.port)
            return all(name.upper().encode() in content for name in (NAME, HIDDEN))

        await until(are_stored, 30.0, "the public records are in the store")
        assert NAME.upper().encode() in seen and b"target.example" in dump(valkey.port)
        client: Any = Redis(port=valkey.port)
        client.echo(START)
        client.close()

        async def is_started() -> bool:
            return START in seen

        await until(is_started, 30.0, "the commands of the public reads and of this test are over")
        for path in (PATH, HIDDEN_PATH, PATH, HIDDEN_PATH):
            assert marker() in (await world.read(path)).text
        assert (await world.read("/api/restricted/10.1000/none")).status == 404
        world.server.refusal = 403
        assert (await world.read()).status == 502

        async def is_later_written() -> bool:
            await world.proxy.get("/api/handles/10.1000/later")
            return b"10.1000/LATER" in seen.upper()

        await until(is_later_written, 30.0, "what was written before is in the store too")
        later = bytes(seen).partition(START)[2]
    assert [name for name in (NAME, HIDDEN, "10.1000/none") if name.upper().encode() in later.upper()] == []
    assert [word for word in SECRETS if word in bytes(seen) or word in dump(valkey.port)] == []


@pytest.mark.valkey
async def test_no_bundle_of_valkey_has_the_value(
    tmp_path: Path, valkey: Any, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    url = f"valkey://127.0.0.1:{valkey.port}/1"
    async with worlds(tmp_path, store_url=url, admin_token=ADMIN, clock=now()) as world:
        assert (await world.proxy.get(f"/api/handles/{NAME}")).status == 200
        assert marker() in (await world.read()).text

        async def is_exported() -> bool:
            output = tmp_path / "records.ndjson"
            await asyncio.to_thread(main, ["cache", "export", "--store-url", url, "--output", str(output)])
            return output.exists() and NAME.upper().encode() in output.read_bytes().upper()

        await until(is_exported, 30.0, "the public record is in the bundle")
    assert b"target.example" in (tmp_path / "records.ndjson").read_bytes()
    assert marker().encode() not in (tmp_path / "records.ndjson").read_bytes()
    assert marker().encode() not in b"".join(capsysbinary.readouterr())


async def test_a_replica_and_its_pages_have_public_values_alone(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with worlds(tmp_path, store_url=store, admin_token=ADMIN) as world:
        for name, path in ((NAME, PATH), (HIDDEN, HIDDEN_PATH)):
            await world.proxy.get(f"/api/handles/{name}")
            assert marker() in (await world.read(path)).text
        page = b""

        async def has_both() -> bool:
            nonlocal page
            got = await world.proxy.get("/admin/changes", authorization=f"Bearer {ADMIN}")
            page = gzip.decompress(got.body)
            return all(name.upper().encode() in page.upper() for name in (NAME, HIDDEN))

        await until(has_both, 30.0, "the change feed has both names")
    assert b"target.example" in page and marker().encode() not in page


async def test_no_page_about_a_name_shows_an_address_that_the_public_may_not_read(tmp_path: Path) -> None:
    async def look(world: World) -> dict[str, bytes]:
        found = {}
        for target in (
            f"/{HIDDEN}", f"/{HIDDEN}?noredirect", f"/help/{HIDDEN}", f"/{HIDDEN}?auth", f"/api/handles/{HIDDEN}?auth",
            "/10.1000/hiddem", f"/?hdl={HIDDEN}", f"/api/parse?text={HIDDEN}",
        ):  # fmt: skip
            got = await world.proxy.get(target, authorization=BEARER)
            found[target] = got.body + repr(got.fields).encode()
        for kind in ("text/plain", "text/csv"):
            got = await world.proxy.post("/api/resolve?suggest=checked", f"doi\n{HIDDEN}\n", content_type=kind)
            found[kind] = got.body
        return found

    async with worlds(tmp_path, store_url=f"sqlite:///{tmp_path}/store.db") as world:
        await look(world)
        for _ in range(2):
            assert "https://hidden.example/marker" in (await world.read(HIDDEN_PATH)).text
        found = await look(world)
        assert (await world.proxy.get(f"/{HIDDEN}")).status in (200, 404)
    assert [target for target, body in found.items() if b"hidden.example" in body or marker().encode() in body] == []


async def test_no_trace_has_the_value_the_name_or_the_token(tmp_path: Path) -> None:
    with collecting() as collector:
        async with worlds(tmp_path, otel_endpoint=collector.url) as world:
            assert marker() in (await world.read()).text
            world.server.refusal = 403
            assert (await world.read()).status == 502
        assert collector.bodies
        for word in (*SECRETS, NAME.encode(), NAME.upper().encode()):
            assert [body for body in collector.bodies if word in body] == []
