"""`doi-proxy config`: the settings in force, as environment variables or as a TOML file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from doi_proxy.assembly.settings import Settings
from doi_proxy.assembly.settings.sources import SourcedValue
from doi_proxy.system.options import MASK, redact_value, variable, write_value

Form = Literal["env", "toml"]


def show_settings(settings: Settings, values: Mapping[str, SourcedValue], form: Form, *, sources: bool) -> int:
    """Print each setting with its value, and its source if `sources` is set. The program can read the output again.

    A setting without a value is a comment, because most settings cannot be empty. So is a setting that cannot be read
    back: a value with a masked secret in TOML, and a value with a line break as an environment variable.
    """
    write = _write_environment if form == "env" else _write_toml
    print("\n".join(write(settings, values, sources)))
    return 0


def _source(name: str, values: Mapping[str, SourcedValue]) -> str:
    sourced = values.get(name)
    return sourced.source if sourced else "default"


def _write_environment(settings: Settings, values: Mapping[str, SourcedValue], sources: bool) -> Iterator[str]:
    for name, value in settings.model_dump(mode="json").items():
        if sources:
            yield f"# {_source(name, values)}"
        shown, masked = _mask(name, value, values)
        text = write_value(shown)
        if value is None:
            yield f"#{variable(name)}="
        elif "\n" in text or "\r" in text or (masked and sources):
            yield f"#{variable(name)}={_toml(text)}"
        else:
            yield f"{variable(name)}={text}"


def _write_toml(settings: Settings, values: Mapping[str, SourcedValue], sources: bool) -> Iterator[str]:
    found = settings.model_dump(mode="json")
    for table in settings.tables:
        yield f"[{table}]"
        for name, value in found.items():
            if settings.table_and_key(name)[0] != table:
                continue
            if sources:
                yield f"# {_source(name, values)}"
            shown, masked = _mask(name, value, values)
            mark = "#" if value is None or masked else ""
            written = '"…"' if value is None else _toml(shown)
            yield f"{mark}{settings.table_and_key(name)[1]} = {written}"


def _toml(value: Any) -> str:
    # TOML has the strings of JSON, but no DEL in them and no surrogate escapes (TOML 1.0.0, "String").
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _mask(name: str, value: Any, values: Mapping[str, SourcedValue]) -> tuple[Any, bool]:
    """A value without its secrets, and whether a part of it is masked."""
    sourced = values.get(name)
    secret = Settings.is_secret(name) and value is not None
    shown = MASK if secret or (sourced is not None and sourced.secret) else redact_value(value)
    return shown, shown != value
