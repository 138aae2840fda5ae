"""The network of an institution that sends the names of doi.org to its own resolver, with a certificate of its own CA.

Clients reach it through an HTTP proxy, so no test changes the DNS of the machine. To a client, it is doi.org in both
cases: the same URL, the same TLS handshake for the name, another certificate authority.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.certificates import Authority

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]

#: The names that lead to the resolver.
NAMES: Final = ("doi.org", "dx.doi.org", "www.doi.org", "hdl.handle.net")
#: The variables by which programs find the certificate authority.
_CA_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")


@dataclass
class Network:
    """`ca` is the file of the certificate authority. `hosts` are those that clients connected to, in order."""

    ca: Path
    port: int
    hosts: list[str] = field(default_factory=list)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of a program inside the network."""
        proxy = f"http://127.0.0.1:{self.port}"
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy)
        direct = {"no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"}
        inherited = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}
        return inherited | proxies | direct | dict.fromkeys(_CA_VARIABLES, str(self.ca))


@asynccontextmanager
async def institution(resolver: str, folder: Path) -> AsyncIterator[Network]:
    """The network around a resolver, whose base URL is plain HTTP on loopback."""
    authority = Authority(folder)
    tls = authority.issue(*NAMES).context
    port = urlsplit(resolver).port or 80

    network = Network(authority.file, 0)
    tasks: set[asyncio.Task[None]] = set()

    def listen(serve: Serve, tls: ssl.SSLContext | None = None) -> Awaitable[asyncio.Server]:
        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # asyncio itself keeps only a weak reference to the task of a connection.
            task = asyncio.ensure_future(serve(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        return asyncio.start_server(hold, "127.0.0.1", 0, ssl=tls)

    front = await listen(lambda reader, writer: _relay(reader, writer, port), tls)
    front_port = front.sockets[0].getsockname()[1]
    proxy = await listen(lambda reader, writer: _pass_on(network, reader, writer, plain=port, tls=front_port))
    network.port = proxy.sockets[0].getsockname()[1]
    async with front, proxy:
        yield network
        front.close()
        proxy.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(
    network: Network, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, plain: int, tls: int
) -> None:
    """Serve a connection: CONNECT (RFC 9110, section 9.3.6) or a request in absolute form (RFC 9112, section 3.2.2)."""
    first, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    method, target, version = first.split(b" ")
    is_tunnel = method == b"CONNECT"
    url = urlsplit(("//" if is_tunnel else "") + target.decode("ascii"))
    # requests ignores NO_PROXY after a redirect, so targets on loopback are requested here too.
    is_target = url.hostname == "127.0.0.1"
    if not is_target:
        network.hosts.append(url.hostname or "")
    if url.hostname not in NAMES and not is_target:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()
    elif is_tunnel:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await _relay(reader, writer, tls)
    else:
        path = target.split(b"/", 3)[3]
        lines = [line for line in rest.split(b"\r\n") if not line.lower().startswith((b"connection:", b"proxy-"))]
        head = b"\r\n".join([method + b" /" + path + b" " + version, b"Connection: close", *lines])
        await _relay(reader, writer, (url.port or 80) if is_target else plain, head)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, head: bytes = b"") -> None:
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    far_writer.write(head)
    upwards = asyncio.ensure_future(_copy(reader, far_writer))
    try:
        # The resolver ends the connection; a client may end its half before.
        await _copy(far_reader, writer)
    finally:
        upwards.cancel()
        await asyncio.gather(upwards, return_exceptions=True)
        far_writer.close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
