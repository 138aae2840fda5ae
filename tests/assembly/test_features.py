"""The features that are installed, and what they need."""

from __future__ import annotations

import pytest

from doi_proxy.assembly import features
from doi_proxy.assembly.features import installed
from doi_proxy.errors import ConfigurationError
from doi_proxy.features import NAMES
from doi_proxy.features.feature import Feature, Observers
from doi_proxy.system.check import Service
from doi_proxy.web.stage import Admission, Encoder, Section, Stage, Stages
from tools.removable import find_heavy


def test_needs_has_no_cycle() -> None:
    seen: set[str] = set()
    for feature in installed():
        assert seen.issuperset(feature.needs), feature.name
        seen.add(feature.name)
    assert seen == set(NAMES)


def test_no_feature_takes_more_than_two_others_with_it() -> None:
    """`make removable` removes each one, and sees the rest start and answer."""
    assert {feature.name: heavy for feature in installed() if (heavy := find_heavy(feature.name))} == {}


@pytest.mark.parametrize("seam", [Admission, Encoder, Feature, Observers, Section, Service, Stage, Stages])
def test_a_seam_has_at_most_sixteen_members(seam: type) -> None:
    members = {name for name in (*vars(seam), *vars(seam).get("__annotations__", ())) if not name.startswith("_")}
    assert 0 < len(members) <= 16


def test_an_installed_feature_that_needs_a_missing_one_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "NAMES", [name for name in NAMES if name != "metadata"])
    installed.cache_clear()
    try:
        with pytest.raises(ConfigurationError, match="the feature lists needs the feature metadata, which is not"):
            installed()
    finally:
        installed.cache_clear()
