"""A small file that workers share."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from doi_proxy.sharing.file import SharedFile


def test_a_missing_file_is_empty_and_not_new(tmp_path: Path) -> None:
    file = SharedFile(tmp_path / "file.json")
    assert (file.read(), file.read_new()) == (b"", None)


def test_each_worker_reads_a_change_once(tmp_path: Path) -> None:
    one, other = SharedFile(tmp_path / "file.json"), SharedFile(tmp_path / "file.json")
    one.change(lambda content: content + b"a")
    assert [file.read_new() for file in (one, other, one, other)] == [b"a", b"a", None, None]


def test_changes_of_the_same_time_are_two(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    file = SharedFile(path)
    for _ in range(3):
        file.change(lambda content: content + b"a")
        os.utime(path, ns=(0, 0))
        assert file.read_new() == path.read_bytes()


def test_no_change_of_two_workers_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "file.json"

    def count() -> None:
        file = SharedFile(path)
        for _ in range(50):
            file.change(lambda content: b"%d" % (int(content or b"0") + 1))

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == b"100"


def test_a_change_that_fails_leaves_the_content(tmp_path: Path) -> None:
    file = SharedFile(tmp_path / "file.json")
    file.change(lambda _: b"a")
    with pytest.raises(ZeroDivisionError):
        file.change(lambda _: b"%d" % (1 // 0))
    file.change(lambda content: content + b"b")
    assert file.read() == b"ab"


def test_others_cannot_read_it(tmp_path: Path) -> None:
    file = SharedFile(tmp_path / "file.json")
    file.change(lambda _: b"a")
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
