"""A proxy in front of a handle server with restricted values, with a file of readers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.dsa import DSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.features.restricted.challenging import IDENTITY, NAME, SECRET, ChallengingServer
from tests.web.proxy import Got, Proxy, running_with

TOKEN: Final = "a-token-of-a-reader-0001"
BEARER: Final = f"Bearer {TOKEN}"
PATH: Final = f"/api/restricted/{NAME}"
#: In the network of the readers.
READER: Final = "198.51.100.9"


@dataclass(frozen=True)
class World:
    """A proxy and its handle server."""

    proxy: Proxy
    server: ChallengingServer
    file: Path

    async def read(self, target: str = PATH, **headers: str) -> Got:
        """Request restricted values with the token."""
        return await self.proxy.get(target, **{"authorization": BEARER, **headers})


def write_pem(key: RSAPrivateKey | DSAPrivateKey) -> bytes:
    """A private key as a file has it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_file(folder: Path, **changed: str | None) -> Path:
    """The file of readers, with the files that it names. The keywords change its lines."""
    lines = {
        "identity": f'"{IDENTITY}"', "secret_key": '"identity.key"', "prefixes": '["10.1000"]',
        "tokens": '"readers.tokens"', **changed,
    }  # fmt: skip
    (folder / "readers.tokens").write_text(f"# readers\n{TOKEN}\nanother-token-of-a-reader\n", "utf-8")
    if not (folder / "identity.key").exists():
        (folder / "identity.key").write_bytes(SECRET + b"\n")
    for secret in ("readers.tokens", "identity.key"):
        (folder / secret).chmod(0o600)
    file = folder / "restricted.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items() if value is not None), "utf-8")
    return file


@asynccontextmanager
async def worlds(
    folder: Path, server: ChallengingServer | None = None, lines: dict[str, str | None] | None = None, **settings: Any
) -> AsyncIterator[World]:
    """A world with further settings, or another `clock`. The server may be running already."""
    file = write_file(folder, **(lines or {}))
    server = server or ChallengingServer()
    async with nullcontext(server) if server.port else server as running_server:
        usual = {"upstream_url": running_server.url, "native_restricted": file, "upstream_private_servers": True}
        async with running_with(None, **{**usual, **settings}) as proxy:
            yield World(proxy, running_server, file)
