"""The memory that workers share: one writer at a time, and whole contents or none."""

from __future__ import annotations

import os
from pathlib import Path

from doi_proxy.sharing.folder import lock_file
from doi_proxy.sharing.memory import SIZE, SharedMemory


def read(memory: SharedMemory) -> bytes:
    seen = b""

    def look(content: bytes) -> bytes:
        nonlocal seen
        seen = content
        return content

    assert memory.change(look)
    return seen


def test_a_fork_and_its_parent_see_what_the_other_wrote(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    assert read(memory) == b""
    child = os.fork()
    if child == 0:
        os._exit(0 if memory.change(lambda content: content + b"child") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert read(memory) == b"child"


def test_a_lock_of_another_worker_is_not_waited_for(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    held = lock_file(tmp_path / "lock")
    assert held is not None
    assert not memory.change(lambda _: b"lost")
    os.close(held)
    assert read(memory) == b""


def test_what_a_killed_worker_has_half_written_counts_as_nothing(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    memory.change(lambda _: b"whole")
    memory._memory[8:10] = b"no"
    assert read(memory) == b""


def test_what_does_not_fit_is_not_written(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    memory.change(lambda _: b"before")
    memory.change(lambda _: bytes(SIZE))
    assert read(memory) == b"before"
