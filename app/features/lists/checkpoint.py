"""How far a job on lists has come, in a small file, for a run that continues it.

The file is replaced after each group of rows. If the program is killed, it may have written more rows than the file
says. The next run removes them from the output and writes them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from app.errors import ConfigurationError
from app.features.command import STANDARD_INPUT
from app.features.state_file import read_state, write_state
from app.system.regular_file import open_regular

#: The version of the file. A file of another version is refused.
_VERSION: Final = 1
_READ_BYTES: Final = 1024 * 1024


class InputIdentity(msgspec.Struct, frozen=True):
    """A list by its path, size and digest."""

    path: str
    bytes: int
    sha256: str


class ListJob(msgspec.Struct, frozen=True):
    """What must be the same in all runs: the lists, and the options that decide what the rows look like."""

    inputs: tuple[InputIdentity, ...]
    options: dict[str, str | None]


class Checkpoint(msgspec.Struct, frozen=True):
    """The position of a job: its complete rows, the size of the output after them, and their number by verdict."""

    job: ListJob
    rows: int
    output_bytes: int
    verdicts: dict[str, int]
    is_complete: bool = False
    #: Rows whose name leads to another work.
    others: int = 0
    version: int = _VERSION


def identify_lists(paths: Sequence[str]) -> tuple[InputIdentity, ...]:
    """The identities of lists. Raises ConfigurationError for standard input, and for a file that cannot be read."""
    if STANDARD_INPUT in paths:
        raise ConfigurationError("--resume: standard input cannot be read again; save the list in a file, and name it")
    return tuple(map(_identify, paths))


def _identify(path: str) -> InputIdentity:
    digest, size = hashlib.sha256(), 0
    try:
        with open_regular(Path(path)) as file:
            while piece := file.read(_READ_BYTES):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from error
    return InputIdentity(path, size, digest.hexdigest())


class CheckpointFile:
    """The file with the last checkpoint."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, job: ListJob) -> Checkpoint | None:
        """The checkpoint of this job, None if it has no file yet. Raises ConfigurationError if another job wrote it."""
        label = f"--resume {self._path}"
        checkpoint = read_state(self._path, Checkpoint, label, "name another file, or remove this one")
        if checkpoint is None:
            return None
        if checkpoint.version != _VERSION:
            raise self._refuse("is of another version of doi-proxy; finish the job with that version")
        self._require_same_inputs(checkpoint.job.inputs, job.inputs)
        for name, value in checkpoint.job.options.items():
            if job.options.get(name) != value:
                raise self._refuse(
                    f"the job began with {_show_option(name, value)}, and this command has "
                    f"{_show_option(name, job.options.get(name))}; {_REMEDY}"
                )
        return checkpoint

    def _require_same_inputs(self, before: Sequence[InputIdentity], now: Sequence[InputIdentity]) -> None:
        if [identity.path for identity in before] != [identity.path for identity in now]:
            names = ", ".join(identity.path for identity in before)
            raise self._refuse(f"the job began with other lists ({names[:500]}); {_REMEDY}")
        for old, new in zip(before, now, strict=True):
            if old != new:
                raise self._refuse(
                    f"{new.path} has changed since the job began: it had {old.bytes} bytes and has {new.bytes}, and "
                    f"its SHA-256 {'is the same' if old.sha256 == new.sha256 else 'differs'}; {_REMEDY}"
                )

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the file. Raises ConfigurationError if it cannot be written."""
        try:
            write_state(self._path, checkpoint, is_durable=False)
        except OSError as error:
            raise self._refuse(f"cannot be written: {error.strerror or error}") from error

    def _refuse(self, problem: str) -> ConfigurationError:
        return ConfigurationError(f"--resume {self._path}: {problem}")


_REMEDY: Final = "to start again, remove the state file"


def _show_option(name: str, value: str | None) -> str:
    return f"no --{name}" if value is None else f"--{name} {value}".rstrip()
