"""The fake upstream as a process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ROOT = Path(__file__).parents[2]


async def test_as_a_process_it_serves_records_and_does_what_it_is_told(tmp_path: Path) -> None:
    records = tmp_path / "records.ndjson"
    records.write_text(
        json.dumps({"handle": "10.1234/Ä b", "values": [{"index": 1, "type": "URL", "data": "x"}]}) + "\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fake_upstream", "--records", str(records), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        assert (await client.get("/api/handles/10.1234/%C3%84%20B")).json()["values"][0]["data"] == "x"
        await client.post("/control/put", json={"handle": "10.1234/new", "values": [{"index": 2, "type": "EMAIL"}]})
        assert (await client.get("/api/handles/10.1234/new")).json()["values"] == [{"index": 2, "type": "EMAIL"}]
        await client.post("/control/fault", json={"name": "10.1234/new", "kind": "status", "status": 503, "count": 1})
        assert [(await client.get("/api/handles/10.1234/new")).status_code for _ in range(2)] == [503, 200]
        assert (await client.get("/control/counts")).json()["by_name"] == {"10.1234/Ä B": 1, "10.1234/NEW": 3}
        await client.post("/control/reset")
        assert (await client.get("/control/counts")).json()["asked"] == 0
    process.terminate()
    assert await process.wait() == 0
