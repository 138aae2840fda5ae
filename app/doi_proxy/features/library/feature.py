"""Library copy: redirects through a service of the institution, such as EZproxy."""

from __future__ import annotations

from typing import Any, Final

from doi_proxy.features.feature import Context, Feature, Opened
from doi_proxy.features.library.check import find_rule_problems
from doi_proxy.features.library.file import LibraryFile, last_good_rules
from doi_proxy.features.library.library import Library
from doi_proxy.features.library.metrics import COPIES
from doi_proxy.features.library.preferences import Preferences
from doi_proxy.features.library.settings import LibrarySettings
from doi_proxy.features.options import Settings


def open_library(context: Context) -> Opened:
    """The stage of detours, and the page of preferences. Raises ConfigurationError for a file with a problem."""
    core = context.core
    library = Library(context.meter.counter(COPIES), core.prefixes)
    library.followers.append(core.forget_prepared)
    file = LibraryFile(library.use, last_good_rules(context.facts.store_url))
    file.load(context.settings.group(LibrarySettings).library_rules)

    def reload(new: Settings) -> None:
        file.request_reload(new.group(LibrarySettings).library_rules)

    context.reloads.on_reload(reload, "library_rules")
    preferences = Preferences(library, core.link, context.facts.public_url)
    return Opened(stages=(library,), services=(file,), routes=(preferences.add_to,))


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the page, by its template."""
    return {"preferences": {"services": [("ezproxy", "EZproxy")], "chosen": "", "saved": True}}


FEATURE: Final = Feature(
    "library",
    "library copy: redirects through a service of the institution",
    open=open_library,
    samples=_sample_facts,
    check=find_rule_problems,
)
