"""Tools for assistants: `doi-proxy mcp`."""

from __future__ import annotations

from pydantic import Field, field_validator

from app.features.options import SettingsGroup


class McpSettings(SettingsGroup):
    """Tools for assistants: `doi-proxy mcp`."""

    mcp_hosts: str = Field(
        "",
        description="Host names, separated by blanks, under which clients reach `doi-proxy mcp --http` besides the "
        "loopback names. A request with another `Host` or `Origin` is refused.",
    )
    mcp_max_lines: int = Field(500, ge=1, le=10_000, description="Limit of texts or lines in one call of a tool.")
    mcp_max_line_characters: int = Field(
        4_096, ge=256, le=65_536, description="Limit of characters in one text; a longer one is not read."
    )
    mcp_max_message_bytes: int = Field(4 * 1024 * 1024, ge=65_536, description="Largest message of a client, in bytes.")
    mcp_max_result_bytes: int = Field(
        256 * 1024, ge=16_384, description="Limit of a result, in bytes; the rows after it are left out."
    )
    mcp_max_calls: int = Field(
        8, ge=1, le=1_000, description="Limit of calls that are answered at a time; more are refused."
    )
    mcp_timeout: float = Field(
        45.0,
        gt=0,
        description="Seconds for one call; the lines left are `unverified`. Many clients give up after 60 seconds.",
    )

    @field_validator("mcp_hosts")
    @classmethod
    def _refuse_urls(cls, value: str) -> str:
        for host in value.split():
            if not host.isascii() or any(character in host for character in "/@*?#,"):
                raise ValueError(f"{host[:80]!r} is not a host name; write mcp.example.org or mcp.example.org:8443")
        return value
