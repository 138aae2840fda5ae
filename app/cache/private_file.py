"""Files and folders that only their owner may read, whatever the umask is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_FILE: Final = 0o600
_FOLDER: Final = 0o700


def make_folders(path: Path) -> None:
    """Make a folder and the ones above it that are missing, each 0700. Raises OSError."""
    missing = []
    # `path` and its parents: as many as it has parts.
    for folder in (path, *path.parents):
        if folder.exists():
            break
        missing.append(folder)
    for folder in reversed(missing):
        folder.mkdir(mode=_FOLDER, exist_ok=True)


def open_beside(path: Path) -> int:
    """A descriptor of a file whose name was made from another file's, created 0600 if it is missing.

    Its content stays, and a symbolic link is refused: the folder may be one that others write to. Raises OSError.
    """
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE)


def create_beside(path: Path) -> None:
    """Create a file as `open_beside` does."""
    os.close(open_beside(path))


def create(path: Path) -> None:
    """Create a file that an operator named, 0600 if it is missing. A link of theirs is followed. Raises OSError."""
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, _FILE))
