"""What a failure costs: a primary of the store is killed under load, and a process with a query under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.findings import Claim, Section, Table
from bench.plan import Plan
from tests.cluster import held_query
from tests.cluster.load import Load, Verdicts
from tests.cluster.processes import Proxy, UpstreamProcess, until
from tests.features.valkey.valkey_cluster import running_cluster
from tests.features.valkey.valkey_sentinel import running_sentinels
from tests.features.valkey.valkey_server import start_valkey

_REGISTERED: Final = {f"10.1234/known{number}": f"https://www.example.org/{number}" for number in range(60)}
#: Every third record has a TTL of a second, so it is fetched repeatedly.
_TTLS: Final = dict.fromkeys(list(_REGISTERED)[::3], 1)
_UNKNOWN: Final = [f"10.1234/unknown{number}" for number in range(20)]
_SETTINGS: Final[dict[str, object]] = {"cache_negative_ttl": 1, "instances": 2}
#: Answers before the kill, and after the recovery.
_ANSWERS: Final = 400
_PATIENCE: Final = 60.0
#: Seconds that another process may wait for a killed one.
_MAX_WAIT: Final = 2.0
_METHOD: Final = (
    "Two proxies share the store. A primary is killed while six callers ask for registered and for unknown names in"
    " turn; a third of the registered ones have a TTL of a second. *Replica* is the time until the servers have another"
    " primary, *proxies* until both proxies use it. The nodes of the cluster have `cluster-node-timeout 1500`, the"
    " Sentinels `down-after-milliseconds 1000`. For a killed process, the upstream holds a query, the process that"
    " sent it is killed, and a client requests the same name from another process. Times are medians, with the"
    " shortest and the longest."
)


@dataclass(frozen=True)
class _Store:
    """A store of which a primary can be killed. `wait` returns when its replica has taken over."""

    url: str
    kill: Callable[[], None]
    wait: Callable[[], float]


@contextmanager
def _cluster(folder: Path) -> Iterator[_Store]:
    with running_cluster(folder) as cluster:
        lost = cluster.primaries()[0]
        yield _Store(cluster.url, lost.kill, lambda: cluster.wait_for_failover(lost))


@contextmanager
def _sentinel(folder: Path) -> Iterator[_Store]:
    with running_sentinels(folder) as sentinels:
        yield _Store(sentinels.url, sentinels.primary.kill, sentinels.wait_for_failover)


_STORES: Final = {
    "cluster, three primaries and three replicas": _cluster,
    "Sentinel, one primary and one replica": _sentinel,
}


@dataclass(frozen=True, slots=True)
class _Failover:
    """The seconds until the replica took over and until each proxy used it, and the answers from the kill on."""

    replica: float
    proxies: float
    verdicts: Verdicts


def failover(plan: Plan) -> tuple[Section, ...]:
    """Both failures, `plan.few_rounds` times."""
    results = {label: [_run(_fail_over(opened)) for _ in range(plan.few_rounds)] for label, opened in _STORES.items()}
    waits = {label: [_run(measure()) for _ in range(plan.few_rounds)] for label, measure in _KILLED.items()}
    runs = [run for runs in results.values() for run in runs]
    claims = [
        Claim("wrong answers while a primary is killed", sum(len(run.verdicts.wrong) for run in runs), "<=", 0),
        Claim("false 404", sum(len(run.verdicts.false_not_found) for run in runs), "<=", 0),
        Claim("requests without an answer", sum(run.verdicts.no_answer.total() for run in runs), "<=", 0),
        Claim("wait for a killed process", max(map(max, waits.values())), "<=", _MAX_WAIT, " s"),
    ]
    return (
        Section(
            "Failures",
            _METHOD,
            tables=(
                Table(
                    ("a primary is killed", "replica", "proxies", "right", "503", "false 404", "wrong"),
                    tuple(_row(label, runs) for label, runs in results.items()),
                ),
                Table(
                    ("a process with a query under way is killed", "wait of another process"),
                    tuple((label, _spread(seconds)) for label, seconds in waits.items()),
                ),
            ),
            claims=tuple(claims),
        ),
    )


def _row(label: str, runs: list[_Failover]) -> tuple[str, ...]:
    verdicts = [run.verdicts for run in runs]
    return (
        label,
        _spread([run.replica for run in runs]),
        _spread([run.proxies for run in runs]),
        f"{sum(one.right for one in verdicts):,}",
        str(sum(one.could_not_verify.total() for one in verdicts)),
        str(sum(len(one.false_not_found) for one in verdicts)),
        str(sum(len(one.wrong) + len(one.other) for one in verdicts)),
    )


def _spread(seconds: list[float]) -> str:
    return f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def _run(work: Any) -> Any:
    return asyncio.run(work)


class _World(ExitStack):
    """A folder, an upstream and proxies; they end with the block."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(self.enter_context(TemporaryDirectory()))

    async def start_upstream(self, records: dict[str, str], **more: Any) -> UpstreamProcess:
        upstream = UpstreamProcess(self.folder, records, **more)
        self.callback(upstream.process.kill)
        await upstream.ready()
        return upstream

    async def start_proxy(self, upstream: UpstreamProcess, store: str, **settings: object) -> Proxy:
        proxy = Proxy(self.folder, upstream.url, store, **{"upstream_rate": 100_000, **settings})
        self.callback(proxy.process.kill)
        await proxy.ready()
        return proxy


async def _fail_over(opened: Callable[[Path], Any]) -> _Failover:
    with _World() as world:
        store: _Store = world.enter_context(opened(world.folder))
        upstream = await world.start_upstream(_REGISTERED, ttls=_TTLS)
        proxies = [await world.start_proxy(upstream, store.url, **_SETTINGS) for _ in range(2)]

        async def works() -> bool:
            answers: list[Any] = [(await proxy.ask("/readyz")).json for proxy in proxies]
            return all(answer["detail"]["store"] == "ok" for answer in answers)

        async with Load(proxies, _REGISTERED, _UNKNOWN) as load:
            load.phase("before")
            await load.answers(_ANSWERS)
            verdicts = load.phase("after the kill")
            store.kill()
            replica = asyncio.create_task(asyncio.to_thread(store.wait))
            began = time.monotonic()
            # Until the first command fails, the proxies have not noticed.
            await until(lambda: _negate(works), _PATIENCE, "the proxies notice the failure")
            await until(works, _PATIENCE, "the store works again")
            seconds = time.monotonic() - began
            await load.answers(_ANSWERS)
        return _Failover(await replica, seconds, verdicts)


async def _negate(condition: Callable[[], Any]) -> bool:
    return not await condition()


async def _kill_proxy() -> float:
    server = start_valkey()
    with _World() as world:
        world.callback(server.terminate)
        upstream = await world.start_upstream({held_query.NAME: held_query.URL})
        store, settings = f"valkey://127.0.0.1:{server.port}/0", held_query.SETTINGS
        holder, other = [await world.start_proxy(upstream, store, **settings) for _ in range(2)]
        lost = await held_query.begin_query(holder, upstream)
        holder.process.kill()
        return await _wait_for(other, lost)


async def _wait_for(other: Proxy, lost: asyncio.Task[Any]) -> float:
    with suppress(OSError, EOFError):
        await lost
    answer, seconds = await held_query.ask_another(other)
    if answer.location != held_query.URL:
        raise RuntimeError(f"the other process answered {answer.status} {answer.location}")
    return seconds


_KILLED: Final = {
    "Valkey, a proxy on another machine": _kill_proxy,
}
