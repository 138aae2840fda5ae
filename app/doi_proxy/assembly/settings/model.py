"""All settings of one proxy: those of the core, and the group of each feature that is installed."""

from __future__ import annotations

from os import sched_getaffinity
from typing import TYPE_CHECKING, Any, Final

from pydantic import create_model, model_validator

from doi_proxy.assembly.features import installed
from doi_proxy.assembly.settings.cache import CacheSettings
from doi_proxy.assembly.settings.server import ServerSettings
from doi_proxy.assembly.settings.upstream import UpstreamSettings
from doi_proxy.system.options import Settings as Root

#: Workers of a machine with many processors, if `workers` is 0. Each has a memory tier of its own.
_MOST_WORKERS: Final = 4


# pydantic lists the fields of the last class first.
class CoreSettings(CacheSettings, UpstreamSettings, ServerSettings, Root):
    """The settings of the core."""

    tables = ("server", "upstream", "cache", "store")

    @model_validator(mode="before")
    @classmethod
    def _count_processors(cls, values: dict[str, Any]) -> dict[str, Any]:
        if str(values.get("workers")).strip() != "0":
            return values
        is_alone = str(values.get("store_url") or cls.model_fields["store_url"].default).startswith("memory:")
        return {**values, "workers": 1 if is_alone else min(len(sched_getaffinity(0)), _MOST_WORKERS)}

    @model_validator(mode="after")
    def _share_a_store(self) -> CoreSettings:
        if self.workers > 1 and self.store_url.startswith("memory:"):
            raise ValueError(
                "several workers cannot share the store 'memory:'; set store_url to sqlite:///path, redis:// or valkey://"
            )
        return self


_GROUPS: Final = tuple(feature.settings for feature in installed() if feature.settings is not None)

if TYPE_CHECKING:

    class Settings(CoreSettings):
        """The settings of one proxy: a value for each setting of the core and of the installed features."""

        def __init__(self, **values: Any) -> None: ...

else:
    Settings = create_model(
        "Settings",
        __base__=(*reversed(_GROUPS), CoreSettings),
        __module__=__name__,
        __doc__="The settings of one proxy: a value for each setting of the core and of the installed features.",
    )
    # Several features can have settings in one table.
    Settings.tables = tuple(
        dict.fromkeys((*CoreSettings.tables, *(name for group in _GROUPS for name in group.tables)))
    )
