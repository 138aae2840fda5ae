"""The processes of tests/cluster/, for the tests of the server."""

from __future__ import annotations

from tests.cluster.conftest import start_proxy, start_upstream, store_file

__all__ = ["start_proxy", "start_upstream", "store_file"]
