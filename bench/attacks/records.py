"""Attacks by records: the longest turn of the event loop, in CPU time, while a hostile record is requested."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.attacks.connections import ATTACKER
from bench.attacks.world import Checkout, Proxy, Row, get, proxy, upstream
from tests.hostile.records import ASKED_FOR, PREFIX
from tests.hostile.turn_groups import GROUPS, UNITS, Longest, list_worst, measure_group, measure_unit
from tests.hostile.turns import MAX_TURN_MS, TIMED
from tests.hostile.upstream import ORDINARY

#: Seconds after which a request is cancelled, and its proxy ended.
_PATIENCE: Final = 20.0
#: The record is parsed again for every face: all records together are larger than the cache of parsed records.
_FACES: Final[dict[str, tuple[str, str]]] = {
    "redirect": ("/{}", "application/x-bibtex"),
    "page": ("/{}?noredirect", "text/html"),
    "locations": ("/{}?action=showurls", "*/*"),
    "locatt": ("/{}?locatt=id:1", "*/*"),
    "JSON": ("/api/handles/{}", "*/*"),
    "pretty JSON": ("/api/handles/{}?pretty" + "&type=URL." * 190, "*/*"),
}


class _Turns:
    """A proxy whose turns are timed. It is restarted after a request that was cancelled."""

    def __init__(self, checkout: Checkout, url: str, folder: Path) -> None:
        self._checkout, self._url, self._file = checkout, url, folder / "turns"
        self._file.touch()
        self._stack = ExitStack()
        self._proxy: Proxy | None = None

    def longest(self, target: str, accept: str) -> tuple[float, int, int]:
        """The longest turn of a request in milliseconds (infinity if it was cancelled), the status, and the bytes."""
        if self._proxy is None:
            timed = ("-c", TIMED, str(self._file))
            self._proxy = self._stack.enter_context(proxy(self._checkout, self._url, start=timed))
            get(self._proxy.port, f"/{ORDINARY}/182")
        before = self._file.stat().st_size
        reply = get(self._proxy.port, target, source=ATTACKER, timeout=_PATIENCE, accept=accept)
        if reply.status == 0:
            self.close()
            return float("inf"), 0, 0
        # A later turn answers this request, so all earlier turns are logged by then.
        get(self._proxy.port, "/healthz")
        turns = self._file.read_text()[before:].split()
        return max(map(float, turns), default=0.0), reply.status, len(reply.body)

    def close(self) -> None:
        """End the proxy."""
        self._proxy = None
        self._stack.close()


def records(checkout: Checkout) -> Iterator[Row]:
    """Each record as a redirect, as a page, as locations, and over the REST API. The first one is ordinary."""
    names = {"an ordinary record": f"{ORDINARY}/ordinary", **{f"`{name}`": f"{PREFIX}/{name}" for name in ASKED_FOR}}
    found: dict[str, dict[str, tuple[float, int, int]]] = {label: {} for label in names}
    with upstream() as url, tempfile.TemporaryDirectory(prefix="doi-proxy-attack-") as folder:
        turns = _Turns(checkout, url, Path(folder))
        for name in names.values():
            # The first request lets the upstream build the record, which must not count as time of the proxy.
            get(int(url.rpartition(":")[2]), f"/api/handles/{name}")
        try:
            for face, (target, accept) in _FACES.items():
                for label, name in names.items():
                    found[label][face] = turns.longest(target.format(name), accept)
        finally:
            turns.close()
    for label, faces in found.items():
        yield _row(label, faces)


def turns(checkout: Checkout) -> Iterator[Row]:
    """The longest turn of every endpoint, reader and message of this checkout, at its largest input."""
    measured: list[Longest] = []
    with upstream() as url, tempfile.TemporaryDirectory(prefix="doi-proxy-attack-") as folder:
        for group in GROUPS:
            measured += asyncio.run(measure_group(group, Path(folder), url))
    measured += [measure_unit(unit) for units in UNITS.values() for unit in units()]
    for one in list_worst(measured):
        figure = f"{one.milliseconds:.0f} ms"
        yield Row(f"`{one.name}`, {one.largest}", figure, one.milliseconds <= MAX_TURN_MS and one.status != 500)


def _row(label: str, faces: dict[str, tuple[float, int, int]]) -> Row:
    face, (longest, _, _) = max(faces.items(), key=lambda item: item[1][0])
    largest = max(size for _, _, size in faces.values())
    figure = f"{longest:.0f} ms ({face})" if longest < float("inf") else f"no answer in {_PATIENCE:.0f} s ({face})"
    holds = longest <= MAX_TURN_MS and all(status not in (0, 500) for _, status, _ in faces.values())
    return Row(f"longest turn of the event loop for {label}", f"{figure}; {largest / 1e6:.2f} MB at most", holds)
