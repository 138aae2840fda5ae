"""The store over TLS: one server, a cluster and Sentinel, with an authority of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from doi_proxy.errors import ConfigurationError, StoreError
from doi_proxy.features.valkey.feature import open_server
from doi_proxy.features.valkey.store import ValkeyStore
from doi_proxy.store.file import StoreOptions
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.valkey.valkey_cluster import Server, running_cluster
from tests.features.valkey.valkey_sentinel import running_sentinels
from tests.features.valkey.valkey_tls import Tls, tls_program

pytestmark = [pytest.mark.anyio, pytest.mark.valkey, pytest.mark.nightly]

PATIENCE = 5.0
#: Seconds until a connection is given up whose server answers nothing.
SHORT_PATIENCE = 0.5


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    tls_program()
    return Tls(tmp_path)


@pytest.fixture
def server(tls: Tls, tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path, "--save", "", tls=tls)
    yield one
    one.close()


async def read_back(url: str, clock: Clock, timeout: float = PATIENCE) -> None:
    """Put an entry into the store at `url`, and get it."""
    store = ValkeyStore(url, clock=clock, timeout=timeout)
    try:
        await store.put(entry())
        assert await store.get("10.1000/182") == entry()
    finally:
        await store.close()


async def test_an_authority_of_the_operator_is_trusted(server: Server, tls: Tls, clock: Clock) -> None:
    await read_back(f"valkeys://127.0.0.1:{server.port}/0{tls.url_options}", clock)


async def test_an_unknown_authority_is_refused(server: Server, clock: Clock) -> None:
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        await read_back(f"valkeys://127.0.0.1:{server.port}/0", clock)


async def test_a_server_without_tls_is_an_error(valkey_url: str, tls: Tls, clock: Clock) -> None:
    with pytest.raises(StoreError, match="failed: "):
        await read_back(valkey_url.replace("valkey:", "valkeys:") + tls.url_options, clock, SHORT_PATIENCE)


async def test_the_host_of_the_certificate_counts(tmp_path: Path, clock: Clock) -> None:
    tls_program()
    tls = Tls(tmp_path, "another.example")
    server = Server(tmp_path, "--save", "", tls=tls)
    url = f"valkeys://127.0.0.1:{server.port}/0{tls.url_options}"
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        await read_back(url, clock)
    await read_back(f"{url}&ssl_check_hostname=false", clock)
    server.close()


async def test_a_server_can_require_the_certificate_of_the_client(server: Server, tls: Tls, clock: Clock) -> None:
    server.client.config_set("tls-auth-clients", "yes")
    url = f"valkeys://127.0.0.1:{server.port}/0{tls.url_options}"
    with pytest.raises(StoreError, match="failed: "):
        await read_back(url, clock)
    await read_back(f"{url}&ssl_certfile={tls.certificate}&ssl_keyfile={tls.key}", clock)


async def test_every_connection_to_a_cluster_has_tls(tls: Tls, tmp_path: Path, clock: Clock) -> None:
    with running_cluster(tmp_path, tls=tls) as cluster:
        await read_back(cluster.url, clock)
        await read_back(cluster.url.replace("valkeys", "rediss"), clock)
        with pytest.raises(StoreError, match="failed: "):
            await read_back(cluster.url.replace("valkeys", "valkey").partition("?")[0], clock)


async def test_servers_and_sentinels_have_tls(tls: Tls, tmp_path: Path, clock: Clock) -> None:
    with running_sentinels(tmp_path, tls) as sentinels:
        await read_back(sentinels.url, clock)


@pytest.mark.parametrize("url", ["valkey://127.0.0.1:1?protocol=3", "valkey+cluster://127.0.0.1:1?startup_nodes=1"])
def test_an_option_that_redis_refuses_is_an_error_of_the_url(url: str, clock: Clock) -> None:
    with pytest.raises(ConfigurationError, match="store URL is invalid"):
        open_server(url, StoreOptions(clock, max_bytes=0, timeout=30.0))


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile"])
def test_a_file_that_cannot_be_used_is_named_at_the_start(option: str, tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "no certificate.pem").write_text("nothing", encoding="ascii")
    for file in (tmp_path / "missing.pem", tmp_path / "no certificate.pem"):
        url = f"valkeys+cluster://127.0.0.1:1?{option}={file}"
        with pytest.raises(ConfigurationError, match=rf"{file}\) cannot be used"):
            open_server(url, StoreOptions(clock, max_bytes=0, timeout=30.0))
