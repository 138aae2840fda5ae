"""The files of an installation: what `doi-proxy setup` writes, with what exists there."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import Replacement, explain_failure, read_regular
from doi_proxy.system.options import Settings
from doi_proxy.system.redaction import MASK, redact
from doi_proxy.system.toml_text import TomlProblem, parse_toml

#: The largest file that is compared.
_MOST_BYTES: Final = 1024 * 1024
#: Settings and alerts are for the service and for root; a front proxy starts as root.
_SHARED: Final = 0o644
_PRIVATE: Final = 0o640
_SECRET_LINE: Final = re.compile(r"([-+ ]#?\s*[a-z_]*(?:key|token|password)\s*=\s*).*")


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file with its new text, the text that is there, None if there is none, and what has to follow a change."""

    path: Path
    text: str
    before: str | None
    step: str = ""
    is_private: bool = False

    @property
    def differs(self) -> bool:
        """Whether the file has to be written."""
        return self.text != self.before

    def show_difference(self) -> Iterator[str]:
        """The lines of a unified diff, with secrets masked."""
        lines = (self.before or "").splitlines(), self.text.splitlines()
        for line in difflib.unified_diff(*lines, str(self.path), f"{self.path} (new)", lineterm="", n=1):
            yield redact(_SECRET_LINE.sub(rf"\g<1>{MASK}", line))


def read_existing(path: Path) -> str | None:
    """The text of a file, None if there is none. Raises ConfigurationError."""
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {explain_failure(error)}; move this file away") from error


def write_planned(planned: PlannedFile) -> None:
    """Write a file in one step. What was there is kept beside it with `.before` at the end of its name.

    An existing file keeps its mode, its owner and its group; a new private one belongs to the group of its folder.
    Raises ConfigurationError.
    """
    path = planned.path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        old = path.stat() if planned.before is not None else None
        folder = path.parent.stat()
        owner = (old.st_uid, old.st_gid) if old else (-1, folder.st_gid)
        mode = old.st_mode & 0o777 if old else _PRIVATE if planned.is_private else _SHARED
        if old is not None:
            _replace(Path(f"{path}.before"), read_regular(path, _MOST_BYTES), owner, mode)
        _replace(path, planned.text.encode(), owner, mode)
    except OSError as error:
        raise ConfigurationError(f"{planned.path}: {explain_failure(error)}; run this command as root") from error


def _replace(path: Path, content: bytes, owner: tuple[int, int], mode: int) -> None:
    with Replacement(path) as replacement:
        with suppress(PermissionError):
            os.fchown(replacement.file.fileno(), *owner)
        os.fchmod(replacement.file.fileno(), mode)
        replacement.file.write(content)
        replacement.put()


def change_settings(settings: Settings, text: str, values: Mapping[str, Any]) -> str:
    """The text of a TOML file with these settings. Comments and all other settings stay. Raises ConfigurationError."""
    changed = text
    for name, value in values.items():
        changed = _set_line(changed, settings.table_and_key(name), _toml_line(settings, name, value))
    # A form of TOML that _set_line does not know, such as a value of several lines.
    try:
        tables = parse_toml(text)
        for name, value in values.items():
            table, key = settings.table_and_key(name)
            tables[table] = {**tables.get(table, {}), key: value}
        is_right = parse_toml(changed) == tables
    except TomlProblem:
        is_right = False
    if not is_right:
        names = ", ".join(values)
        raise ConfigurationError(f"the settings file has a form that setup cannot change; set there yourself: {names}")
    return changed


def _toml_line(settings: Settings, name: str, value: Any) -> str:
    """The line of a setting in its table of a TOML file."""
    # TOML has the strings of JSON, but no DEL in them (TOML 1.0.0, "String").
    return f"{settings.table_and_key(name)[1]} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")


def _set_line(text: str, place: tuple[str, str], new: str) -> str:
    """Replace the line of a key in a table, or its line in a comment, or add it after the heading of the table."""
    table, key = place
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.lstrip().startswith("[")] + [len(lines)]
    start = next((head for head in heads[:-1] if lines[head].partition("#")[0].strip() == f"[{table}]"), None)
    if start is None:
        return f"{text.rstrip()}\n\n[{table}]\n{new}\n"
    inside = range(start + 1, heads[heads.index(start) + 1])
    for pattern in (rf"\s*{key}\s*=", rf"#\s*{key}\s*="):
        for number in inside:
            if re.match(pattern, lines[number]):
                return "\n".join([*lines[:number], new, *lines[number + 1 :]]) + "\n"
    return "\n".join([*lines[: start + 1], new, *lines[start + 1 :]]) + "\n"


def add_networks(text: str, networks: Sequence[str]) -> str:
    """The text of a list of networks with those that it does not have."""
    present = {line.partition("#")[0].strip() for line in text.splitlines()}
    missing = [network for network in dict.fromkeys(networks) if network not in present]
    return text if not missing else "\n".join([text.rstrip(), *missing]) + "\n"
