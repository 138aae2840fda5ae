"""A handle server with a record of ordinary size for any name: `python -m bench.handle_stand_in --port N`."""

from __future__ import annotations

import argparse
import asyncio

import msgspec

from bench.records import values_of
from handle_protocol.wire.message import Query
from tests.handle_protocol.records import to_values
from tests.handle_protocol.server import Content, HandleServer, run


class HandleStandIn(HandleServer):
    """See the module."""

    async def find(self, name: str, query: Query) -> tuple[Content, str | None]:
        """The record of any name."""
        return to_values(msgspec.json.decode(values_of(name))), None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A handle server on 127.0.0.1 with a record for any name.")
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(run(HandleStandIn(parser.parse_args().port)))
