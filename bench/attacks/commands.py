"""Attacks on commands: hostile files in place of those of an institution's face."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench.attacks.world import Checkout, Row
from bench.servers import plain_environment

#: Seconds in which a command must end, and its memory in MB.
_SECONDS: Final = 150.0
_MEMORY: Final = 500
_MIB: Final = 1024 * 1024
#: The address space that a command may have, in bytes: a bomb must not end the machine.
_ADDRESSES: Final = 4 * 1024 * _MIB
_SPARSE: Final = 8 * 1024**3


#: Hostile files of an institution's face: their folder in that of branding.toml, their name, and their content.
_FACES: Final[dict[str, tuple[str, str, bytes]]] = {
    "control: a text": ("messages", "en.toml", b'[home]\ntitle = "Find a DOI"\n'),
    "a text with a width of 999,999,999": ("messages", "en.toml", b'[site]\nversion = "{version:>999999999}"'),
    "a text with an attribute": ("messages", "en.toml", b'[site]\nversion = "{version.__class__}"'),
    "texts nested 100,000 deep": ("messages", "en.toml", b"[site]\nversion = " + b"[" * 100_000),
    "a number of 5,000 digits": ("messages", "en.toml", b"[site]\nversion = " + b"9" * 5_000),
    "HTML of 300 kB": ("", "header.html", b"x" * 300_000),
    "HTML that is not UTF-8": ("", "header.html", b"\xff\xfe"),
    "HTML for another language": ("", "header.tlh.html", b"<p>x</p>"),
}


def face_files(checkout: Checkout) -> Iterator[Row]:
    """`check` with hostile texts and HTML of an institution."""
    with tempfile.TemporaryDirectory(prefix="doi-proxy-attack-") as name:
        for number, (label, (kind, file, content)) in enumerate(_FACES.items()):
            (_make_face(Path(name, str(number)), kind) / file).write_bytes(content)
            yield _check_face(checkout, label, Path(name, str(number)))
        for number, (label, odd) in enumerate(_odd_files(Path(name)).items()):
            for kind, file in (("messages", "en.toml"), ("", "header.html")):
                folder = Path(name, f"{file}-{number}")
                (_make_face(folder, kind) / file).symlink_to(odd)
                yield _check_face(checkout, f"{file} is {label}", folder)


def _make_face(folder: Path, kind: str) -> Path:
    """A folder of branding with an empty file of settings. Returns its folder of this kind."""
    (folder / kind).mkdir(parents=True)  # "" is the folder itself
    (folder / "branding.toml").touch()
    return folder / kind


def _check_face(checkout: Checkout, label: str, folder: Path) -> Row:
    ended = _run(checkout, "check", "--offline", store_url="memory:", branding_folder=folder)
    expected = (0, 1) if "control" in label else (2,)
    return _row(f"a file of the institution's face: {label}", ended, ended.status in expected)


def _odd_files(folder: Path) -> dict[str, Path]:
    """A FIFO, a folder, a device, and a file of 8 GB that has no blocks."""
    os.mkfifo(folder / "fifo.json")
    (folder / "folder.json").mkdir()
    with (folder / "sparse.json").open("wb") as file:
        file.truncate(_SPARSE)
    return {
        "a FIFO": folder / "fifo.json",
        "a folder": folder / "folder.json",
        "a device": Path("/dev/zero"),
        "8 GB of NUL": folder / "sparse.json",
    }


class _Ended:
    """How a command ended: its exit status, -1 if it did not; its seconds, its memory in MB, and what it printed."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                ["prlimit", f"--as={_ADDRESSES}", *command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            timer = threading.Timer(_SECONDS, process.kill)
            timer.start()
            _, status, used = os.wait4(process.pid, 0)
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            self.text = output.read().decode("utf-8", "replace")
        self.status = process.returncode
        self.seconds = time.monotonic() - began
        self.memory = used.ru_maxrss / 1024


def _run(checkout: Checkout, *words: str, **settings: object) -> _Ended:
    given = {f"DOI_PROXY_{name.upper()}": str(value) for name, value in settings.items()}
    return _Ended([checkout.python, "-m", "doi_proxy", *words], checkout.folder, {**plain_environment(), **given})


def _row(attack: str, ended: _Ended, is_expected: bool, more: str = "", *, is_right: bool = True) -> Row:
    has_trace = "Traceback" in ended.text
    return Row(
        attack,
        f"exit status {ended.status}, {ended.seconds:.1f} s, {ended.memory:.0f} MB"
        f"{', a traceback' if has_trace else ''}{more}",
        is_expected and is_right and ended.status >= 0 and not has_trace and ended.memory <= _MEMORY,
    )
