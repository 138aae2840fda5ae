"""A feature can be removed. `make removable` tries each; this tries one."""

from __future__ import annotations

import pytest

from tools.removable import dependents, find_changed, try_without

pytestmark = pytest.mark.repository


def test_those_that_need_a_feature_go_with_it() -> None:
    assert dependents("metadata") >= {"metadata", "lists", "assistants"}
    assert dependents("assistants") == {"assistants"}


def test_a_feature_has_changed_if_a_path_in_its_folder_has() -> None:
    paths = [
        "app/doi_proxy/features/help/feature.py",
        "app/doi_proxy/features/help/texts/de.toml",
        "app/doi_proxy/system/options.py",
        "docs/index.md",
    ]
    assert find_changed(paths) == ["help"]


@pytest.mark.process
def test_a_proxy_without_a_feature_starts_and_answers() -> None:
    assert try_without("library") == ""
