"""Local records by the native listener."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from handle_protocol.wire.message import OpFlag
from tests.features.native_listener.listening import TRANSPORTS, listening

pytestmark = pytest.mark.anyio

_TEXT: Final = """
[[record]]
doi = "10.5555/gone"
tombstone = { reason = "Withdrawn by the author.", date = 2026-03-01 }

[[record]]
doi = "10.5555/ours"
target = "https://ours.example/"
"""


@pytest.mark.parametrize("by", TRANSPORTS)
async def test_a_tombstone_is_not_a_record_with_a_target(tmp_path: Path, by: str) -> None:
    (tmp_path / "records.toml").write_text(_TEXT)
    async with listening(local_records=tmp_path / "records.toml") as proxy:
        proxy.upstream.put("10.5555/gone", url="https://published.example/")
        for flags in (OpFlag.PUBLIC_ONLY, OpFlag.PUBLIC_ONLY | OpFlag.AUTHORITATIVE, OpFlag.CERTIFIED):
            gone = await proxy.resolve("10.5555/gone", by=by, flags=flags)
            assert gone.code == 100
            assert b"published.example" not in gone.data
            assert b"Withdrawn by the author. (2026-03-01)" in gone.data
        assert (await proxy.resolve("10.5555/ours", by=by)).code == 1
        assert proxy.upstream.queries("10.5555/gone") == 0


async def test_each_request_has_a_line_in_the_access_log(capfd: pytest.CaptureFixture[str]) -> None:
    async with listening(access_log="json", privacy_level=1) as proxy:
        proxy.upstream.put("10.5555/a", url="https://target.example/")
        for by in TRANSPORTS:
            await proxy.resolve('10.5555/a"\n', by=by)
        for _ in range(2):
            await proxy.resolve("10.5555/a")
        await proxy.exchange(b"\x02" * 40)
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["status"] for line in lines] == [102, 102, 102, 1, 1]
    assert {(line["method"], line["route"]) for line in lines} == {("HDL", "native")}
    assert (lines[0]["client"], lines[0]["path"]) == ("127.0.0.0", "/10.5555/a%22%0A")
    assert all(line["bytes"] > 40 and line["ms"] >= 0 and line["request_id"] for line in lines)


async def test_without_the_access_log_there_is_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    async with listening() as proxy:
        await proxy.resolve("10.5555/a")
    assert capfd.readouterr().out == ""
