"""Reads the settings from their sources and validates them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import ValidationError

from doi_proxy.assembly.settings.explanations import EMPTY, explain_setting_error
from doi_proxy.assembly.settings.model import Settings
from doi_proxy.assembly.settings.sources import SourcedValue, read_sources
from doi_proxy.errors import ConfigurationError
from doi_proxy.system.options import DEPRECATED, flag_of, variable
from doi_proxy.system.redaction import MASK, redact_value
from doi_proxy.system.setting_values import write_value


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
    departed = {name: values[name].source for name in DEPRECATED if name in values}
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
        for name, departed in DEPRECATED.items()
        if name in values and departed.successor is not None
    }
    return passed | {name: value for name, value in values.items() if name not in DEPRECATED}


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
        return MASK if Settings.is_secret(name) or name in secrets else write_value(redact_value(value))

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
_NAMES: Final = {"file": _write_toml_name, "environment": variable, "flag": flag_of}
