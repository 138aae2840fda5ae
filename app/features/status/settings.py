"""The status page."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from app.features.options import SettingsGroup, require_networks
from app.features.setting_values import TextList


class StatusSettings(SettingsGroup):
    """The status page."""

    status_access: Literal["public", "networks", "admin"] = Field(
        "networks",
        description="Who can see `/status`: all clients, those in `status_networks`, or those with `admin_token`.",
    )
    status_networks: TextList = Field(
        ("127.0.0.0/8", "::1"),
        description="Networks whose clients can see `/status`. A front proxy on this machine must "
        "send X-Forwarded-For, or all of its clients count as this machine.",
    )

    @field_validator("status_networks")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        require_networks(value)
        return value

    @model_validator(mode="after")
    def _need_a_token(self) -> Self:
        if self.status_access == "admin" and getattr(self, "admin_token", None) is None:
            raise ValueError('status_access = "admin" needs admin_token; set DOI_PROXY_ADMIN_TOKEN_FILE')
        return self


SETTINGS: Final = StatusSettings
TABLES: Final = ("status",)
