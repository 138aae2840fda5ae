"""HTTP/1.1 as bytes: targets arrive as they are written here, and answers are read as they come."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import Any, Final

#: Seconds one request may take before it counts as failed.
DEADLINE: Final = 20.0
_MAX_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer; header names in lower case, the last value of each."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def location(self) -> str:
        """Where the answer leads, "" for nowhere."""
        return self.headers.get("location", "")

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


async def ask(
    port: int,
    target: str | bytes,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    host: str = "",
    tls: ssl.SSLContext | None = None,
    deadline: float = DEADLINE,
    client: str = "127.0.0.1",
) -> Answered:
    """Ask 127.0.0.1 on a connection of its own; `client` is its address, one of the loopback network.

    Raises OSError, EOFError or TimeoutError where nothing answers.
    """
    raw = target if isinstance(target, bytes) else target.encode()
    fields = {"Host": host or f"127.0.0.1:{port}", "Accept": "*/*", "Connection": "close", **(headers or {})}
    if body:
        fields["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    async with asyncio.timeout(deadline):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, limit=_MAX_BYTES, ssl=tls, local_addr=(client, 0)
        )
        try:
            # Linux can connect a socket to itself if nothing listens on a port of the ephemeral range.
            if writer.get_extra_info("sockname") == writer.get_extra_info("peername"):
                raise ConnectionRefusedError(f"nothing listens on port {port}")
            writer.write(method.encode() + b" " + raw + b" HTTP/1.1\r\n" + head.encode() + b"\r\n" + body)
            return await read_answer(reader, method)
        finally:
            writer.close()


async def read_answer(reader: asyncio.StreamReader, method: str = "GET") -> Answered:
    """The next answer on a connection. Raises EOFError where there is none."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
    status = int(first.split(" ", 2)[1])
    fields = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    if method == "HEAD" or status in (204, 304):
        return Answered(status, headers, await reader.read())
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return Answered(status, headers, await _chunks(reader))
    if "content-length" in headers:
        return Answered(status, headers, await reader.readexactly(int(headers["content-length"])))
    return Answered(status, headers, await reader.read())


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
        if len(body) > _MAX_BYTES:
            raise EOFError("the answer is too long")
    await reader.readuntil(b"\r\n")
    return body
