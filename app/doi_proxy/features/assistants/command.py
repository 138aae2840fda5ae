"""`doi-proxy mcp`: the tools for assistants, over standard input and output."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from doi_proxy.features.assistants.feature import Assistants
from doi_proxy.features.feature import Command, CommandContext, add_server, require_libraries
from doi_proxy.proxy_client import ProxyServer, parse_server
from doi_proxy.system.version import read_version

if TYPE_CHECKING:
    from mcp.server import Server

    from doi_proxy.features.assistants.tools import Names

log = logging.getLogger(__name__)

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def run_mcp(context: CommandContext, namespace: argparse.Namespace) -> int:
    """Serve until the client leaves or a signal ends the process. Raises ConfigurationError."""
    require_libraries(Assistants)
    server = None if namespace.server is None else parse_server(namespace.server, "--server")
    context.begin_logging()
    return asyncio.run(_serve_standard_streams(context, server))


async def _serve_standard_streams(context: CommandContext, server: ProxyServer | None) -> int:
    from doi_proxy.features.assistants.server import serve_standard_streams

    async with _open_server(context, server) as tools:
        # The largest message of a client, in bytes.
        await _run_until_signal(serve_standard_streams(tools, 1024 * 1024))
    return 0


async def _run_until_signal(work: Awaitable[None]) -> None:
    """Await the work, and cancel it at the first signal. The next signal ends the process."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)

    def stop() -> None:
        for number in _ENDING:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in _ENDING:
        loop.add_signal_handler(number, stop)
    try:
        with suppress(asyncio.CancelledError):
            await task
    except* (BrokenPipeError, ConnectionResetError):
        log.info("the client has left")
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def _open_server(context: CommandContext, server: ProxyServer | None) -> AsyncIterator[Server[Any]]:
    """The tools, which look names up at `server`, or in this process as a running proxy does.

    Raises ConfigurationError.
    """
    from doi_proxy.features.assistants.server import create_server
    from doi_proxy.features.assistants.tools import CALL_TIMEOUT, OwnNames, ServerNames, ToolBounds, Tools
    from doi_proxy.features.lists.batch import build_batches
    from doi_proxy.features.metadata.feature import open_comparison
    from doi_proxy.features.suggestions.feature import build_suggested_names

    settings, bounds = context.settings, ToolBounds()
    base_url = (settings.public_url or "").rstrip("/") or None if server is None else server.url
    host = urlsplit(base_url or "").hostname
    async with AsyncExitStack() as stack:
        if server is None:
            core = await stack.enter_async_context(context.stores.open_as_service())
            suggested = build_suggested_names(settings, core, settings.public_url)
            compare = await stack.enter_async_context(open_comparison(settings, core))
            names: Names = OwnNames(build_batches(settings, core, suggested, compare=compare))
        else:
            # Each call that is under way holds a thread. The timeout of a call ends it, whatever the proxy does.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(bounds.calls))
            names = ServerNames(server, CALL_TIMEOUT)
        yield create_server(Tools(names, bounds, base_url, frozenset({host} if host else ())), read_version())


COMMANDS: Final = (
    Command(
        "mcp",
        lambda command: add_server(command, "look names up at this proxy; by default in this process, with its store"),
        run_mcp,
    ),
)
