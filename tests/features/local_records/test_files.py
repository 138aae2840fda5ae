"""The files of local records: which are read, when they are read again, and what happens if they are broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.local_records.files import record_files
from doi_proxy.features.local_records.records import LocalRecords
from doi_proxy.store.kept_file import MAX_FILES, FileKind, KeptFile
from tests.clock import Clock

pytestmark = pytest.mark.anyio

FILES = record_files(Clock(), 100, 100_000)
EXAMPLE = Path(__file__).parents[3] / "config" / "local-records.toml"


def alias(number: int | str, to: str = "10.5072/target") -> str:
    return f'[[record]]\ndoi = "10.5072/{number}"\nalias = "{to}"\n'


class Watched:
    """The files of one path, and the records that they put in force."""

    def __init__(self, path: Path) -> None:
        self.in_force: list[int] = []
        self.settings = Settings(store_url="memory:", local_records=path)
        self.files = KeptFile(FILES, self._use, self.settings)

    def _use(self, records: LocalRecords) -> None:
        if len(records) == 99:
            raise ConfigurationError("99 is too many")
        self.in_force.append(len(records))

    async def settle(self) -> list[int]:
        """A change is read at the second look that finds it."""
        await self.files.look()
        await self.files.look()
        return self.in_force


def problems(path: Path, kind: FileKind[LocalRecords] = FILES) -> list[str]:
    return [str(one).replace(str(path), path.name) for one in kind.read(path).problems]


def test_the_example_is_right() -> None:
    reading = FILES.read(EXAMPLE)
    assert (len(reading.value), reading.problems) == (7, ())


async def test_a_file_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(alias(1))
    watched = Watched(path)
    for number in range(2, 5):
        path.write_text("".join(alias(n) for n in range(number)))
        await watched.files.look()
        assert watched.in_force == [1]
    assert await watched.settle() == [1, 4]


async def test_a_file_that_is_gone_or_cannot_be_put_in_force_counts_as_broken(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(alias(1))
    watched = Watched(path)
    path.unlink()
    assert await watched.settle() == [1]
    assert [one.message for one in watched.files.problems] == ["it cannot be read: No such file or directory"]
    path.write_text("".join(alias(n) for n in range(99)))
    assert await watched.settle() == [1]
    assert [one.message for one in watched.files.problems] == ["99 is too many"]


async def test_a_folder_has_its_toml_files(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(alias(1))
    (tmp_path / ".hidden.toml").write_text("broken")
    (tmp_path / "README.md").write_text("broken")
    (tmp_path / "link.toml").symlink_to(tmp_path / "b.toml.real")
    (tmp_path / "b.toml.real").write_text(alias(2))
    watched = Watched(tmp_path)
    assert watched.in_force == [2]
    (tmp_path / "c.toml").write_text(alias(3))
    assert await watched.settle() == [2, 3]
    (tmp_path / "c.toml").unlink()
    assert await watched.settle() == [2, 3, 2]


def test_one_name_in_two_files_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("\n" + alias(1))
    (tmp_path / "b.toml").write_text(alias(1))
    (found,) = problems(tmp_path)
    assert found == f"{tmp_path.name}/b.toml:1:1: 10.5072/1 has a record already, in line 2 of {tmp_path.name}/a.toml"


def test_records_bytes_and_files_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(alias(1) + alias(2))
    assert problems(path, record_files(Clock(), 1, 10_000)) == [
        "a.toml:4:1: there are more than 1 records; "
        "remove some, or import the targets of many names as a registry file: docs/registry-files.md"
    ]
    assert problems(path, record_files(Clock(), 2, path.stat().st_size)) == []
    (too_large,) = problems(path, record_files(Clock(), 2, path.stat().st_size - 1))
    assert f"the text has more than {path.stat().st_size - 1} bytes; remove some" in too_large
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(MAX_FILES + 1):
        (folder / f"{number}.toml").touch()
    assert problems(folder) == [f"many: the folder has more than {MAX_FILES} files"]
