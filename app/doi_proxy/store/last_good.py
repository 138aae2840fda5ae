"""The last text of an operator's files that was put in force, kept beside the store: a start can use it.

An unnoticed mistake in a file would otherwise end the service at the next restart.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from doi_proxy.store.url import read_store_path
from doi_proxy.system.files import open_regular, read_regular, replace_private

log = logging.getLogger(__name__)

#: StateDirectory= sets it (systemd.exec(5)), and so does the image.
_STATE_VARIABLE: Final = "STATE_DIRECTORY"
_STATE_NAME: Final = "doi-proxy"
_HEADER: Final = "# doi-proxy: the last good text of {path}\n"


class LastGood:
    """The copy of one setting's files. `name` is the setting, and `ending` that of the copy's name.

    It is beside a SQLite store, else in the folder that the environment names; without both there is none.
    """

    def __init__(self, store_url: str, name: str, ending: str = "toml") -> None:
        store = read_store_path(store_url) or (_find_state_file() if name else None)
        # A URL without a path, which the opening of the store refuses, names no file.
        self.path = store.with_name(f"{store.name}.{name}.{ending}") if store and store.name else None

    def keep(self, path: Path, text: str) -> None:
        """Keep the text of the files at `path`. A copy that cannot be written costs a log line."""
        if self.path is None:
            return
        content = (_HEADER.format(path=path) + text).encode()
        with suppress(OSError):
            if self.path.stat().st_size == len(content) and read_regular(self.path, len(content)) == content:
                return
        try:
            replace_private(self.path, content)
        except OSError as error:
            log.warning("the last good text of %s cannot be kept in %s: %s", path, self.path, error.strerror or error)

    def find(self, path: Path) -> Path | None:
        """The copy of the files at `path`, None without one."""
        header = _HEADER.format(path=path).encode()
        if self.path is not None:
            with suppress(OSError), open_regular(self.path) as file:
                if file.read(len(header)) == header:
                    return self.path
        return None


def _find_state_file() -> Path | None:
    """A name in the folder that systemd or the image gives the service, for a store that is on a server."""
    folders = os.environ.get(_STATE_VARIABLE)
    return Path(folders.partition(":")[0]) / _STATE_NAME if folders else None


#: Without a copy.
NOT_KEPT: Final = LastGood("memory:", "")
