"""The settings of a command as others may see them: each value as text without secrets, and its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from doi_proxy.features.command import CommandContext
from doi_proxy.system.redaction import MASK, redact_value
from doi_proxy.system.setting_values import write_value


class ShownSetting(TypedDict):
    """The value of a setting, None without one, and where it was set."""

    value: str | None
    source: str


def describe_settings(context: CommandContext) -> Mapping[str, ShownSetting]:
    """Each setting by its name. Raises ConfigurationError."""
    settings, values, shown = context.settings, context.values, dict[str, ShownSetting]()
    for name, value in settings.model_dump(mode="json").items():
        sourced = values.get(name)
        is_secret = value is not None and (settings.is_secret(name) or (sourced is not None and sourced.secret))
        text = None if value is None else MASK if is_secret else write_value(redact_value(value))
        shown[name] = ShownSetting(value=text, source="default" if sourced is None else sourced.source)
    return shown
