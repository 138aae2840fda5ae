"""`doi-proxy gen-config`: the front proxies in config/ with the values of these settings, and systemd units."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.installation import (
    CONFIG,
    SERVICE,
    SOCKET,
    TARGET,
    find_program,
    read_shipped,
    write_units,
)
from doi_proxy.networks import EVERYONE
from doi_proxy.server.listening import UNIX
from doi_proxy.system.options import CONFIG_VARIABLE, Settings, is_host_and_port
from doi_proxy.upstream.budget import QUEUE_TIMEOUT

#: The front proxies for which this module writes a configuration.
FRONTS: Final = ("nginx", "apache", "caddy")
_UNITS: Final = {"systemd": SERVICE, "systemd-socket": SOCKET, "systemd-target": TARGET}


def add_gen_config_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `doi-proxy gen-config`."""
    command.add_argument(
        "kind",
        choices=(*FRONTS, *_UNITS),
        help="front proxy, or the unit of systemd, its socket, or its target",
    )
    command.add_argument(
        "--backend",
        dest="backends",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="address of a doi-proxy; repeat it for several (default: the address of these settings)",
    )
    command.add_argument("--certificate", default="", metavar="FILE", help="certificate chain of the front proxy")
    command.add_argument("--certificate-key", default="", metavar="FILE", help="key of this certificate")
    command.add_argument("--cache", action="store_true", help="with an HTTP cache in the front proxy (nginx only)")


def gen_config(namespace: argparse.Namespace, settings: Settings) -> int:
    """Print a configuration. Raises ConfigurationError."""
    certificate, key = namespace.certificate, namespace.certificate_key
    if namespace.kind in FRONTS:
        backends = namespace.backends
        front = read_front(settings, backends=backends, certificate=certificate, key=key, cached=namespace.cache)
        text = write_front(namespace.kind, front)
    elif namespace.backends or certificate or key or namespace.cache:
        raise ConfigurationError("--backend, --certificate, --certificate-key and --cache are for front proxies")
    else:
        config = namespace.config or Path(os.environ.get(CONFIG_VARIABLE) or CONFIG)
        text = write_units(settings, config, find_program())[_UNITS[namespace.kind]]
    print(text, end="")
    return 0


#: A host name or an address in brackets, and a port; or a Unix socket.
_BACKEND: Final = re.compile(
    r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}|unix:/[A-Za-z0-9._~/@%+-]{1,106}"
)
#: Text that needs no quotes in a configuration.
_WORD: Final = re.compile(r"[A-Za-z0-9._~/@%+-]*")
_PORTS: Final = {"http": 80, "https": 443}
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - read, not bound
#: The default of `status_networks`.
THIS_MACHINE: Final = ("127.0.0.0/8", "::1")
#: Seconds that the names of a list wait for the upstream; see app/doi_proxy/features/lists/batch.py.
LIST_WAIT: Final = 60.0


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
        certificate, key = _certificates(self.host)
        return self.certificate or certificate, self.key or key


def read_front(settings: Settings, *, backends: Sequence[str], certificate: str, key: str, cached: bool) -> Front:
    """The front proxy that fits these settings. Raises ConfigurationError.

    Without `backends`, there is one: the address on which this proxy listens.
    """
    host = _ANY_ADDRESS.get(settings.host, f"[{settings.host}]" if ":" in settings.host else settings.host)
    own = settings.host if settings.host.startswith(UNIX) else f"{host}:{settings.port}"
    # The networks that see /status. The setting is not there without the feature that serves the page. Without a
    # network, only the token opens it, as the admin API, which is for this machine.
    networks: tuple[str, ...] | None = settings.value("status_networks")
    is_public = networks is None or {ip_network(network) for network in networks} >= EVERYONE
    seen = () if is_public else networks or THIS_MACHINE
    # The public URL in a file for settings without one.
    front = Front(
        public_url=settings.public_url or "https://doi.example.org",
        backends=tuple(backends) or (own,),
        backend_scheme="https" if settings.tls_cert else "http",
        certificate=certificate,
        key=key,
        cached=cached,
        # Twice the longest wait of a request, so the front proxy never gives up first.
        timeout=math.ceil(2.0 * (settings.upstream_timeout + QUEUE_TIMEOUT)),
        list_timeout=math.ceil(2.0 * LIST_WAIT + settings.upstream_timeout),
        status_networks=seen,
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


#: An include of another file of the same folder in config/.
_INCLUDE: Final = re.compile(r"^(\s*)(?:include|Include) (?:snippets|conf-available)/(\S+?);?$", re.MULTILINE)


def write_front(kind: str, front: Front) -> str:
    """The whole configuration of one kind of front proxy in a single file. Raises ConfigurationError.

    It is what config/ has for that kind, with the values of this front proxy in the place of the examples.
    """
    if front.cached and kind != "nginx":
        raise ConfigurationError("--cache: only the configuration of nginx has a cache")
    return {"nginx": _write_nginx, "apache": _write_apache, "caddy": _write_caddy}[kind](front)


def _inline(folder: str, text: str) -> str:
    """Replace each include by the lines of its file: the first time with its comments, later without them."""
    seen = set[str]()

    def read_lines(match: re.Match[str]) -> str:
        indent, name = match[1], match[2]
        included = _inline(folder, read_shipped(f"{folder}/{name}")).splitlines()
        if name in seen:
            included = [line for line in included if line and not line.lstrip().startswith("#")]
        seen.add(name)
        return "\n".join(f"{indent}{line}" if line else "" for line in included)

    return _INCLUDE.sub(read_lines, text)


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each example by its value, all at once: a value may contain the example of another one."""
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], text)


def _repeat(text: str, example: str, backends: Iterable[str]) -> str:
    """Write the line of the first backend once for each backend, and leave out that of the second."""
    lines = [line for line in text.splitlines(keepends=True) if "127.0.0.1:8002" not in line]
    return "".join(
        line.replace(example, backend) for line in lines for backend in (backends if example in line else ("",))
    )


def _write_nginx(front: Front) -> str:
    host = "www.example.org" if front.sub_path else "doi.example.org"
    name = "doi-proxy-sub-path.conf" if front.sub_path else "doi-proxy.conf"
    text = read_shipped(f"nginx/{name}")
    if not front.status_networks:
        text = re.sub(r" *location = \S*/status {[^}]*}\n", "", text)
    if front.cached:
        text = text.replace("snippets/doi-proxy-pass.conf", "snippets/doi-proxy-pass-cached.conf")
        text = read_shipped("nginx/doi-proxy-cache.conf") + "\n" + text
    text = re.sub(r"/doi(?=[/ ;`\"])", front.sub_path, _inline("nginx", text))

    def listen(found: re.Match[str]) -> str:
        port = front.ports.get("https" if found[2] else "http")
        return "" if port is None else f"{found[1]}{port}{found[2]};\n"

    text = re.sub(r"^( *listen (?:\[::\]:)?)(?:80|443)( ssl|);\n", listen, text, flags=re.MULTILINE)
    if "https" not in front.ports:
        text = re.sub(r"^ *ssl_certificate.*\n", "", text, flags=re.MULTILINE)
    rules = "\n        ".join(f"allow {network};" for network in front.status_networks)
    values = {
        f"https://{host}{front.sub_path}": front.public_url,
        **dict(zip(_certificates(host), front.certificate_paths, strict=True)),
        host: front.host,
        "allow 127.0.0.0/8;\n        allow ::1;": rules,
        "proxy_pass http:": f"proxy_pass {front.backend_scheme}:",
        "proxy_read_timeout 30s": f"proxy_read_timeout {front.timeout}s",
        "proxy_read_timeout 120s": f"proxy_read_timeout {front.list_timeout}s",
    }
    return _repeat(_fill(text, values), "127.0.0.1:8001", front.backends)


def _certificates(host: str) -> tuple[str, str]:
    folder = f"/etc/ssl/{host}"
    return f"{folder}/fullchain.pem", f"{folder}/key.pem"


def _write_apache(front: Front) -> str:
    host = "doi.example.org"
    text = read_shipped("apache/doi-proxy.conf")

    def serve(found: re.Match[str]) -> str:
        port = front.ports.get("http" if found[1] == "80" else "https")
        return "" if port is None else found[0].replace(f"*:{found[1]}", f"*:{port}", 1)

    text = re.sub(r"<VirtualHost \*:(80|443)>\n.*?</VirtualHost>\n\n?", serve, text, flags=re.DOTALL)
    if front.sub_path:
        text = text.replace("conf-available/doi-proxy-pass.conf", "conf-available/doi-proxy-sub-path.conf")
    text = re.sub(r"/doi(?=[/ $\"])", front.sub_path, _inline("apache", text))
    if not front.status_networks:
        text = re.sub(r' *<Location "\S*/status">\n[^<]*</Location>\n', "", text)
    # The certificate of doi-proxy is for the public host, not for the address behind the front proxy.
    behind = "\n    SSLProxyEngine on\n    SSLProxyCheckPeerName off" if front.backend_scheme == "https" else ""
    values = {
        f"https://www.example.org{front.sub_path}": front.public_url,
        **dict(zip(_certificates(host), front.certificate_paths, strict=True)),
        f"ServerName {host}": f"ServerName {front.host}{behind}",
        "Require ip 127.0.0.0/8 ::1": f"Require ip {' '.join(front.status_networks)}",
        " timeout=30": f" timeout={front.timeout}",
        " timeout=120": f" timeout={front.list_timeout}",
    }
    # The host after a socket names the member of the balancer, and is not connected to (mod_proxy, "ProxyPass").
    members = [
        f"{backend}|http://{PurePosixPath(backend).stem}"
        if backend.startswith(UNIX)
        else f"{front.backend_scheme}://{backend}"
        for backend in front.backends
    ]
    return _repeat(_fill(text, values), "http://127.0.0.1:8001", members)


def _write_caddy(front: Front) -> str:
    text = read_shipped("caddy/Caddyfile")
    if not front.status_networks:
        text = re.sub(r"\t@foreign_status {[^}]*}\n\trespond @foreign_status 403\n", "", text)
    text = re.sub(r"(?<= )/(?=metrics|admin/|status$|api/|healthz|\*)", f"{front.sub_path}/", text, flags=re.MULTILINE)
    usual = {"http": 80, "https": 443}
    addresses = [
        f"{scheme}://{front.host}{'' if port == usual[scheme] else f':{port}'}" for scheme, port in front.ports.items()
    ]
    if front.certificate:
        # Caddy refuses a certificate in a site that has http too.
        tls = f"\ttls {front.certificate} {front.key}\n"
        sites = [f"{one} {{\n{tls if one.startswith('https:') else ''}\timport doi_proxy\n}}" for one in addresses]
    else:
        sites = [f"{', '.join(addresses)} {{\n\timport doi_proxy\n}}"]
    redirect = f"\tredir {front.sub_path} {front.sub_path}/\n" if front.sub_path else ""
    behind = "\n\t\t\ttls_insecure_skip_verify" if front.backend_scheme == "https" else ""
    values = {
        "http://doi.example.org, https://doi.example.org {\n\timport doi_proxy\n}": "\n".join(sites),
        "(doi_proxy) {\n": f"(doi_proxy) {{\n{redirect}",
        # Caddy writes network addresses with a slash after the network.
        "127.0.0.1:8001 127.0.0.1:8002": " ".join(backend.replace(UNIX, "unix/", 1) for backend in front.backends),
        "not remote_ip 127.0.0.0/8 ::1": f"not remote_ip {' '.join(front.status_networks)}",
        "dial_timeout 2s": f"dial_timeout 2s{behind}",
        "response_header_timeout 30s": f"response_header_timeout {front.timeout}s",
        "response_header_timeout 120s": f"response_header_timeout {front.list_timeout}s",
    }
    return _fill(text, values)
