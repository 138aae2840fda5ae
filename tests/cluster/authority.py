"""A certificate authority of a test, and the certificates that it signs."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from itertools import count
from pathlib import Path
from typing import Final

import pytest

#: The names of this machine.
LOOPBACK: Final = "IP:127.0.0.1,DNS:localhost"
_KEY: Final = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"


class Authority:
    """The authority, with its files in a folder. `file` is what trusts it."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl, which makes certificates, is not installed: apt-get install openssl")
        self._folder = folder
        self._numbers = count()
        self.file = folder / "authority.pem"
        _openssl(f"req -x509 -nodes {_KEY} -subj /CN=test -keyout {folder}/authority.key -out {self.file}")

    def issue(self, names: str = LOOPBACK, *, days: int = 1) -> tuple[Path, Path]:
        """The files of a certificate for `names`, which ends after so many days, and of its key."""
        stem, extension = self._folder / f"issued{next(self._numbers)}", self._folder / "names.ext"
        extension.write_text(f"subjectAltName={names}")
        _openssl(f"req -new -nodes {_KEY} -subj /CN=x -keyout {stem}.key -out {stem}.csr")
        _openssl(
            f"x509 -req -in {stem}.csr -CA {self.file} -CAkey {self._folder}/authority.key -CAcreateserial "
            f"-days {days} -extfile {extension} -out {stem}.pem"
        )
        return stem.with_suffix(".pem"), stem.with_suffix(".key")

    def sign(self, names: str = LOOPBACK, *, days: int = 1) -> ssl.SSLContext:
        """A server's context with such a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(names, days=days))
        return context


def _openssl(arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], check=True, capture_output=True)
