"""Load: wrk sends requests as fast as they are answered (closed loop), h2load at a fixed rate (open loop)."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.machine import pinned
from bench.rounds import percentile
from bench.tools import NotMeasured, need

CONNECTIONS: Final = 64
#: Few connections: with many, the requests of an open loop arrive in bursts.
OPEN_CONNECTIONS: Final = 16
#: The least seconds of an open loop: 99.9 % need many answers.
OPEN_SECONDS: Final = 4.0
#: Seconds that a load generator may take longer than the measurement.
_SLACK: Final = 30.0
_MAX_PASS: Final = 120.0
_IN_ADVANCE: Final = 16
_HERE: Final = Path(__file__).parent
_LINE: Final = re.compile(r"^BENCH (\d+) (\d+) (\d+) (\d+)$", re.MULTILINE)
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Throughput:
    """A closed loop: answers a second, and the number of requests that failed, and that got 4xx or 5xx."""

    rate: float
    requests: int
    broken: int
    refused: int

    @property
    def failed(self) -> int:
        """Requests without an answer, or with 4xx or 5xx."""
        return self.broken + self.refused


@dataclass(frozen=True, slots=True)
class Latency:
    """An open loop: answers a second, and the latency of each answer in seconds."""

    rate: float
    p50: float
    p99: float
    p999: float
    failed: int


def read_wrk(output: str) -> Throughput:
    """Parse the output of wrk. Raises NotMeasured."""
    found = _LINE.search(output)
    if found is None:
        raise NotMeasured(f"not measured: the output of wrk has no result: {output.strip()[-300:]!r}")
    requests, microseconds, broken, refused = map(int, found.groups())
    return Throughput(requests / max(microseconds, 1) * _MICROSECONDS, requests, broken, refused)


def closed_loop(
    url: str, seconds: float, cores: tuple[int, ...], arguments: Sequence[str] = (), headers: Sequence[str] = ()
) -> Throughput:
    """Request `url` for `seconds` with these headers. With `arguments`, those of load.lua, `url` is a base URL."""
    need("wrk")
    # wrk accepts one script, and whole seconds only.
    parts = (["load.lua"] if arguments else []) + ["done.lua"]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write("\n".join((_HERE / part).read_text(encoding="utf-8") for part in parts))
        script.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "-s", script.name]
        command += [*(f"-H{header}" for header in headers), url]
        return read_wrk(_output(pinned([*command, "--", *arguments], cores), seconds))


def each_once(base_url: str, paths: Sequence[str], cores: tuple[int, ...]) -> None:
    """Request every path once."""
    need("h2load")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as addresses:
        addresses.writelines(f"{base_url}{path}\n" for path in paths)
        addresses.flush()
        # Every connection of h2load begins at the start of the list, so there is only one, with pipelining.
        command = ["h2load", "--h1", "-c1", f"-m{_IN_ADVANCE}", f"-n{len(paths)}", "-i", addresses.name]
        _output(pinned(command, cores), _MAX_PASS)


def open_loop(url: str, rate: float, seconds: float, cores: tuple[int, ...]) -> Latency:
    """Send `rate` requests a second to `url`, whether earlier ones are answered or not."""
    need("h2load")
    each = max(1, round(rate / OPEN_CONNECTIONS))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "h2load.log"
        options = ["--h1", f"-c{OPEN_CONNECTIONS}", f"-D{max(1, round(seconds))}", "--warm-up-time=1", f"--rps={each}"]
        _output(pinned(["h2load", *options, f"--log-file={log}", url], cores), seconds)
        with log.open(encoding="ascii") as lines:
            return read_h2load(lines, max(1, round(seconds)))


def read_h2load(lines: Iterable[str], seconds: float) -> Latency:
    """Parse the log of h2load: start in microseconds, status, duration in microseconds. Raises NotMeasured."""
    taken: list[float] = []
    failed = 0
    for line in lines:
        _, status, microseconds = line.split("\t")
        failed += not 200 <= int(status) < 400
        taken.append(int(microseconds) / _MICROSECONDS)
    if not taken:
        raise NotMeasured("not measured: h2load logged no request")
    taken.sort()
    at = [percentile(taken, share) for share in (0.5, 0.99, 0.999)]
    return Latency(len(taken) / seconds, at[0], at[1], at[2], failed)


def _output(command: list[str], seconds: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _SLACK, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"not measured: {command[0]} did not end in time") from error
    if done.returncode:
        raise NotMeasured(f"not measured: {' '.join(command[:4])} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
