"""Real processes: proxies and the fake upstream. Each binds port 0 of 127.0.0.1, and is ended by its id."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from doi_names.name import fold
from tests.cluster.raw_http import Answered, ask
from tests.constants import RECHECK, STORE_TIMEOUT, command, split

ROOT: Final = Path(__file__).resolve().parents[2]
#: Seconds until a process answers, on a busy machine.
START_DEADLINE: Final = 300.0
#: Seconds until a process has ended after SIGTERM.
STOP_DEADLINE: Final = 120.0
#: For proxies whose Valkey server does not end: longer than any of them stands still on a busy machine. After the usual
#: 0.1 s a store counts as failed, and a test that counts queries fails.
PATIENT: Final[dict[str, object]] = {STORE_TIMEOUT: 30.0}
_LOOK_EVERY: Final = 0.02
#: What a proxy logs, or an upstream prints, when it has bound its port.
_ADDRESS: Final = re.compile(r"(?:^|(?:starting|running) on )https?://[^\s\"]*:(\d+)", re.MULTILINE)
_numbers: Final = count()
#: Neither budget nor breaker is in the way.
_OUT_OF_THE_WAY: Final[dict[str, object]] = {
    "upstream_contact": "mailto:library@example.org",
    "upstream_rate": 1_000_000,
    "upstream_burst": 1_000_000,
    "upstream_breaker_failures": 1_000_000,
    RECHECK: 0,
}
#: A value of a record with the target `url`.
_VALUE: Final = {"index": 1, "type": "URL", "ttl": 86400, "timestamp": "2024-01-01T00:00:00Z"}


async def until(look: Callable[[], Awaitable[bool]], seconds: float, what: str) -> float:
    """Wait until the condition holds. Returns the seconds that passed. Raises AssertionError after `seconds`."""
    began = time.monotonic()
    while not await look():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        await asyncio.sleep(_LOOK_EVERY)
    return time.monotonic() - began


class Process:
    """One process in its own session, so its children can be ended with it."""

    def __init__(
        self,
        arguments: list[str],
        log: Path,
        environment: dict[str, str] | None = None,
        *,
        folder: Path = ROOT,
        descriptors: Sequence[int] = (),
    ) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                env={**inherited, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=descriptors,
            )

    @property
    def log(self) -> str:
        """The end of the process's output."""
        return self.read_log()[-4000:]

    def read_log(self) -> str:
        """All of its output."""
        return self._log.read_text("utf-8", "replace")

    def count(self, text: str) -> int:
        """How often its output has the text."""
        return self.read_log().count(text)

    def read_port(self) -> int:
        """Wait until the process has written its address, and return the port."""
        ends = time.monotonic() + START_DEADLINE
        while (found := _ADDRESS.search(self.read_log())) is None:
            assert self.runs and time.monotonic() < ends, f"no address in the log: {self.log}"
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_EVERY)
        return int(found[1])

    @property
    def runs(self) -> bool:
        """Whether the process is still running."""
        return self._process.poll() is None

    @property
    def id(self) -> int:
        """The id of the process."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal only to this process."""
        self._process.send_signal(number)

    def ended(self) -> int:
        """The exit status. Raises AssertionError if the process does not end in time."""
        try:
            return self._process.wait(STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {STOP_DEADLINE} s: {self.log}") from None

    def kill(self) -> None:
        """Kill the process and its children, as a power cut would."""
        if self.runs:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_DEADLINE)

    def terminate(self) -> float:
        """Send SIGTERM. Returns the seconds until the end. Raises AssertionError if it does not end in time."""
        began = time.monotonic()
        self._process.terminate()
        try:
            self._process.wait(STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {STOP_DEADLINE} s of SIGTERM: {self.log}") from None
        return time.monotonic() - began


class Proxy:
    """`doi-proxy serve`. `settings` can have constants too.

    As a context, it waits until the proxy answers, and kills it at the end.
    """

    def __init__(self, folder: Path, upstream_url: str, store_url: str, **settings: object) -> None:
        self._port = 0
        self._log = folder / f"proxy-{next(_numbers)}.log"
        self._settings = {"upstream_url": upstream_url, "store_url": store_url, **settings}
        self.process = self._started()

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process.kill()

    def _started(self) -> Process:
        constants, settings = split(self._settings)
        given = {f"DOI_PROXY_{name.upper()}": str(value) for name, value in settings.items()}
        host = str(self._settings.get("host", "127.0.0.1"))
        arguments = [*command(constants), "serve", "--host", host, "--port", str(self._port)]
        return Process(arguments, self._log, given)

    @property
    def port(self) -> int:
        """The port that it got at its first start."""
        self._port = self._port or self.process.read_port()
        return self._port

    async def serves(self) -> None:
        """Wait until it answers, by its log: for a proxy that does not answer plain HTTP on its port."""

        async def is_logged() -> bool:
            assert self.process.runs, self.process.log
            return "serving on" in self.process.log

        await until(is_logged, START_DEADLINE, "'serving on' in the log")

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"

    def restart(self) -> None:
        """Start again after an end, with the same settings on the same port."""
        if not str(self._settings.get("host", "")).startswith("unix:"):
            assert self.port
        self.process = self._started()

    async def ready(self) -> None:
        """Wait until it answers."""
        await until(self._answers, START_DEADLINE, f"{self.url} answers: {self.process.log}")

    async def _answers(self) -> bool:
        assert self.process.runs, self.process.log
        try:
            return (await ask(self.port, "/healthz", deadline=5.0)).status == 200
        except (OSError, EOFError, TimeoutError):
            return False

    async def ask(self, target: str, **more: Any) -> Answered:
        """Send a request; see raw_http.ask."""
        return await ask(self.port, target, **more)


@asynccontextmanager
async def proxy_before(upstream_url: str, **more: object) -> AsyncIterator[str]:
    """The base URL of a proxy with this upstream. `more` are settings and constants. Its log may have no traceback."""
    with TemporaryDirectory() as folder:
        proxy = Proxy(Path(folder), upstream_url, "memory:", **{**_OUT_OF_THE_WAY, **more})
        try:
            await proxy.ready()
            yield proxy.url
            await asyncio.to_thread(proxy.process.terminate)
        finally:
            proxy.process.kill()
            assert not proxy.process.count("Traceback"), proxy.process.log


class UpstreamProcess:
    """`python -m tests.fake_upstream` with the records of a file."""

    def __init__(self, folder: Path, records: dict[str, str], *, ttls: dict[str, int] | None = None) -> None:
        """`records` has URLs by name. `ttls` has seconds by name, if they differ from a day."""
        self._port, number = 0, next(_numbers)
        self._log = folder / f"upstream-{number}.log"
        self._file = folder / f"records-{number}.ndjson"
        self._ttls = ttls or {}
        self.process = self._started(records)

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process.kill()

    def _started(self, records: dict[str, str] | None) -> Process:
        if records is not None:
            lines = (json.dumps(record(name, url, self._ttls.get(name, 86400))) for name, url in records.items())
            self._file.write_text("\n".join(lines), encoding="utf-8")
        arguments = [sys.executable, "-m", "tests.fake_upstream", "--port", str(self._port), "--records"]
        return Process([*arguments, str(self._file)], self._log)

    @property
    def port(self) -> int:
        """The port that it got at its first start."""
        self._port = self._port or self.process.read_port()
        return self._port

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"

    def restart(self, records: dict[str, str] | None = None) -> None:
        """Start again after an end, on the same port, with the same records or others."""
        assert self.port
        self.process = self._started(records)

    async def ready(self) -> None:
        """Wait until it answers."""
        await until(self._answers, START_DEADLINE, f"{self.url} answers: {self.process.log}")

    async def _answers(self) -> bool:
        assert self.process.runs, self.process.log
        try:
            return bool(await self.counts() is not None)
        except (OSError, EOFError, TimeoutError):
            return False

    async def counts(self) -> dict[str, Any]:
        """What was asked since the last reset: `asked`, `by_name`, `max_in_flight`."""
        counts: dict[str, Any] = (await ask(self.port, "/control/counts")).json
        return counts

    async def queries(self, name: str) -> int:
        """The number of queries for a name."""
        return int((await self.counts())["by_name"].get(fold(name), 0))

    async def tell(self, what: str, **body: object) -> None:
        """Send it a control message: put, fault, reset."""
        assert (await ask(self.port, f"/control/{what}", method="POST", body=json.dumps(body).encode())).status == 200

    async def put(self, name: str, url: str, ttl: int = 86400) -> None:
        """Register a name."""
        await self.tell("put", **record(name, url, ttl))


def record(name: str, url: str, ttl: int = 86400) -> dict[str, Any]:
    """A handle with one URL value."""
    return {"handle": name, "values": [{**_VALUE, "ttl": ttl, "data": {"format": "string", "value": url}}]}
