"""Networks that an operator denied for a time. The workers of a machine share them in a file; a restart ends them."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from app.errors import InvalidParameter

log = logging.getLogger(__name__)

#: Networks that can be denied at the same time. `client_deny_file` holds more.
MAX_DENIALS: Final = 1_000


class Denials:
    """The end of each denial by its network, in seconds since the epoch. A call of `refresh` follows other workers."""

    def __init__(self, file: Path | None, clock: Callable[[], float], apply: Callable[[Collection[str]], None]) -> None:
        """`file` is shared by the workers, None for a process alone. `apply` gets the networks after each change."""
        self._file = file
        self._clock = clock
        self._apply = apply
        self._ends: dict[str, float] = {}
        #: Two changes can have the same time.
        self._version = (0, 0)

    def deny(self, network: str, seconds: float) -> float:
        """Deny a network, or with 0 seconds allow it again. Returns the end. Raises InvalidParameter for too many."""
        ends = self._clock() + seconds
        if self._file is None:
            self._use(self._change(self._ends, network, ends))
        else:
            self._write(self._file, network, ends)
        return ends

    def list(self) -> Mapping[str, float]:
        """The end of each denial in force, those of other workers included."""
        self.refresh()
        return self._ends

    def refresh(self) -> None:
        """Read the file if another worker has changed it, and drop the denials that have ended."""
        if self._file is not None:
            with suppress(OSError):
                found = self._file.stat()
                version = found.st_mtime_ns, found.st_ino
                if version != self._version:
                    self._version = version
                    self._use(_read(self._file))
        now = self._clock()
        if any(ends <= now for ends in self._ends.values()):
            self._use({network: ends for network, ends in self._ends.items() if ends > now})

    def _use(self, ends: dict[str, float]) -> None:
        if ends != self._ends:
            self._ends = ends
            self._apply(ends)

    def _change(self, known: Mapping[str, float], network: str, ends: float) -> dict[str, float]:
        now = self._clock()
        changed = {one: end for one, end in known.items() if end > now and one != network}
        if ends > now:
            changed[network] = ends
        if len(changed) > MAX_DENIALS:
            raise InvalidParameter(f"{MAX_DENIALS} networks are denied already; add this one to client_deny_file.")
        return changed

    def _write(self, path: Path, network: str, ends: float) -> None:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            changed = self._change(_read(path), network, ends)
            # Readers see the whole old file or the whole new one.
            new = path.with_suffix(".new")
            new.write_text(json.dumps(changed), encoding="utf-8")
            new.replace(path)
        finally:
            os.close(lock)
        self._use(changed)


def _read(path: Path) -> dict[str, float]:
    """The denials of a file, which this program alone writes."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {str(ip_network(network)): float(ends) for network, ends in document.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        log.error("the denials of clients in %s cannot be read: %s", path, error)
        return {}
