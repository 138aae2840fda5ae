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
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from importlib.resources import files
from math import inf
from pathlib import Path
from socket import gaierror
from tempfile import mkstemp
from typing import Any, BinaryIO, Final, Self

from doi_names.name import CodePoint

_FILE: Final = 0o600
_ROOT: Final = 0
#: The end of the name of a file that is not complete.
PARTIAL: Final = ".partial"
#: Characters of the name of the complete file in it. A name has 255 bytes at most, and a character has up to four.
_NAME_PART: Final = 50
#: Without O_NONBLOCK, the opening of a pipe waits for its other end.
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
#: A symbolic link is refused too.
_OWN: Final = _READ | os.O_NOFOLLOW
#: Where devices are, and the open files of each process (Linux, proc(5)).
_DEVICES: Final = Path("/dev")
_PROCESSES: Final = Path("/proc")


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
            folder.mkdir(mode=0o700)
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
    # Eight random characters (tempfile).
    for left in path.parent.glob(f".{escape(path.name[:_NAME_PART])}.????????{PARTIAL}"):
        with suppress(OSError):  # of another user, or another process has removed it
            # For a day after its last write, such a file counts as that of a process that still writes it.
            if newest - left.lstat().st_mtime > 86_400:
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
    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
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


#: The window size by which zlib selects the gzip format.
_GZIP: Final = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class GzipLimits:
    """The limits of decompressed data: bytes for each compressed byte, all bytes, and bytes of one piece.

    Below `free_bytes` the ratio does not matter: short lists of similar names compress well.
    """

    ratio: float = inf
    total_bytes: float = inf
    free_bytes: int = 1024 * 1024
    piece_bytes: int = 16_384


class Gunzip:
    """Decompresses gzip data, also of several members."""

    def __init__(self, limits: GzipLimits, refuse: Callable[[str], Exception], library: Any = zlib) -> None:
        """`refuse` makes the error of data that cannot be read, from a reason such as "gzip data ends too early".

        `library` is zlib, or has its interface.
        """
        self._limits = limits
        self._refuse = refuse
        self._library = library
        self._inflate = library.decompressobj(_GZIP)
        self._compressed_bytes = self._bytes = 0
        self._is_started = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decompressed pieces. Raises the error of `refuse` for damaged data, and past a limit."""
        self._compressed_bytes += len(data)
        while data:
            if self._inflate.eof:
                # Some programs pad a file with zeros.
                if not data.strip(b"\0"):
                    return
                self._inflate = self._library.decompressobj(_GZIP)
            self._is_started = True
            try:
                piece = self._inflate.decompress(data, self._limits.piece_bytes)
            except self._library.error as error:
                raise self._refuse(f"gzip data is damaged: {error}") from error
            data = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            self._bytes += len(piece)
            self._check_limits()
            if piece:
                yield piece

    def read(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The decompressed pieces of all data. Raises the error of `refuse`."""
        for data in pieces:
            yield from self.feed(data)
        self.end()

    def _check_limits(self) -> None:
        limits = self._limits
        if self._bytes > max(limits.free_bytes, limits.ratio * self._compressed_bytes):
            raise self._refuse(f"gzip data decompresses to more than {limits.ratio:g} times its size")
        if self._bytes > limits.total_bytes:
            raise self._refuse(f"gzip data decompresses to more than {limits.total_bytes} bytes")

    def end(self) -> None:
        """Check that the data is complete. Raises the error of `refuse`."""
        if self._is_started and not self._inflate.eof:
            raise self._refuse("gzip data ends too early; the whole file is needed")


def has_package_file(package: str, *path: str) -> bool:
    """Whether a package has this file."""
    return files(package).joinpath(*path).is_file()


def read_package_file(package: str, *path: str) -> bytes:
    """The content of a file of a package. Raises OSError without one."""
    return files(package).joinpath(*path).read_bytes()


STANDARD_INPUT: Final = "-"
STANDARD_OUTPUT: Final = "-"


def printable(text: str) -> str:
    """A text for a terminal. A character that is not graphic becomes its notation, such as <U+200B>."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else f"<{CodePoint(character, 0).notation}>" for character in text
    )


def print_json(value: Any) -> None:
    """Print a JSON value in one line. Characters that are not graphic are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    print("".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text))


_SHORTAGES: Final = {
    errno.EMFILE: "this process has as many open files as it may (ulimit -n, LimitNOFILE=)",
    errno.ENFILE: "this machine has as many open files as it may (fs.file-max)",
    errno.ENOMEM: "this machine is short of memory",
    errno.ENOBUFS: "this machine is short of memory for connections",
}


def find_shortage(error: BaseException) -> str:
    """What this machine was short of, if that caused the error. Otherwise an empty text."""
    cause: BaseException | None = error
    # Causes of causes that are looked at.
    for _ in range(10):
        if cause is None:
            break
        if isinstance(cause, MemoryError):
            return _SHORTAGES[errno.ENOMEM]
        if isinstance(cause, gaierror):
            # The system's look-up of a host says "temporary failure" if it cannot open a socket.
            return _try_to_open()
        if isinstance(cause, OSError) and cause.errno in _SHORTAGES:
            return _SHORTAGES[cause.errno]
        cause = cause.__cause__ or cause.__context__
    return ""


def _try_to_open() -> str:
    try:
        descriptor = open_null()
    except OSError as error:
        return _SHORTAGES.get(error.errno or 0, "")
    with suppress(OSError):
        os.close(descriptor)
    return ""
