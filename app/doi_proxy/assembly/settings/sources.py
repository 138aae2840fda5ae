"""Reads values of settings from flags, environment variables, secret files and a TOML file, each with its source."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import explain_failure, read_regular
from doi_proxy.system.options import CONFIG_VARIABLE, ENV_PREFIX, flag_of
from doi_proxy.system.redaction import redact
from doi_proxy.system.toml_text import TomlProblem, parse_toml

#: The table whose keys have no prefix.
_UNPREFIXED: Final = "server"
#: The largest file of a secret and the largest file of settings.
_MAX_SECRET_BYTES: Final = 65_536
_MAX_FILE_BYTES: Final = 1024 * 1024
#: The usual forms of a table and of a key in TOML.
_TABLE: Final = re.compile(r"[ \t]*\[[ \t]*([A-Za-z0-9_-]+)[ \t]*\]")
_KEY: Final = re.compile(r"[ \t]*[\"']?([A-Za-z0-9_-]+)[\"']?[ \t]*=")


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A setting's value as it was read, where it comes from, and how an error shows it."""

    value: Any
    source: str
    origin: Literal["file", "environment", "flag"]
    secret: bool = False

    @property
    def shown(self) -> str:
        """The value in parentheses. Empty for a secret."""
        return "" if self.secret else f" (it is {redact(str(self.value))[:200]!r})"


def read_sources(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None, known: Collection[str]
) -> dict[str, SourcedValue]:
    """The value of every setting that has a source. `known` are the names of all settings.

    A flag wins over the environment, the environment over the TOML file. A name can be unknown, and a value can be
    wrong. Raises ConfigurationError for a file that cannot be read.
    """
    path = config or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    values: dict[str, SourcedValue] = {}
    if path is not None:
        values |= _read_toml(path)
    values |= _read_environment(environment, known)
    return values | {
        name: SourcedValue(value, flag_of(name), "flag") for name, value in flags.items() if value is not None
    }


def _read_environment(environment: Mapping[str, str], known: Collection[str]) -> dict[str, SourcedValue]:
    values: dict[str, SourcedValue] = {}
    for key, value in environment.items():
        # A line `NAME=` of an .env or compose file has no value.
        if not value or not key.startswith(ENV_PREFIX) or key == CONFIG_VARIABLE:
            continue
        name = key.removeprefix(ENV_PREFIX).lower()
        if _is_file_of_secret(name, known):
            values[name.removesuffix("_file")] = SourcedValue(_read_secret(key, Path(value)), key, "environment", True)
        else:
            # NAME_FILE wins over NAME, which may be the default of a container image or a unit.
            values.setdefault(name, SourcedValue(value, key, "environment"))
    return values


def names_from_files(environment: Mapping[str, str], known: Collection[str]) -> frozenset[str]:
    """The settings whose values come from NAME_FILE variables. `known` are the names of all settings."""
    set_keys = (key for key, value in environment.items() if value and key.startswith(ENV_PREFIX))
    names = (key.removeprefix(ENV_PREFIX).lower() for key in set_keys)
    return frozenset(name.removesuffix("_file") for name in names if _is_file_of_secret(name, known))


def _is_file_of_secret(name: str, known: Collection[str]) -> bool:
    # NAME_FILE is the path of a file with the value, for a secret that must not be in the environment.
    return name.endswith("_file") and name not in known


def _read_secret(key: str, path: Path) -> str:
    try:
        return read_regular(path, _MAX_SECRET_BYTES).decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{key}: the file {path} cannot be read: {explain_failure(error)}") from error


def _read_toml(path: Path) -> dict[str, SourcedValue]:
    try:
        text = read_regular(path, _MAX_FILE_BYTES).decode("utf-8-sig")
        document = parse_toml(text)
    except TomlProblem as error:
        remedy = 'in a TOML file, a text such as "on" or "30d" needs quotation marks'
        place = f"{path}, line {error.line}"
        raise ConfigurationError(f"{place}: the settings file cannot be read: {error}; {remedy}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: the settings file cannot be read: {explain_failure(error)}") from error
    lines = _find_lines(text)
    values: dict[str, SourcedValue] = {}
    for table, content in document.items():
        is_table = isinstance(content, dict)
        for key, value in (content if is_table else {table: content}).items():
            name = f"{table}_{key}" if is_table and table != _UNPREFIXED else key
            line = lines.get((table if is_table else "", key))
            place = f"{path}: {name}" if line is None else f"{path}, line {line}: {name}"
            values[name] = SourcedValue(value, place, "file")
    return values


def _find_lines(text: str) -> dict[tuple[str, str], int]:
    """The line of each key by its table, "" for none. A key in a form that is not found is left out."""
    lines: dict[tuple[str, str], int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (header := _TABLE.match(line)) is not None:
            table = header[1]
        elif (pair := _KEY.match(line)) is not None:
            lines.setdefault((table, pair[1]), number)
    return lines
