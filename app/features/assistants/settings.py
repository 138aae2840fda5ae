"""Tools for assistants: `doi-proxy mcp`."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from app.features.options import SettingsGroup


class McpSettings(SettingsGroup):
    """Tools for assistants: `doi-proxy mcp`."""

    mcp_hosts: str = Field(
        "",
        description="Host names, separated by blanks, under which clients reach `doi-proxy mcp --http` besides the "
        "loopback names. A request with another `Host` or `Origin` is refused.",
    )

    @field_validator("mcp_hosts")
    @classmethod
    def _refuse_urls(cls, value: str) -> str:
        for host in value.split():
            if not host.isascii() or any(character in host for character in "/@*?#,"):
                raise ValueError(f"{host[:80]!r} is not a host name; write mcp.example.org or mcp.example.org:8443")
        return value


SETTINGS: Final = McpSettings
TABLES: Final = ("mcp",)
