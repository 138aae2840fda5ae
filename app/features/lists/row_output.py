"""Writes the rows of a job to a file or a pipe, counts their verdicts, and saves checkpoints."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from app.errors import ConfigurationError, DoiProxyError
from app.features.lists.checkpoint import Checkpoint, CheckpointFile, ListJob
from app.features.lists.list_stream import write_all
from app.features.lists.verdict import ListRow, Verdict
from app.features.lists.writing import RowWriter
from app.features.private_file import open_private


class RowOutput:
    """An open output. `path` None is standard output."""

    def __init__(self, path: Path | None) -> None:
        """Open the output, and change nothing in it. Raises ConfigurationError if it cannot be written."""
        self._name = "standard output" if path is None else f"-o {path}"
        self._files = ExitStack()
        self._is_file = path is not None
        if path is None:
            self._fd = sys.stdout.fileno()
        else:
            try:
                self._fd = open_private(path, os.O_WRONLY, 0o666)
            except OSError as error:
                raise ConfigurationError(f"{self._name}: cannot be written: {error.strerror or error}") from error
            self._files.callback(os.close, self._fd)
        self.is_regular = stat.S_ISREG(os.fstat(self._fd).st_mode)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def size(self) -> int:
        """The bytes of a regular file, 0 of another."""
        return os.fstat(self._fd).st_size if self.is_regular else 0

    def claim(self) -> None:
        """Make sure that the output can be continued, and that no other process does. Raises ConfigurationError."""
        if not self.is_regular:
            raise ConfigurationError("--resume: rows in a pipe cannot be continued; use -o FILE")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(f"{self._name}: another process writes to it; wait until it ends") from error

    def start(self) -> int:
        """Empty the file, and return its size. Rows on standard output follow what it has."""
        if self._is_file:
            self.cut(0)
        return self.size

    def cut(self, size: int) -> None:
        """Remove what follows the first `size` bytes, and continue there. Raises ConfigurationError."""
        if self.size < size:
            raise ConfigurationError(
                f"--resume: {self._name} has {self.size} bytes, and the job has written {size}; name the file that the "
                "job began with (with standard output, use >> and not >), or remove the state file to start again"
            )
        if self.is_regular:
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)

    async def write(self, data: bytes) -> None:
        """Write bytes. Raises DoiProxyError, and BrokenPipeError if the reader of a pipe has left."""
        try:
            await write_all(self._fd, data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise DoiProxyError(f"{self._name}: cannot be written: {error.strerror or error}") from error


class RowRecorder:
    """Writes rows to an output. With a `state`, a later run can continue after the last checkpoint."""

    def __init__(
        self, output: RowOutput, writer: RowWriter, fields: Sequence[str], job: ListJob, state: CheckpointFile | None
    ) -> None:
        """`fields` are the members of a row that are written."""
        self._output = output
        self._writer = writer
        self._fields = fields
        self._job = job
        self._state = state
        self._size = 0
        #: The number of rows by verdict, with the rows of earlier runs.
        self.verdicts = Counter[Verdict]()
        #: Rows whose name leads to another work, with those of earlier runs.
        self.others = 0
        #: Rows that earlier runs wrote.
        self.earlier_rows = 0
        self.is_complete = False

    @property
    def rows(self) -> int:
        """The number of rows, with the rows of earlier runs."""
        return self.verdicts.total()

    async def begin(self) -> None:
        """Continue after the last checkpoint, or begin. Raises ConfigurationError."""
        found = None
        if self._state is not None:
            self._output.claim()
            found = self._state.read(self._job)
        if found is not None:
            self._continue(found)
            return
        self._size = self._output.start()
        await self._write(self._writer.begin())

    def _continue(self, found: Checkpoint) -> None:
        self._output.cut(found.output_bytes)
        self._size = found.output_bytes
        self.verdicts.update({Verdict(name): count for name, count in found.verdicts.items()})
        self.earlier_rows = found.rows
        self.others = found.others
        self.is_complete = found.is_complete

    async def write(self, rows: Sequence[ListRow]) -> None:
        """Write rows. Raises DoiProxyError, and BrokenPipeError if the reader of a pipe has left."""
        members = [row.members() for row in rows]
        data = self._writer.write([{name: row_members.get(name) for name in self._fields} for row_members in members])
        self.verdicts.update([row.verdict for row in rows])
        self.others += sum(row.match == "different" for row in rows)
        await self._write(data)

    async def finish(self) -> None:
        """Write the end of the output, after all rows."""
        self.is_complete = True
        await self._write(self._writer.end())

    async def _write(self, data: bytes) -> None:
        await self._output.write(data)
        self._size += len(data)
        self._save()

    def _save(self) -> None:
        if self._state is None:
            return
        verdicts = {verdict.value: count for verdict, count in self.verdicts.items()}
        self._state.write(Checkpoint(self._job, self.rows, self._size, verdicts, self.is_complete, self.others))
