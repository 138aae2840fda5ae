"""The memory that workers share: one writer at a time, and whole contents or none."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from doi_proxy.sharing.memory import SIZE, SharedMemory
from doi_proxy.system.files import lock_beside


def test_a_fork_and_its_parent_see_what_the_other_wrote(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    assert memory.read() == b""
    child = os.fork()
    if child == 0:
        os._exit(0 if memory.change(lambda content: content + b"child") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert memory.read() == b"child"


def test_a_lock_of_another_worker_is_not_waited_for(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    held = lock_beside(tmp_path / "lock")
    assert held is not None
    assert not memory.change(lambda _: b"lost")
    os.close(held)
    assert memory.read() == b""


def test_what_a_killed_worker_has_half_written_counts_as_nothing(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    memory.change(lambda _: b"whole")
    memory._memory[12:14] = b"no"
    assert memory.read() == b""


def test_what_does_not_fit_is_not_written(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    memory.change(lambda _: b"before")
    memory.change(lambda _: bytes(SIZE))
    assert memory.read() == b"before"


def test_a_lock_that_ends_soon_is_waited_for(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")

    def count() -> None:
        for _ in range(50):
            assert memory.change(lambda content: b"%d" % (int(content or b"0") + 1), waits=True)

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.read() == b"100"


def test_each_change_has_a_number_and_one_that_fails_changes_nothing(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    versions = [memory.version]
    for _ in range(2):
        memory.change(lambda _: b"a")
        versions.append(memory.version)
    assert len(set(versions)) == 3
    with pytest.raises(ZeroDivisionError):
        memory.change(lambda _: b"%d" % (1 // 0))
    assert (memory.read(), memory.version) == (b"a", versions[-1])


def test_a_process_alone_has_it_without_a_file() -> None:
    memory = SharedMemory(None)
    assert memory.change(lambda content: content + b"a")
    assert memory.read() == b"a"
