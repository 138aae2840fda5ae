"""Opens and replaces every file of the program. Nothing here waits for a pipe, and nothing writes through a link.

There are three kinds. An operator's file is read: it may be a link, as a mounted ConfigMap and a certificate of certbot
are, and it has to be a regular file of a bounded size. A list is read or written where the caller of a command says so,
which may be a pipe. The program's own files lie in folders to which other users may write, so links are refused, and
the umask does not matter: only their owner can read them.

What root creates in the folder of another user belongs to that user: a service must be able to use what an operator's
command has left in its folder.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from glob import escape
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO, Final, Self

_FILE: Final = 0o600
_FOLDER: Final = 0o700
_ROOT: Final = 0
#: The end of the name of a file that is not complete.
PARTIAL: Final = ".partial"
#: Characters of the name of the complete file in it. A name has 255 bytes at most, and a character has up to four.
_NAME_PART: Final = 50
#: Random characters of such a name (tempfile).
_RANDOM: Final = 8
#: Seconds after its last write in which such a file counts as that of a process that still writes it: a day.
_LEFT_SECONDS: Final = 86_400
#: Without O_NONBLOCK, the opening of a pipe waits for its other end.
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
#: A symbolic link is refused too.
_OWN: Final = _READ | os.O_NOFOLLOW
#: Where devices are, and the open files of each process (Linux, proc(5)).
_DEVICES: Final = Path("/dev")
_PROCESSES: Final = Path("/proc")
_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


# --- An operator's files ----------------------------------------------------------------------------------------------


def open_regular(path: Path, most: int | None = None) -> BinaryIO:
    """Open a regular file of at most `most` bytes. Raises OSError, whose `strerror` says what is wrong."""
    # Opening a device can have side effects, so the path is checked first. The path can change until it is opened, so
    # the descriptor is checked too.
    _require_regular(path, path.stat(), most)
    file = os.open(path, _READ)
    try:
        _require_regular(path, os.fstat(file), most)
        # /proc/kmsg says that it is a regular file, and has nothing to read at times, which readers do not expect.
        os.pread(file, 1, 0)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def require_regular(path: Path, most: int) -> None:
    """Check a file that a library opens by its path. Raises OSError as open_regular does."""
    open_regular(path, most).close()


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes. Raises OSError as open_regular does."""
    with open_regular(path, most) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise _too_large(path, most)
    return content


def explain_failure(error: Exception) -> str:
    """What is wrong with a file that cannot be opened or decoded, without its path."""
    return getattr(error, "strerror", None) or str(error)


def _require_regular(path: Path, found: os.stat_result, most: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if most is not None and found.st_size > most:
        raise _too_large(path, most)


def _too_large(path: Path, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {most} bytes", str(path))


# --- What the caller of a command names as its input and its output ---------------------------------------------------


def open_input(path: str) -> int:
    """Open a file, a pipe or a device to read, and return its descriptor. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def open_output(path: Path) -> int:
    """Open a file, a pipe or a device to write, and return its descriptor. Raises OSError.

    Nothing of its content changes. A missing file is created with the mode that the umask gives.
    """
    try:
        return _open_new(path, os.O_WRONLY, 0o666)
    except FileExistsError:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)


def is_replaceable(path: Path) -> bool:
    """Whether a new file can take the place of what the caller named: a regular file, or nothing.

    A device, a pipe and an open file such as /dev/stdout are not. Root would put a file in the place of /dev/null.
    """
    folder = Path(os.path.realpath(path.parent))  # resolve() raises RuntimeError for a loop of links
    is_open_file = folder == _DEVICES or folder.is_relative_to(_PROCESSES)
    return not is_open_file and (path.is_file() or not path.exists())


def write_output(path: Path, content: bytes) -> None:
    """Write all of an output. A file is replaced in one step, and only its owner can read it. Raises OSError."""
    if is_replaceable(path):
        replace_private(path, content)
        return
    with os.fdopen(open_output(path), "wb") as file:
        file.write(content)


def create_new(path: Path) -> BinaryIO:
    """Create a file that only its owner can read. Raises FileExistsError, also for a link, and OSError."""
    return os.fdopen(_open_new(path, os.O_WRONLY), "wb")


def open_null() -> int:
    """Open the null device, and return its descriptor. Raises OSError."""
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


# --- The program's own files ------------------------------------------------------------------------------------------


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
            descriptor = open_folder(folder)
            try:
                _give_to_owner(descriptor, folder.parent)
            finally:
                os.close(descriptor)


def open_folder(path: Path) -> int:
    """Open a folder, for its lock, and return its descriptor. A symbolic link is refused. Raises OSError."""
    return os.open(path, _OWN | os.O_DIRECTORY)


def open_beside(path: Path) -> int:
    """Open a file whose name is derived from another file's, and return its descriptor. Raises OSError.

    A missing file is created; the content of an existing one stays. Anything but a regular file is refused.
    """
    try:
        descriptor = _open_existing(path)
    except FileNotFoundError:
        try:
            return _open_new(path, os.O_RDONLY)
        except FileExistsError:  # another process has created it meanwhile
            descriptor = _open_existing(path)
    return descriptor


def _open_existing(path: Path) -> int:
    descriptor = os.open(path, _OWN)
    try:
        _require_regular(path, os.fstat(descriptor), None)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def create_beside(path: Path) -> None:
    """Create a file beside another one if it is missing. A symbolic link, a folder and a pipe are refused.

    Raises OSError, which names the file: SQLite says "disk I/O error" of a pipe. See `create_file`.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    create_file(path)
    _require_regular(path, path.lstat(), None)


def create_file(path: Path) -> None:
    """Create a file with mode 0600 if it is missing. A symbolic link is not followed. Raises OSError.

    A file that is there is not opened. To close it would release the locks that SQLite holds on it in this process
    (sqlite.org, howtocorrupt.html, section 2.2). Another process would then delete the write-ahead log that is in use.
    """
    with suppress(FileExistsError):
        os.close(_open_new(path, os.O_RDONLY))


def _remove_left(path: Path, newest: float) -> None:
    """Remove what a killed process has left of a replacement of this file. A process that writes is not so slow."""
    for left in path.parent.glob(f".{escape(path.name[:_NAME_PART])}.{'?' * _RANDOM}{PARTIAL}"):
        with suppress(OSError):  # of another user, or another process has removed it
            if newest - left.lstat().st_mtime > _LEFT_SECONDS:
                left.unlink()


class Replacement:
    """A new file of mode 0600 that takes the place of another one in one step, when its content is complete.

    A link in the place is replaced, and what it names stays as it is. Without `put`, nothing changes.
    """

    def __init__(self, path: Path) -> None:
        """Create the new file beside the old one, with a random name. Raises OSError."""
        self._path = path
        descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name[:_NAME_PART]}.", suffix=PARTIAL)
        _remove_left(path, newest=os.fstat(descriptor).st_mtime)
        #: Where the new file is until then.
        self.partial = Path(name)
        self.file: BinaryIO = os.fdopen(descriptor, "wb")
        _give_to_owner(descriptor, path.parent)
        self._is_put = False

    def put(self, *, is_durable: bool = True) -> None:
        """Put the new file in place. With `is_durable`, its content is on the disk before. Raises OSError."""
        self.file.flush()
        if is_durable:
            os.fsync(self.file.fileno())
        self.partial.replace(self._path)
        self._is_put = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.file.close()
        finally:
            if not self._is_put:
                self.partial.unlink(missing_ok=True)


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file in one step. Only its owner can read it. Raises OSError."""
    with Replacement(path) as replacement:
        replacement.file.write(content)
        replacement.put()


def _open_new(path: Path, flags: int, mode: int = _FILE) -> int:
    descriptor = os.open(path, flags | _NEW, mode)
    _give_to_owner(descriptor, path.parent)
    return descriptor


def _give_to_owner(descriptor: int, folder: Path) -> None:
    """Give a new file to the owner of its folder, if that is possible. Only root can."""
    if os.geteuid() != _ROOT:
        return
    # Root of a container may lack the right to, a container may not have this user (EINVAL), and a file system may not
    # have owners.
    with suppress(OSError):
        owner = folder.stat()
        if owner.st_uid != _ROOT:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
