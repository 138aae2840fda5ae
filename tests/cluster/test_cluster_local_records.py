"""A file of local records is changed, broken and mended under load in front of two workers; no answer is lost."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import Proxy, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.process]

NAME: Final = "10.5072/local"
REGISTERED: Final = "https://www.example.org/registered"
CALLERS: Final = 4
#: Requests after which a caller ends whatever happens.
MAX_REQUESTS: Final = 20_000
#: The latest answers that are compared, and questions after which both workers have most likely answered.
IN_A_ROW: Final = 20
PATIENCE: Final = 30.0


def write(path: Path, number: int) -> None:
    path.write_text(f'[[record]]\ndoi = "{NAME}"\ntarget = "https://www.example.org/{number}"\n')


class Callers:
    """Ask for one name all the time, and count where it leads; "lost" is no answer, or another one."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._ended = False
        self.seen: Counter[str] = Counter()
        self.latest: list[str] = []

    async def call(self) -> None:
        for _ in range(MAX_REQUESTS):
            if self._ended:
                return
            try:
                answer = await self._proxy.ask(f"/{NAME}")
                seen = str(answer.location) if answer.status == 302 else "lost"
            except (OSError, EOFError, TimeoutError):
                seen = "lost"
            self.seen[seen] += 1
            self.latest = [*self.latest[-IN_A_ROW + 1 :], seen]

    def end(self) -> None:
        self._ended = True

    async def lead_to(self, url: str, *, readings: int) -> None:
        """Wait until both workers have put the records in force that often, and answers lead to the URL."""

        async def lead() -> bool:
            # One worker alone can give all the latest answers.
            return self._proxy.process.count("are in force") >= 2 * readings and self.latest == [url] * IN_A_ROW

        await until(lead, PATIENCE, f"both workers lead to {url}")


async def states(proxy: Proxy) -> set[str]:
    found: list[dict[str, Any]] = [(await proxy.ask("/readyz")).json for _ in range(IN_A_ROW)]
    assert all(one["ready"] for one in found)
    return {one["local_records"]["state"] for one in found}


async def test_a_file_changed_broken_and_mended_under_load_loses_no_answer(
    tmp_path: Path, store_file: str, start_upstream: StartUpstream, start_proxy: StartProxy
) -> None:
    path = tmp_path / "local.toml"
    write(path, 1)
    upstream = start_upstream({NAME: REGISTERED})
    proxy = start_proxy(upstream.url, store_file, workers=2, local_records=path)
    await asyncio.gather(upstream.ready(), proxy.ready())
    callers = Callers(proxy)
    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(callers.call())
        await callers.lead_to("https://www.example.org/1", readings=1)
        write(path, 2)
        await callers.lead_to("https://www.example.org/2", readings=2)
        path.write_text('[[record]]\ndoi = "10.5072/local\n')

        async def broken() -> bool:
            return await states(proxy) == {"broken"}

        await until(broken, PATIENCE, "both workers report the broken file")
        await callers.lead_to("https://www.example.org/2", readings=2)
        write(path, 3)
        proxy.process.send(signal.SIGHUP)
        await callers.lead_to("https://www.example.org/3", readings=3)
        path.write_text("")
        await callers.lead_to(REGISTERED, readings=4)
        callers.end()
    assert set(callers.seen) == {*(f"https://www.example.org/{number}" for number in (1, 2, 3)), REGISTERED}
    assert await states(proxy) == {"ok"}
    assert f"{path}:2:21: not valid TOML" in proxy.process.log
    print(dict(callers.seen))


async def test_a_file_that_is_broken_at_the_start_ends_the_program_with_status_2(
    tmp_path: Path, store_file: str, start_proxy: StartProxy
) -> None:
    path = tmp_path / "local.toml"
    path.write_text('[[record]]\ndoi = "10.5072/local"\ntargt = "x"\n')
    for workers in (1, 2):
        proxy = start_proxy("http://127.0.0.1:9", store_file, workers=workers, local_records=path)
        assert proxy.process.ended() == 2
        assert f"{path}:3:1: unknown key 'targt'" in proxy.process.log
