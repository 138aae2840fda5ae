"""Creates files and folders that only their owner can read. The umask does not matter.

What root creates in the folder of another user belongs to that user: a service must be able to use what an operator's
command has left in its folder.
"""

from __future__ import annotations

import os
from contextlib import suppress
from errno import ELOOP
from pathlib import Path
from tempfile import mkstemp
from typing import Final

_FILE: Final = 0o600
_FOLDER: Final = 0o700
_ROOT: Final = 0


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents, each with mode 0700. Raises OSError."""
    missing = []
    for folder in (path, *path.parents):
        if folder.exists():
            break
        missing.append(folder)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(mode=_FOLDER)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _give_to_owner(descriptor, folder.parent)
            finally:
                os.close(descriptor)


def open_private(path: Path, flags: int, mode: int = _FILE) -> int:
    """Open a file, which is created if it is missing, and return its descriptor. Raises OSError."""
    try:
        return _open_new(path, flags, mode)
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, mode)


def _open_new(path: Path, flags: int, mode: int = _FILE) -> int:
    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    _give_to_owner(descriptor, path.parent)
    return descriptor


def open_beside(path: Path) -> int:
    """Open a file whose name is derived from another file's, and return its descriptor. Raises OSError.

    A missing file is created with mode 0600; the content of an existing one stays. A symbolic link is refused, because
    other users may be able to write to the folder.
    """
    return open_private(path, os.O_RDONLY | os.O_NOFOLLOW)


def create_beside(path: Path) -> None:
    """Create a file beside another one if it is missing. A symbolic link is refused. See `create_file`."""
    if path.is_symlink():
        raise OSError(ELOOP, os.strerror(ELOOP), str(path))
    _create_missing(path)


def create_file(path: Path) -> None:
    """Create a file that an operator has configured, with mode 0600. A symbolic link is followed. Raises OSError.

    A file that is there is not opened. To close it would release the locks that SQLite holds on it in this process
    (sqlite.org, howtocorrupt.html, section 2.2). Another process would then delete the write-ahead log that is in use.
    """
    _create_missing(path.resolve())


def _create_missing(path: Path) -> None:
    with suppress(FileExistsError):
        os.close(_open_new(path, os.O_RDONLY))


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file in one step. Only its owner can read it. Raises OSError."""
    # mkstemp creates a new file with mode 0600, whatever the umask is.
    descriptor, name = mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _give_to_owner(descriptor, path.parent)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except OSError:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _give_to_owner(descriptor: int, folder: Path) -> None:
    """Give a new file to the owner of its folder. Only root can."""
    if os.geteuid() != _ROOT:
        return
    owner = folder.stat()
    if owner.st_uid != _ROOT:
        # Root of a container may lack the right to.
        with suppress(PermissionError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
