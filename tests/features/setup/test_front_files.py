"""The configurations of front proxies fit the settings, and real front proxies accept them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.lists.batch import WAIT_TIMEOUT
from doi_proxy.features.setup.front_files import LIST_WAIT, Front, read_front, write_front
from tests.cluster.front_proxy import program
from tests.features.setup.generated_front import GeneratedFront
from tests.ports import free_port
from tests.table import table

ONE = Front("https://doi.example.org", ("127.0.0.1:8000",))
BELOW = Front("https://www.example.org/resolver", ("127.0.0.1:8000",))
FRONTS = {
    "host": ONE,
    "sub-path": BELOW,
    "http": Front("http://doi.example.org:8080", ("[::1]:8000", "node-2:8000")),
    "https behind": Front("https://doi.example.org", ("127.0.0.1:8000",), backend_scheme="https"),
    "socket": Front("https://doi.example.org", ("unix:/run/doi-proxy/http.sock",)),
    "certificate": Front("https://doi.example.org", ("127.0.0.1:8000",), certificate="/etc/a.pem", key="/etc/b.pem"),
}


def front_of(settings: Settings, *backends: str, certificate: str = "", key: str = "", cached: bool = False) -> Front:
    return read_front(settings, backends=backends, certificate=certificate, key=key, cached=cached)


@table("kind", ["nginx", "apache", "caddy"])
@table("front", FRONTS.values(), ids=FRONTS)
def test_a_configuration_is_one_file(kind: str, front: Front) -> None:
    text = write_front(kind, front)
    assert not re.search(r"^\s*include |^\s*Include ", text, re.MULTILINE)
    assert all(backend.replace("unix:", "unix/" if kind == "caddy" else "unix:") in text for backend in front.backends)
    assert front.host in text and f"{front.sub_path}/metrics" in text
    assert all(f"{front.sub_path}{path}" in text for path in ("/api/resolve", "/api/parse", "/api/extract"))
    assert (kind != "nginx") or re.search(
        rf"location = {front.sub_path}/references {{[^}}]*_body_size 5m;[^}}]*}}", text
    )


@table("kind", ["nginx", "apache", "caddy"])
@table("url", ["https://resolver.example.net:8443", "https://library.example.net/names"])
def test_no_example_of_a_shipped_file_is_left(kind: str, url: str) -> None:
    networks, certificate = ("198.51.100.0/24", "2001:db8::/32"), ("/etc/chain.pem", "/etc/key.pem")
    front = Front(url, ("b.example:1", "c.example:2"), "https", *certificate, timeout=44, list_timeout=155,
                  status_networks=networks)  # fmt: skip
    text = write_front(kind, front)
    examples = r"example\.org|/doi[/ ;`\"]|:800[12]|127\.0\.0\.0|(timeout[= ])(30|120)\b|/etc/ssl|http://b"
    assert re.search(examples, text) is None
    values = (*networks, "b.example:1", "c.example:2", *certificate, "44", "155")
    assert [value for value in values if value not in text] == []


def test_a_configuration_follows_the_settings() -> None:
    front = front_of(Settings(host="::", port=8123, public_url="https://x.example/doi", upstream_timeout=40))
    assert (front.backends, front.host, front.sub_path, front.timeout) == (("[::1]:8123",), "x.example", "/doi", 90)
    assert front_of(Settings(), "a:1", "b:2").backends == ("a:1", "b:2")
    assert front_of(Settings(host="unix:/run/x.sock")).backends == ("unix:/run/x.sock",)
    text = write_front("nginx", front_of(Settings(public_url="https://x.example"), cached=True))
    assert "proxy_cache_path " in text and "proxy_cache doi_proxy;" in text
    assert "proxy_read_timeout 90s;" in write_front("nginx", front)
    assert LIST_WAIT == WAIT_TIMEOUT


@pytest.mark.parametrize("kind", ["apache", "caddy"])
def test_a_cache_that_is_not_there_is_refused(kind: str) -> None:
    with pytest.raises(ConfigurationError, match="--cache"):
        write_front(kind, front_of(Settings(), cached=True))


@pytest.mark.parametrize(
    "settings",
    [
        {"backends": ["no-port"]},
        {"backends": ["a:65536"]},
        {"backends": ["a:1; return 200"]},
        {"certificate": "/etc/a.pem"},
        {"certificate": "/etc/a b.pem", "key": "/etc/b.pem"},
    ],
)
def test_what_does_not_belong_into_a_configuration_is_refused(settings: dict[str, str]) -> None:
    given = {"backends": [], "certificate": "", "key": "", "cached": False, **settings}
    with pytest.raises(ConfigurationError):
        read_front(Settings(), **given)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        front_of(Settings(public_url="https://x.example/doi{}"))


@pytest.mark.parametrize("kind", ["nginx", "apache", "caddy"])
@pytest.mark.parametrize("front", [ONE, BELOW], ids=["host", "sub-path"])
def test_the_settings_decide_who_may_see_the_status(kind: str, front: Front) -> None:
    url = front.public_url
    local, public = Settings(public_url=url), Settings(public_url=url, status_networks="0.0.0.0/0, ::/0")
    campus = Settings(public_url=url, status_networks="198.51.100.0/24, 2001:db8::/32")
    campus_text = write_front(kind, front_of(campus))
    assert "198.51.100.0/24" in campus_text and "2001:db8::/32" in campus_text
    assert f"{front.sub_path}/status" not in write_front(kind, front_of(public))
    nowhere = Settings(public_url=url, status_networks="")
    assert write_front(kind, front_of(nowhere)) == write_front(kind, front_of(local))


def foreign(text: str) -> str:
    """The same configuration, with this machine as a stranger."""
    text = re.sub(r"allow (127|::1)[^;]*;", "allow 192.0.2.1;", text)
    text = re.sub(r"Require (local|ip 127.*)", "Require ip 192.0.2.1", text)
    return re.sub(r"not remote_ip .*", "not remote_ip 192.0.2.1", text)


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["nginx", "apache", "caddy"])
async def test_only_the_operators_machine_reaches_metrics_admin_and_status(kind: str, tmp_path: Path) -> None:
    program({"apache": "apache2"}.get(kind, kind))
    for name, change, refused in (("local", str, False), ("foreign", foreign, True)):
        # No proxy answers behind it, so a request that is passed on ends in 502 or 503.
        async with GeneratedFront(tmp_path / name, kind, [free_port()], change=change) as front:
            targets = ("/metrics", "/admin/settings", "/admin/entries?doi=10.1000/182", "/status?format=json")
            # At the same time: Caddy tries for 3 s to reach the proxy.
            answers = await asyncio.gather(*(front.ask_https(target) for target in (*targets, "/10.1000/182")))
            *statuses, of_name = (answer.status for answer in answers)
            assert [status == 403 for status in statuses] == [refused] * 4, statuses
            assert of_name in (502, 503)
