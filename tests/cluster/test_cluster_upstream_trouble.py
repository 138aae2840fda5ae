"""An upstream that cannot be reached: what the log has once, and what is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import StartProxy
from tests.cluster.processes import START_DEADLINE, until
from tests.constants import RECHECK

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.process]


async def test_an_upstream_that_cannot_be_reached_is_one_line_and_one_state(
    tmp_path: Path, start_proxy: StartProxy
) -> None:
    settings = {"upstream_breaker_cooldown": 0.2, RECHECK: 0.2}
    proxy = start_proxy("http://127.0.0.1:1", f"sqlite:///{tmp_path}/store.sqlite3", **settings)
    await proxy.ready()

    async def is_told() -> bool:
        assert {(await proxy.ask(f"/10.5555/{number}")).status for number in range(8)} <= {502, 503}
        return bool((await proxy.ask("/readyz")).json["detail"]["upstream"] == "failing")

    await until(is_told, START_DEADLINE, "/readyz says that the upstream fails")
    (line,) = [line for line in proxy.process.log.splitlines() if "upstream 1" in line]
    assert "correct the address, or allow this machine to reach it" in line
