"""A command of `doi-proxy`: a value in the command module of its feature."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from doi_names.errors import InvalidName, NotUTF8
from doi_names.name import HandleName
from doi_names.presentation import read_typed
from doi_proxy.errors import ConfigurationError
from doi_proxy.system.options import MAX_SHOWN

if TYPE_CHECKING:
    from doi_proxy.cache.tiered import TieredStore
    from doi_proxy.features.feature import Core, Observers
    from doi_proxy.system.check import Check, Finding
    from doi_proxy.system.options import Settings

#: The value of --format that lets `cache import` find the format.
AUTO: Final = "auto"


class Stores(Protocol):
    """Opens the store of a proxy, which may be running. Each method raises ConfigurationError and StoreError.

    At the end of a job, the store is flushed, and a failure of it is raised.
    """

    def require(self) -> None:
        """Raise ConfigurationError if the file of the store is missing or out of reach. Opening would create one."""

    def open(self, *, read_only: bool = False) -> AbstractAsyncContextManager[TieredStore]:
        """The cache alone."""

    def open_online(self, observers: Observers | None = None) -> AbstractAsyncContextManager[Core]:
        """A resolver that queries the upstream as a bulk job. Raises ConfigurationError if it is sealed."""

    def open_sealed(self, observers: Observers | None = None) -> AbstractAsyncContextManager[Core]:
        """A resolver that only reads the store."""

    def open_for_lists(self, observers: Observers | None = None) -> AbstractAsyncContextManager[Core]:
        """A resolver for lists, in any mode, also with the store `memory:`."""

    def open_as_service(self) -> AbstractAsyncContextManager[Core]:
        """A resolver like that of a running proxy, with less memory. A failure of the store is a miss."""


class CommandContext(Protocol):
    """What a command gets. The command line, the environment and the file are read at the first use."""

    @property
    def settings(self) -> Settings:
        """The settings in force. Raises ConfigurationError."""

    @property
    def stores(self) -> Stores:
        """The store of the settings in force. Raises ConfigurationError."""

    def inspect(self, checks: Iterable[Check], *, offline: bool) -> list[Finding]:
        """What these checks, those of the core and those of the features find. Raises ConfigurationError."""

    @property
    def importers(self) -> Sequence[Importer]:
        """What `cache import` reads besides bundles."""

    def examine_upstreams(self) -> list[Finding]:
        """A note for each upstream and each transport, and an error for an upstream that does not answer."""

    def begin_logging(self) -> None:
        """Log to standard error, as a running proxy does."""

    def open_application(
        self, changes: Mapping[str, Any], *, read_only: bool = False
    ) -> AbstractAsyncContextManager[Any]:
        """The ASGI application of the settings, with changes, without its services. Nothing serves it.

        What it stored is written at the end; with `read_only`, its store is not changed. Raises ConfigurationError.
        """

    @property
    def values(self) -> Any:
        """The text of each setting that has been set, with its source. Raises ConfigurationError."""

    def load(self) -> Any:
        """The settings, read again. Raises ConfigurationError."""


def _detect_none(head: bytes) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Importer:
    """What `cache import` does with files of some formats. A feature offers it."""

    #: The values of --format that it reads.
    formats: tuple[str, ...]
    #: Imports a file of one of them, or AUTO, given the arguments of the command. Returns the exit status.
    run: Callable[[CommandContext, argparse.Namespace, str], int]
    #: The format of a file that begins so. None if it is of another one.
    detect: Callable[[bytes], str | None] = _detect_none
    #: Whether it reads folders, each file in its own format.
    takes_folders: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its words, what adds its arguments, and what runs it and returns the exit status."""

    name: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[CommandContext, argparse.Namespace], int]


def add_nothing(command: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def set_usage(command: argparse.ArgumentParser, flags: str) -> None:
    """Let the help show these flags of a command, and not the many flags of the settings."""
    command.usage = f"{command.prog} {flags} [--config FILE] [settings]"


def refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Refuse options that were given and do not belong to the file of the command. Raises ConfigurationError."""
    for option, value in options.items():
        if value:
            raise ConfigurationError(f"{option} {reason}")


def add_server(command: argparse.ArgumentParser, about: str = "the proxy; by default the one on this machine") -> None:
    """Add the argument that names a running proxy."""
    command.add_argument("--server", metavar="URL", help=about)


def add_format(command: argparse.ArgumentParser, about: str = "text for people, or one JSON object") -> None:
    """Add the argument for the form of the output."""
    command.add_argument("--format", choices=("text", "json"), default="text", help=f"{about} (default: text)")


def whole_number(text: str) -> int:
    """The value of a flag that is a whole number."""
    if not text.isdecimal() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def read_argument(text: str) -> HandleName:
    """Read a name of the command line. Raises ConfigurationError."""
    try:
        if "\N{REPLACEMENT CHARACTER}" in text:
            raise NotUTF8
        return read_typed(text)
    except InvalidName as error:
        raise ConfigurationError(f"{text[:MAX_SHOWN]!r}: {error.message}") from error


def read_prefix(text: str | None) -> HandleName | None:
    """The value of --prefix. Raises ConfigurationError."""
    if not text:
        return None
    try:
        prefix = HandleName(text.rstrip("/"))
    except InvalidName as error:
        raise ConfigurationError(f"--prefix {text}: {error.message}") from error
    if not prefix.is_prefix:
        raise ConfigurationError(f"--prefix {text}: this is not a DOI prefix; a DOI prefix looks like 10.1000")
    return prefix
