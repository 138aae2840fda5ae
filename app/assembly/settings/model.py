"""All settings of one proxy: those of the core, and the group of each feature that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import create_model, model_validator

from app.assembly.settings.branding import BrandingSettings
from app.assembly.settings.cache import CacheSettings
from app.assembly.settings.client import ClientSettings
from app.assembly.settings.server import ServerSettings
from app.assembly.settings.upstream import UpstreamSettings
from app.assembly.settings.web import WebSettings
from app.features import NAMES
from app.features.options import RELOADED, RELOADED_SECRET, SECRET, SettingsGroup

Group = TypeVar("Group", bound=SettingsGroup)


# pydantic lists the fields of the last class first.
class CoreSettings(BrandingSettings, WebSettings, CacheSettings, UpstreamSettings, ClientSettings, ServerSettings):
    """The settings of the core."""

    @model_validator(mode="after")
    def _share_a_store(self) -> CoreSettings:
        if self.workers > 1 and self.store_url.startswith("memory:"):
            raise ValueError(
                "several workers cannot share the store 'memory:'; set store_url to sqlite:///path, redis:// or valkey://"
            )
        return self

    def group(self, kind: type[Group]) -> Group:
        """The settings of one feature, and nothing else."""
        return cast(Group, kind.model_construct(**{name: getattr(self, name) for name in kind.model_fields}))

    def value(self, name: str) -> Any:
        """The value of a setting of any feature. None if that feature is not installed."""
        return getattr(self, name, None)


def _feature_modules() -> Iterator[Any]:
    """The modules `settings` of the features that are installed."""
    for name in NAMES:
        module = f"app.features.{name}.settings"
        if find_spec(f"app.features.{name}") is not None and find_spec(module) is not None:
            yield import_module(module)


_FEATURES: Final = tuple(_feature_modules())
#: The tables of the TOML file. The setting `upstream_url` is `url` in `[upstream]`.
TABLES: Final = (
    "server", "client", "upstream", "cache", "store", "web", "branding",
    *(table for module in _FEATURES for table in module.TABLES),
)  # fmt: skip

if TYPE_CHECKING:

    class Settings(CoreSettings):
        """The settings of one proxy: a value for each setting of the core and of the installed features."""

        def __init__(self, **values: Any) -> None: ...

else:
    Settings = create_model(
        "Settings",
        __base__=(*(module.SETTINGS for module in reversed(_FEATURES)), CoreSettings),
        __module__=__name__,
        __doc__="The settings of one proxy: a value for each setting of the core and of the installed features.",
    )


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
