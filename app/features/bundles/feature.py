"""Bundles: records as lines of JSON, for export, import and seeding."""

from __future__ import annotations

from typing import Final

from app.errors import ConfigurationError
from app.features.bundles.seed import Seed
from app.features.bundles.settings import BundleSettings
from app.features.feature import NOTHING, Context, Feature, Opened
from app.features.options import Settings


def open_seed(context: Context) -> Opened:
    """The service that loads the seed, if there is one."""
    check(context.settings)
    path = context.settings.group(BundleSettings).seed
    if path is None:
        return NOTHING
    return Opened(services=(Seed(path, context.core.cache, context.clock, context.facts.grace),))


def check(settings: Settings) -> None:
    """Raise ConfigurationError if the seed does not exist."""
    path = settings.group(BundleSettings).seed
    if path is not None and not path.is_file():
        raise ConfigurationError(f"--seed {path}: there is no such file")


FEATURE: Final = Feature(
    "bundles", "records as lines of JSON: export, import and the seed", needs=("registry",), open=open_seed, check=check
)
