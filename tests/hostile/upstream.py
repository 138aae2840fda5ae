"""A hostile upstream. The prefix of a name selects the answer.

| prefix | answer |
| --- | --- |
| 10.1000 | a record with one URL |
| 10.6666 | the record of `tests.hostile.records` that the suffix names; `~` and a number make another one |
| 10.6403 | 403 |
| 10.6404 | 403 with `Retry-After: 3600` |
| 10.6200 | bytes that are not JSON |
| 10.6204 | nothing |
| 10.6206 | the record of another name |
| 10.6207 | one target for clients in the network 127.0.0.2, and another for all others |

`python -m tests.hostile.upstream [--port N]` runs it as a process and prints its URL.
"""

from __future__ import annotations

import argparse
import asyncio
from functools import lru_cache
from typing import Any, Final

from tests.fake_upstream import FakeUpstream, Fault
from tests.hostile.records import PREFIX, RECORDS, by_address
from tests.upstream.faults import encoded
from tests.values import value

ORDINARY: Final = "10.1000"
BY_ADDRESS: Final = "10.6207"
#: The one client for which a record of `BY_ADDRESS` has the internal target.
CAMPUS: Final = "127.0.0.2"
INSIDE: Final = "https://inside.example/licensed"
OUTSIDE: Final = "https://outside.example/"
FAULT_PREFIXES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "10.6403": ("status", {"status": 403}),
    "10.6404": ("status", {"status": 403, "retry_after": 3600}),
    "10.6200": ("garbage", {}),
    "10.6204": ("hang", {}),
    "10.6206": ("wrong_name", {}),
}


def url_of(name: str) -> str:
    """The target of an ordinary name."""
    return f"https://publisher.example/{name.lower()}"


class HostileUpstream(FakeUpstream):
    """See the module."""

    def _next_fault(self, key: str) -> Fault | None:
        fault = FAULT_PREFIXES.get(key.partition("/")[0])
        return Fault(fault[0], None, fault[1]) if fault else super()._next_fault(key)

    def _handle(self, name: str) -> tuple[int, bytes]:
        body = body_of(name)
        return super()._handle(name) if body is None else (200, body)


@lru_cache
def body_of(name: str) -> bytes | None:
    """The answer for a name, None if it does not exist."""
    values = values_of(name)
    return None if values is None else encoded({"responseCode": 1, "handle": name, "values": values})


def values_of(name: str) -> list[dict[str, Any]] | None:
    """The values of a name, None if it does not exist."""
    prefix, _, suffix = name.lower().partition("/")
    suffix, _, number = suffix.partition("~")
    if prefix == ORDINARY:
        return [value(1, "URL", url_of(name))]
    if prefix == BY_ADDRESS:
        return by_address(CAMPUS, INSIDE, OUTSIDE)
    if prefix == PREFIX and suffix in RECORDS:
        first, *others = RECORDS[suffix]()
        # Records that differ are parsed one by one.
        return [{**first, "ttl": first["ttl"] - int(number or 0)}, *others]
    return None


async def _run(port: int) -> None:
    async with HostileUpstream(port) as upstream:
        print(upstream.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A hostile upstream on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(_run(parser.parse_args().port))
