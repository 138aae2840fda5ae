"""The folder of an import beside the store: what is imported, how far it has come, and its sorted runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import msgspec

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.registry.import_parts import LeftOut, list_source_files
from doi_proxy.system.files import STANDARD_INPUT, Replacement, make_folders, open_beside, open_folder, read_regular

#: The version of the folder. A folder of another version is refused.
_VERSION: Final = 1
#: Limit of the reasons, and of the files left out, that are reported. Further ones are only counted.
MAX_NAMED: Final = 20
#: Processes that write runs share a lock on this file.
_WORKERS_LOCK: Final = "workers.lock"


@contextmanager
def hold_folder(path: Path, kind: int) -> Iterator[None]:
    """Hold the lock of the processes that write runs: LOCK_SH for such a process, LOCK_EX to wait for all to end."""
    lock = open_beside(path / _WORKERS_LOCK)
    try:
        fcntl.flock(lock, kind)
        yield
    finally:
        os.close(lock)


class Job(msgspec.Struct, frozen=True):
    """An import: a random name, its files and options as a digest and as text, and whether all files are read."""

    token: str
    identity: str
    command: str
    is_read: bool = False
    #: Files that were left out: their number, those that should have been read, and the first ones.
    left_out: int = 0
    failures: int = 0
    named: list[tuple[str, str]] = []
    version: int = _VERSION


class JobFolder:
    """The folder of an import, for one process at a time."""

    def __init__(self, path: Path) -> None:
        """Create the folder, and lock it. Raises ConfigurationError."""
        self.path = path
        self._file = path / "job.json"
        try:
            make_folders(path)
            self._lock = open_folder(path)
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be written: {error.strerror or error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigurationError(f"{path}: another import into this store is running; wait for its end") from error
        # The processes of an import that was killed may still write a run. They end after the part under way.
        with hold_folder(path, fcntl.LOCK_EX):
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def begin(self, source: str, options: str, *, restart: bool) -> tuple[Job, bool]:
        """The job of these files and options, and whether it goes on with an earlier one. Raises ConfigurationError."""
        command = f"{source} {options}".strip()
        job = Job(secrets.token_hex(8), _identify(source, options), command)
        before = None if restart or source == STANDARD_INPUT else self._read()
        if before is not None and before.identity == job.identity:
            return before, True
        if before is not None:
            raise ConfigurationError(
                f"{self.path}: an import of {before.command} is not finished; run it again to continue; if its files "
                "have changed since, or to drop it, add --restart"
            )
        for file in self.path.iterdir():
            if file.name != _WORKERS_LOCK:
                file.unlink()
        self.write(job)
        return job, False

    def write(self, job: Job) -> None:
        """Replace the state of the job, and wait until it is on the disk. Raises OSError and ConfigurationError."""
        try:
            content = msgspec.json.encode(job)
        except UnicodeEncodeError as error:
            raise ConfigurationError(
                f"{error.object[:200]!r}: the name of this file is not UTF-8; rename it"
            ) from error
        with Replacement(self._file) as replacement:
            replacement.file.write(content)
            replacement.put(is_durable=True)

    def remove(self) -> None:
        """Remove the folder of a job that is done."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _read(self) -> Job | None:
        """The state of the job, None if it has none. Raises ConfigurationError."""
        try:
            # Limit of the file with the state of the job.
            job = msgspec.json.decode(read_regular(self._file, 16 * 1024 * 1024), type=Job)
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
        except ValueError:
            reason = "is not the state of such a job"
        else:
            if job.version == _VERSION:
                return job
            reason = "is of another version of doi-proxy"
        raise ConfigurationError(f"{self._file}: {reason}; --restart begins again")


def with_left_out(job: Job, left_out: LeftOut) -> Job:
    """The job with one more file that was left out."""
    named = job.named
    if left_out.is_failure or len(named) < MAX_NAMED:
        named = [*named, (left_out.name, left_out.reason)][-2 * MAX_NAMED :]
    failures = job.failures + left_out.is_failure
    return msgspec.structs.replace(job, left_out=job.left_out + 1, failures=failures, named=named)


def _identify(source: str, options: str) -> str:
    digest = hashlib.sha256(options.encode())
    for path, size, time in () if source == STANDARD_INPUT else list_source_files(source):
        digest.update(f"\n{path} {size} {time}".encode(errors="surrogateescape"))
    return digest.hexdigest()
