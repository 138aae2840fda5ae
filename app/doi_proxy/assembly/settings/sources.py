"""Reads values of settings from flags, environment variables, secret files and a TOML file, each with its source."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from doi_proxy.assembly.settings.upstream import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.system import options
from doi_proxy.system.files import explain_failure, read_regular
from doi_proxy.system.invalid_values import explain_value
from doi_proxy.system.toml_text import TomlProblem, parse_toml

_URL: Final = "a URL begins with http:// or https:// and has no blank, `?` or `#`"
#: What a setting with a pattern accepts.
_FORMS: Final[Mapping[str, str]] = {
    "public_url": f"this is not a URL; {_URL}, such as https://doi.example.org",
    "upstream_contact": "this is not a contact; write an e-mail address such as library@example.org, or a URL such as "
    "https://library.example.org",
    "otel_endpoint": f"this is not a URL; {_URL} or `@`, such as http://127.0.0.1:4318/v1/traces",
}
_NOT_A_SWITCH: Final = "write on or off"
#: The limits of a number, by the names that pydantic gives them.
_LIMITS: Final = frozenset({"gt", "ge", "lt", "le"})
#: What a setting says in place of the words for any value.
_KINDS: Final[Mapping[str, str]] = {
    "string_type": "this is not a text; in a TOML file, put it in quotation marks",
    "bool_parsing": _NOT_A_SWITCH,
    "bool_type": _NOT_A_SWITCH,
}
EMPTY: Final = "the value is empty; remove the setting to use its default"


def explain_setting_error(
    error: Mapping[str, Any], known: Mapping[str, FieldInfo], write_name: Callable[[str], str]
) -> str:
    """What is wrong with a setting, and what to do.

    `error` is one error of pydantic. `known` has the fields of all settings. `write_name` writes the name of a setting
    as its source does, for the suggestion of a similar name.
    """
    name = str(error["loc"][0]) if error["loc"] else ""
    kind = str(error["type"])
    if kind == "extra_forbidden":
        similar = get_close_matches(name, known, n=1, cutoff=0.7)
        return "there is no such setting" + (f"; did you mean {write_name(similar[0])}?" if similar else "")
    if kind == "string_pattern_mismatch" and name in _FORMS:
        return _FORMS[name]
    if kind in ("string_too_short", "too_short") and error["ctx"]["min_length"] == 1:
        return EMPTY
    return _KINDS.get(kind) or explain_value(_write_limits(error, known.get(name)))


def _write_limits(error: Mapping[str, Any], field: FieldInfo | None) -> Mapping[str, Any]:
    """The error with its limits in the written form of the setting, such as `3650d`."""
    form = None if field is None else options.find_form(field)
    context = error.get("ctx") or {}
    if form is None:
        return error
    return {**error, "ctx": {key: form.write(value) for key, value in context.items() if key in _LIMITS}}


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
        return "" if self.secret else f" (it is {options.redact(str(self.value))[:200]!r})"


def read_sources(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None, known: Collection[str]
) -> dict[str, SourcedValue]:
    """The value of every setting that has a source. `known` are the names of all settings.

    A flag wins over the environment, the environment over the TOML file. A name can be unknown, and a value can be
    wrong. Raises ConfigurationError for a file that cannot be read.
    """
    path = config or (Path(environment[options.CONFIG_VARIABLE]) if environment.get(options.CONFIG_VARIABLE) else None)
    values: dict[str, SourcedValue] = {}
    if path is not None:
        values |= _read_toml(path)
    values |= _read_environment(environment, known)
    return values | {
        name: SourcedValue(value, options.flag_of(name), "flag") for name, value in flags.items() if value is not None
    }


def _read_environment(environment: Mapping[str, str], known: Collection[str]) -> dict[str, SourcedValue]:
    values: dict[str, SourcedValue] = {}
    for key, value in environment.items():
        # A line `NAME=` of an .env or compose file has no value.
        if not value or not key.startswith(options.ENV_PREFIX) or key == options.CONFIG_VARIABLE:
            continue
        name = key.removeprefix(options.ENV_PREFIX).lower()
        if _is_file_of_secret(name, known):
            values[name.removesuffix("_file")] = SourcedValue(_read_secret(key, Path(value)), key, "environment", True)
        else:
            # NAME_FILE wins over NAME, which may be the default of a container image or a unit.
            values.setdefault(name, SourcedValue(value, key, "environment"))
    return values


def names_from_files(environment: Mapping[str, str], known: Collection[str]) -> frozenset[str]:
    """The settings whose values come from NAME_FILE variables. `known` are the names of all settings."""
    set_keys = (key for key, value in environment.items() if value and key.startswith(options.ENV_PREFIX))
    names = (key.removeprefix(options.ENV_PREFIX).lower() for key in set_keys)
    return frozenset(name.removesuffix("_file") for name in names if _is_file_of_secret(name, known))


def _is_file_of_secret(name: str, known: Collection[str]) -> bool:
    # NAME_FILE is the path of a file with the value, for a secret that must not be in the environment.
    return name.endswith("_file") and name not in known


def _read_secret(key: str, path: Path) -> str:
    try:
        # The largest file of a secret and the largest file of settings.
        return read_regular(path, 65_536).decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{key}: the file {path} cannot be read: {explain_failure(error)}") from error


def _read_toml(path: Path) -> dict[str, SourcedValue]:
    try:
        text = read_regular(path, 1024 * 1024).decode("utf-8-sig")
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
            # The table whose keys have no prefix.
            name = f"{table}_{key}" if is_table and table != "server" else key
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


def load(flags: Mapping[str, Any], environment: Mapping[str, str] = os.environ, config: Path | None = None) -> Settings:
    """Read the settings from flags, environment and TOML file.

    Raises ConfigurationError, which names the setting, its source and the reason.
    """
    return build(read_sources(flags, environment, config, Settings.model_fields))


def build(values: Mapping[str, SourcedValue]) -> Settings:
    """The settings from these values. Raises ConfigurationError for the first one that cannot be used."""
    settings, problems = validate(values)
    if settings is None:
        raise ConfigurationError(str(problems[0]))
    return settings


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that cannot be used. `name` is empty if several settings together are the problem."""

    name: str
    source: str
    message: str

    def __str__(self) -> str:
        return f"{self.source}: {self.message}" if self.source else self.message


def validate(values: Mapping[str, SourcedValue]) -> tuple[Settings | None, list[Problem]]:
    """The settings, or None and what is wrong with each value."""
    departed = {name: values[name].source for name in options.DEPRECATED if name in values}
    values = _pass_on(values)
    if unusable := [Problem(name, values[name].source, message) for name, message in _find_unusable(values)]:
        return None, unusable
    try:
        settings = Settings(**{name: sourced.value for name, sourced in values.items()})
        settings._departed = departed
        return settings, []
    except ValidationError as error:
        # A default that follows from another setting is not a problem of its own.
        refused = (problem for problem in error.errors() if problem["type"] != "default_factory_not_called")
        return None, [_problem(problem, values) for problem in refused]


def _pass_on(values: Mapping[str, SourcedValue]) -> dict[str, SourcedValue]:
    """The values without those of settings that left, which their successors get."""
    passed = {
        departed.successor: values[name]
        for name, departed in options.DEPRECATED.items()
        if name in values and departed.successor is not None
    }
    return passed | {name: value for name, value in values.items() if name not in options.DEPRECATED}


def _find_unusable(values: Mapping[str, SourcedValue]) -> Iterator[tuple[str, str]]:
    for name, sourced in values.items():
        # No path and no URL can have it, and the functions of the system raise ValueError.
        if isinstance(sourced.value, str) and "\0" in sourced.value:
            yield name, "the text has a NUL character; remove it"
        # Path("") is the current folder.
        field = Settings.model_fields.get(name)
        if sourced.value == "" and field is not None and Path in get_args(field.annotation):
            yield name, EMPTY


def mask_settings(settings: Settings, secrets: Collection[str] = ()) -> dict[str, str | None]:
    """The settings as text, with secrets masked. `secrets` are those that were read from secret files."""

    def show(name: str, value: Any) -> str | None:
        if value is None:
            return None
        return (
            options.MASK
            if Settings.is_secret(name) or name in secrets
            else options.write_value(options.redact_value(value))
        )

    return {name: show(name, value) for name, value in settings.model_dump(mode="json").items()}


def _problem(error: Any, values: Mapping[str, SourcedValue]) -> Problem:
    name = str(error["loc"][0]) if error["loc"] else ""
    sourced = values.get(name)
    write_name = _NAMES[sourced.origin] if sourced else str
    message = explain_setting_error(error, Settings.model_fields, write_name)
    shown = sourced.shown if sourced and not Settings.is_secret(name) else ""
    return Problem(name, sourced.source if sourced else "", f"{message}{shown}")


def _write_toml_name(name: str) -> str:
    table, key = Settings.table_and_key(name)
    return f"{key} in [{table}]"


#: The name of a setting in each kind of source.
_NAMES: Final = {"file": _write_toml_name, "environment": options.variable, "flag": options.flag_of}
