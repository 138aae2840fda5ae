"""What the configuration of a front proxy depends on: the public URL, the addresses behind it, and the certificate."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final
from urllib.parse import urlsplit

from doi_proxy.errors import ConfigurationError
from doi_proxy.networks.network_list import EVERYONE
from doi_proxy.server.listening import UNIX
from doi_proxy.system.options import Settings, is_host_and_port
from doi_proxy.upstream.budget import QUEUE_TIMEOUT

#: A host name or an address in brackets, and a port; or a Unix socket.
_BACKEND: Final = re.compile(
    r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}|unix:/[A-Za-z0-9._~/@%+-]{1,106}"
)
#: Text that needs no quotes in a configuration.
_WORD: Final = re.compile(r"[A-Za-z0-9._~/@%+-]*")
#: The public URL in a file for settings without one.
EXAMPLE_URL: Final = "https://doi.example.org"
_PORTS: Final = {"http": 80, "https": 443}
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - read, not bound
#: The default of `status_networks`.
THIS_MACHINE: Final = ("127.0.0.0/8", "::1")
#: Seconds that the names of a list wait for the upstream; see app/doi_proxy/features/lists/batch.py.
LIST_WAIT: Final = 60.0
#: Twice the longest wait of a request, so the front proxy never gives up first.
_TIMEOUT_FACTOR: Final = 2.0


@dataclass(frozen=True, slots=True)
class Front:
    """A front proxy and what is behind it. A certificate of "" stands for the usual path of its host."""

    public_url: str
    #: Addresses such as `127.0.0.1:8001` or `unix:/run/doi-proxy/http.sock`.
    backends: tuple[str, ...]
    backend_scheme: str = "http"
    certificate: str = ""
    key: str = ""
    #: Whether the front proxy has a cache of its own.
    cached: bool = False
    #: Seconds that the front proxy waits for an answer.
    timeout: int = 30
    #: Seconds that it waits for the next row of a list.
    list_timeout: int = 120
    #: Networks whose clients may see /status. Empty for everyone.
    status_networks: tuple[str, ...] = THIS_MACHINE

    @property
    def host(self) -> str:
        """The host of the public URL."""
        return urlsplit(self.public_url).hostname or ""

    @property
    def sub_path(self) -> str:
        """The path of the public URL, without a slash at its end."""
        return urlsplit(self.public_url).path.rstrip("/")

    @property
    def ports(self) -> dict[str, int]:
        """The port of each scheme that the front proxy serves.

        Links in old papers begin with http, so both schemes are served on their usual ports. A public URL with a port
        of its own has only that one.
        """
        parts = urlsplit(self.public_url)
        if parts.port is not None:
            return {parts.scheme: parts.port}
        return dict(_PORTS) if parts.scheme == "https" else {"http": _PORTS["http"]}

    @property
    def certificate_paths(self) -> tuple[str, str]:
        """The files of the certificate chain and of its key."""
        folder = f"/etc/ssl/{self.host}"
        return self.certificate or f"{folder}/fullchain.pem", self.key or f"{folder}/key.pem"


def read_front(settings: Settings, *, backends: Sequence[str], certificate: str, key: str, cached: bool) -> Front:
    """The front proxy that fits these settings. Raises ConfigurationError.

    Without `backends`, there is one: the address on which this proxy listens.
    """
    host = _ANY_ADDRESS.get(settings.host, f"[{settings.host}]" if ":" in settings.host else settings.host)
    own = settings.host if settings.host.startswith(UNIX) else f"{host}:{settings.port}"
    front = Front(
        public_url=settings.public_url or EXAMPLE_URL,
        backends=tuple(backends) or (own,),
        backend_scheme="https" if settings.tls_cert else "http",
        certificate=certificate,
        key=key,
        cached=cached,
        timeout=math.ceil(_TIMEOUT_FACTOR * (settings.upstream_timeout + QUEUE_TIMEOUT)),
        list_timeout=math.ceil(_TIMEOUT_FACTOR * LIST_WAIT + settings.upstream_timeout),
        status_networks=_status_networks(settings),
    )
    for backend in front.backends:
        if not _BACKEND.fullmatch(backend) or not (backend.startswith(UNIX) or is_host_and_port(backend)):
            raise ConfigurationError(f"--backend {backend[:80]!r} is not an address; write HOST:PORT or unix:PATH")
    if bool(certificate) != bool(key):
        raise ConfigurationError("--certificate and --certificate-key: only one of them is given; give both")
    for text in (
        front.host,
        front.sub_path,
        certificate,
        key,
        *(network.replace(":", "") for network in front.status_networks),
    ):
        if not _WORD.fullmatch(text):
            raise ConfigurationError(f"{text[:80]!r} has a character with a meaning in configurations; choose another")
    return front


def _status_networks(settings: Settings) -> tuple[str, ...]:
    """The networks that may see /status. Empty for everyone, and if the feature that serves the page is not there."""
    networks: tuple[str, ...] | None = settings.value("status_networks")
    if networks is None or {ip_network(network) for network in networks} >= EVERYONE:
        return ()
    # Without a network, only the token opens /status, as the admin API, which is for this machine.
    return networks or THIS_MACHINE
