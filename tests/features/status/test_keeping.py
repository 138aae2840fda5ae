"""The history and the events of `/status` after a restart: they are kept in the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doi_proxy.features.metrics.history import LENGTH, STEP, Point, SharedHistory
from doi_proxy.features.sqlite.notes import write_note
from doi_proxy.features.status.keeping import MAX_SERVICES, NOTE, Kept, StatusKeeper, decode_note
from doi_proxy.sharing.events import Event, EventLog
from doi_proxy.sharing.memory import SharedMemory
from tests.clock import Clock
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

NAME = "10.5555/known"
TOKEN = "correct-horse-battery-staple"


async def run_once(path: Path, clock: Clock, names: int = 0, **settings: Any) -> dict[str, Any]:
    """Start a service, request a name, and return its status. At its end the service keeps that."""
    settings = {"store_url": f"sqlite:///{path}/store.sqlite3", "status_networks": "0.0.0.0/0, ::/0", **settings}
    async with Proxy(clock=clock, **settings) as proxy:
        proxy.upstream.put(NAME, url="http://here.example/")
        for _ in range(names):
            await proxy.get(f"/{NAME}")
        if "admin_token" in settings:
            headers = {"authorization": f"Bearer {TOKEN}", "content_type": "application/json"}
            purged = await proxy.ask("POST", "/admin/purge", body=b'{"negative": true}', **headers)
            assert purged.status == 200
        # The first turns of the service's tasks read what was kept.
        for _ in range(5):
            found: dict[str, Any] = (await proxy.get("/status")).json
        return found


async def test_a_restart_keeps_the_history_and_the_events(tmp_path: Path) -> None:
    clock = Clock()
    await run_once(tmp_path, clock, 3, admin_token=TOKEN)
    clock.advance(3_600)
    found = await run_once(tmp_path, clock)
    assert [event["kind"] for event in found["events"]] == ["start", "purge", "start"]
    assert sum(point["answers"] for point in found["history"]) == 3
    assert NAME not in str(found)


async def test_after_a_day_only_the_events_are_left(tmp_path: Path) -> None:
    clock = Clock()
    await run_once(tmp_path, clock, 3)
    clock.advance(LENGTH * STEP + STEP)
    found = await run_once(tmp_path, clock)
    assert (len(found["events"]), sum(point["answers"] for point in found["history"])) == (2, 0)


@pytest.mark.parametrize(
    "damaged", [b"", b"[]", b'{"": {"points": 7}}', b'{"": {"points": [], "events": [{"kind": "x"}], "saved": 1}}']
)
async def test_a_damaged_note_counts_as_none(tmp_path: Path, damaged: bytes) -> None:
    clock = Clock()
    await run_once(tmp_path, clock, 3)
    write_note(tmp_path / "store.sqlite3", NOTE, damaged)
    assert [event["kind"] for event in (await run_once(tmp_path, clock))["events"]] == ["start"]


_FORGED = {
    "an event after all years": {"events": [{"kind": "start", "at": 10**17}]},
    "an event before all years": {"events": [{"kind": "start", "at": -(10**17)}]},
    "an end after all years": {"events": [{"kind": "outage", "at": 1, "until": 10**18}]},
    "a detail of 100,000 characters": {"events": [{"kind": "start", "at": 1, "detail": "x" * 100_000}]},
    "a count of 30 digits": {"events": [{"kind": "purge", "at": 1, "count": 10**30}]},
    "sums without an end": {"points": [{"start": 1, "sums": {"down": 1e308}}]},
    "negative sums": {"points": [{"start": 1, "sums": {"answers": -1.0}}]},
    "100,000 sums": {"points": [{"start": 1, "sums": {f"{number}": 1.0 for number in range(100_000)}}]},
}


@pytest.mark.parametrize("forged", _FORGED.values(), ids=_FORGED)
async def test_a_forged_note_counts_as_none(tmp_path: Path, forged: dict[str, Any]) -> None:
    clock = Clock()
    await run_once(tmp_path, clock)
    note = {"": {"points": [], "events": [], "saved": int(clock()), **forged}}
    write_note(tmp_path / "store.sqlite3", NOTE, msgspec.json.encode(note))
    assert [event["kind"] for event in (await run_once(tmp_path, clock))["events"]] == ["start"]


class _Notes:
    """A store that keeps one note."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.fails = False

    async def read_note(self, name: str) -> bytes | None:
        return self.data

    async def change_note(self, name: str, change: Callable[[bytes | None], bytes]) -> bool:
        if not self.fails:
            self.data = change(self.data)
        return not self.fails


async def keep(notes: Any, place: str, at: float, answers: float = 0.0, *, ends: bool = True) -> list[Point]:
    """Run a service with this history, and return the points that it has then."""
    history = SharedHistory(SharedMemory(None), None)
    if answers:
        history.record(at, {})
        history.record(at, {"answers": answers})
    keeper = StatusKeeper(notes, history, EventLog(SharedMemory(None)), Clock(at), place)
    await keeper._keep()
    if ends:
        await keeper._save(has_ended=True)
    return history.points()


async def test_what_the_store_did_not_take_is_saved_at_the_next_look() -> None:
    notes: Any = _Notes()
    await keep(notes, "a :80", 1_000.0, 5.0)
    history = SharedHistory(SharedMemory(None), None)
    keeper = StatusKeeper(notes, history, EventLog(SharedMemory(None)), Clock(1_100.0), "b :80")
    for notes.fails in (True, False):
        await keeper._keep()
        assert list(decode_note(notes.data)) == (["a :80"] if notes.fails else ["b :80"])


def answers_of(points: list[Point]) -> list[float]:
    return [point.sums.get("answers", 0.0) for point in points]


async def test_services_that_share_a_server_keep_a_history_each_and_the_oldest_is_dropped() -> None:
    notes: Any = _Notes()
    for number in range(MAX_SERVICES + 3):
        await keep(notes, f"host-{number} 0.0.0.0:8000", STEP * number, 1.0 + number, ends=False)
    kept = decode_note(notes.data)
    assert list(kept) == [f"host-{number} 0.0.0.0:8000" for number in range(3, MAX_SERVICES + 3)]
    assert answers_of(kept["host-5 0.0.0.0:8000"].points) == [6.0]


async def test_two_services_of_a_host_do_not_mix() -> None:
    notes: Any = _Notes()
    await keep(notes, "host 0.0.0.0:8000", STEP, 1.0)
    assert answers_of(await keep(notes, "host 0.0.0.0:8001", 2 * STEP, 2.0)) == [2.0]
    assert answers_of(await keep(notes, "host 0.0.0.0:8000", 3 * STEP)) == [1.0]


async def test_a_new_container_goes_on_with_the_history_of_the_one_that_ended() -> None:
    notes: Any = _Notes()
    await keep(notes, "3f2a 0.0.0.0:8000", STEP, 1.0)
    await keep(notes, "77c1 0.0.0.0:8000", 2 * STEP, 2.0, ends=False)
    assert list(decode_note(notes.data)) == ["77c1 0.0.0.0:8000"]
    assert answers_of(decode_note(notes.data)["77c1 0.0.0.0:8000"].points) == [1.0, 2.0]
    # One that runs, or was killed, is left to itself.
    assert await keep(notes, "90ab 0.0.0.0:8000", 3 * STEP) == []
    assert len(decode_note(notes.data)) == 2


def test_a_whole_day_takes_less_than_a_hundred_kilobytes() -> None:
    sums = dict.fromkeys(("requests", "answers", "hits", "stale", "unverified", "questions", "down"), 123456.0)
    sums |= dict.fromkeys(("question_seconds", "delays", "delay_seconds"), 1234.567890123456)
    kept = Kept([Point(1_700_000_000 + number * STEP, sums) for number in range(LENGTH)], [], 1)
    assert len(msgspec.json.encode({"": kept})) < 100_000


async def test_an_event_of_a_later_release_is_left_out_and_the_rest_is_kept() -> None:
    known = {"kind": "start", "at": 100, "detail": "1.0.0"}
    service = {"points": [], "events": [{"kind": "eclipse", "at": 99}, known], "saved": 200, "new": 1}
    assert decode_note(msgspec.json.encode({"": service})) == {"": Kept([], [Event("start", 100, detail="1.0.0")], 200)}
