"""Real front proxies with the shipped configurations. Only ports, certificates and folders are replaced."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pytest

from tests.certificates import self_signed
from tests.cluster.processes import ROOT, START_DEADLINE, Process, until
from tests.cluster.raw_http import Answered, ask
from tests.ports import free_port

CONFIG: Final = ROOT / "config"
APACHE_MODULES: Final = Path("/usr/lib/apache2/modules")
#: Of Debian's apache2: what `a2enmod` of config/apache/doi-proxy.conf enables, with what these need.
_LOADED: Final = (
    "mpm_event authz_core authz_host setenvif headers alias socache_shmcb ssl slotmem_shm"
    " proxy proxy_http proxy_balancer lbmethod_byrequests"
)


def program(name: str) -> str:
    """The path of a program. Skips the test if the program is missing; on CI, a missing nginx is a failure."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        say = pytest.fail if os.environ.get("CI") and name == "nginx" else pytest.skip
        say(f"there is no {name}: install Debian's package {name}")
    return found


def placed(shipped: Path, changes: Mapping[str, str]) -> str:
    """A shipped configuration with replaced texts. It must contain each of them."""
    text = shipped.read_text("utf-8")
    for old, new in changes.items():
        assert old in text, f"{shipped.name} has no {old!r}"
        text = text.replace(old, new)
    return text


def documented_threads() -> str:
    """The lines of docs/operations.md that give Apache enough threads."""
    found = re.search(r"```apache\n(StartServers.*?)```", (ROOT / "docs/operations.md").read_text("utf-8"), re.DOTALL)
    assert found, "docs/operations.md has no lines for the threads of Apache"
    return found[1]


class FrontProxy:
    """A running front proxy, with a port for http and one for https."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.tls_port = free_port(), free_port()
        self.certificate, self.key = self_signed(folder)
        self._tls = ssl.create_default_context(cafile=str(self.certificate))
        self.process: Process

    def run(self, *command: str) -> None:
        """Start it. Its output goes to a file in its folder."""
        self.process = Process(list(command), self.folder / "front.log")

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process.kill()

    async def ready(self) -> None:
        """Wait until it sends any answer."""
        await until(self._answers, START_DEADLINE, f"the front proxy answers: {self.process.log}")

    async def _answers(self) -> bool:
        assert self.process.runs, self.process.log
        try:
            return (await ask(self.port, "/", deadline=5.0)).status > 0
        except (OSError, EOFError, TimeoutError):
            return False

    async def ask(self, target: str | bytes, **more: Any) -> Answered:
        """Send a request over http; see raw_http.ask."""
        return await ask(self.port, target, **more)

    async def ask_https(self, target: str | bytes, **more: Any) -> Answered:
        """Send a request over https."""
        return await ask(self.tls_port, target, tls=self._tls, **more)


class Nginx(FrontProxy):
    """nginx with one of config/nginx as its only host."""

    def __init__(
        self,
        folder: Path,
        ports: Sequence[int],
        host: str = "doi-proxy.conf",
        *,
        cached: bool = False,
        config: Path = CONFIG,
    ) -> None:
        super().__init__(folder)
        first, second = ports
        name = "doi.example.org" if host == "doi-proxy.conf" else "www.example.org"
        changes = {
            "listen 80;": f"listen 127.0.0.1:{self.port};",
            "listen [::]:80;": "",
            "listen 443 ssl;": f"listen 127.0.0.1:{self.tls_port} ssl;",
            "listen [::]:443 ssl;": "",
            f"/etc/ssl/{name}/fullchain.pem": str(self.certificate),
            f"/etc/ssl/{name}/key.pem": str(self.key),
            "127.0.0.1:8001": f"127.0.0.1:{first}",
            "127.0.0.1:8002": f"127.0.0.1:{second}",
            "/var/log/nginx": str(self.folder),
        }
        if cached:
            changes["snippets/doi-proxy-pass.conf"] = "snippets/doi-proxy-pass-cached.conf"
        (folder / "snippets").mkdir()
        for snippet in (config / "nginx").glob("doi-proxy-pass*.conf"):
            shutil.copy(snippet, folder / "snippets")
        kept = {"/var/cache/nginx": str(folder)}
        cache = placed(config / "nginx/doi-proxy-cache.conf", kept) if cached else ""
        self.run(*frame_nginx(folder, cache + placed(config / "nginx" / host, changes)))


def frame_nginx(folder: Path, text: str) -> list[str]:
    """Write a configuration with this text as its only host. Returns the command that runs it."""
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{one}_temp_path {folder}/{one};\n" for one in temporary)
    # A master that runs as root must name a user. Otherwise its workers run as the user nobody.
    user = "" if os.geteuid() else f"user {pwd.getpwuid(0).pw_name};\n"
    head = f"{user}pid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents {{ worker_connections 512; }}\n"
    (folder / "nginx.conf").write_text(f"{head}http {{\naccess_log off;\n{paths}{text}\n}}\n", "utf-8")
    return [program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]


class Apache(FrontProxy):
    """Apache httpd with config/apache/doi-proxy.conf as its only host, or with the sub-path in it.

    It has 25 threads, or the processes and threads of docs/operations.md.
    """

    def __init__(
        self, folder: Path, ports: Sequence[int], *, sub_path: bool = False, has_many_threads: bool = False
    ) -> None:
        super().__init__(folder)
        shipped = CONFIG / "apache/doi-proxy-sub-path.conf" if sub_path else CONFIG / "apache/doi-proxy-pass.conf"
        (folder / "conf-available").mkdir()
        shutil.copy(shipped, folder / "conf-available/doi-proxy-pass.conf")
        first, second = ports
        changes = {
            "*:80": f"127.0.0.1:{self.port}",
            "*:443": f"127.0.0.1:{self.tls_port}",
            "/etc/ssl/doi.example.org/fullchain.pem": str(self.certificate),
            "/etc/ssl/doi.example.org/key.pem": str(self.key),
            "127.0.0.1:8001": f"127.0.0.1:{first}",
            "127.0.0.1:8002": f"127.0.0.1:{second}",
        }
        threads = documented_threads() if has_many_threads else ""
        text = placed(CONFIG / "apache/doi-proxy.conf", changes)
        file = frame_apache(folder, (self.port, self.tls_port), f"{text}\n{threads}")
        mode = ("-D", "FOREGROUND") if has_many_threads else ("-X",)
        self.run(program("apache2"), *mode, "-f", file)


def frame_apache(folder: Path, ports: tuple[int, int], text: str) -> str:
    """Write a configuration with this text, that listens at these ports. Returns its path."""
    modules = "".join(f"LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so\n" for name in _LOADED.split())
    # httpd refuses to serve as root.
    user = "" if os.geteuid() else "User nobody\nGroup nogroup\n"
    frame = (
        f"ServerRoot {folder}\nServerName localhost\nPidFile {folder}/pid\nDefaultRuntimeDir {folder}\n"
        f"ErrorLog {folder}/error.log\n{modules}{user}" + "".join(f"Listen 127.0.0.1:{port}\n" for port in ports)
    )
    (folder / "apache2.conf").write_text(frame + text, "utf-8")
    return str(folder / "apache2.conf")


class Caddy(FrontProxy):
    """Caddy with config/caddy/Caddyfile; it uses the test's certificate and does not fetch one."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        super().__init__(folder)
        first, second = ports
        changes = {
            "http://doi.example.org, https://doi.example.org {\n\timport doi_proxy\n}\n": "",
            "127.0.0.1:8001 127.0.0.1:8002": f"127.0.0.1:{first} 127.0.0.1:{second}",
        }
        options = f"{{\nadmin off\nauto_https off\nstorage file_system {folder}\n}}\n"
        secure = f"tls {self.certificate} {self.key}"
        sites = "".join(
            f"{address} {{\nbind 127.0.0.1\n{more}\nimport doi_proxy\n}}\n"
            for address, more in ((f"http://:{self.port}", ""), (f"https://:{self.tls_port}", secure))
        )
        text = options + placed(CONFIG / "caddy/Caddyfile", changes) + sites
        (folder / "Caddyfile").write_text(text, "utf-8")
        self.run(program("caddy"), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile")
