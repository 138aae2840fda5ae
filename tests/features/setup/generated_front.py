"""Front proxies that run the files of `doi-proxy gen-config`. Only ports, certificates and folders are replaced."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from app.features.setup.front import Front
from app.features.setup.front_files import write_front
from tests.cluster.front_proxy import APACHE_MODULES, FrontProxy, program

#: Of Debian's apache2: what `a2enmod` enables, with what these need.
_MODULES: Final = (
    "mpm_event authz_core authz_host setenvif headers alias socache_shmcb ssl slotmem_shm"
    " proxy proxy_http proxy_balancer lbmethod_byrequests"
)


class GeneratedFront(FrontProxy):
    """One generated configuration, for ports or Unix sockets. `change` edits its text, for a fault to find."""

    def __init__(
        self,
        folder: Path,
        kind: str,
        ports: Sequence[int | str],
        *,
        cached: bool = False,
        change: Callable[[str], str] = str,
    ) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder)
        backends = tuple(f"127.0.0.1:{port}" if isinstance(port, int) else port for port in ports)
        certificate = str(self.certificate), str(self.key)
        front = Front("https://127.0.0.1", backends, "http", *certificate, cached=cached)
        text = change(write_front(kind, front))
        command = {"nginx": self._nginx, "apache": self._apache, "caddy": self._caddy}[kind](text)
        self.run(*command)

    @property
    def url(self) -> str:
        """The address over https."""
        return f"https://127.0.0.1:{self.tls_port}"

    def _nginx(self, text: str) -> list[str]:
        text = re.sub(r"listen \[::\]:(80|443)( ssl)?;", "", text)
        text = text.replace("listen 80;", f"listen 127.0.0.1:{self.port};")
        text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{self.tls_port} ssl;")
        text = re.sub("/var/(log|cache)/nginx", str(self.folder), text)
        folders = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{one}_temp_path {self.folder}/{one};\n" for one in folders)
        user = "" if os.geteuid() else f"user {pwd.getpwuid(0).pw_name};\n"
        head = f"{user}pid {self.folder}/pid;\nerror_log {self.folder}/error.log;\nevents {{}}\n"
        (self.folder / "nginx.conf").write_text(f"{head}http {{\naccess_log off;\n{temporary}{text}\n}}\n", "utf-8")
        return [program("nginx"), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf"), "-g", "daemon off;"]

    def _apache(self, text: str) -> list[str]:
        text = text.replace("*:80>", f"127.0.0.1:{self.port}>").replace("*:443>", f"127.0.0.1:{self.tls_port}>")
        modules = "".join(f"LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so\n" for name in _MODULES.split())
        user = "" if os.geteuid() else "User nobody\nGroup nogroup\n"
        frame = (
            f"ServerRoot {self.folder}\nServerName localhost\nPidFile {self.folder}/pid\n"
            f"DefaultRuntimeDir {self.folder}\nErrorLog {self.folder}/error.log\n{modules}{user}"
            f"Listen 127.0.0.1:{self.port}\nListen 127.0.0.1:{self.tls_port}\n"
        )
        (self.folder / "apache2.conf").write_text(frame + text, "utf-8")
        return [program("apache2"), "-X", "-f", str(self.folder / "apache2.conf")]

    def _caddy(self, text: str) -> list[str]:
        # A certificate for a plain address needs no server name. The site over http has none.
        addresses, _, body = text.partition(" {\n")
        comments = "\n".join(line for line in addresses.splitlines() if line.startswith("#"))
        plain = body.replace(f"\ttls {self.certificate} {self.key}\n", "")
        options = f"{{\nadmin off\nauto_https off\nstorage file_system {self.folder}\n}}\n"
        sites = f"http://:{self.port} {{\nbind 127.0.0.1\n{plain}\nhttps://:{self.tls_port} {{\nbind 127.0.0.1\n{body}"
        (self.folder / "Caddyfile").write_text(f"{comments}\n{options}{sites}", "utf-8")
        return [program("caddy"), "run", "--config", str(self.folder / "Caddyfile"), "--adapter", "caddyfile"]
