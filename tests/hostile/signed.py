"""Handle servers whose answers have long proofs, or restricted values, and the requests about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from app.features.native.wire.value import Value
from tests.features.native.server import HandleServer, write_bootstrap
from tests.features.restricted.challenging import RESTRICTED, ChallengingServer
from tests.features.restricted.world import BEARER, write_file
from tests.hostile.turns import Exchange

#: A name by what is large in its proof.
_NAMES: Final = {
    "a proof with 900 values": "10.1000/many-values",
    "a proof of 60 kB": "10.1000/long-value",
    "a proof over 5 service handles": "10.4000/far",
}


@asynccontextmanager
async def signed_upstream(folder: Path) -> AsyncIterator[dict[str, object]]:
    """Run the handle servers. Yields the settings of a proxy that verifies their answers from the root."""
    async with HandleServer() as root, HandleServer(serial=2) as home:
        root.put_values("0.NA/10.1000", home.site_value())
        root.put_values("0.NA/10.4000", Value(1, b"HS_SERV", b"0.SERV/1"))
        root.put_values("0.NA/0.SERV", home.site_value())
        for number in range(1, 5):
            home.put_values(f"0.SERV/{number}", Value(1, b"HS_SERV", b"0.SERV/%d" % (number + 1)))
        home.put_values("0.SERV/5", home.site_value())
        home.put("10.4000/far", url="https://example.org/")
        home.put_values("10.1000/many-values", *(Value(at, b"URL", b"http://a/") for at in range(1, 901)))
        home.put_values("10.1000/long-value", Value(1, b"DESC", b'<\\"' * 20_000))
        bootstrap = folder / "root.json"
        bootstrap.write_bytes(write_bootstrap(root))
        yield {"upstream_url": "hdl:", "upstream_bootstrap": bootstrap, "upstream_private_servers": True}


def proof_exchanges() -> Iterator[Exchange]:
    """Verified answers, and then their proofs from the cache."""
    for largest, name in _NAMES.items():
        yield Exchange("GET /api/handles/{name}", largest, f"/api/handles/{name}?cert")
        yield Exchange("GET /api/proof/{name:path}", largest, f"/api/proof/{name}")
        yield Exchange("GET /api/proof/{name:path}", largest, f"/api/proof/{name}", headers={"Accept-Encoding": "gzip"})


@asynccontextmanager
async def restricted_upstream(folder: Path) -> AsyncIterator[dict[str, object]]:
    """Run a handle server with large restricted records. Yields the settings of a proxy that may read them."""
    async with ChallengingServer() as server:
        many = (Value(at, b"URL", b"http://a/", permissions=RESTRICTED) for at in range(1, 901))
        server.put_values("10.1000/many-values", *many)
        server.put_values("10.1000/long-value", Value(1, b"DESC", b'<\\"' * 20_000, permissions=RESTRICTED))
        yield {
            "upstream_url": server.url,
            "upstream_private_servers": True,
            "native_restricted": write_file(folder),
        }


def restricted_exchanges() -> Iterator[Exchange]:
    """Restricted values for a reader, and refusals."""
    reader = {"Authorization": BEARER}
    path = "/api/restricted/10.1000/"
    for largest, target, headers in (
        ("900 restricted values", "many-values", reader),
        ("900 restricted values, 190 types", "many-values?type=URL" + "&type=URL." * 190, reader),
        ("a restricted value of 60 kB", "long-value", reader),
        ("a name of 8 kB", "%C3%A9" * 1_300, reader),
        ("a wrong token of 30 kB", "many-values", {"Authorization": "Bearer " + "x" * 30_000}),
    ):
        yield Exchange("GET /api/restricted/{name}", largest, path + target, headers=headers)
