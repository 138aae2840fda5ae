"""The one opener of files: a regular file of a bounded size is read, anything else is refused at once, and nothing is
written through a link that another user left.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.commands.main import main
from doi_proxy.system.files import (
    Replacement,
    create_beside,
    create_new,
    open_beside,
    open_folder,
    open_regular,
    read_regular,
    replace_private,
    require_regular,
)

NOT_REGULAR: Final = "it is not a regular file"


def make_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "file.svg")
    return folder / "file.svg"


def make_socket(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "s"))
    (folder / "s").rename(folder / "file.svg")
    return folder / "file.svg"


def make_folder(folder: Path) -> Path:
    (folder / "file.svg").mkdir()
    return folder / "file.svg"


def link_device(folder: Path) -> Path:
    (folder / "file.svg").symlink_to("/dev/zero")
    return folder / "file.svg"


def link_pipe(folder: Path) -> Path:
    (folder / "file.svg").symlink_to(make_pipe_at(folder / "pipe"))
    return folder / "file.svg"


def make_pipe_at(path: Path) -> Path:
    os.mkfifo(path)
    return path


ODD: Final = (make_pipe, make_socket, make_folder, link_device, link_pipe)


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_anything_but_a_regular_file_is_refused(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    for read in (open_regular, lambda path: read_regular(path, 100), lambda path: require_regular(path, 100)):
        with pytest.raises(OSError, match=NOT_REGULAR):
            read(path)


def test_a_regular_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"x" * 100)
    link.symlink_to(file)
    assert read_regular(link, 100) == b"x" * 100
    require_regular(link, 100)
    with open_regular(link) as opened:
        assert opened.read() == b"x" * 100
    for refuse in (read_regular, require_regular, open_regular):
        with pytest.raises(OSError, match="it is larger than 99 bytes"):
            refuse(file, 99)


def test_a_file_whose_size_is_unknown_is_read_up_to_its_bound() -> None:
    # The kernel says 0 bytes of the files of /proc.
    assert read_regular(Path("/proc/self/cmdline"), 100_000)
    with pytest.raises(OSError, match="it is larger than 1 bytes"):
        read_regular(Path("/proc/self/cmdline"), 1)


#: Settings that name one file, and folders of files.
FILES: Final = (
    "client_deny_file",
    "client_allow_file",
    "country_database",
    "library_rules",
    "seed",
    "upstream_bootstrap",
    "upstream_ca_bundle",
    "tls_cert",
)
FOLDERS: Final = {"local_records": "x.toml", "branding_folder": "branding.toml"}
SECRETS: Final = ("DOI_PROXY_ADMIN_TOKEN_FILE", "DOI_PROXY_CONFIG")


def check(monkeypatch: pytest.MonkeyPatch, **environment: object) -> int:
    monkeypatch.setenv("DOI_PROXY_STORE_URL", "memory:")
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    return main(["check", "--offline"])


@pytest.mark.parametrize("setting", FILES)
def test_check_refuses_it_for_every_setting(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_pipe(tmp_path)
    more = {"DOI_PROXY_TLS_KEY": path} if setting == "tls_cert" else {}
    assert check(monkeypatch, **{f"DOI_PROXY_{setting.upper()}": path}, **more) == 2
    assert "not a regular file" in capsys.readouterr().out


@pytest.mark.parametrize("setting", FOLDERS)
def test_check_refuses_it_within_a_folder(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / FOLDERS[setting])
    assert check(monkeypatch, **{f"DOI_PROXY_{setting.upper()}": tmp_path}) == 2
    assert NOT_REGULAR in capsys.readouterr().out


@pytest.mark.parametrize("variable", SECRETS)
def test_a_secret_and_the_settings_are_read_from_regular_files(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(monkeypatch, **{variable: make_pipe(tmp_path)}) == 2
    assert NOT_REGULAR in capsys.readouterr().err


def test_a_command_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOI_PROXY_STORE_URL", f"sqlite:///{tmp_path}/store.db")
    assert main(["cache", "import", str(make_pipe(tmp_path))]) == 2
    assert NOT_REGULAR in capsys.readouterr().err


def test_a_file_without_content_at_the_moment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As /proc/kmsg: a regular file by its type, which blocks its reader.
    def find_nothing(*_: object) -> bytes:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    (tmp_path / "file").write_bytes(b"content")
    monkeypatch.setattr(os, "pread", find_nothing)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for read in (open_regular, lambda path: read_regular(path, 100)):
        with pytest.raises(OSError, match="temporarily unavailable"):
            read(tmp_path / "file")
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def link_victim(folder: Path) -> Path:
    """A link to a file of somebody else, in the place of a file of ours."""
    (folder / "victim").write_bytes(b"of another user")
    (folder / "file.svg").symlink_to(folder / "victim")
    return folder / "file.svg"


@pytest.mark.parametrize("make", [*ODD, link_victim], ids=lambda make: make.__name__)
def test_a_file_of_ours_is_neither_a_link_nor_a_pipe(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(OSError, match=r"(not a regular file|symbolic links|No such device)"):
        open_beside(path)
    with pytest.raises(FileExistsError):
        create_new(path)


@pytest.mark.parametrize("make", [make_pipe, make_socket, link_device, link_pipe], ids=lambda make: make.__name__)
def test_a_folder_of_ours_is_a_folder(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(NotADirectoryError):
        open_folder(path)


def test_a_file_beside_another_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"content")
    for name in ("old", "new"):
        os.close(open_beside(tmp_path / name))
    assert (tmp_path / "old").read_bytes() == b"content"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_a_replacement_writes_through_no_link(tmp_path: Path) -> None:
    path = link_victim(tmp_path)
    with pytest.raises(OSError, match="symbolic links"):
        create_beside(path)
    replace_private(path, b"ours")
    assert not path.is_symlink() and path.read_bytes() == b"ours"
    assert (tmp_path / "victim").read_bytes() == b"of another user"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_a_file_beside_another_is_no_pipe_and_no_folder(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "beside")
    with pytest.raises(OSError, match="not a regular file") as raised:
        create_beside(tmp_path / "beside")
    assert raised.value.filename == str(tmp_path / "beside")


@pytest.mark.parametrize("name", ["a" * 255, "ä" * 127, "😀" * 63], ids=["ASCII", "two bytes", "four bytes"])
def test_a_file_with_the_longest_name_can_be_replaced(name: str, tmp_path: Path) -> None:
    replace_private(tmp_path / name, b"content")
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_what_a_killed_process_has_left_of_a_file_is_removed_a_day_later(tmp_path: Path) -> None:
    path = tmp_path / "a[b].json"
    left, written, foreign = (
        tmp_path / f".{name}.partial" for name in ("a[b].json.k2_3abcd", "a[b].json.abcd_123", "a.b")
    )
    for partial in (left, written, foreign):
        partial.write_text("half")
    for partial in (left, foreign):
        day_before = partial.stat().st_mtime - 90_000
        os.utime(partial, (day_before, day_before))
    replace_private(path, b"whole")
    assert {other.name for other in tmp_path.iterdir()} == {path.name, written.name, foreign.name}


def test_a_replacement_that_is_not_complete_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="halfway"), Replacement(path) as replacement:
        replacement.file.write(b"new")
        raise ValueError("halfway")
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]
