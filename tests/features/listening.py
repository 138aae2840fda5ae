"""An application that listens, for clients that block or are commands."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn


@asynccontextmanager
async def listening(app: Any, **config: Any) -> AsyncIterator[str]:
    """The base URL of an application on a port of 127.0.0.1. `config` is that of uvicorn."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, **config))
        task = asyncio.create_task(server.serve([bound]))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        server.should_exit = True
        await task
