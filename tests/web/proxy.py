"""A service as one client after the other sees it, in an async test.

    async with Proxy() as proxy:
        proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        reply = await proxy.get("/10.1000/182?noredirect", accept_language="de")
        assert reply.status == 200

Budget and breaker are out of the way unless settings say otherwise. Every answer is checked for what any answer must
be, and against the OpenAPI document. No test repeats it.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from doi_proxy.assembly.settings import Settings
from tests.constants import BYPASSES, FAILURE_TTL
from tests.world.answer import Reply
from tests.world.loop import WorldLoop
from tests.world.service import CLIENT, Service

#: The settings and constants of all tests that do not set others. A failed name is queried again at once.
OUT_OF_THE_WAY: Final[dict[str, Any]] = {
    "upstream_rate": 1e6,
    "upstream_burst": 1e6,
    "upstream_breaker_failures": 10**6,
    FAILURE_TTL: 0.0,
    BYPASSES: 1e6,
}


class Proxy(Service):
    """See the module. Keywords are settings and constants."""

    def __init__(self, **settings: Any) -> None:
        # A feature may have been removed with its settings; see tools/removable.py.
        usual = {name: value for name, value in OUT_OF_THE_WAY.items() if _is_installed(name)}
        super().__init__(**{**usual, **settings})
        self._names = count(1)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def name(self) -> str:
        """A new DOI name for each call."""
        return f"10.5555/name-{next(self._names)}"

    async def get(self, target: str | bytes, **headers: str) -> Reply:
        """GET; keywords are header fields, "_" for "-"."""
        return await self.ask("GET", target, **headers)

    async def head(self, target: str | bytes, **headers: str) -> Reply:
        """HEAD."""
        return await self.ask("HEAD", target, **headers)

    async def post(self, target: str | bytes, body: str | bytes, **headers: str) -> Reply:
        """POST; a form, unless `content_type` is set."""
        given = {"content_type": "application/x-www-form-urlencoded", **headers}
        return await self.ask("POST", target, body=body, **given)

    async def ask(
        self,
        method: str,
        target: str | bytes,
        *,
        body: str | bytes = b"",
        client: str | None = CLIENT,
        http_version: str = "1.1",
        **headers: str,
    ) -> Reply:
        """One request from the address `client`. The target is sent unchanged, neither normalised nor encoded.

        None is a client at a Unix socket. In real time, the client is on this machine.
        """
        sent = body.encode() if isinstance(body, str) else body
        sender = self.client(client)
        if not isinstance(asyncio.get_running_loop(), WorldLoop):
            await sender.connect()
        asked = sender.ask(target, headers, method=method, body=sent, version=http_version)
        try:
            return await self.answer_to(asked)
        finally:
            asked.close()


def _is_installed(name: str) -> bool:
    """Whether there is a setting, or the folder with the module of a constant. A module of no folder is an error."""
    return name in Settings.model_fields if "." not in name else find_spec(name.rsplit(".", 2)[0]) is not None
