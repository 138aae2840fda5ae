"""Files of operators: a regular file of a bounded size is read. Every reader refuses anything else at once."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.commands.main import main
from doi_proxy.system.regular_file import open_regular, read_regular, require_regular

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
