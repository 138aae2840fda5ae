"""What the program spares itself when it imports the service."""

from __future__ import annotations

import gc
import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def collect_nothing() -> Iterator[None]:
    """Keep the garbage collector away from what is imported: now, which takes 6 % of an import, and later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def skip_httpx_command_line() -> None:
    """Keep httpx from importing its command-line program, and with it rich and pygments.

    httpx is prepared for their absence. They would take a seventh of the time to start. Call this before
    doi_proxy.upstream is imported.
    """
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]


def skip_pydantic_v1() -> None:
    """Keep FastAPI from importing the models of pydantic 1, which nothing here uses: 60 ms of the start.

    FastAPI is prepared for their absence. Call this before the routes are built.
    """
    sys.modules.setdefault("pydantic.v1", None)  # type: ignore[arg-type]


def skip_pydantic_plugins() -> None:
    """Keep pydantic from searching all installed packages for plugins. Call this before the first model is built."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def import_aiohttp() -> None:
    """Import aiohttp, which makes two TLS contexts, without the certificates of the system: 37 ms of the start.

    These contexts then trust no certificate. The program does not use them: whatever connects by TLS loads its own, by
    doi_proxy.upstream.client.load_authorities. A use of one by mistake would fail, and trust nothing.
    """
    # The method of the base class comes back with the deletion.
    ssl.SSLContext.set_default_verify_paths = lambda _: None  # type: ignore[assignment,method-assign]
    try:
        import_module("aiohttp")
    finally:
        del ssl.SSLContext.set_default_verify_paths


def defer_openapi_models() -> None:
    """Let FastAPI complete its models of OpenAPI at the first request for the document: a tenth of the time to start.

    Call this before FastAPI is imported.
    """
    from pydantic import BaseModel

    # Models inherit it (pydantic.dev, ConfigDict.defer_build); it is in force for those of this module alone.
    BaseModel.model_config["defer_build"] = True
    try:
        import_module("fastapi.openapi.models")
    finally:
        del BaseModel.model_config["defer_build"]
