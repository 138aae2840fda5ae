"""The other processes of `batch`: an upstream that is 20 ms away, and a client that requests one cached name.

`python -m bench.batch_peers upstream --port N` or `probe --port N`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from http.client import HTTPConnection
from threading import Event, Thread
from typing import Final
from zlib import crc32

import uvloop

from bench.names import HOT, path_of
from bench.servers import HOST
from bench.stand_in import StandIn, response
from doi_names.name import fold

#: Seconds until the upstream answers.
DELAY: Final = 0.02
#: A query for this name returns the queries and the distinct names until then, as a JSON array.
COUNTS: Final = "10.1000/counts"
_JSON: Final = "application/json;charset=UTF-8"
#: Seconds between two requests of the probe.
_PAUSE: Final = 0.01


def is_unknown(name: str) -> bool:
    """Whether the upstream has no record of a name: one in ten, except the hot one."""
    return name != HOT and crc32(fold(name).encode()) % 10 == 0


async def run_upstream(port: int) -> None:
    """Serve until the process ends."""
    queries: Counter[str] = Counter()

    async def answer(name: str, writer: asyncio.StreamWriter) -> bool | None:
        if name == COUNTS:
            writer.write(response(200, _JSON, json.dumps([queries.total(), len(queries)]).encode()))
            return True
        queries[fold(name)] += 1
        await asyncio.sleep(DELAY)
        if not is_unknown(name):
            return None
        body = json.dumps({"responseCode": 100, "handle": name}).encode()
        writer.write(response(404, _JSON, body))
        return True

    async with StandIn(port, answering=answer):
        await asyncio.Event().wait()


def run_probe(port: int) -> None:
    """Request the hot name until standard input ends. Prints a line at the start, then the seconds of each answer."""
    ended = Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    Thread(target=wait, daemon=True).start()
    connection = HTTPConnection(HOST, port, timeout=60)
    seconds: list[float] = []
    print("ready", flush=True)
    while not seconds or not ended.wait(_PAUSE):
        began = time.perf_counter()
        connection.request("GET", path_of(HOT))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 302, answer.status
        seconds.append(time.perf_counter() - began)
    connection.close()
    print(json.dumps(seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The other processes of the measurement of lists.")
    parser.add_argument("peer", choices=("upstream", "probe"))
    parser.add_argument("--port", type=int, required=True)
    chosen = parser.parse_args()
    if chosen.peer == "upstream":
        uvloop.run(run_upstream(chosen.port))
    else:
        run_probe(chosen.port)
