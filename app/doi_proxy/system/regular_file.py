"""Opens the files that an operator names. A pipe, a device, a socket or a folder is refused before it is read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

#: Without O_NONBLOCK, the opening of a pipe waits for its writer.
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(path: Path, most: int | None = None) -> BinaryIO:
    """Open a regular file of at most `most` bytes. Raises OSError, whose `strerror` says what is wrong."""
    # Opening a device can have side effects, so the path is checked first. The path can change until it is opened, so
    # the descriptor is checked too.
    _require_regular(path, path.stat(), most)
    file = os.open(path, _FLAGS)
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
