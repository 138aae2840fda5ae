"""Handle servers whose signed answers are large, and the requests about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from handle_protocol.wire.site_value import Value
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.hostile.turns import Exchange

#: A name by what is large on the way to its signed answer.
_NAMES: Final = {
    "a signed answer with 900 values": "10.1000/many-values",
    "a signed answer of 60 kB": "10.1000/long-value",
    "a signed answer over 5 service handles": "10.4000/far",
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


def certified_exchanges() -> Iterator[Exchange]:
    """Answers that are verified from the root."""
    for largest, name in _NAMES.items():
        yield Exchange("GET /api/handles/{name}", largest, f"/api/handles/{name}?cert")
