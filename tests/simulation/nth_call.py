"""One history, in which the n-th call of the store goes wrong: for each n.

python -m tests.simulation.nth_call
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product
from typing import Final

from tests.simulation.history import ALIASES, NAMES, UNKNOWN, Request, Setup, Step
from tests.simulation.judge import Broken
from tests.simulation.play import play
from tests.world.calls import CALLS, OPERATIONS, Calls, How

STORES: Final = {store: Setup(2, store, is_troubled=True) for store in ("file", "valkey")}
_ASKED: Final = [Request(client, (*NAMES[:2], UNKNOWN[0], ALIASES[0])[client // 2]) for client in range(8)]
_ASK: Final = Step("ask", 1.0, {"requests": _ASKED})
_RENEW: Final = Step("ask", 1.0, {"requests": [Request(0, NAMES[1], directive="no-cache")]})
#: Names are learned, purged, changed and learned anew by two instances. One is killed, then the service restarts.
HISTORY: Final = [
    _ASK,
    Step("purge", 2.0, {"name": NAMES[0], "instance": 0, "delay": 0.3, "requests": _ASKED[:2]}),
    Step("change", 12.0, {"name": NAMES[1], "ttl": 300}),
    _RENEW,
    _ASK,
    Step("kill", 1.0, {"instance": 1, "turns": 3}),
    Step("restart", 1.0),
    _ASK,
]


def find_fault(store: str, how: How, number: int) -> tuple[Broken | None, int]:
    """What breaks if that call goes wrong, and how many calls there were."""
    calls = Calls(number, how)
    try:
        play(number, HISTORY, STORES[store], calls)
    except Broken as broken:
        return broken, calls.made
    return None, calls.made


def list_calls(store: str, how: How, step: int = 1) -> range:
    """The numbers of the calls, or of every so many."""
    if store == "valkey" and how in OPERATIONS:
        return range(0)
    return range(1, find_fault(store, how, 0)[1] + 1, step)


def main() -> int:
    """Let each call go wrong. Returns 1 if an invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.nth_call", description=__doc__)
    parser.add_argument("--step", type=int, default=1, help="every so many calls")
    began, played, faults = time.process_time(), 0, 0
    step = parser.parse_args().step
    for store, how in product(STORES, (*CALLS, *OPERATIONS)):
        for number in list_calls(store, how, step):
            played += 1
            broken, _ = find_fault(store, how, number)
            if broken is not None:
                faults += 1
                print(f"{store}: call {number} {how}: {broken}", flush=True)
    print(f"{played} histories, {faults} faults, {time.process_time() - began:.0f} s of processor time")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
