"""All settings of one proxy, from the groups of the other files."""

from __future__ import annotations

from typing import Final

from pydantic import model_validator

from app.assembly.settings.cache import CacheSettings
from app.assembly.settings.server import ServerSettings
from app.assembly.settings.upstream import UpstreamSettings
from app.assembly.settings.web import WebSettings
from app.features.admin.settings import OperatorSettings
from app.features.assistants.settings import McpSettings
from app.features.branding.settings import BrandingSettings
from app.features.limits.settings import ClientSettings
from app.features.lists.settings import BatchSettings
from app.features.options import RELOADED, RELOADED_SECRET, SECRET
from app.features.tracing.settings import TracingSettings

#: The tables of the TOML file. The setting `upstream_url` is `url` in `[upstream]`.
TABLES: Final = (
    "server",
    "client",
    "batch",
    "upstream",
    "cache",
    "store",
    "web",
    "library",
    "branding",
    "admin",
    "status",
    "mcp",
    "otel",
)


# pydantic lists the fields of the last class first.
class Settings(
    TracingSettings,
    McpSettings,
    OperatorSettings,
    BrandingSettings,
    WebSettings,
    CacheSettings,
    UpstreamSettings,
    BatchSettings,
    ClientSettings,
    ServerSettings,
):
    """The settings of one proxy."""

    @model_validator(mode="after")
    def _share_a_store(self) -> Settings:
        if self.workers > 1 and self.store_url.startswith("memory:"):
            raise ValueError(
                "several workers cannot share the store 'memory:'; set store_url to sqlite:///path, redis:// or valkey://"
            )
        return self

    @model_validator(mode="after")
    def _need_a_token(self) -> Settings:
        if self.status_access == "admin" and self.admin_token is None:
            raise ValueError('status_access = "admin" needs admin_token; set DOI_PROXY_ADMIN_TOKEN_FILE')
        if self.admin_replica_token is not None and self.admin_replica_token == self.admin_token:
            raise ValueError(
                "admin_replica_token is the same as admin_token, so followers could purge; choose another one"
            )
        return self


def reloadable() -> frozenset[str]:
    """The settings that a running process reloads at SIGHUP. All others need a restart."""
    fields = Settings.model_fields.items()
    return frozenset(name for name, field in fields if field.json_schema_extra in (RELOADED, RELOADED_SECRET))


def is_secret(name: str) -> bool:
    """Whether the value of a setting is never printed."""
    field = Settings.model_fields.get(name)
    return field is not None and field.json_schema_extra in (SECRET, RELOADED_SECRET)


def table_and_key(name: str) -> tuple[str, str]:
    """The table of the TOML file that contains a setting, and its key there."""
    head, _, key = name.partition("_")
    return (head, key) if head in TABLES else (TABLES[0], name)
