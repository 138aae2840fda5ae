"""The handle server under the name by which the black-box kit starts it: tests/features/native/server.py."""

from __future__ import annotations

import runpy

from tests.features.native.server import HandleServer

__all__ = ["HandleServer"]

if __name__ == "__main__":
    runpy.run_module("tests.features.native.server", run_name="__main__")
