"""The features that are installed, and what they need."""

from __future__ import annotations

import pytest

from doi_proxy.assembly import features
from doi_proxy.assembly.features import installed
from doi_proxy.errors import ConfigurationError
from doi_proxy.features import NAMES


def test_needs_has_no_cycle() -> None:
    seen: set[str] = set()
    for feature in installed():
        assert seen.issuperset(feature.needs), feature.name
        seen.add(feature.name)
    assert seen == set(NAMES)


def test_an_installed_feature_that_needs_a_missing_one_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "NAMES", [name for name in NAMES if name != "metadata"])
    installed.cache_clear()
    try:
        with pytest.raises(ConfigurationError, match="the feature lists needs the feature metadata, which is not"):
            installed()
    finally:
        installed.cache_clear()
