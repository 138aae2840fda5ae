"""All settings of one proxy: those of the core, and the group of each feature that is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import create_model

from doi_proxy.assembly.features import installed
from doi_proxy.assembly.settings.cache import CacheSettings
from doi_proxy.assembly.settings.server import ServerSettings
from doi_proxy.assembly.settings.upstream import UpstreamSettings
from doi_proxy.system.options import Settings as Root


# pydantic lists the fields of the last class first.
class CoreSettings(CacheSettings, UpstreamSettings, ServerSettings, Root):
    """The settings of the core."""

    tables = ("server", "upstream", "cache", "store")


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
