"""A feature can be removed. `make removable` tries each; this tries one."""

from __future__ import annotations

import pytest

from tools.removable import dependents, try_without

pytestmark = pytest.mark.repository


def test_those_that_need_a_feature_go_with_it() -> None:
    assert dependents("metadata") >= {"metadata", "lists", "references"}
    assert dependents("assistants") == {"assistants"}


@pytest.mark.process
def test_a_proxy_without_a_feature_starts_and_answers() -> None:
    assert try_without("library") == ""
