"""Library copy: redirects through a service of the institution, such as EZproxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.features.feature import Context, Feature, Opened, Service
from app.features.library.agency import agency_finder
from app.features.library.file import LibraryFile
from app.features.library.library import Library
from app.features.library.metrics import COPIES
from app.features.library.preferences import Preferences
from app.features.library.settings import LibrarySettings
from app.features.options import Settings
from app.features.toml_files.watching import WATCH_INTERVAL


class RulesService(Service):
    """Reads the file of rules again when it has changed."""

    def __init__(self, file: LibraryFile) -> None:
        self._file = file

    async def run(self) -> None:
        """Look at the file every second."""
        await self._file.watch(WATCH_INTERVAL)

    def ready(self) -> Mapping[str, str]:
        """Whether the rules of the file are in force."""
        return {"library_rules": "broken" if self._file.problems else "ok"} if self._file.is_used else {}


def open_library(context: Context) -> Opened:
    """The stage of detours, and the page of preferences. Raises ConfigurationError for a file with a problem."""
    core = context.core
    find_agency = agency_finder(core.prefixes, core.networks)
    library = Library(context.meter.counter(COPIES), find_agency)
    library.followers.append(core.forget_prepared)
    file = LibraryFile(library.use)
    file.load(context.settings.group(LibrarySettings).library_rules)

    def reload(new: Settings) -> None:
        file.request_reload(new.group(LibrarySettings).library_rules)

    context.reloads.on_reload(reload, "library_rules")
    preferences = Preferences(library, core.link, context.facts.public_url)
    return Opened(stages=(library,), services=(RulesService(file),), routes=(preferences.add_to,))


def check(settings: Settings) -> None:
    """Read the file of rules. Raises ConfigurationError."""
    LibraryFile(lambda _: None).load(settings.group(LibrarySettings).library_rules)


FEATURE: Final = Feature(
    "library",
    "library copy: redirects through a service of the institution",
    needs=("toml_files",),
    open=open_library,
    check=check,
)
