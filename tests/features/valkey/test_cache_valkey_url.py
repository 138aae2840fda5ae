"""The URLs of Valkey and Redis stores."""

from __future__ import annotations

import pytest

from doi_proxy.features.valkey.feature import SCHEMES
from doi_proxy.features.valkey.url import Address, StoreKind, parse_store_url
from tests.table import table


@pytest.mark.parametrize(
    ("url", "kind", "addresses"),
    [
        ("valkey://h", StoreKind.SERVER, ["h:6379"]),
        ("rediss://u:p@[::1]:7/3", StoreKind.SERVER, ["[::1]:7"]),
        ("valkey+unix:///run/valkey.sock", StoreKind.SOCKET, ["/run/valkey.sock"]),
        ("valkey+cluster://h1:1,h2,[::1]:3", StoreKind.CLUSTER, ["h1:1", "h2:6379", "[::1]:3"]),
        ("rediss+cluster://u:p@h1:1,h2:2/0", StoreKind.CLUSTER, ["h1:1", "h2:2"]),
        ("redis+sentinel://h1:1,h2/name", StoreKind.SENTINEL, ["h1:1", "h2:26379"]),
        ("redis+unix://u:p@/run/a%20b?db=2", StoreKind.SOCKET, ["/run/a b"]),
    ],
)
def test_a_url_names_its_servers(url: str, kind: StoreKind, addresses: list[str]) -> None:
    parsed = parse_store_url(url)
    assert parsed.kind is kind
    assert [str(address) for address in parsed.addresses] == addresses


def test_user_password_and_options_are_those_of_the_connection() -> None:
    options = dict(parse_store_url("valkey+unix://user:p%40ss@/run/valkey.sock?db=2").options)
    options.pop("connection_class")
    assert options == {"username": "user", "password": "p@ss", "db": 2}
    tls = parse_store_url("valkeys://:p@h/4?ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false").options
    assert tls["connection_class"].__name__ == "SSLConnection"
    assert (tls["db"], tls["password"]) == (4, "p")
    assert (tls["ssl_ca_certs"], tls["ssl_check_hostname"]) == ("/etc/ca.pem", False)
    assert "host" not in tls


def test_a_sentinel_has_a_user_and_a_password_of_its_own() -> None:
    url = "valkeys+sentinel://u:p@h/my%20name/3?sentinel_username=s&sentinel_password=q&ssl_ca_certs=/ca.pem"
    parsed = parse_store_url(url)
    assert parsed.service == "my name"
    of_records, of_sentinels = dict(parsed.options), dict(parsed.seed_options)
    assert of_records.pop("connection_class") is of_sentinels.pop("connection_class")
    assert of_records == {"username": "u", "password": "p", "db": 3, "ssl_ca_certs": "/ca.pem"}
    assert of_sentinels == {"username": "s", "password": "q", "ssl_ca_certs": "/ca.pem"}
    assert dict(parse_store_url("valkey+sentinel://u:p@h/name").seed_options) == {}


def test_each_kind_has_the_valkey_and_the_redis_spelling() -> None:
    assert {scheme.replace("redis", "valkey") for scheme in SCHEMES} < SCHEMES
    assert len(SCHEMES) % 2 == 0
    assert Address("h", 1) == Address("h", 1)


@table(
    "url",
    [
        "valkey+unix://", "valkey+unix://run/valkey.sock", "valkey+unix:///", "valkey+unix:///run/", "valkey://h:0",
        "valkey://h/name", "valkey://", "valkey+cluster://", "valkey+cluster://h1,", "valkey+cluster://h/1",
        "valkey+cluster://h?db=1", "valkey+sentinel://h1,h2", "valkey+sentinel://h/name/x",
    ],
)  # fmt: skip
def test_any_other_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^(it |its |a cluster )"):
        parse_store_url(url)
