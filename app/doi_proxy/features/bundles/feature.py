"""Bundles: records as lines of JSON, for export, import and seeding."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.bundles.settings import BundleSettings
from doi_proxy.features.check import Finding, Inspection
from doi_proxy.features.feature import NOTHING, Context, Feature, Opened
from doi_proxy.system.regular_file import open_regular


def open_seed(context: Context) -> Opened:
    """The service that loads the seed, if there is one."""
    path = context.settings.group(BundleSettings).seed
    if path is None:
        return NOTHING
    from doi_proxy.features.bundles.seed import Seed  # noqa: PLC0415 - few services have a seed

    _require_file(path)
    return Opened(services=(Seed(path, context.core.cache, context.clock, context.facts.grace),))


def check_seed(inspection: Inspection) -> Iterator[Finding]:
    """A seed that cannot be read."""
    path = inspection.settings.group(BundleSettings).seed
    if path is not None:
        yield from inspection.find_refusal("seed", partial(_require_file, path))


def _require_file(path: Path) -> None:
    try:
        open_regular(path).close()
    except OSError as error:
        raise ConfigurationError(
            f"--seed {path}: this file cannot be read: {error.strerror}; name a bundle, or remove the setting"
        ) from error


FEATURE: Final = Feature(
    "bundles",
    "records as lines of JSON: export, import and the seed",
    needs=("registry", "handle_dump"),
    open=open_seed,
    check=check_seed,
)
