"""A command of `doi-proxy`: a value in the command module of its feature."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from app.doi.name import HandleName
from app.errors import ConfigurationError, InvalidName

#: Standard input and standard output in place of a file.
STANDARD_INPUT: Final = "-"
STANDARD_OUTPUT: Final = "-"
#: Exit status of a program that was interrupted (128 + SIGINT).
INTERRUPTED: Final = 130


class Context(Protocol):
    """What a command gets. The command line, the environment and the file are read at the first use."""

    @property
    def settings(self) -> Any:
        """The settings in force. Raises ConfigurationError."""

    @property
    def values(self) -> Any:
        """The text of each setting that has been set, with its source. Raises ConfigurationError."""

    def load(self) -> Any:
        """The settings, read again. Raises ConfigurationError."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its words, what adds its arguments, and what runs it and returns the exit status."""

    name: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Context, argparse.Namespace], int]


def add_nothing(command: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def set_usage(command: argparse.ArgumentParser, flags: str) -> None:
    """Let the help show these flags of a command, and not the many flags of the settings."""
    command.usage = f"{command.prog} {flags} [--config FILE] [settings]"


def whole_number(text: str) -> int:
    """The value of a flag that is a whole number."""
    if not text.isdecimal() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


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
