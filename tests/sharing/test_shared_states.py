"""What workers know together: the first one that finds out says so, and the last one that finds out is right."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from doi_proxy.sharing.memory import SharedMemory, create_memories
from doi_proxy.sharing.states import MAX_PARTS, PartState, SharedStates
from doi_proxy.system.files import lock_beside


def in_fork(work: Callable[[], bool]) -> bool:
    """The result of a function in another process, which has ended."""
    child = os.fork()
    if child == 0:
        os._exit(0 if work() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_a_state_that_another_worker_began_is_not_news_until_another_state(tmp_path: Path) -> None:
    states = SharedStates(SharedMemory(tmp_path / "lock"))
    assert states.begin("upstream 1", "down")
    assert not in_fork(lambda: states.begin("upstream 1", "down"))
    assert in_fork(lambda: states.begin("upstream 2", "down"))
    assert in_fork(lambda: states.begin("upstream 1", "up"))
    assert states.begin("upstream 1", "down")


def test_what_a_worker_said_before_it_was_killed_is_said_again(tmp_path: Path) -> None:
    states = SharedStates(SharedMemory(tmp_path / "lock"))
    assert in_fork(lambda: states.begin("upstream 1", "down"))
    assert states.begin("upstream 1", "down")


def test_the_newest_result_counts_whoever_has_it(tmp_path: Path) -> None:
    states = SharedStates(SharedMemory(tmp_path / "lock"))
    states.share({"u": PartState("failing", 5.0, 1_700_000_000.0)})
    assert in_fork(lambda: states.share({"u": PartState("ok", 4.0)})["u"].word == "failing")
    assert in_fork(lambda: states.share({"u": PartState("ok", 6.0)})["u"].word == "ok")
    assert states.share({"u": PartState("failing", 5.0)})["u"] == PartState("ok", 6.0)


def test_a_process_alone_knows_what_it_shared() -> None:
    states = SharedStates(SharedMemory(None))
    assert states.share({"u": PartState("ok", 4.0)}) == {"u": PartState("ok", 4.0)}
    assert states.begin("upstream 1", "down") and states.begin("upstream 1", "down")


def test_a_worker_that_stands_still_with_the_memory_keeps_no_line_back(tmp_path: Path) -> None:
    states = SharedStates(SharedMemory(tmp_path / "lock"))
    held = lock_beside(tmp_path / "lock")
    assert held is not None
    assert states.begin("upstream 1", "down")
    assert states.share({"u": PartState("ok", 4.0)}) == {}
    os.close(held)


def test_the_parts_are_bounded() -> None:
    states = SharedStates(SharedMemory(None))
    known = states.share({str(number): PartState("ok", 1.0) for number in range(MAX_PARTS + 5)})
    assert len(known) == MAX_PARTS


def test_each_use_has_a_memory_of_its_own(tmp_path: Path) -> None:
    memories = create_memories(tmp_path)
    SharedStates(memories["log"]).begin("upstream 1", "down")
    assert SharedStates(memories["upstreams"]).share({}) == {}
