"""What happens in one simulation: steps that a seed draws. A step has all that it needs, so steps can be left out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

#: Names with records, names without one, and names that stand for others.
NAMES: Final = tuple(f"10.5555/{number}" for number in range(400))
UNKNOWN: Final = tuple(f"10.5555/unknown-{number}" for number in range(100))
ALIASES: Final = tuple(f"10.5555/alias-{number}" for number in range(6))
ALL: Final = NAMES + UNKNOWN + ALIASES
#: A line of a list that is not a DOI name.
NOT_A_NAME: Final = "hello"
CLIENTS: Final = 12
#: Names that only lists ask for.
LISTED: Final = tuple(f"10.5555/listed-{number}" for number in range(400))
#: A further client, at each instance: it asks for one name after another, slowly, however busy the others are.
PATIENT: Final = CLIENTS
#: Those after the patient ones, one at each instance, send lists: so many at a time.
LISTS_OF_CLIENT: Final = 4
#: Seconds between the parts of a head.
LONGEST_DAWDLE: Final = 4.0
#: The kinds of faults of the upstream (tests/upstream/faults.py), and how they are drawn.
_FAULTS: Final = (
    *("reset", "close", "hang", "drip", "truncate", "not_http", "garbage", "html", "empty", "wrong_name", "code_2"),
    *("values_no_list", "unavailable_but_known", "bad_gzip"),
)
_TTLS: Final = (0, 30, 300, 86_400)
#: Seconds by which the clock is set. Lifetimes are 300 s at most, and the grace is 900 s.
_CLOCKS: Final = (30.0, 100.0, 290.0, 310.0, 700.0, 1_000.0, 1_250.0, -30.0, -500.0)
_DIRECTIVES: Final = ("no-cache", "max-age=30", "only-if-cached", "max-stale=0", "stale-if-error=10")


class Request(NamedTuple):
    """A request of one of the clients, who goes away after so many seconds."""

    client: int
    name: str
    leaves_after: float | None = None
    directive: str | None = None
    path: str = "/{}"
    #: What it says in X-Forwarded-For.
    said_address: str | None = None
    #: Seconds between the parts of its head.
    dawdles_for: float = 0.0
    #: The answer that this one repeats, past the prepared answers.
    twin: Any = None

    def __str__(self) -> str:
        leaves = "" if self.leaves_after is None else f", leaves after {self.leaves_after:.3f} s"
        lies = "" if self.said_address is None else f", says it is {self.said_address}"
        dawdles = f", dawdles for {self.dawdles_for} s" if self.dawdles_for else ""
        return f"client {self.client}: {self.path.format(self.name)} {self.directive or ''}{leaves}{lies}{dawdles}"


class NameList(NamedTuple):
    """A list of names that a client of an instance sends. It goes away after so many seconds."""

    client: int
    names: Sequence[str]
    leaves_after: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What happens, and the seconds until the next step."""

    kind: str
    seconds: float
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.more.items() if name != "requests")
        requests = "".join(f"\n        {request}" for request in self.more.get("requests", ()))
        return f"{self.kind} {words}, then {self.seconds:.3f} s{requests}"


@dataclass(frozen=True, slots=True)
class Setup:
    """The service of a simulation: so many instances on one store. In a troubled one, more than the upstream fails."""

    instances: int
    store: Literal["memory", "file", "valkey"]
    is_troubled: bool
    #: Whether the store is the primary that a Sentinel names.
    has_replica: bool = False
    #: The longest time of a message in the network, in seconds. 0: each arrives in the next turn of the loop.
    latency: float = 0.0
    #: Whether messages arrive in pieces.
    in_pieces: bool = False

    @property
    def is_stored(self) -> bool:
        """Whether a restart keeps what was answered."""
        return self.store != "memory"


def draw_setup(seed: int) -> Setup:
    """The service of a seed."""
    chance = random.Random(f"setup {seed}")
    instances = chance.choice((1, 1, 2, 3))
    is_stored = instances > 1 or chance.random() < 0.5
    is_troubled = chance.random() < 0.6
    latency = chance.choice((0.0, 0.0, 0.01, 0.05))
    # Each piece takes the time of a message: many of them would make every answer slow.
    in_pieces = not latency and chance.random() < 0.5
    if is_stored and chance.random() < 0.5:
        has_replica = is_troubled and chance.random() < 0.4
        return Setup(instances, "valkey", is_troubled, has_replica, latency, in_pieces)
    return Setup(instances, "file" if is_stored else "memory", is_troubled, False, latency, in_pieces)


def draw_history(seed: int, steps: int) -> list[Step]:
    """The steps of a seed."""
    chance, setup = random.Random(seed), draw_setup(seed)
    kinds = [*_KINDS, *(_TROUBLES + _TROUBLES_OF_STORE[setup.store] if setup.is_troubled else ())]
    # Each seed prefers some kinds.
    weights = [base * chance.choice((0.2, 1.0, 3.0)) for _, base in kinds]
    return [_DRAW[kind](chance) for kind in chance.choices([kind for kind, _ in kinds], weights, k=steps)]


def _pick_name(chance: random.Random) -> str:
    if chance.random() < 0.7:
        return NAMES[min(int(chance.expovariate(0.1)), len(NAMES) - 1)]
    return chance.choice(ALL)


def _pause(chance: random.Random) -> float:
    return chance.choice((0.0, chance.uniform(0, 0.2), chance.uniform(0, 2)))


def _ask(chance: random.Random) -> Step:
    """Clients send requests; some go away before their answer, some with a directive of Cache-Control."""
    requests = [
        Request(
            chance.randrange(CLIENTS),
            _pick_name(chance),
            chance.uniform(0, 5) if chance.random() < 0.05 else None,
            chance.choice(_DIRECTIVES) if chance.random() < 0.05 else None,
            chance.choice(("/{}", "/{}", "/api/handles/{}", "/{}?noredirect")),
        )
        for _ in range(chance.choice((1, 10, 40, 150)))
    ]
    return Step("ask", _pause(chance), {"requests": requests})


def _stampede(chance: random.Random) -> Step:
    name = _pick_name(chance)
    requests = [Request(client, name) for client in range(CLIENTS) for _ in range(3)]
    return Step("ask", _pause(chance), {"requests": requests})


def _crawl(chance: random.Random) -> Step:
    """Some clients ask for many names at once, most of them for the first time."""
    requests = [Request(chance.randrange(3), chance.choice(ALL)) for _ in range(chance.choice((30, 100, 200)))]
    return Step("ask", _pause(chance), {"requests": requests})


def _list(chance: random.Random) -> Step:
    """A program sends a list: some of its names are those of people, others new, one is not a name."""
    first = chance.randrange(len(NAMES))
    new = chance.randrange(len(LISTED))
    names = [*NAMES[first : first + chance.choice((3, 20, 60))], *(_pick_name(chance) for _ in range(5)), NOT_A_NAME]
    names += LISTED[new : new + chance.choice((0, 20, 60))]
    chance.shuffle(names)
    leaves_after = chance.uniform(0, 10) if chance.random() < 0.1 else None
    more = {"instance": chance.randrange(12), "names": names, "leaves_after": leaves_after}
    return Step("list", _pause(chance), more)


def _rename(chance: random.Random) -> Step:
    """A name for which another one stands gets another target, or none; clients ask for both, before and after."""
    number = chance.randrange(len(ALIASES))
    pair = (NAMES[number], ALIASES[number])
    asked = [Request(chance.randrange(CLIENTS), name) for name in pair for _ in range(4)]
    return Step(
        "rename", _pause(chance), {"name": NAMES[number], "ttl": chance.choice((None, 30, 300)), "requests": asked}
    )


def _purge(chance: random.Random) -> Step:
    """An operator purges a name, perhaps while queries about it are under way."""
    name, instance = _pick_name(chance), chance.randrange(12)
    requests = [Request(chance.randrange(CLIENTS), name) for _ in range(chance.choice((0, 3, 6)))]
    more = {"name": name, "instance": instance, "delay": chance.choice((0.0, 0.3, 2.0)), "requests": requests}
    return Step("purge", _pause(chance), more)


def _storm(chance: random.Random) -> Step:
    """The upstream fails for all names, and clients ask for so many new ones that each breaker opens."""
    names = chance.sample(NAMES + UNKNOWN, 120)
    requests = [Request(number % CLIENTS, name) for number, name in enumerate(names)]
    kind, options = chance.choice((("reset", {}), ("close", {}), ("status", {"status": 500})))
    return Step("storm", chance.uniform(0, 20), {"kind": kind, "options": options, "requests": requests})


def _fail(chance: random.Random) -> Step:
    name = chance.choice(("", "", _pick_name(chance)))
    kind = chance.choice((*_FAULTS, "delay", "delay", "status", "status", "denies", "denies"))
    options: dict[str, Any] = {}
    if kind == "delay":
        options = {"seconds": chance.choice((0.3, 2.5, 6.0))}
    elif kind == "status":
        options = {"status": chance.choice((403, 404, 429, 500, 503))}
        if chance.random() < 0.7:
            options["retry_after"] = chance.choice((1, 5, 40))
    count = 1 if kind == "denies" else chance.choice((None, None, 1, 5))
    return Step("fail", _pause(chance), {"name": name, "kind": kind, "count": count, "options": options})


def _draw_turns(chance: random.Random) -> int:
    return int(chance.choice((0, chance.uniform(0, 30), chance.uniform(0, 300))))


#: The proxies that a reload trusts. No client is one of them.
_PROXIES: Final = ("192.0.2.200", "192.0.2.200, 192.0.2.201")

_KINDS: Final = (
    ("ask", 10.0),
    ("stampede", 1.0),
    ("crawl", 1.0),
    ("fail", 1.5),
    ("heal", 2.0),
    ("change", 1.0),
    ("delete", 0.3),
    ("wait", 1.0),
    ("clock", 1.0),
    ("purge", 0.6),
    ("rename", 0.6),
    ("storm", 0.4),
    ("drop", 0.3),
    ("restart", 0.2),
    ("crash", 0.2),
    ("lock", 0.3),
    ("list", 1.0),
)
#: Of instances, clients and the operator.
_TROUBLES: Final = (
    ("kill", 0.6),
    ("cut", 0.3),
    ("skew", 0.3),
    ("reload", 0.4),
    ("move", 0.3),
    ("part", 0.5),
    ("churn", 0.6),
    ("crowd", 0.2),
    ("dawdle", 0.6),
    ("lie", 0.6),
)
_TROUBLES_OF_STORE: Final = {
    "memory": (),
    "file": (("lose", 0.3), ("fill", 0.4), ("damage", 0.2), ("unreadable", 0.4)),
    "valkey": (("valkey", 1.5),),
}


def _part(chance: random.Random) -> Step:
    """The upstream is wrong about some names, and right about the others."""
    names = [_pick_name(chance) for _ in range(chance.choice((3, 20, 60)))]
    kind = chance.choice(("wrong_name", "garbage", "redirect", "html", "code_2", "hang"))
    return Step("part", _pause(chance), {"names": names, "kind": kind})


def _valkey(chance: random.Random) -> Step:
    """The server of the store fails for some seconds, or its clock is set."""
    what = chance.choice(("stop", "lose", "hang", "slow", "full", "replica", "clock", "failover", "failover"))
    seconds = chance.choice((0.2, 1.5, 6.0, 20.0))
    # Before a failover, the replica misses what is written for so many seconds.
    amount = {"slow": (0.02, 0.3), "clock": (2.0, -2.0), "failover": (0.0, 0.5)}.get(what, (0.0,))
    return Step("valkey", _pause(chance), {"what": what, "seconds": seconds, "amount": chance.choice(amount)})


def _lie(chance: random.Random) -> Step:
    """A client says in its requests that they are those of others."""
    client = chance.randrange(CLIENTS)
    requests = [
        Request(client, _pick_name(chance), said_address=f"10.{chance.randrange(CLIENTS)}.0.1") for _ in range(30)
    ]
    return Step("ask", _pause(chance), {"requests": requests})


def _dawdle(chance: random.Random) -> Step:
    """Clients send a part of a request, and the rest later."""
    requests = [
        Request(chance.randrange(CLIENTS), _pick_name(chance), dawdles_for=chance.choice((0.1, 1.0, LONGEST_DAWDLE)))
        for _ in range(10)
    ]
    return Step("ask", _pause(chance), {"requests": requests})


_DRAW: Final[dict[str, Callable[[random.Random], Step]]] = {
    "ask": _ask,
    "stampede": _stampede,
    "crawl": _crawl,
    "fail": _fail,
    "heal": lambda chance: Step("heal", _pause(chance)),
    "change": lambda chance: Step("change", 0.0, {"name": chance.choice(NAMES + UNKNOWN), "ttl": chance.choice(_TTLS)}),
    "delete": lambda chance: Step("delete", 0.0, {"name": _pick_name(chance)}),
    "wait": lambda chance: Step("wait", chance.uniform(1, 20)),
    "clock": lambda chance: Step("clock", 0.0, {"by": chance.choice(_CLOCKS)}),
    "purge": _purge,
    "rename": _rename,
    "storm": _storm,
    "drop": lambda chance: Step("drop", 0.0),
    "restart": lambda chance: Step("restart", _pause(chance)),
    "crash": lambda chance: Step("crash", _pause(chance)),
    "kill": lambda chance: Step(
        "kill", _pause(chance), {"instance": chance.randrange(12), "turns": _draw_turns(chance)}
    ),
    "cut": lambda chance: Step(
        "cut",
        _pause(chance),
        {
            "instance": chance.randrange(12),
            "seconds": chance.choice((1.0, 6.0, 20.0)),
            "is_of_store": chance.random() < 0.5,
        },
    ),
    "skew": lambda chance: Step("skew", 0.0, {"instance": chance.randrange(12), "ahead": chance.uniform(-5, 5)}),
    "reload": lambda chance: Step("reload", _pause(chance), {"trusted": chance.choice(_PROXIES)}),
    "move": lambda chance: Step("move", _pause(chance), {"first": chance.randrange(100)}),
    "part": _part,
    "churn": lambda chance: Step("churn", _pause(chance), {"count": chance.choice((5, 50)), "host": "203.0.113.9"}),
    "crowd": lambda chance: Step("crowd", _pause(chance), {"instance": chance.randrange(12)}),
    "unreadable": lambda chance: Step("unreadable", _pause(chance), {"seconds": chance.choice((0.5, 3.0, 15.0))}),
    "dawdle": _dawdle,
    "lie": _lie,
    "lose": lambda chance: Step("lose", _pause(chance)),
    "fill": lambda chance: Step("fill", _pause(chance), {"seconds": chance.choice((0.5, 3.0, 15.0))}),
    "damage": lambda chance: Step("damage", _pause(chance), {"byte": chance.randrange(1_000_000)}),
    "valkey": _valkey,
    "list": _list,
    "lock": lambda chance: Step("lock", _pause(chance), {"seconds": chance.choice((0.5, 3.0, 15.0))}),
}
