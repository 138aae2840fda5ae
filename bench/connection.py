"""A client's connection to the proxy, for loads whose every answer is looked at."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from bench.verdict import Answer

#: Seconds within which an answer has to come.
_TIMEOUT: Final = 20.0


class Connection:
    """One persistent connection to the proxy, with as little work for the client as possible."""

    def __init__(self, port: int, *fields: str) -> None:
        """`fields` are header lines of every request."""
        self._port = port
        self._fields = "".join(f"{line}\r\n" for line in ("Host: 127.0.0.1", *fields))
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, path: str, timeout: float = _TIMEOUT) -> Answer | None:
        """The answer to one GET, None if the connection ended or the deadline passed."""
        try:
            async with asyncio.timeout(timeout):
                if self._writer is None:
                    self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                self._writer.write(f"GET {path} HTTP/1.1\r\n{self._fields}\r\n".encode("ascii"))
                head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                fields = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in head[1:])}
                body = await self._reader.readexactly(int(fields["content-length"]))
        except (OSError, EOFError, TimeoutError):
            self.close()
            return None
        if fields.get("connection") == "close":
            self.close()
        status = int(head[0].split(" ")[1])
        return Answer(status, fields.get("location", ""), fields.get("cache-status", ""), body)

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._writer = None
