"""Plays a history in a world. `tests/simulation/judge.py` judges what its clients and its upstream saw.

python -m tests.simulation --seed 7 --steps 400
"""

from __future__ import annotations

import gc
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from warnings import catch_warnings, simplefilter

from tests.fake_upstream import EVERY_NAME
from tests.simulation.bounds import Bounds
from tests.simulation.causes import AFTERMATH, BURST, PLACES, RATE
from tests.simulation.history import (
    ALIASES,
    ALL,
    CLIENTS,
    LISTED,
    LISTS_OF_CLIENT,
    LONGEST_DAWDLE,
    NAMES,
    PATIENT,
    NameList,
    Request,
    Setup,
    Step,
    draw_setup,
)
from tests.simulation.judge import ANNOUNCED, COOLDOWN, DEADLINE, FAILURES, MISSED, Broken, Judge
from tests.simulation.lists import ListJudge
from tests.simulation.troubles import WRITTEN_AFTER, Troubles
from tests.simulation.words import CEILING, GRACE, NEGATIVE, Told
from tests.world.answer import Reply
from tests.world.calls import SLOW, Calls
from tests.world.client import ORIGIN, Asked
from tests.world.valkey import URL
from tests.world.valkey_sentinel import SENTINEL_URL
from tests.world.world import World

#: Requests of one client at a time.
_MOST_OF_CLIENT: Final = 60
#: Seconds after which no failure is due to a fault that has ended: the longest pause, lock and memory of failures.
_RECOVERY: Final = AFTERMATH
#: Seconds between two requests of the patient client.
_PATIENCE: Final = 2.0
_TOKEN: Final = "a-token-of-the-simulation"
#: Of so many answers from the cache, one is asked for again.
_REPEATED: Final = 20
#: Names that are asked for after the last restart.
_MOST_RECALLED: Final = 100
#: Bytes of a message that arrives in pieces.
_PIECES: Final = (1, 7, 100, 1_000, 65_536)
_SETTINGS: Final[dict[str, Any]] = {
    "cache_ttl_ceiling": CEILING,
    "cache_negative_ttl": NEGATIVE,
    "cache_grace": GRACE,
    "upstream_rate": RATE,
    "upstream_burst": BURST,
    "upstream_max_concurrency": PLACES,
    "upstream_breaker_failures": FAILURES,
    "upstream_breaker_cooldown": COOLDOWN,
    "admin_token": _TOKEN,
    "public_url": ORIGIN,
    # SQLite would wait in real time for the lock of another process.
    "doi_proxy.features.sqlite.file.WRITE_TIMEOUT": 0.0,
    "doi_proxy.features.sqlite.rows.WRITE_TIMEOUT": 0.0,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulation came to."""

    answered: int
    digest: str
    statuses: Counter[int]
    queries: int
    #: The rows of lists by verdict, and what else happened.
    rows: Counter[str]
    happened: Counter[str]


def play(seed: int, steps: Sequence[Step], setup: Setup | None = None, calls: Calls | None = None) -> Outcome:
    """Play a history. The same seed and steps have the same outcome. Raises Broken.

    `setup` replaces that of the seed. One of the `calls` of its store goes wrong.
    """
    setup = setup or draw_setup(seed)
    try:
        return _play(seed, steps, setup, calls)
    finally:
        if setup.is_troubled:
            _discard()


def _discard() -> None:
    # Connections that were cut off are never closed. They warn of that now, not during another test.
    with catch_warnings():
        simplefilter("ignore", ResourceWarning)
        gc.collect()


def _play(seed: int, steps: Sequence[Step], setup: Setup, calls: Calls | None) -> Outcome:
    upstream = Told()
    with TemporaryDirectory() as folder:
        server = SENTINEL_URL if setup.has_replica else URL
        store = {"memory": "memory:", "file": _make_place(Path(folder)), "valkey": server}[setup.store]
        settings = {**_SETTINGS, **Bounds.settings(setup), "store_url": store}
        chance = random.Random(f"network {seed}")
        settings["latency"] = (lambda: chance.random() * setup.latency) if setup.latency else None
        with World(chance=seed, upstream=lambda: upstream, instances=setup.instances, **settings) as world:
            if setup.in_pieces:
                world.loop.network.read_size = lambda: chance.choice(_PIECES)
            upstream.world = world
            # What other instances spend is known after a query: those under way together can be too many.
            raced = PLACES if setup.store == "valkey" and setup.instances > 1 else 0
            has_all = setup.store != "file"
            judge = Judge(
                world,
                upstream,
                instances=setup.instances,
                memory_has_all=has_all,
                raced=raced,
                latency=setup.latency,
                looks_first=setup.store == "valkey",
            )
            upstream.listener, upstream.is_running = judge, True
            _put_all(upstream)
            bounds = Bounds(world, setup, judge.report)
            player = _Player(world, upstream, judge, setup)
            calls = calls or Calls(0, "fails")
            calls.on_trouble, calls.stand_still = player.miss_calls, world.loop.stand_still
            judge.stall = SLOW if calls.how == "takes 3 s" else 0.0
            try:
                with calls.counted():
                    for step in steps:
                        player.take(step)
                        bounds.check()
                        judge.check()
                player.end()
                bounds.check_end()
                judge.check()
            except Broken as broken:
                broken.steps = player.taken
                raise
            finally:
                upstream.is_running = False
            statuses, rows, happened = judge.statuses, judge.rows, judge.happened
            return Outcome(judge.answered, judge.digest, statuses, upstream.queries(), rows, happened)


def _make_place(folder: Path) -> str:
    """A store in a file, in a folder that is a link. See Troubles.unreadable."""
    (folder / "files").mkdir()
    (folder / "link").symlink_to(folder / "files")
    return f"sqlite:///{folder}/link/store.sqlite"


def _put_all(upstream: Told) -> None:
    for name in (*NAMES, *LISTED):
        upstream.put_version(name, 300)
    for number, name in enumerate(ALIASES):
        value = {"index": 1, "type": "HS_ALIAS", "ttl": 300, "data": {"format": "string", "value": NAMES[number]}}
        upstream.put(name, [value])


class _Player:
    def __init__(self, world: World, upstream: Told, judge: Judge, setup: Setup) -> None:
        self._world, self._upstream, self._judge, self._setup = world, upstream, judge, setup
        instances = range(setup.instances)
        self._clients = [world.client(f"10.{number}.0.1", number % setup.instances) for number in range(CLIENTS)]
        # The numbers of the clients of an instance are those of the instance, modulo the number of instances.
        first = -CLIENTS % setup.instances
        self._clients += [world.client("172.16.0.1", (number - first) % setup.instances) for number in instances]
        self._clients += [world.client("172.17.0.1", (number - first) % setup.instances) for number in instances]
        self._under_way: dict[Asked, Request | NameList] = {}
        self._busy = judge.busy
        self._lists = ListJudge(judge)
        self._troubles = Troubles(world, judge, setup, self._leave)
        self.taken = 0
        self._is_over = self._is_restarting = False
        self._repeatable = 0
        self._ask_patiently(0)

    def take(self, step: Step) -> None:
        """Take one step, and let its time pass."""
        self.taken += 1
        act = getattr(self, f"_{step.kind}", None) or getattr(self._troubles, step.kind)
        act(**step.more)
        self._world.sleep(step.seconds)

    def miss_calls(self) -> None:
        """A call of the store goes wrong."""
        self._judge.happened["trouble"] += 1
        self._troubles.miss_calls()

    def _ask_patiently(self, number: int) -> None:
        if not self._is_over:
            # Every other name is new.
            name = f"10.5555/new-{number}" if number % 2 else NAMES[number % len(NAMES)]
            if not self._is_restarting:
                self._ask([Request(PATIENT + number // 2 % self._setup.instances, name)])
            self._world.loop.call_later(_PATIENCE, self._ask_patiently, number + 1)

    def _ask(self, requests: Sequence[Request]) -> None:
        for request in requests:
            # A client with as many connections would be closed some of them.
            if self._busy[request.client] >= _MOST_OF_CLIENT:
                continue
            if request.directive is not None:
                self._judge.bypass(request.name)
            headers = {"cache_control": request.directive, "x_forwarded_for": request.said_address}
            self._send(
                request,
                request.path.format(request.name),
                {name: text for name, text in headers.items() if text is not None},
                pause=request.dawdles_for,
            )

    def _list(self, instance: int, names: Sequence[str], leaves_after: float | None) -> None:
        """A program sends a list of names."""
        sent = NameList(PATIENT + self._setup.instances + instance % self._setup.instances, names, leaves_after)
        if self._busy[sent.client] < LISTS_OF_CLIENT:
            self._judge.happened["list"] += 1
            lines, headers = "\n".join(names).encode(), {"content_type": "text/plain"}
            self._send(sent, "/api/resolve", headers, method="POST", body=lines)

    def _send(self, request: Request | NameList, path: str, headers: dict[str, str], **more: Any) -> None:
        """Send a request, unless no process listens: it was killed, and another one is starting."""
        with suppress(ConnectionRefusedError):
            asked = self._clients[request.client].ask(path, headers, **more)
            self._busy[request.client] += 1
            self._under_way[asked] = request
            asked.answer.add_done_callback(partial(self._settle, asked))
            if request.leaves_after is not None:
                self._world.loop.call_later(request.leaves_after, asked.cancel)

    def _settle(self, asked: Asked, _: object = None) -> None:
        """A request has ended, with an answer or without one."""
        if (request := self._under_way.pop(asked, None)) is not None:
            self._busy[request.client] -= 1
            if isinstance(request, NameList):
                self._lists.reply(request, asked.answer)
            else:
                self._judge.reply(request, asked.answer)
                self._repeat(request, asked.reply)

    def _repeat(self, request: Request, reply: Reply | None) -> None:
        """Send a request whose answer came from the cache once more, with a directive without a meaning."""
        is_plain = request.twin is None and request.directive is None and not request.dawdles_for
        if reply is None or not is_plain or "hit" not in (reply["cache-status"] or "") or self._is_over:
            return
        self._repeatable += 1
        if self._repeatable % _REPEATED == 0 and not self._is_restarting:
            self._judge.happened["twin"] += 1
            twin = request._replace(twin=reply, leaves_after=None)
            self._send(twin, request.path.format(request.name), {"cache_control": "x-twin"})

    def _fail(self, name: str, kind: str, count: int | None, options: dict[str, Any]) -> None:
        self._upstream.fault(name, kind, count=count, **options)

    def _heal(self) -> None:
        for name in (EVERY_NAME, *ALL):
            self._upstream.heal(name)

    def _change(self, name: str, ttl: int) -> None:
        self._upstream.put_version(name, ttl)

    def _delete(self, name: str) -> None:
        self._upstream.delete(name)

    def _rename(self, name: str, ttl: int | None, requests: Sequence[Request]) -> None:
        def ask() -> None:
            # What is known about the name, an answer to the alias depends on.
            for which in (True, False):
                self._ask([request for request in requests if (request.name == name) == which])
                self._world.sleep(ANNOUNCED + 1.0)

        self._upstream.put_version(name, 30 if ttl is None else 300)
        # What is known has ended by now.
        self._world.sleep(CEILING)
        ask()
        # By now, each answer can be a prepared one.
        ask()
        if ttl is None:
            self._upstream.delete(name)
        else:
            self._upstream.put_version(name, ttl)
            # One instance learns it while the others have a fresh record.
            self._world.sleep(30.0)
            self._ask([request._replace(directive="no-cache") for request in requests[:1]])
            self._world.sleep(1.0)
            ask()
        self._world.sleep(30.0)
        ask()
        ask()
        # Nobody asks for it while a "not found" lasts.
        self._world.sleep(NEGATIVE + DEADLINE)
        ask()

    def _storm(self, kind: str, options: dict[str, Any], requests: Sequence[Request]) -> None:
        self._upstream.fault(EVERY_NAME, kind, **options)
        self._ask(requests)
        self._world.sleep(COOLDOWN + 1.0)
        # The others come when it may be half open.
        self._ask(requests[::-1])

    def _wait(self) -> None:
        pass

    def _clock(self, by: float) -> None:
        # Answers that are on their way arrive before.
        self._world.sleep(0.001 + 20 * self._setup.latency)
        self._world.set_clock(by)
        self._judge.set_clock(by)

    def _purge(self, name: str, instance: int, delay: float, requests: Sequence[Request]) -> None:
        if delay:
            self._upstream.fault(name, "delay", count=1, seconds=delay)
        self._ask(requests)
        self._world.sleep(0.1)
        instance %= self._setup.instances
        body = json.dumps({"doi": name}).encode()
        headers = {"authorization": f"Bearer {_TOKEN}", "content_type": "application/json"}
        sent_at = self._world.loop.time()
        reply = None
        # The instance may be killed.
        with suppress(ConnectionError):
            client = self._world.client("127.0.0.1", instance)
            reply = self._world.finish(client.ask("/admin/purge", headers, method="POST", body=body))
            self._judge.happened["purge"] += 1
        self._judge.purge(name, sent_at, instance, reply)

    def _drop(self) -> None:
        self._upstream.drop_connections()

    def _restart(self) -> None:
        self._begin_anew(self._world.restart)

    def _crash(self) -> None:
        for instance in range(self._setup.instances):
            self._judge.kill(instance, is_stored=self._setup.is_stored)
        self._begin_anew(self._world.crash)

    def _begin_anew(self, start: Callable[[], None]) -> None:
        self._troubles.make_readable()
        self._leave()
        self._judge.stop_service()
        self._is_restarting = True
        start()
        self._is_restarting = False
        self._judge.start_service(is_stored=self._setup.is_stored)

    def _move(self, first: int) -> None:
        """The upstream is another one from now on: half of the names have other targets there."""
        self._restart()
        for name in NAMES[first % 2 :: 2]:
            self._upstream.put_version(name, 300)

    def _part(self, names: Sequence[str], kind: str) -> None:
        for name in names:
            self._upstream.fault(name, kind)

    def _leave(self, instance: int | None = None) -> None:
        """The clients, or those of one instance, go away: requests under way are not part of its end."""
        for asked, request in list(self._under_way.items()):
            if instance in (None, request.client % self._setup.instances):
                asked.cancel()
                # An answer that has arrived is older than the end of the instance.
                self._settle(asked)

    def _lock(self, seconds: float) -> None:
        """Another process holds the lock of the store's file."""
        if self._setup.store == "file" and self._judge.unwritten_since == inf:
            self._judge.begin_outage()
            connection = sqlite3.connect(self._world.store_path, isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
            self._world.loop.call_later(seconds, self._unlock, connection)

    def _unlock(self, connection: sqlite3.Connection) -> None:
        connection.close()
        self._world.loop.call_later(WRITTEN_AFTER, self._judge.end_outage)

    def end(self) -> None:
        """Let the upstream and the store work, and all requests end. Then nothing is left of what was wrong."""
        self._heal()
        self._world.sleep(_RECOVERY)
        self._is_over = True
        # The time of a request begins when the last part of its head has arrived.
        self._world.sleep(LONGEST_DAWDLE + DEADLINE + 1)
        for asked in self._under_way:
            self._judge.report("every request is answered within its deadline", f"{asked.target} has no answer")
        self._judge.check()
        clients = [self._world.client("127.0.0.1", instance) for instance in range(self._setup.instances)]
        statuses = [self._world.get("/status?format=json", client, host="localhost").json for client in clients]
        self._judge.incidents.judge_statuses(statuses)
        if self._setup.is_stored and self._judge.unwritten_since == inf:
            self._recall()

    def _recall(self) -> None:
        """After a restart without an upstream, the store has the newest of what every instance learned."""
        self._upstream.fault(EVERY_NAME, "reset")
        self._restart()
        # The start may find that the file is damaged.
        self._judge.check()
        learned = self._judge.list_learned()
        client = self._world.client("127.0.0.1", 0)
        for name, targets in list(learned.items())[:_MOST_RECALLED]:
            reply = self._world.get(f"/{name}", client)
            if reply.location not in targets:
                self._judge.report(MISSED, f"{name}: {reply.status} {reply.location} after a restart, not {targets}")
