"""`doi-proxy mcp`: the tools for assistants, over standard input and output or over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import gc
import ipaddress
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from app import __version__
from app.errors import ConfigurationError
from app.features.assistants.feature import FEATURE
from app.features.command import Command, CommandContext
from app.features.feature import require_libraries
from app.features.options import Settings
from app.proxy_client.server import ProxyServer, parse_server

if TYPE_CHECKING:
    from mcp.server import Server

    from app.features.assistants.names import Names

log = logging.getLogger(__name__)

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
#: The largest message of a client, in bytes.
_MAX_MESSAGE_BYTES: Final = 1024 * 1024
_MAX_PORT: Final = 65_535


def add_mcp_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument(
        "--http", metavar="HOST:PORT", help="serve over HTTP at /mcp; by default over standard input and output"
    )
    command.add_argument(
        "--server", metavar="URL", help="look names up at this proxy; by default in this process, with its store"
    )


def run_mcp(context: CommandContext, namespace: argparse.Namespace) -> int:
    """Serve until the client leaves or a signal ends the process. Raises ConfigurationError."""
    require_libraries(FEATURE)
    server = None if namespace.server is None else parse_server(namespace.server, "--server")
    if namespace.http is not None:
        return _serve_http(context, server, *_read_address(namespace.http, context.settings))
    context.begin_logging()
    return asyncio.run(_serve_standard_streams(context, server))


def _read_address(address: str, settings: Settings) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ConfigurationError(f"--http {address}: not HOST:PORT, such as 127.0.0.1:8010")
    host = host.strip("[]")
    if not _is_loopback(host) and not settings.value("mcp_hosts"):
        raise ConfigurationError(
            f"--http {address}: other machines can connect to this address; set mcp_hosts to the names by which they "
            "do, so requests with other names can be refused"
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    """Whether only programs on this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _serve_standard_streams(context: CommandContext, server: ProxyServer | None) -> int:
    from app.features.assistants.server import serve_standard_streams

    async with _open_server(context, server) as tools:
        await _run_until_signal(serve_standard_streams(tools, _MAX_MESSAGE_BYTES))
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


def _serve_http(context: CommandContext, server: ProxyServer | None, host: str, port: int) -> int:
    from app.features.signal_server import ignore_hangup
    from app.server.listening import listen

    context.begin_logging()
    # At INFO, the SDK logs "Terminating session: None" for each request.
    logging.getLogger("mcp.server.streamable_http").setLevel(logging.WARNING)
    ignore_hangup()
    listening = listen(host, port)
    try:
        return asyncio.run(_serve_socket(context, server, host, listening))
    finally:
        listening.close()


async def _serve_socket(
    context: CommandContext, server: ProxyServer | None, host: str, listening: socket.socket
) -> int:
    from app.features.assistants.server import PATH, HttpApplication, create_application, list_hosts
    from app.features.signal_server import SignalServer
    from app.server.certificate import Certificate
    from app.server.http_server import Events, ServerOptions

    settings, port = context.settings, listening.getsockname()[1]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"
    events = Events(ready=lambda: log.info("serving the tools on %s (Ctrl-C stops it)", address), draining=lambda: None)
    options = ServerOptions(
        trusted_proxies=settings.trusted_proxies,
        certificate=Certificate(None, None),
        drain_seconds=0.0,
        grace_seconds=settings.grace_seconds,
    )
    async with _open_server(context, server) as tools:
        hosts = list_hosts(host, port, settings.value("mcp_hosts"))
        application = create_application(tools, hosts, _MAX_MESSAGE_BYTES)
        connections = context.open_connections()
        # A full collection of what was imported took 117 ms in one turn of the event loop.
        gc.freeze()
        served = HttpApplication(application, connections, _MAX_MESSAGE_BYTES)
        http = SignalServer(served, options, events, reload=_do_not_reload)
        await http.serve(sockets=[listening])
    return 0 if http.started else 1


def _do_not_reload() -> None:
    log.warning("SIGHUP: `doi-proxy mcp` does not reload its settings; restart it")


@asynccontextmanager
async def _open_server(context: CommandContext, server: ProxyServer | None) -> AsyncIterator[Server[Any]]:
    """The tools, which look names up at `server`, or in this process as a running proxy does.

    Raises ConfigurationError.
    """
    from app.features.assistants.names import OwnNames, ServerNames
    from app.features.assistants.server import create_server
    from app.features.assistants.tools import CALL_TIMEOUT, ToolBounds, Tools
    from app.features.lists.batch import build_batches
    from app.features.metadata.feature import open_comparison
    from app.features.suggestions.feature import build_suggested_names

    settings, bounds = context.settings, ToolBounds()
    base_url = (settings.public_url or "").rstrip("/") or None if server is None else server.url
    host = urlsplit(base_url or "").hostname
    async with AsyncExitStack() as stack:
        if server is None:
            core = await stack.enter_async_context(context.stores.open_as_service())
            suggested = build_suggested_names(settings, core.resolver, settings.public_url)
            compare = await stack.enter_async_context(open_comparison(settings, core, suggested))
            names: Names = OwnNames(build_batches(settings, core, suggested, compare=compare))
        else:
            # Each call that is under way holds a thread. The timeout of a call ends it, whatever the proxy does.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(bounds.calls))
            names = ServerNames(server, CALL_TIMEOUT)
        yield create_server(Tools(names, bounds, base_url, frozenset({host} if host else ())), __version__)


COMMANDS: Final = (Command("mcp", add_mcp_arguments, run_mcp),)
