"""Writes the rows of a job, counts their verdicts, and saves checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.features.lists.checkpoint import Checkpoint, CheckpointFile, Job
from app.features.lists.row_output import RowOutput
from app.features.lists.verdict import Row, Verdict
from app.features.lists.writing import RowWriter


class RowRecorder:
    """Writes rows to an output. With a `state`, a later run can continue after the last checkpoint."""

    def __init__(
        self, output: RowOutput, writer: RowWriter, fields: Sequence[str], job: Job, state: CheckpointFile | None
    ) -> None:
        """`fields` are the members of a row that are written."""
        self._output = output
        self._writer = writer
        self._fields = fields
        self._job = job
        self._state = state
        self._size = 0
        #: The number of rows by verdict, those of earlier runs included.
        self.verdicts = Counter[Verdict]()
        #: Rows that earlier runs wrote.
        self.earlier_rows = 0
        self.is_complete = False

    @property
    def rows(self) -> int:
        """The number of rows, those of earlier runs included."""
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
        self.is_complete = found.is_complete

    async def write(self, rows: Sequence[Row]) -> None:
        """Write rows. Raises DoiProxyError, and BrokenPipeError if the reader of a pipe has left."""
        members = [row.members() for row in rows]
        data = self._writer.write([{name: one.get(name) for name in self._fields} for one in members])
        self.verdicts.update([row.verdict for row in rows])
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
        self._state.write(Checkpoint(self._job, self.rows, self._size, verdicts, self.is_complete))
