"""The status page."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from doi_proxy.features.options import SettingsGroup, require_networks
from doi_proxy.features.setting_values import TextList


class StatusSettings(SettingsGroup):
    """The status page."""

    status_networks: TextList = Field(
        ("127.0.0.0/8", "::1"),
        description="Networks whose clients see `/status`; `0.0.0.0/0, ::/0` is everyone. A request with "
        "`admin_token` sees it from everywhere, also with an empty list. A front proxy on this "
        "machine must send X-Forwarded-For, or all of its clients count as this machine. Add the "
        "network of the operators if they look at it from their own machines.",
    )

    @field_validator("status_networks")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        require_networks(value)
        return value


SETTINGS: Final = StatusSettings
TABLES: Final = ("status",)
