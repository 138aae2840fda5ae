"""`python -m bench.attacks [--checkout DIR] [PART …]` prints the effect of each attack on the proxy of a checkout.

The proxy runs as a process of the checkout's own environment (`make setup` in it first), with the settings that the
checkout knows. Everything listens on 127.0.0.1 and ends with the run, which takes about fifteen minutes.
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

from bench.attacks import boundaries, connections, failures, handshakes, lists, neighbours, records, shares, stores
from bench.attacks.world import ROOT, Checkout, Row

Attack = Callable[[Checkout], Iterator[Row]]
_PARTS: Final[dict[str, Attack]] = {
    "bodies": connections.bodies,
    "pipelines": connections.pipelines,
    "unfinished": connections.unfinished,
    "descriptors": connections.descriptors,
    "silent": handshakes.silent,
    "handshakes": handshakes.partial,
    "half-closed": connections.half_closed,
    "malformed": connections.malformed,
    "records": records.records,
    "turns": records.turns,
    "shares": shares.shares,
    "hanging names": shares.hanging,
    "slow lists": shares.slow_lists,
    "failures": failures.failures,
    "outage": failures.outage,
    "reload": failures.reload,
    "lists": lists.parallel,
    "unread lists": lists.unread,
    "empty lists": lists.empty,
    "left lists": lists.left,
    "personal": stores.personal,
    "swapped": stores.swapped,
    "numbers": stores.numbers,
    "tokens": boundaries.tokens,
    "paths": boundaries.paths,
    "request ids": boundaries.identifiers,
    "odd files": boundaries.files,
    "refused": neighbours.refused,
    "flood": neighbours.flood,
    "paused": neighbours.paused,
    "replies": neighbours.replies,
    "wal": neighbours.wal,
}


def main() -> int:
    """Run the parts. Returns the exit status: 0 if the proxy withstood every attack."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description="Attack doi-proxy on this machine.")
    parser.add_argument("part", nargs="*", default=[], help=f"what to try (default: all): {', '.join(_PARTS)}")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="the checkout to attack (default: this one)")
    chosen = parser.parse_args()
    if unknown := set(chosen.part) - set(_PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    # SIGTERM raises an exception, which ends the processes of the attack.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    checkout = Checkout(chosen.checkout.resolve())
    print("| attack | result | withstood |\n| --- | --- | --- |", flush=True)
    withstood = [_attempt(part, checkout) for part in chosen.part or _PARTS]
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
