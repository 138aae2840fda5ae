"""The upstream of the day: it has a record of most names, and one fault at a time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from bench.records import answer_of
from bench.stand_in import StandIn, response
from bench.verdict import is_registered, ttl_of
from tests.upstream.faults import FAULTS, Asked

_SEED: Final = 11
#: The faults of which an upstream can have any. The last one is an answer: the name is not registered.
_ANY: Final = [kind for kind in FAULTS if kind != "unavailable_but_known"]
_JSON: Final = "application/json;charset=UTF-8"


class Upstream(StandIn):
    """A handle API. Whether it has a record, and with which TTL, depends on the name alone."""

    def __init__(self) -> None:
        super().__init__(answering=self._answer)
        self._kind, self._share, self._options = "", 0.0, dict[str, Any]()
        self._chance = random.Random(_SEED)
        #: When each query arrived.
        self.arrivals: list[float] = []

    @asynccontextmanager
    async def failing(self, kind: str, share: float = 1.0, **options: Any) -> AsyncIterator[None]:
        """A share of the queries fails in this way; see tests/upstream/faults.py."""
        self._kind, self._share, self._options = kind, share, options
        try:
            yield
        finally:
            self._share = 0.0

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """No process listens on the port, and connections end."""
        await self.__aexit__()
        try:
            yield
        finally:
            await self.__aenter__()

    async def _answer(self, name: str, writer: asyncio.StreamWriter) -> bool | None:
        self.arrivals.append(time.monotonic())
        if self._chance.random() < self._share:
            kind = self._chance.choice(_ANY) if self._kind == "any" else self._kind
            options = {"seconds": 3.0, "status": 500, **self._options}
            stays = await FAULTS[kind](Asked(f"/api/handles/{name}", name, {}), writer, options)
            if kind != "delay":
                return stays
        if is_registered(name):
            writer.write(response(200, _JSON, answer_of(name, ttl_of(name))))
        else:
            missing = msgspec.json.encode({"responseCode": 100, "handle": name})
            writer.write(response(404, _JSON, missing))
        return True
