"""A small file with the state of a job, which a later run continues."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import Replacement, read_regular

State = TypeVar("State", bound=msgspec.Struct)

_MAX_BYTES: Final = 16 * 1024 * 1024


def read_state(path: Path, kind: type[State], label: str, remedy: str) -> State | None:
    """The state in a file, None if there is no file. Raises ConfigurationError for another file.

    `label` names the file in messages, and `remedy` says what to do.
    """
    try:
        return msgspec.json.decode(read_regular(path, _MAX_BYTES), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{label}: cannot be read: {error.strerror or error}; {remedy}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigurationError(f"{label}: is not the state of such a job; {remedy}") from error


def write_state(path: Path, state: msgspec.Struct, *, is_durable: bool) -> None:
    """Replace the file. With `is_durable`, it is on the disk afterwards. Raises OSError and ConfigurationError."""
    try:
        content = msgspec.json.encode(state)
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{error.object[:200]!r}: the name of this file is not UTF-8; rename it") from error
    with Replacement(path) as replacement:
        replacement.file.write(content)
        replacement.put(is_durable=is_durable)
