"""Two instances on one socket: one of them is ended by SIGTERM, SIGKILL and SIGSTOP while clients send requests.

In place of systemd, a stand-in holds the socket, reads the notifications, ends an instance that hangs, and starts each
one again.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.processes import ROOT, START_DEADLINE, until
from tests.cluster.raw_http import ask
from tests.server.test_socket_activation import SYSTEMD

pytestmark = [pytest.mark.process, pytest.mark.anyio]

#: Seconds without a notification after which an instance hangs. A busy machine delays none of the three for so long.
WATCHDOG: Final = 10.0
CLIENTS: Final = 4


class Instance:
    """One instance, which is started again whenever it ends."""

    def __init__(self, folder: Path, name: str, listening: socket.socket) -> None:
        self.log = folder / f"{name}.log"
        self.starts = 0
        self._listening = listening
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.setblocking(False)
        self._notify.bind(str(folder / f"{name}.notify"))
        self._process: asyncio.subprocess.Process | None = None
        self._variables = {
            "DOI_PROXY_MODE": "sealed",
            "DOI_PROXY_STORE_URL": f"sqlite:///{folder}/store.sqlite3",
            "NOTIFY_SOCKET": str(folder / f"{name}.notify"),
            "WATCHDOG_USEC": str(int(WATCHDOG * 1e6)),
            "PYTHONPATH": str(ROOT / "app"),
        }

    async def keep(self) -> None:
        """Start the instance, and start it again after its end, until this task is cancelled."""
        with self._notify:
            await self._keep()

    async def _keep(self) -> None:
        descriptor = self._listening.fileno()
        command = [sys.executable, "-c", SYSTEMD, str(descriptor), sys.executable, "-m", "doi_proxy", "serve"]
        while True:
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *command, env=self._variables, stdout=log, stderr=log, pass_fds=[descriptor]
                )
            try:
                await self._watch(self._process)
            finally:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Read notifications until the process has ended. One that hangs gets SIGABRT, and goes on to receive it."""
        ended = asyncio.create_task(process.wait())
        timeout = None
        while not ended.done():
            message = asyncio.create_task(asyncio.get_running_loop().sock_recv(self._notify, 4096))
            try:
                done, _ = await asyncio.wait({ended, message}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                message.cancel()
            if message in done:
                timeout = WATCHDOG
                self.starts += message.result().startswith(b"READY=1")
            elif not done:
                self.send(signal.SIGABRT)
                self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process that runs."""
        assert self._process is not None
        self._process.send_signal(number)


class Service:
    """Two instances on one socket, and clients that send requests without a pause."""

    def __init__(self, folder: Path, listening: socket.socket) -> None:
        self.first, self.second = (Instance(folder, name, listening) for name in ("1", "2"))
        self.answers = 0
        self.failures: list[Exception] = []
        self._port = listening.getsockname()[1]

    async def request(self) -> None:
        """Send one request after the other, each on a connection of its own."""
        while True:
            try:
                self.answers += (await ask(self._port, "/healthz")).status == 200
            except (OSError, EOFError) as error:
                self.failures.append(error)

    async def answers_more(self) -> None:
        """Wait for 200 more answers."""
        wanted = self.answers + 200

        async def found() -> bool:
            return self.answers >= wanted

        await until(found, START_DEADLINE, "200 answers")

    async def starts(self, instance: Instance, count: int) -> None:
        """Wait until an instance is ready for this time."""

        async def found() -> bool:
            return instance.starts >= count

        await until(found, START_DEADLINE, f"start {count}")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path) as service:
        yield service


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Service]:
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        service = Service(folder, listening)
        tasks = [asyncio.create_task(instance.keep()) for instance in (service.first, service.second)]
        try:
            for instance in (service.first, service.second):
                await service.starts(instance, 1)
            tasks += [asyncio.create_task(service.request()) for _ in range(CLIENTS)]
            await service.answers_more()
            yield service
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_instance_that_is_stopped_fails_no_request_and_serves_again(service: Service) -> None:
    service.first.send(signal.SIGTERM)
    await service.answers_more()
    await service.starts(service.first, 2)
    await service.answers_more()
    assert service.failures == []


async def test_an_instance_that_is_killed_fails_its_own_open_requests_and_serves_again(service: Service) -> None:
    service.first.send(signal.SIGKILL)
    await service.answers_more()
    await service.starts(service.first, 2)
    await service.answers_more()
    assert len(service.failures) <= CLIENTS


async def test_an_instance_that_hangs_is_ended_with_its_stack_in_the_log_and_serves_again(service: Service) -> None:
    service.first.send(signal.SIGSTOP)
    await service.starts(service.first, 2)
    await service.answers_more()
    assert len(service.failures) <= CLIENTS
    assert "Fatal Python error: Aborted" in service.first.log.read_text()
    assert service.second.starts == 1
