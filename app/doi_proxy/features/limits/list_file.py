"""The files of networks that an operator allows or denies: read at the start and at SIGHUP.

A mistake must not end the service at the next restart, so the last good text is kept beside the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from doi_proxy.errors import ConfigurationError
from doi_proxy.networks.network_list import NetworkList, parse_allowed, parse_denied, read_network_file
from doi_proxy.store.last_good import LastGood

log = logging.getLogger(__name__)


class ListFile:
    """One file of networks. Without a path, its list is empty."""

    def __init__(self, path: Path | None, parse: Callable[[str, Path], NetworkList], last_good: LastGood) -> None:
        self.path = path
        #: Whether the file could not be used when it was read last.
        self.is_broken = False
        self._parse = parse
        self._last_good = last_good

    def read(self) -> NetworkList:
        """The networks of the file. Raises ConfigurationError."""
        if self.path is None:
            return NetworkList()
        self.is_broken = True
        text, networks = self.examine(self.path)
        self.is_broken = False
        self._last_good.keep(self.path, text)
        return networks

    def examine(self, path: Path) -> tuple[str, NetworkList]:
        """The text and the networks of a file, which is not kept. Raises ConfigurationError."""
        text = read_network_file(path)
        return text, self._parse(text, path)

    def load(self) -> NetworkList:
        """The networks at the start: the last good ones of a broken file. Raises ConfigurationError without any."""
        try:
            return self.read()
        except ConfigurationError as error:
            kept = self._find_last_good()
            if kept is None:
                raise
            log.error("%s; the last good list is in force, correct the file", error.message)
            return kept

    def _find_last_good(self) -> NetworkList | None:
        """The last good networks. None without any that can be used."""
        copy = None if self.path is None else self._last_good.find(self.path)
        if copy is not None:
            with suppress(ConfigurationError):
                return self.examine(copy)[1]
        return None


def allowed_clients(path: Path | None, store_url: str) -> ListFile:
    """The file `client_allow_file`."""
    return ListFile(path, parse_allowed, LastGood(store_url, "client-allow", "txt"))


def denied_clients(path: Path | None, store_url: str) -> ListFile:
    """The file `client_deny_file`."""
    return ListFile(path, parse_denied, LastGood(store_url, "client-deny", "txt"))
