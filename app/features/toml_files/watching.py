"""Finds out whether the files of an operator have changed."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Final

#: Seconds between two looks at the files.
WATCH_INTERVAL: Final = 1.0
#: Files of one folder. The others of a folder with more are a problem.
MAX_FILES: Final = 1_000

#: What tells whether a file has changed: its name, and its modification time, size and inode, or an error number.
Stamp = tuple[tuple[str, int, int, int], ...]


def take_stamp(path: Path) -> Stamp:
    """The state of the files by which a change is noticed."""
    return tuple(_stamp_of(file) for file in list_files(path))


def _stamp_of(file: Path) -> tuple[str, int, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        return str(file), 0, 0, -(error.errno or 1)
    return str(file), found.st_mtime_ns, found.st_size, found.st_ino


def list_files(path: Path) -> list[Path]:
    """The file itself, or the files of the folder whose names end with .toml, sorted; one more than MAX_FILES."""
    if not path.is_dir():
        return [path]
    try:
        with os.scandir(path) as entries:
            names = (one.name for one in entries if one.name.endswith(".toml") and not one.name.startswith("."))
            return [path / name for name in sorted(islice(names, MAX_FILES + 1))]
    except OSError:
        return [path]
