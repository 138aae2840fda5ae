"""For the tests of features."""

from __future__ import annotations

import os

import pytest

from doi_proxy.system.options import ENV_PREFIX


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment without settings of doi-proxy and of HTTP proxies."""
    for name in list(os.environ):
        if name.startswith(ENV_PREFIX) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
