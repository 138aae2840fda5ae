"""The published spike of the DOI system: a hundred times its mean load for ten seconds, on a sealed registry store."""

from __future__ import annotations

import asyncio
import os
import resource
from asyncio.subprocess import DEVNULL
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import unquote

import uvloop

from bench.connection import Connection
from bench.contestants import proxy_command
from bench.findings import Section, Table
from bench.large_import import import_tables, write_tables
from bench.loads import Latency, read_h2load
from bench.names import path_of, zipf
from bench.plan import Plan
from bench.registry_names import RegistryNames, url_of
from bench.scale import RESOLUTIONS_A_SECOND, SPIKE
from bench.servers import Server, served
from bench.tools import NotMeasured, need

#: Requests a second, and seconds. The spike of 2025-10-12 "lasted for only seconds".
_RATE: Final = round(RESOLUTIONS_A_SECOND * SPIKE / 1000) * 1000
_SECONDS: Final = 10
#: Generators with one connection each: all connections of one h2load send the same names at the same time.
_GENERATORS: Final = 16
_NUMBERS: Final = range(_GENERATORS)
_IN_FLIGHT: Final = 32
#: Requests a second whose answers are compared.
_CHECKED: Final = 100
_EXTRA_SECONDS: Final = 60.0


@dataclass(slots=True)
class Sample:
    """Answers that were compared with the record of their name."""

    checked: int = 0
    wrong: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Spike:
    """What came back, and the processor seconds of the server and of the generators."""

    latency: Latency
    sample: Sample
    server_cpu: float
    load_cpu: float


def spike(plan: Plan) -> tuple[Section, ...]:
    """Play the spike. Raises NotMeasured without h2load."""
    need("h2load")
    names = RegistryNames(plan.names, plan.spike_records)
    with TemporaryDirectory(dir=plan.folder) as folder:
        write_tables(Path(folder) / "tables", names)
        store = import_tables(Path(folder) / "tables", Path(folder) / "registry.sqlite3", names).path
        keys = [names.name(number) for number in range(names.records)]
        settings = {
            "DOI_PROXY_MODE": "sealed",
            "DOI_PROXY_STORE_URL": f"sqlite:///{store}",
        }
        with served(proxy_command, environment=settings, path=path_of(keys[0])) as server:
            found = uvloop.run(_play(server, keys, plan.zipf_exponent, Path(folder)))
    return (_section(plan, found),)


async def _play(server: Server, keys: Sequence[str], exponent: float, folder: Path) -> Spike:
    drawn = zipf(keys, _RATE * _SECONDS, exponent)
    lists = [_write_requests(folder / f"{number}.txt", server, drawn[number::_GENERATORS]) for number in _NUMBERS]
    sample = Sample()
    server_cpu, load_cpu = server.cpu(), _generators_cpu()
    checking = asyncio.create_task(_compare(server, drawn, sample))
    running = [await asyncio.create_subprocess_exec(*_generator(file), stdout=DEVNULL) for file in lists]
    try:
        async with asyncio.timeout(_SECONDS + _EXTRA_SECONDS):
            codes = [await process.wait() for process in running]
    except TimeoutError as error:
        for process in running:
            with suppress(ProcessLookupError):
                process.kill()
        raise NotMeasured("not measured: h2load did not end in time") from error
    finally:
        checking.cancel()
    if any(codes):
        raise NotMeasured(f"not measured: h2load ended with status {max(codes)}")
    server_cpu, load_cpu = server.cpu() - server_cpu, _generators_cpu() - load_cpu
    with ExitStack() as stack:
        logs = [stack.enter_context(file.with_suffix(".log").open(encoding="ascii")) for file in lists]
        latency = read_h2load(chain.from_iterable(logs), _SECONDS)
    return Spike(latency, sample, server_cpu, load_cpu)


def _write_requests(file: Path, server: Server, names: Sequence[str]) -> Path:
    file.write_text("".join(f"{server.url}{path_of(name)}\n" for name in names), encoding="ascii")
    return file


def _generator(file: Path) -> list[str]:
    options = ["--h1", "-c1", f"-m{_IN_FLIGHT}", f"-D{_SECONDS}", f"--rps={_RATE // _GENERATORS}"]
    return ["h2load", *options, f"--input-file={file}", f"--log-file={file.with_suffix('.log')}"]


def _generators_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _compare(server: Server, names: Sequence[str], sample: Sample) -> None:
    """Request some of the names over one connection during the spike, and compare each answer with its record."""
    connection = Connection(server.port)
    try:
        for name in names[:: _RATE // _CHECKED]:
            answer = await connection.ask(path_of(name))
            sample.checked += 1
            if answer is None or answer.status != 302:
                sample.refused += 1
            else:
                sample.wrong += unquote(answer.location) != unquote(url_of(name))
            await asyncio.sleep(1 / _CHECKED)
    finally:
        connection.close()


def _section(plan: Plan, found: Spike) -> Section:
    cores, got, sample = os.cpu_count() or 1, found.latency, found.sample
    answered = round(got.rate * _SECONDS)
    rows = (
        ("requests a second: wanted", f"{_RATE:,}"),
        ("requests a second: answered", f"{got.rate:,.0f}"),
        ("refused or failed, of all answers", f"{got.failed:,} of {answered:,}"),
        ("wrong, of the answers that were compared", f"{sample.wrong:,} of {sample.checked:,}"),
        ("refused, of the answers that were compared", f"{sample.refused:,} of {sample.checked:,}"),
        ("p50", f"{got.p50 * 1000:.1f} ms"),
        ("p99", f"{got.p99 * 1000:.1f} ms"),
        ("processor time of an answer", f"{found.server_cpu / answered * 1e6:.1f} µs"),
        (f"the generators' share of the {cores} cores", f"{found.load_cpu / cores / _SECONDS:.0%}"),
        (f"the proxy's share of the {cores} cores", f"{found.server_cpu / cores / _SECONDS:.0%}"),
    )
    method = (
        f"{_RATE:,} requests a second for {_SECONDS} s, a hundred times the published mean, by {_GENERATORS} processes "
        f"of h2load, each with up to {_IN_FLIGHT} requests in flight. The names are drawn by Zipf "
        f"{plan.zipf_exponent:g} "
        f"from {plan.spike_records:,} registry names of a sealed proxy that has just started. All "
        "processes share the same cores. One connection compares its answers with the imported records. The rate is a "
        "goal, not a test."
    )
    return Section("Spike", method, (Table(("Spike", "measured"), rows),))
