"""Front proxies that run the files of `doi-proxy gen-config`. Only ports, certificates and folders are replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from doi_proxy.features.setup.front_files import Front, write_front
from tests.cluster.front_proxy import FrontProxy, frame_apache, frame_nginx, program


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
        write: Callable[[Sequence[str]], str] | None = None,
    ) -> None:
        """`write` returns the text for these flags of `doi-proxy gen-config`, instead of write_front."""
        folder.mkdir(exist_ok=True)
        super().__init__(folder)
        backends = tuple(f"127.0.0.1:{port}" if isinstance(port, int) else port for port in ports)
        certificate = str(self.certificate), str(self.key)
        if write is None:
            text = write_front(kind, Front("https://127.0.0.1", backends, "http", *certificate, cached=cached))
        else:
            text = write([f"--backend={backend}" for backend in backends])
            for shipped, own in zip(("fullchain.pem", "key.pem"), certificate, strict=True):
                text = text.replace(f"/etc/ssl/127.0.0.1/{shipped}", own)
        text = change(text)
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
        return frame_nginx(self.folder, re.sub("/var/(log|cache)/nginx", str(self.folder), text))

    def _apache(self, text: str) -> list[str]:
        text = text.replace("*:80>", f"127.0.0.1:{self.port}>").replace("*:443>", f"127.0.0.1:{self.tls_port}>")
        return [program("apache2"), "-X", "-f", frame_apache(self.folder, (self.port, self.tls_port), text)]

    def _caddy(self, text: str) -> list[str]:
        # The text is not changed. Caddy signs a certificate for a plain address itself.
        ports = f"http_port {self.port}\nhttps_port {self.tls_port}\ndefault_bind 127.0.0.1\nskip_install_trust\n"
        options = f"{{\nadmin off\nauto_https disable_redirects\n{ports}storage file_system {self.folder}\n}}\n"
        (self.folder / "Caddyfile").write_text(options + text, "utf-8")
        return [program("caddy"), "run", "--config", str(self.folder / "Caddyfile"), "--adapter", "caddyfile"]
