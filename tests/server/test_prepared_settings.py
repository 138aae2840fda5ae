"""No setting but `express_lane` takes the prepared way away. Each is tried with a value that is not its default."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.server.protocol import ServerProtocol
from tests.clock import Clock
from tests.features.library.test_prepared_answers import RULE, SERVICE
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.server.test_prepared_answers import get
from tests.server.ways import NOWHERE, Server, lane_uses
from tests.web.test_locations import country, database

pytestmark = pytest.mark.anyio

CONFIG: Final = Path(__file__).parents[2] / "config"
BRANDING: Final = CONFIG / "branding-example"
TARGET: Final = b"location: http://www.doi.org/hb.html"
#: A name of 32 characters or more, as the tokens of the admin API have to be.
TOKEN: Final = "a-token-that-is-long-enough-for-it"
HANDLE_SERVER: Final = "hdl://127.0.0.1:9"
#: The settings that are numbers or words, with values that are not their defaults.
PLAIN: Final[dict[str, Any]] = {
    "host": "127.0.0.2",
    "port": 8001,
    "instance": "2",
    "trusted_proxies": "127.0.0.1,192.0.2.1",
    "proxy_protocol": True,
    "mode": "sealed",
    "log_level": "debug",
    "log_format": "json",
    "privacy_level": 0,
    "max_connections": 1_000,
    "public_url": "https://doi.example.edu",
    "resolve": "any",
    "express_memory_bytes": 2**22,
    "upstream_url": "http://127.0.0.1:10",
    "upstream_routes": f"10.7777={NOWHERE}",
    "upstream_contact": "mailto:b@example.org",
    "upstream_verify": "always",
    "upstream_private_servers": True,
    "upstream_timeout": 9.0,
    "upstream_rate": 9.0,
    "upstream_burst": 49.0,
    "upstream_max_concurrency": 15,
    "instances": 2,
    "upstream_breaker_failures": 9,
    "upstream_breaker_cooldown": 14.0,
    "cache_ttl_floor": 1.0,
    "cache_ttl_ceiling": 86_000.0,
    "cache_negative_ttl": 59.0,
    "cache_grace": 2_000_000.0,
    "cache_memory_bytes": 2**26,
    "store_max_bytes": 2**30,
    "branding_name": "Example",
    "access_log": "json",
    "otel_endpoint": NOWHERE,
    "client_rate": 1_000.0,
    "client_burst": 99.0,
    "record_headers": "X-Example",
    "metadata": False,
    "native_listen": "127.0.0.1:2641",
    "native_listen_udp": True,
    "status_networks": "192.0.2.0/24",
    "admin_token": TOKEN,
    "management_listen": ("127.0.0.1:8002",),
}  # fmt: skip
#: The settings that name a file or a folder.
FILES: Final = {
    "tls_cert", "tls_key", "upstream_bootstrap", "upstream_ca_bundle", "store_url", "branding_folder",
    "client_allow_file", "client_deny_file", "library_rules",
    "country_database", "local_records", "seed",
}  # fmt: skip
#: Settings without which another one is refused.
WITH: Final[dict[str, dict[str, Any]]] = {
    "upstream_verify": {"upstream_url": HANDLE_SERVER},
    "upstream_bootstrap": {"upstream_url": HANDLE_SERVER},
}


def write_value(name: str, folder: Path) -> Any:
    """The value of a setting that names a file, with that file."""
    file = folder / name
    match name:
        case "store_url":
            return f"sqlite:///{file}"
        case "country_database":
            return database(folder, {"203.0.113.0/24": country("DE")})
        case "library_rules":
            # A redirect that a rule concerns depends on the reader's cookie, so it is never prepared.
            file.write_text(SERVICE + RULE.replace("www.doi.org", "journal.example"), encoding="utf-8")
        case "local_records":
            return CONFIG / "local-records.toml"
        case "branding_folder":
            return BRANDING
        case "seed":
            return CONFIG / "seed.ndjson"
        case "upstream_bootstrap":
            file.write_bytes(write_bootstrap(HandleServer()))
        case "client_allow_file" | "client_deny_file":
            file.write_text("198.51.100.0/24\n", encoding="ascii")
        case _:
            file.write_text("", encoding="ascii")
    return file


def test_each_setting_is_tried() -> None:
    assert {*PLAIN, *FILES, "express_lane"} == set(Settings.model_fields)


@pytest.mark.parametrize("name", [*PLAIN, *sorted(FILES)])
async def test_a_hot_redirect_is_prepared_whatever_a_setting_is(name: str, tmp_path: Path) -> None:
    value = PLAIN[name] if name in PLAIN else write_value(name, tmp_path)
    assert value != Settings.model_fields[name].default
    server = Server(Clock(), ServerProtocol, **{**WITH.get(name, {}), name: value})
    uses = lane_uses(server.application)
    for _ in range(3):
        assert TARGET in (await server.answers(get("/10.1000/182")))[0]
    await server.close()
    # With library rules, the first answer takes the full path, which finds whether a rule concerns the target.
    assert uses == [("GET", 302)] * (2 if name == "library_rules" else 3)
