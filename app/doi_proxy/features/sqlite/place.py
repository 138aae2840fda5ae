"""The file of an open SQLite store: whether its path still leads to it, and whether it is damaged."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress
from pathlib import Path

from doi_proxy.cache.store import StoreLost
from doi_proxy.features.sqlite.file import DAMAGED, TAILS, exclusive_lock, mark_damaged

log = logging.getLogger(__name__)


class StorePlace:
    """The path of a store, and the files that this process has open there."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """The caller holds file.exclusive_lock. Raises sqlite3.Error and OSError."""
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log and its index
        self._path = path
        self._opened = {tail: _identify(Path(f"{path}{tail}")) for tail in ("", *TAILS)}
        self._damage = ""

    @property
    def is_lost(self) -> bool:
        """Whether another file is at the path, or none."""
        try:
            return _identify(self._path) != self._opened[""]
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # a folder that cannot be read for a time

    def check(self) -> None:
        """Raise StoreLost if the file was deleted, replaced or damaged. One system call."""
        if self._damage:
            raise StoreLost(
                f"The store {self._path} is damaged: {self._damage}. This process renames it and begins an empty store"
                " with the records of its memory; check the disk.",
                cause=DAMAGED,
            )
        if not self.is_lost:
            return
        try:
            self._remove_tails()
        except TimeoutError:
            return  # another process opens the file that is there now; the next call tries again
        except OSError as error:
            log.debug("The log of the lost store could not be deleted: %s", error)
        if self._path.exists():
            raise StoreLost(
                f"The store {self._path} was replaced while it was open. This process opens the file that is there now;"
                " stop the service before you restore a store.",
                cause="store-replaced",
            )
        raise StoreLost(
            f"The store {self._path} was deleted while it was open. This process creates it with the records of its"
            " memory; stop the service before you delete a store.",
            cause="store-deleted",
        )

    def report_damage(self, error: BaseException) -> None:
        """Mark the file as damaged, so that the next process that opens it renames it."""
        # Another process may have renamed the file of this one. The store that it created is not damaged. Without the
        # lock, the next read finds the damage again.
        with suppress(OSError), exclusive_lock(self._path, waits=False):
            if not self.is_lost:
                mark_damaged(self._path)
                self._damage = str(error)

    def _remove_tails(self) -> None:
        """Delete the log of the lost file and its index. SQLite would apply them to the file that is there now."""
        with exclusive_lock(self._path, waits=False):
            for tail in TAILS:
                log_file = Path(f"{self._path}{tail}")
                if log_file.exists() and _identify(log_file) == self._opened[tail]:
                    log_file.unlink()


def _identify(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
