"""The handle server under the name by which the black-box kit starts it: tests/handle_protocol/server.py."""

from __future__ import annotations

import runpy

from tests.handle_protocol.server import HandleServer

__all__ = ["HandleServer"]

if __name__ == "__main__":
    runpy.run_module("tests.handle_protocol.server", run_name="__main__")
