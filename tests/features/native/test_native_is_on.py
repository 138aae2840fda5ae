"""When handle servers are an upstream."""

from __future__ import annotations

from typing import Any

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.features.native.feature import Native


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [
        ({}, False),
        ({"upstream_url": "hdl:", "upstream_bootstrap": "root.json"}, True),
        ({"upstream_url": "https://doi.org, hdl://192.0.2.1"}, True),
        ({"upstream_routes": "10.1000=hdl://192.0.2.1"}, True),
        ({"upstream_url": "hdl://192.0.2.1", "mode": "sealed"}, False),
    ],
)
def test_a_url_that_begins_with_hdl_turns_it_on_unless_the_resolver_is_sealed(
    settings: dict[str, Any], is_on: bool
) -> None:
    assert Native.is_on(Settings(**settings)) is is_on
