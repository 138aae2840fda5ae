"""uvicorn's supervisor of worker processes, which notices at once that a worker is dead."""

from __future__ import annotations

from uvicorn.supervisors import Multiprocess


class Supervisor(Multiprocess):
    """Replaces workers that end."""

    def keep_subprocess_alive(self) -> None:
        """Ask each worker how it is, and replace those that do not answer."""
        for process in self.processes:
            # uvicorn keeps the worker's end of the pipe open as well, so that a worker killed between question and
            # answer never looks gone: it would be waited for as long as one that is slow to start.
            process.child_conn.close()
        super().keep_subprocess_alive()
