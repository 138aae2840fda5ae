"""The certificate of the service itself: one that has ended is a line of the log, and is renewed while it runs."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
from pathlib import Path

import pytest

from tests.certificates import PAST, Authority
from tests.cluster.conftest import StartProxy
from tests.cluster.processes import START_DEADLINE, until

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.nightly]


async def test_a_certificate_that_has_ended_is_one_line_until_it_is_renewed(
    tmp_path: Path, start_proxy: StartProxy
) -> None:
    authority = Authority(tmp_path)
    ended, renewed = authority.issue(end=PAST), authority.issue()
    used = tmp_path / "used.pem", tmp_path / "used.key"
    for source, target in zip(ended, used, strict=True):
        shutil.copy(source, target)
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    proxy = start_proxy("http://127.0.0.1:1", store, tls_cert=used[0], tls_key=used[1])
    await proxy.serves()
    trusting = ssl.create_default_context(cafile=authority.file)

    async def is_trusted() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", proxy.port), START_DEADLINE) as plain:
                trusting.wrap_socket(plain, server_hostname="127.0.0.1").close()
        except OSError:
            return False
        return True

    assert not await is_trusted()
    assert proxy.process.count("tls_cert: the certificate ended on ") == 1
    for source, target in zip(renewed, used, strict=True):
        shutil.copy(source, target)
    proxy.process.send(signal.SIGHUP)
    await until(is_trusted, START_DEADLINE, "the renewed certificate serves")
    assert proxy.process.count("tls_cert: the certificate ended on ") == 1
