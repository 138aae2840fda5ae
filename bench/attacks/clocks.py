"""The wall clock of a service jumps by an hour, a day and a year, forth and back."""

from __future__ import annotations

import http.client
import json
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.attacks.world import Checkout, Proxy, Row, get, proxy, upstream
from bench.servers import HOST

_TOKEN: Final = "correct-horse-battery-staple"
_HOUR: Final = 3_600.0
_STEPS: Final = {
    "no step (control)": 0.0,
    "an hour forward": _HOUR,
    "an hour back": -_HOUR,
    "a day forward": 24 * _HOUR,
    "a day back": -24 * _HOUR,
    "a year forward": 365 * 24 * _HOUR,
    "a year back": -365 * 24 * _HOUR,
}
_NAMES: Final = 10
#: Seconds in which the process runs what it does each second, with the new time.
_TICKS: Final = 2.5
_PAGES: Final = ("/status", "/readyz", "/metrics", "/privacy")
#: Starts the program with a clock that adds the number in a file to the time of the machine.
_START: Final = """
import mmap, runpy, struct, sys, time
with open(sys.argv.pop(1), "r+b") as file:
    shared, real = mmap.mmap(file.fileno(), 8), time.time
time.time = lambda: real() + struct.unpack("d", shared)[0]
runpy.run_module("doi_proxy", run_name="__main__", alter_sys=True)
"""


def steps(checkout: Checkout) -> Iterator[Row]:
    """After each step: cached names, new ones, a purge, pages, a list; then the way back, with the same questions."""
    for label, seconds in _STEPS.items():
        with tempfile.TemporaryDirectory() as folder, upstream() as url:
            clock = Path(folder, "clock")
            clock.write_bytes(struct.pack("d", 0.0))
            settings: dict[str, Any] = {"admin_token": _TOKEN, "client_rate": 200, "client_burst": 200}
            with proxy(checkout, url, start=("-c", _START, str(clock)), **settings) as running:
                _use(running, "before")
                found = [_use_after(running, clock, seconds, "during"), _use_after(running, clock, 0.0, "after")]
                traces = sum("Traceback" in line for line in running.log)
        wrong = sorted({fault for faults in found for fault in faults})
        yield Row(
            f"the clock makes {label}, and returns: failed answers of {2 * (4 * _NAMES + len(_PAGES) + 2)}",
            f"{sum(map(len, found))}{': ' + ', '.join(wrong) if wrong else ''}; {traces} tracebacks",
            not wrong and not traces,
        )


def _use_after(running: Proxy, clock: Path, seconds: float, word: str) -> list[str]:
    """What failed after a step."""
    with clock.open("r+b") as file:
        file.write(struct.pack("d", seconds))
    time.sleep(_TICKS)
    return _use(running, word)


def _use(running: Proxy, word: str) -> list[str]:
    """What failed: names of before, new ones, new ones once more, purged ones; a purge, and pages."""
    faults = []
    for kind in ("before", word, word):
        faults += _ask(running, kind)
    faults += _act(running, "purge", {"prefix": "10.1000"})
    faults += _ask(running, word)
    return faults + [page for page in _PAGES if get(running.port, page, Authorization=f"Bearer {_TOKEN}").status != 200]


def _ask(running: Proxy, word: str) -> list[str]:
    replies = [get(running.port, f"/10.1000/{word}-{number}") for number in range(_NAMES)]
    return [f"{word} {reply.status}" for reply in replies if reply.status != 302 or reply.seconds > 2.0]


def _act(running: Proxy, action: str, body: dict[str, Any]) -> list[str]:
    connection = http.client.HTTPConnection(HOST, running.port, timeout=20.0)
    try:
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
        connection.request("POST", f"/admin/{action}", json.dumps(body), headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    return [] if status == 200 else [f"{action} {status}"]
