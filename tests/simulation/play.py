"""Plays a history in a world. `tests/simulation/judge.py` judges what its clients and its upstream saw.

python -m tests.simulation --seed 7 --steps 400
"""

from __future__ import annotations

import gc
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from warnings import catch_warnings, simplefilter

from doi_proxy.features.valkey.scripts import SETTLING
from tests.fake_upstream import EVERY_NAME
from tests.simulation.bounds import Bounds
from tests.simulation.causes import AFTERMATH, BURST, PLACES, RATE
from tests.simulation.history import (
    ALIASES,
    ALL,
    CLIENTS,
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
from tests.simulation.judge import (
    CEILING,
    DEADLINE,
    GRACE,
    NEGATIVE,
    Broken,
    Judge,
    Told,
)
from tests.simulation.lists import ListJudge
from tests.simulation.troubles import WRITTEN_AFTER, Troubles
from tests.world.client import Asked
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
_SETTINGS: Final[dict[str, Any]] = {
    "cache_ttl_ceiling": CEILING,
    "cache_negative_ttl": NEGATIVE,
    "cache_grace": GRACE,
    "upstream_rate": RATE,
    "upstream_burst": BURST,
    "upstream_max_concurrency": PLACES,
    "admin_token": _TOKEN,
    # In virtual time, no turn takes any.
    "doi_proxy.features.metrics.event_loop.SAMPLE_INTERVAL": 10.0,
    # SQLite would wait in real time for the lock of another process.
    "doi_proxy.features.sqlite.file.WRITE_TIMEOUT": 0.0,
    "doi_proxy.features.sqlite.notes.WRITE_TIMEOUT": 0.0,
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


def play(seed: int, steps: Sequence[Step]) -> Outcome:
    """Play a history. The same seed and steps have the same outcome. Raises Broken."""
    try:
        return _play(seed, steps)
    finally:
        if draw_setup(seed).is_troubled:
            _discard()


def _discard() -> None:
    # Connections that were cut off are never closed. They warn of that now, not during another test.
    with catch_warnings():
        simplefilter("ignore", ResourceWarning)
        gc.collect()


def _play(seed: int, steps: Sequence[Step]) -> Outcome:
    setup, upstream = draw_setup(seed), Told()
    with TemporaryDirectory() as folder:
        server = SENTINEL_URL if setup.has_replica else URL
        store = {"memory": "memory:", "file": _make_place(Path(folder)), "valkey": server}[setup.store]
        settings = {**_SETTINGS, **Bounds.settings(setup), "store_url": store, "workers": setup.workers}
        with World(chance=seed, upstream=lambda: upstream, machines=setup.machines, **settings) as world:
            upstream.world = world
            judge = Judge(
                world,
                upstream,
                workers=setup.processes,
                memory_has_all=setup.store != "file",
            )
            if setup.store == "valkey":
                # The server begins to count the tokens.
                judge.causes.doubt(SETTLING)
            upstream.judge, upstream.is_running = judge, True
            _put_all(upstream)
            bounds = Bounds(world, setup, judge.report)
            player = _Player(world, upstream, judge, setup)
            try:
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
    for name in NAMES:
        _put(upstream, name, 300)
    for number, name in enumerate(ALIASES):
        value = {"index": 1, "type": "HS_ALIAS", "ttl": 300, "data": {"format": "string", "value": NAMES[number]}}
        upstream.put(name, [value])


def _put(upstream: Told, name: str, ttl: int) -> None:
    version = upstream.versions[name] = upstream.versions.get(name, 0) + 1
    upstream.put(name, url=f"https://example.org/{name}/{version}", ttl=ttl)


class _Player:
    def __init__(self, world: World, upstream: Told, judge: Judge, setup: Setup) -> None:
        self._world, self._upstream, self._judge, self._setup = world, upstream, judge, setup
        self._clients = [world.client(f"10.{number}.0.1", number % setup.processes) for number in range(CLIENTS)]
        self._clients += [world.client("172.16.0.1", worker) for worker in range(setup.processes)]
        self._clients += [world.client("172.17.0.1", worker) for worker in range(setup.processes)]
        self._under_way: dict[Asked, Request | NameList] = {}
        self._busy = judge.busy
        self._lists = ListJudge(judge)
        self._troubles = Troubles(world, judge, setup, self._leave)
        self.taken = 0
        self._is_over = self._is_restarting = False
        self._ask_patiently(0)

    def take(self, step: Step) -> None:
        """Take one step, and let its time pass."""
        self.taken += 1
        act = getattr(self, f"_{step.kind}", None) or getattr(self._troubles, step.kind)
        act(**step.more)
        self._world.sleep(step.seconds)

    def _ask_patiently(self, number: int) -> None:
        if not self._is_over:
            # Every other name is new.
            name = f"10.5555/new-{number}" if number % 2 else NAMES[number % len(NAMES)]
            if not self._is_restarting:
                self._ask([Request(PATIENT + number // 2 % self._setup.processes, name)])
            self._world.loop.call_later(_PATIENCE, self._ask_patiently, number + 1)

    def _ask(self, requests: Sequence[Request]) -> None:
        for request in requests:
            # A client with as many connections would be closed some of them.
            if self._busy[request.client] >= _MOST_OF_CLIENT:
                continue
            headers = {"cache_control": request.directive, "x_forwarded_for": request.said_address}
            self._send(
                request,
                request.path.format(request.name),
                {name: text for name, text in headers.items() if text is not None},
                pause=request.dawdles_for,
            )

    def _list(self, worker: int, names: Sequence[str], leaves_after: float | None) -> None:
        """A program sends a list of names."""
        sent = NameList(PATIENT + self._setup.processes + worker % self._setup.processes, names, leaves_after)
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

    def _fail(self, name: str, kind: str, count: int | None, options: dict[str, Any]) -> None:
        self._upstream.fault(name, kind, count=count, **options)

    def _heal(self) -> None:
        for name in (EVERY_NAME, *ALL):
            self._upstream.heal(name)

    def _change(self, name: str, ttl: int) -> None:
        _put(self._upstream, name, ttl)

    def _delete(self, name: str) -> None:
        self._upstream.delete(name)

    def _wait(self) -> None:
        pass

    def _clock(self, by: float) -> None:
        # Answers that are on their way arrive before.
        self._world.sleep(0.001)
        self._world.set_clock(by)
        self._judge.set_clock(by)
        if self._setup.store == "valkey":
            self._judge.set_server_clock(by)

    def _purge(self, name: str) -> None:
        self._judge.forget(name)
        body = json.dumps({"name": name}).encode()
        headers = {"authorization": f"Bearer {_TOKEN}", "content_type": "application/json"}
        # The worker may be killed.
        with suppress(ConnectionError):
            self._world.finish(self._clients[0].ask("/admin/purge", headers, method="POST", body=body))
        self._judge.forget(name)

    def _drop(self) -> None:
        self._upstream.drop_connections()

    def _restart(self) -> None:
        self._troubles.make_readable()
        self._leave()
        self._judge.stop_service()
        self._is_restarting = True
        self._world.restart()
        self._is_restarting = False
        self._judge.start_service()
        self._judge.end_memories()
        if not self._setup.is_stored or self._judge.unwritten_since < inf:
            self._judge.end_service(is_stored=self._setup.is_stored)

    def _crash(self) -> None:
        self._troubles.make_readable()
        self._leave()
        self._judge.end_service(is_stored=self._setup.is_stored)
        self._judge.stop_service()
        self._is_restarting = True
        self._world.crash()
        self._is_restarting = False
        self._judge.start_service()

    def _move(self, first: int) -> None:
        """The upstream is another one from now on: half of the names have other targets there."""
        self._restart()
        for name in NAMES[first % 2 :: 2]:
            _put(self._upstream, name, 300)

    def _part(self, names: Sequence[str], kind: str) -> None:
        for name in names:
            self._upstream.fault(name, kind)

    def _leave(self, worker: int | None = None) -> None:
        """The clients, or those of one worker, go away: requests under way are not part of its end."""
        for asked, request in list(self._under_way.items()):
            if worker in (None, request.client % self._setup.processes):
                asked.cancel()
                # An answer that has arrived is older than the end of the worker.
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
        clients = [
            self._world.client("127.0.0.1", machine * self._setup.workers) for machine in range(self._setup.machines)
        ]
        self._judge.incidents.judge_statuses(
            [self._world.get("/status?format=json", client, host="localhost").json for client in clients]
        )
