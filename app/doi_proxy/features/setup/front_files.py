"""`doi-proxy gen-config`: configurations of nginx, Apache httpd and Caddy from the templates here, and systemd units.

docs/generate.py writes the files in config/ for SHIPPED and SHIPPED_SUB_PATH.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.installation import CONFIG, SERVICE, SOCKET, TARGET, find_program, write_units
from doi_proxy.networks import EVERYONE
from doi_proxy.server.listening import UNIX
from doi_proxy.system.files import read_package_file
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
    text = _write_front(namespace, settings) if namespace.kind in FRONTS else _write_unit(namespace, settings)
    print(text, end="")
    return 0


def _write_unit(namespace: argparse.Namespace, settings: Settings) -> str:
    if namespace.backends or namespace.certificate or namespace.certificate_key or namespace.cache:
        raise ConfigurationError("--backend, --certificate, --certificate-key and --cache are for front proxies")
    config = namespace.config or Path(os.environ.get(CONFIG_VARIABLE) or CONFIG)
    return write_units(settings, config, find_program())[_UNITS[namespace.kind]]


def _write_front(namespace: argparse.Namespace, settings: Settings) -> str:
    front = read_front(
        settings,
        backends=namespace.backends,
        certificate=namespace.certificate,
        key=namespace.certificate_key,
        cached=namespace.cache,
    )
    return write_front(namespace.kind, front)


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
    # The public URL in a file for settings without one.
    front = Front(
        public_url=settings.public_url or "https://doi.example.org",
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


#: What the files in config/ are for: a host of its own, and a sub-path of another host.
_TWO: Final = ("127.0.0.1:8001", "127.0.0.1:8002")
SHIPPED: Final = Front("https://doi.example.org", _TWO)
SHIPPED_SUB_PATH: Final = Front("https://www.example.org/doi", _TWO)

#: The paths that take bodies of more than a name.
_LIST_PATHS: Final = ("/api/resolve", "/api/parse", "/api/extract")
#: An include of one of the files in `templates`.
_INCLUDE: Final = re.compile(r"^(\s*)(?:include|Include) (?:snippets|conf-available)/(\S+?);?$", re.MULTILINE)
_PLACEHOLDER: Final = re.compile(r"@([A-Z_]+)@")


def write_file(path: str, front: Front) -> str:
    """One configuration file, such as `nginx/doi-proxy.conf`."""
    find_values = {"nginx": _nginx_values, "apache": _apache_values, "caddy": _caddy_values}
    values = find_values[path.partition("/")[0]](front)
    template = read_package_file("doi_proxy.features.setup", "templates", path).decode()
    return "".join(_fill_line(line, values) for line in template.splitlines(keepends=True))


def write_front(kind: str, front: Front) -> str:
    """The whole configuration of one kind of front proxy in a single file. Raises ConfigurationError."""
    if front.cached and kind != "nginx":
        raise ConfigurationError("--cache: only the configuration of nginx has a cache")
    if kind == "caddy":
        return write_file("caddy/Caddyfile", front)
    main = "doi-proxy-sub-path.conf" if front.sub_path and kind == "nginx" else "doi-proxy.conf"
    text = write_file(f"{kind}/{main}", front)
    if front.cached:
        text = write_file("nginx/doi-proxy-cache.conf", front) + "\n" + text
    return _inline(kind, text, front)


def _inline(kind: str, text: str, front: Front) -> str:
    """Replace each include by the lines of its file: the first time with its comments, later without them."""
    seen: set[str] = set()

    def lines(match: re.Match[str]) -> str:
        indent, name = match[1], match[2]
        if kind == "apache" and front.sub_path:
            name = "doi-proxy-sub-path.conf"
        included = _inline(kind, write_file(f"{kind}/{name}", front), front).splitlines()
        if name in seen:
            included = [line for line in included if line and not line.lstrip().startswith("#")]
        seen.add(name)
        return "\n".join(f"{indent}{line}" if line else "" for line in included)

    return _INCLUDE.sub(lines, text)


def _fill_line(line: str, values: Mapping[str, str]) -> str:
    """A line with its placeholders replaced. A line that is only a placeholder takes several lines, or none."""
    alone = _PLACEHOLDER.fullmatch(line.strip())
    if alone is None:
        return _PLACEHOLDER.sub(lambda match: values[match[1]], line)
    indent = line[: len(line) - len(line.lstrip())]
    return "".join(f"{indent}{row}\n" if row else "\n" for row in values[alone[1]].splitlines())


def _nginx_values(front: Front) -> dict[str, str]:
    certificate, key = front.certificate_paths
    words = {"http": "", "https": " ssl"}
    listen = [
        f"listen {address}{port}{words[scheme]};" for scheme, port in front.ports.items() for address in ("", "[::]:")
    ]
    secure = f"ssl_certificate {certificate};\nssl_certificate_key {key};" if "https" in front.ports else ""
    include = "include snippets/doi-proxy-pass-lists.conf;"
    lists = [f"location = {front.sub_path}{path} {{\n    {include}\n}}" for path in _LIST_PATHS]
    return _shared_values(front) | {
        "SERVERS": "\n".join(f"server {backend} max_fails=1 fail_timeout=5s;" for backend in front.backends),
        "LISTEN": "\n".join(listen),
        "CERTIFICATE": secure,
        "PASS": _nginx_pass(front),
        "LISTS": "\n".join((*lists, _nginx_form(front))),
        "STATUS": _nginx_status(front),
    }


def _nginx_form(front: Front) -> str:
    limit = "# A file of references may have 4 MiB.\n    client_max_body_size 5m;"
    return f"location = {front.sub_path}/references {{\n    {limit}\n    include snippets/{_nginx_pass(front)};\n}}"


def _nginx_pass(front: Front) -> str:
    return "doi-proxy-pass-cached.conf" if front.cached else "doi-proxy-pass.conf"


def _nginx_status(front: Front) -> str:
    """The restriction of /status to status_networks. Empty if they have everyone."""
    if not front.status_networks:
        return ""
    rules = [
        *(f"allow {network};" for network in front.status_networks),
        "deny all;",
        f"include snippets/{_nginx_pass(front)};",
    ]
    return f"location = {front.sub_path}/status {{\n" + "".join(f"    {rule}\n" for rule in rules) + "}"


_MEMBER: Final = 'BalancerMember "{}" retry=5 connectiontimeout=2 timeout={} ttl=60 responsefieldsize=65536'


def _apache_values(front: Front) -> dict[str, str]:
    members = [_MEMBER.format(_apache_address(front, backend), front.timeout) for backend in front.backends]
    lists = [_MEMBER.format(_apache_address(front, backend), front.list_timeout) for backend in front.backends]
    hosts = "\n\n".join(_virtual_host(front, scheme, port) for scheme, port in front.ports.items())
    # The sub-path of a VirtualHost of its own is empty.
    paths = [f"{front.sub_path}{path}" for path in _LIST_PATHS]
    return _shared_values(front) | {
        "MEMBERS": "\n".join(members),
        "LIST_MEMBERS": "\n".join(f"{member} flushpackets=on" for member in lists),
        "HOSTS": hosts,
        "LISTS": "\n".join(f'ProxyPass "{path}" "balancer://doi-proxy-lists{path}" nocanon' for path in paths),
        "STATUS": _apache_status(front),
    }


def _apache_address(front: Front, backend: str) -> str:
    # The host after a socket names the member of the balancer, and is not connected to (mod_proxy, "ProxyPass").
    if backend.startswith(UNIX):
        return f"{backend}|http://{PurePosixPath(backend).stem}"
    return f"{front.backend_scheme}://{backend}"


def _apache_status(front: Front) -> str:
    if not front.status_networks:
        return ""
    return f'<Location "{front.sub_path}/status">\n    Require ip {" ".join(front.status_networks)}\n</Location>'


def _virtual_host(front: Front, scheme: str, port: int) -> str:
    certificate, key = front.certificate_paths
    secure = ["SSLEngine on", f"SSLCertificateFile {certificate}", f"SSLCertificateKeyFile {key}"]
    # The certificate of doi-proxy is for the public host, not for the address behind the front proxy.
    lines = [
        f"ServerName {front.host}",
        *(secure if scheme == "https" else []),
        *(("SSLProxyEngine on", "SSLProxyCheckPeerName off") if front.backend_scheme == "https" else []),
        "Include conf-available/doi-proxy-pass.conf",
    ]
    body = "".join(f"    {line}\n" for line in lines)
    return f"<VirtualHost *:{port}>\n{body}</VirtualHost>"


def _caddy_values(front: Front) -> dict[str, str]:
    usual = {"http": 80, "https": 443}
    addresses = [
        f"{scheme}://{front.host}{'' if port == usual[scheme] else f':{port}'}" for scheme, port in front.ports.items()
    ]
    return _shared_values(front) | {
        "SITES": "\n".join(_caddy_sites(front, addresses)),
        "REDIRECT": f"redir {front.sub_path} {front.sub_path}/" if front.sub_path else "",
        "LISTS": " ".join(f"{front.sub_path}{path}" for path in _LIST_PATHS),
        "STATUS": _caddy_status(front),
        # Caddy writes network addresses with a slash after the network.
        "BACKENDS": " ".join(backend.replace(UNIX, "unix/", 1) for backend in front.backends),
        "TLS_BACKEND": "tls_insecure_skip_verify" if front.backend_scheme == "https" else "",
    }


def _caddy_sites(front: Front, addresses: Sequence[str]) -> Iterator[str]:
    if not front.certificate:
        yield f"{', '.join(addresses)} {{\n\timport doi_proxy\n}}"
        return
    # Caddy refuses a certificate in a site that has http too.
    for address in addresses:
        tls = f"\ttls {front.certificate} {front.key}\n" if address.startswith("https:") else ""
        yield f"{address} {{\n{tls}\timport doi_proxy\n}}"


def _caddy_status(front: Front) -> str:
    if not front.status_networks:
        return ""
    networks = " ".join(front.status_networks)
    matcher = f"@foreign_status {{\n\tpath {front.sub_path}/status\n\tnot remote_ip {networks}\n}}\n"
    return f"{matcher}respond @foreign_status 403"


def _shared_values(front: Front) -> dict[str, str]:
    return {
        "HOST": front.host,
        "SUB_PATH": front.sub_path,
        "PUBLIC_URL": front.public_url,
        "SCHEME": front.backend_scheme,
        "TIMEOUT": str(front.timeout),
        "LIST_TIMEOUT": str(front.list_timeout),
    }


#: The files in config/ that docs/generate.py writes, and for which front proxy.
GENERATED: Final[Mapping[str, Front]] = {
    "nginx/doi-proxy.conf": SHIPPED,
    "nginx/doi-proxy-pass.conf": SHIPPED,
    "nginx/doi-proxy-pass-lists.conf": SHIPPED,
    "nginx/doi-proxy-pass-cached.conf": SHIPPED,
    "nginx/doi-proxy-cache.conf": SHIPPED,
    "nginx/doi-proxy-sub-path.conf": SHIPPED_SUB_PATH,
    "apache/doi-proxy.conf": SHIPPED,
    "apache/doi-proxy-pass.conf": SHIPPED,
    "apache/doi-proxy-sub-path.conf": SHIPPED_SUB_PATH,
    "caddy/Caddyfile": SHIPPED,
}
