"""`python -m bench.attacks [--checkout DIR] [--front FRONT] [PART …]` prints the effect of each attack on a proxy.

The proxy of a checkout runs as a process of its own environment (`make setup` in it first), with the settings that the
checkout knows. Everything listens on 127.0.0.1 and ends with the run, which takes about fifteen minutes.
With `--front`, clients reach the proxy through a front proxy with the shipped configuration, and the parts are those
in which clients connect.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.attacks import (
    amplification,
    boundaries,
    clocks,
    comings,
    commands,
    connections,
    failures,
    forged,
    handshakes,
    lists,
    neighbours,
    networks,
    newer,
    pages,
    records,
    shares,
    stores,
)
from bench.attacks.world import FRONTS, ROOT, Checkout, Row

Attack = Callable[[Checkout], Iterator[Row]]
_PARTS: Final[dict[str, Attack]] = {
    "bodies": connections.bodies,
    "pipelines": connections.pipelines,
    "unfinished": connections.unfinished,
    "descriptors": connections.descriptors,
    "silent": handshakes.silent,
    "churn": handshakes.churn,
    "comings": comings.comings,
    "accounts": comings.accounts,
    "native churn": comings.native,
    "forged packets": forged.forged,
    "handshakes": handshakes.partial,
    "neighbour": handshakes.neighbour,
    "half-closed": connections.half_closed,
    "malformed": connections.malformed,
    "records": records.records,
    "turns": records.turns,
    "shares": shares.shares,
    "hanging names": shares.hanging,
    "networks": networks.networks,
    "slow lists": shares.slow_lists,
    "failures": failures.failures,
    "outage": failures.outage,
    "reload": failures.reload,
    "lists": lists.parallel,
    "whole lists": lists.whole,
    "unread lists": lists.unread,
    "empty lists": lists.empty,
    "left lists": lists.left,
    "personal": stores.personal,
    "swapped": stores.swapped,
    "numbers": stores.numbers,
    "cookies": pages.cookies,
    "tokens": boundaries.tokens,
    "paths": boundaries.paths,
    "spellings": boundaries.spellings,
    "request ids": boundaries.identifiers,
    "odd files": boundaries.files,
    "refused": neighbours.refused,
    "flood": neighbours.flood,
    "paused": neighbours.paused,
    "replies": neighbours.replies,
    "wal": neighbours.wal,
    "clock": clocks.steps,
    "uploads": newer.references,
    "face files": commands.face_files,
    "amplification": amplification.amplification,
}
#: Why a part is not tried through a front, by its parts. All others are what clients do over connections of their own.
_WITHOUT_FRONTS: Final = {
    "the front holds unfinished connections, and refuses malformed requests, by its own limits": (
        *("descriptors", "handshakes", "neighbour", "half-closed", "malformed"),
    ),
    "the front buffers answers, and decides when the proxy learns that a client has left": (
        "unread lists",
        "left lists",
    ),
    "the costs of the proxy are the same behind a front": ("records", "turns", "empty lists", "amplification"),
    "the clients are forged in X-Forwarded-For, which a front replaces": ("networks", "accounts"),
    "no front is before the native listener": ("native churn", "forged packets"),
    "it runs through nginx without this option": ("bodies", "paths", "request ids", "personal"),
    "the shipped configurations close these paths": ("tokens",),
    "it attacks the upstream, the store or files, where no front is": (
        *("failures", "outage", "reload", "swapped", "numbers", "odd files", "face files"),
        *("refused", "flood", "paused", "replies", "wal", "clock"),
    ),
}
_THROUGH_FRONTS: Final = tuple(part for part in _PARTS if not any(part in parts for parts in _WITHOUT_FRONTS.values()))


def main() -> int:
    """Run the parts. Returns the exit status: 0 if the proxy withstood every attack."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description="Attack doi-proxy on this machine.")
    parser.add_argument("part", nargs="*", default=[], help=f"what to try (default: all): {', '.join(_PARTS)}")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="the checkout to attack (default: this one)")
    parser.add_argument("--front", choices=FRONTS, default="", help="attack through this front proxy")
    chosen = parser.parse_args()
    if unknown := set(chosen.part) - set(_PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    # SIGTERM raises an exception, which ends the processes of the attack.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    checkout = Checkout(chosen.checkout.resolve(), chosen.front)
    usual = _THROUGH_FRONTS if chosen.front else _PARTS
    print("| attack | result | withstood |\n| --- | --- | --- |", flush=True)
    withstood = [_attempt(part, checkout) for part in chosen.part or usual]
    for reason, parts in _WITHOUT_FRONTS.items() if chosen.front and not chosen.part else ():
        print(f"| {', '.join(parts)} | not through a front: {reason} | |", flush=True)
    return 0 if all(withstood) else 1


def _attempt(part: str, checkout: Checkout) -> bool:
    began = time.monotonic()
    withstood = True
    try:
        for row in _PARTS[part](checkout):
            print(f"| {row.attack} | {row.figure} | {'yes' if row.holds else '**no**'} |", flush=True)
            withstood = withstood and row.holds
    except Exception as error:  # the other attacks are worth their minutes
        traceback.print_exc()
        print(f"| {part} | could not be tried: {type(error).__name__} | **no** |", flush=True)
        withstood = False
    print(f"# {part}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return withstood


if __name__ == "__main__":
    sys.exit(main())
