"""Bundles: records as lines of JSON, for export, import and seeding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import Feature
from doi_proxy.system.files import open_regular
from doi_proxy.system.options import SettingsGroup

if TYPE_CHECKING:
    from doi_proxy.features.feature import Core, Others, Part
    from doi_proxy.system.check import Finding, Inspection


class BundleSettings(SettingsGroup):
    """The seed."""

    seed: Path | None = Field(
        None,
        description="NDJSON file of records to load at start, each as already expired. Set it if a new service "
        "begins where the upstream cannot be reached.",
    )


class Bundles(Feature):
    """The service that loads the seed, if there is one."""

    name = "bundles"
    summary = "records as lines of JSON: the seed, and the commands export and import"
    settings = BundleSettings

    @classmethod
    def check(cls, inspection: Inspection) -> Iterator[Finding]:
        """A seed that cannot be read."""
        path = inspection.settings.group(BundleSettings).seed
        if path is not None:
            yield from inspection.find_refusal("seed", partial(_require_file, path))

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Load the seed."""
        path = self.context.settings.group(BundleSettings).seed
        if path is None:
            return ()
        from doi_proxy.features.bundles.import_bundle import Seed

        _require_file(path)
        settings = self.context.settings
        return (Seed(path, core.cache, self.context.clock, settings.cache_grace, settings.cache_negative_ttl),)


def _require_file(path: Path) -> None:
    try:
        open_regular(path).close()
    except OSError as error:
        raise ConfigurationError(
            f"--seed {path}: this file cannot be read: {error.strerror}; name a bundle, or remove the setting"
        ) from error
