"""Creates files and folders that only their owner can read. The umask does not matter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_FILE: Final = 0o600
_FOLDER: Final = 0o700


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents, each with mode 0700. Raises OSError."""
    missing = []
    for folder in (path, *path.parents):
        if folder.exists():
            break
        missing.append(folder)
    for folder in reversed(missing):
        folder.mkdir(mode=_FOLDER, exist_ok=True)


def open_beside(path: Path) -> int:
    """Open a file whose name is derived from another file's, and return its descriptor. Raises OSError.

    A missing file is created with mode 0600; the content of an existing one stays. A symbolic link is refused, because
    other users may be able to write to the folder.
    """
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE)


def create_beside(path: Path) -> None:
    """Create a file in the same way as `open_beside`."""
    os.close(open_beside(path))


def create_file(path: Path) -> None:
    """Create a file that an operator has configured, with mode 0600. A symbolic link is followed. Raises OSError."""
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, _FILE))
