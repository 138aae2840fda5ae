"""The URLs of Valkey and Redis stores."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster, SentinelConnectionPool, SSLConnection

from doi_proxy.features.valkey.client import LimitedParser, open_redis
from doi_proxy.features.valkey.feature import SCHEMES
from tests.table import table


@table(
    "url, name",
    [
        ("valkey://h", "h:6379"),
        ("rediss://u:p@[::1]:7/3", "[::1]:7"),
        ("valkey+unix:///run/valkey.sock", "/run/valkey.sock"),
        ("valkey+cluster://h1:1,h2,[::1]:3", "cluster h1:1, h2:6379, [::1]:3"),
        ("rediss+cluster://u:p@h1:1,h2:2/0", "cluster h1:1, h2:2"),
        ("redis+sentinel://h1:1,h2/my%20name", "primary 'my name' of h1:1, h2:26379"),
        ("redis+unix://u:p@/run/a%20b?db=2", "/run/a b"),
    ],
)
def test_a_url_names_its_servers(url: str, name: str) -> None:
    assert open_redis(url, 1.0)[1] == name


def options_of(url: str) -> dict[str, Any]:
    client, _ = open_redis(url, 1.0)
    assert isinstance(client, Redis)
    return client.connection_pool.connection_kwargs


def choose(options: dict[str, Any], *names: str) -> list[Any]:
    return [options.get(name) for name in names]


def test_user_password_and_options_are_those_of_the_connection() -> None:
    options = options_of("valkey+unix://user:p%40ss@/run/valkey.sock?db=2")
    assert choose(options, "username", "password", "db") == ["user", "p@ss", 2]
    tls = options_of("valkeys://:p@h/4?ssl_check_hostname=false")
    assert choose(tls, "db", "password", "ssl_check_hostname", "host") == [4, "p", False, "h"]
    cluster, _ = open_redis("valkeys+cluster://u:p@h1,h2:2?ssl_check_hostname=false", 1.0)
    assert isinstance(cluster, RedisCluster)
    nodes = cluster.nodes_manager.startup_nodes
    assert set(nodes) == {"h1:6379", "h2:2"}
    for node in nodes.values():
        options = node.connection_kwargs
        assert choose(options, "username", "password", "ssl_check_hostname") == ["u", "p", False]
        assert (node.connection_class, options["parser_class"]) == (SSLConnection, LimitedParser)


def test_a_sentinel_has_a_user_and_a_password_of_its_own() -> None:
    names = "username", "password", "db", "ssl_check_hostname", "parser_class"
    for options, of_sentinel in (("sentinel_username=s&sentinel_password=q&", ["s", "q"]), ("", [None, None])):
        client, _ = open_redis(f"valkeys+sentinel://u:p@h/name/3?{options}ssl_check_hostname=false", 1.0)
        assert isinstance(client, Redis)
        pool = client.connection_pool
        assert isinstance(pool, SentinelConnectionPool)
        assert choose(pool.connection_kwargs, *names) == ["u", "p", 3, False, LimitedParser]
        (sentinel,) = pool.sentinel_manager.sentinels
        seed = sentinel.connection_pool
        assert choose(seed.connection_kwargs, *names) == [*of_sentinel, 0, False, LimitedParser]
        assert issubclass(pool.connection_class, SSLConnection) and seed.connection_class is SSLConnection


def test_each_kind_has_the_valkey_and_the_redis_spelling() -> None:
    assert {scheme.replace("redis", "valkey") for scheme in SCHEMES} < SCHEMES
    assert len(SCHEMES) % 2 == 0


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
        open_redis(url, 1.0)


@table("url", ["valkey://u:sec/ret@h", "valkey+cluster://u:sec/ret@h1,h2", "valkey+sentinel://u:sec/ret@h/name"])
def test_a_password_that_is_not_encoded_is_not_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="must be percent-encoded") as raised:
        open_redis(url, 1.0)
    assert "sec" not in str(raised.value)
