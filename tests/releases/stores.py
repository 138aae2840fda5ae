"""The stores and bundles of earlier releases, which make.py made with the real programs."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from tests.clock import Clock

HERE: Final = Path(__file__).parent
RELEASES: Final = ("0.1.0", "0.2.0")
#: A store of 0.1.0 that 0.2.0 wrote into has both kinds of entries.
FILES: Final = (*RELEASES, "0.1.0-0.2.0")
MADE: Final[dict[str, float]] = json.loads((HERE / "made.json").read_text())
#: Names, the status of the answer, and its target.
ANSWERS: Final = (
    ("10.5072/one", 302, "https://a.example/one"),
    ("10.5072/many", 302, "https://a.example/many?part=1&of=2"),
    ("10.5072/places", 302, "https://a.example/place"),
    ("10.5072/soon", 302, "https://a.example/soon"),
    ("10.5072/z%C3%BCrich/%C3%A9t%C3%A9", 302, "https://a.example/z%C3%BCrich"),
    ("10.5072/alias", 301, "http://resolver.example/10.5072/ONE"),
    ("10.5072/nothing", 200, None),
    ("10.5072/absent", 404, None),
)
#: The records of the agencies' files that 0.2.0 imported.
REGISTERED: Final = (
    ("10.5072/registered", 302, "https://c.example/registered"),
    ("10.5072/registered-too", 302, "https://c.example/registered-too"),
)
#: What 0.2.0 answered with the store of 0.1.0.
LATER: Final = (("10.5072/later", 302, "https://a.example/later"),)


def clock_of(release: str) -> Clock:
    """A clock one hour after the release wrote its files: one record has expired since."""
    return Clock(MADE[release] + 3_600.0)


def unpack_file(release: str, folder: Path) -> Path:
    """The SQLite store of a release, in a folder of the test."""
    path = folder / "store.sqlite3"
    path.write_bytes(gzip.decompress((HERE / f"{release}.sqlite3.gz").read_bytes()))
    return path


async def load_keys(release: str, url: str) -> None:
    """Put the keys of a release's store on an empty server."""
    client: Any = Redis.from_url(url.replace("valkey", "redis", 1))
    await client.flushdb()
    for line in (HERE / f"{release}.valkey.ndjson").read_text().splitlines():
        one = json.loads(line)
        left = one["ttl_ms"] if one["ttl_ms"] > 0 else None
        await client.set(one["key"], b64decode(one["value"]), px=left)
    await client.aclose()
