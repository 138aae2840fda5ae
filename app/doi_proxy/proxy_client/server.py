"""The address of a running proxy."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from doi_proxy.errors import ConfigurationError
from doi_proxy.server.listening import UNIX
from doi_proxy.system.redaction import MAX_SHOWN, redact

_FORMS: Final = "not a URL such as http://127.0.0.1:8000, or unix: and the path of a socket"


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """Where a proxy listens. `label` names it in messages, without secrets."""

    label: str
    host: str
    port: int | None = None
    is_tls: bool = False
    #: Whether the certificate is checked.
    verifies: bool = True
    #: The path before every target, without a slash at its end.
    path: str = ""
    socket_path: str | None = None
    #: `Authorization` for the user and the password in the URL (RFC 7617), for a front proxy that requests them.
    credentials: str | None = None
    #: Whether a connection begins with a header of the PROXY protocol.
    has_proxy_protocol: bool = False

    @property
    def netloc(self) -> str:
        """The host and the port, as `Host` has them: without the port of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in (None, 443 if self.is_tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str | None:
        """The URL without a user. None for a socket."""
        return None if self.socket_path else f"http{'s' * self.is_tls}://{self.netloc}{self.path}"


def parse_server(text: str, option: str, *, verifies: bool = True) -> ProxyServer:
    """The proxy at a URL, or at `unix:` and the path of a socket. Raises ConfigurationError, which names `option`."""
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return ProxyServer(text, "localhost", socket_path=text.removeprefix(UNIX))
    try:
        return _read_url(text, verifies=verifies)
    except ValueError as error:
        shown = redact(text)[:MAX_SHOWN].encode("unicode_escape").decode()
        raise ConfigurationError(f"{option} {shown}: {_FORMS}: {error}") from error


def _read_url(text: str, *, verifies: bool) -> ProxyServer:
    # urlsplit removes line breaks and tabs, and http.client refuses other control characters only when it sends them.
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a character is not allowed in a URL")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it does not begin with http:// or https:// and a host")
    if parts.query or parts.fragment:
        raise ValueError("it has a query or a fragment")
    if parts.port == 0:
        raise ValueError("port 0 cannot be connected to")
    # The names of hosts are looked up with IDNA, which refuses an empty label and one of more than 63 characters.
    parts.hostname.encode("idna")
    return ProxyServer(
        redact(text),
        parts.hostname,
        parts.port,
        parts.scheme == "https",
        verifies,
        parts.path.rstrip("/"),
        credentials=_read_credentials(parts),
    )


def _read_credentials(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    text = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def server_on_this_machine(host: str, port: int, *, is_tls: bool) -> ProxyServer:
    """The proxy that listens on an address of this machine.

    Its certificate is for the public host, not for this address, so it is not checked. No request leaves the machine.
    """
    if host.startswith(UNIX):
        return parse_server(host, "host")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    return ProxyServer(f"{host} port {port}", host, port, is_tls, verifies=False)
