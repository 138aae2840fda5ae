"""The client against the fake upstream: what it sends, what it takes for an answer, and that it never lies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from doi_names.name import HandleName
from doi_proxy.errors import ConfigurationError, InvalidAnswer, RequestTooLarge, UpstreamRefused, UpstreamUnreachable
from doi_proxy.upstream.client import HandleClient
from doi_proxy.upstream.source import UpstreamQuery
from doi_proxy.upstream.upstream_log import remedy_of, sign_of
from handle_protocol.referral import Answer, ResponseCode
from tests.certificates import self_signed
from tests.fake_upstream import FakeUpstream
from tests.parts import usual_api
from tests.table import table
from tests.upstream.tunnel import Tunnel

pytestmark = pytest.mark.anyio

NAME = "10.1234/Name"
NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def no_egress_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as fake:
        fake.put(NAME, url="https://target.example/")
        yield fake


@asynccontextmanager
async def api_of(base_url: str, **options: Any) -> AsyncIterator[HandleClient]:
    api = usual_api(base_url, clock=lambda: NOW, **options)
    try:
        yield api
    finally:
        await api.aclose()


async def ask(
    base_url: str, name: str = NAME, *, authoritative: bool = False, certified: bool = False, **options: Any
) -> Answer:
    async with api_of(base_url, **options) as api:
        return await api.fetch(UpstreamQuery(HandleName(name), authoritative, certified))


async def test_the_name_is_sent_as_it_is_spelled_below_the_path_of_the_base_url(upstream: FakeUpstream) -> None:
    await ask(f"{upstream.url}/sub/path/", "10.1234/a/B", authoritative=True, certified=True)
    assert list(upstream.targets) == ["/sub/path/api/handles/10.1234/a%2FB?auth=true&cert=true"]


# What is sent


async def test_nothing_is_sent_but_who_asks_and_what_is_taken(upstream: FakeUpstream) -> None:
    await ask(upstream.url, contact="mailto:library@university.example")
    assert set(upstream.last_headers.items()) == {
        ("host", upstream.url.removeprefix("http://")),
        ("user-agent", "doi-proxy/1.0 (+mailto:library@university.example)"),
        ("accept", "application/json"),
        ("accept-encoding", "gzip"),
        ("cdn-loop", "doi-proxy-0123456789abcdef"),
    }


async def test_the_user_agent_without_a_contact_is_the_program(upstream: FakeUpstream) -> None:
    await ask(upstream.url, contact=None)
    assert upstream.last_headers["user-agent"] == "doi-proxy/1.0"


async def test_the_credentials_of_the_base_url_are_sent_and_stay_out_of_the_target(upstream: FakeUpstream) -> None:
    await ask(upstream.url.replace("http://", "http://reader:s%40fe@"))
    # "reader:s@fe" in Base64.
    assert upstream.last_headers["authorization"] == "Basic cmVhZGVyOnNAZmU="
    assert upstream.targets[-1] == "/api/handles/10.1234/Name"


async def test_cookies_are_not_kept(upstream: FakeUpstream) -> None:
    upstream.fault(NAME, "cookie", count=1)
    async with api_of(upstream.url) as api:
        with pytest.raises(InvalidAnswer):
            await api.fetch(UpstreamQuery(HandleName(NAME)))
        await api.fetch(UpstreamQuery(HandleName(NAME)))
    assert "cookie" not in upstream.last_headers


async def test_a_connection_is_used_again(upstream: FakeUpstream) -> None:
    async with api_of(upstream.url) as api:
        for _ in range(5):
            await api.fetch(UpstreamQuery(HandleName(NAME)))
    assert upstream.connections == 1


async def test_the_scheme_of_the_upstream_has_any_letter_case(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await ask(upstream.url.replace("http:", "HTTP:"))).code is ResponseCode.SUCCESS
    monkeypatch.setenv("HTTP_PROXY", upstream.url)
    assert (await ask("HTTP://upstream.example")).code is ResponseCode.SUCCESS
    assert upstream.queries() == 2


async def test_an_egress_proxy_is_used_where_the_environment_names_one(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", upstream.url)
    assert (await ask("http://upstream.example")).code is ResponseCode.SUCCESS
    assert upstream.targets[-1] == "http://upstream.example/api/handles/10.1234/Name"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_egress_proxy_that_cannot_be_reached_is_named_as_the_trouble(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://reader:safe@127.0.0.1:9")
    with pytest.raises(UpstreamUnreachable) as raised:
        await ask(f"{scheme}://upstream.example")
    assert raised.value.detail.startswith("ProxyError: the egress proxy 127.0.0.1:9 cannot be reached: ")
    assert "safe" not in raised.value.detail
    assert sign_of(raised.value) == "egress"
    assert remedy_of(raised.value).startswith("correct HTTPS_PROXY")


@pytest.mark.parametrize(
    ("status", "remedy"), [(407, "set the user and the password"), (403, "look at the log of the egress proxy")]
)
async def test_an_egress_proxy_that_opens_no_tunnel_is_reported_with_its_status(
    monkeypatch: pytest.MonkeyPatch, status: int, remedy: str
) -> None:
    async with Tunnel(status=status) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        with pytest.raises(UpstreamUnreachable) as raised:
            await ask("https://upstream.example")
    assert raised.value.detail == f"ProxyError: the egress proxy answered CONNECT with status {status}"
    assert remedy_of(raised.value).startswith(remedy)


async def test_no_proxy_names_the_hosts_that_are_asked_directly(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "elsewhere.example,127.0.0.1")
    assert (await ask(upstream.url)).code is ResponseCode.SUCCESS


async def test_the_password_of_an_egress_proxy_is_sent_to_it(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", upstream.url.replace("http://", "http://reader:safe@"))
    assert (await ask("http://upstream.example")).code is ResponseCode.SUCCESS
    # "reader:safe" in Base64.
    assert upstream.last_headers["proxy-authorization"] == "Basic cmVhZGVyOnNhZmU="


async def test_the_certificate_of_an_egress_proxy_is_checked_for_an_http_upstream_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pair = self_signed(tmp_path)
    async with FakeUpstream(tls=pair.context) as proxy:
        proxy.put(NAME, url="https://target.example/")
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(UpstreamUnreachable):
            await ask("http://upstream.example")
        assert proxy.queries() == 0
        assert (await ask("http://upstream.example", ca_file=str(pair.certificate))).code is ResponseCode.SUCCESS


@pytest.mark.parametrize("through_proxy", [False, True], ids=["directly", "through a CONNECT proxy"])
async def test_the_certificate_of_a_private_authority_is_trusted_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, through_proxy: bool
) -> None:
    pair = self_signed(tmp_path)
    async with FakeUpstream(tls=pair.context) as upstream, Tunnel() as tunnel:
        upstream.put(NAME, url="https://target.example/")
        if through_proxy:
            monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        assert (await ask(upstream.url, ca_file=str(pair.certificate))).code is ResponseCode.SUCCESS
        assert upstream.targets[-1] == "/api/handles/10.1234/Name"
        with pytest.raises(UpstreamUnreachable):
            await ask(upstream.url)
        assert upstream.queries() == 1
        assert set(tunnel.targets) == ({upstream.url.removeprefix("https://")} if through_proxy else set())


# What is no answer


async def test_a_refusal_tells_its_status_and_when_to_come_back(upstream: FakeUpstream) -> None:
    for retry_after, seconds in ((7, 7.0), (formatdate(NOW + 60, usegmt=True), 60.0), ("soon", None), (None, None)):
        upstream.fault(NAME, "status", status=429, retry_after=retry_after)
        with pytest.raises(UpstreamRefused) as refusal:
            await ask(upstream.url)
        assert (refusal.value.upstream_status, refusal.value.retry_after) == (429, seconds)


async def test_response_code_2_keeps_the_http_status(upstream: FakeUpstream) -> None:
    upstream.fault(NAME, "code_2")
    with pytest.raises(UpstreamRefused, match="response code 2") as refusal:
        await ask(upstream.url)
    assert refusal.value.upstream_status == 500


async def test_a_host_without_an_address_is_unreachable() -> None:
    with pytest.raises(UpstreamUnreachable):
        await ask("http://upstream.invalid")


# Dropped connections


@pytest.mark.parametrize("fault", ["reset", "close", "truncate"])
async def test_a_dropped_connection_is_tried_once_more(upstream: FakeUpstream, fault: str) -> None:
    upstream.fault(NAME, fault, count=1)
    assert (await ask(upstream.url)).code is ResponseCode.SUCCESS
    assert upstream.queries(NAME) == 2


async def test_a_retry_is_asked_for_permission(upstream: FakeUpstream) -> None:
    async def refuse() -> bool:
        return False

    upstream.fault(NAME, "reset", count=1)
    with pytest.raises(UpstreamUnreachable):
        await ask(upstream.url, may_ask_again=refuse)
    assert upstream.queries(NAME) == 1


async def test_a_restarted_upstream_is_asked_on_a_new_connection(upstream: FakeUpstream) -> None:
    async with api_of(upstream.url) as api:
        await api.fetch(UpstreamQuery(HandleName(NAME)))
        upstream.drop_connections()
        assert (await api.fetch(UpstreamQuery(HandleName(NAME)))).code is ResponseCode.SUCCESS
    assert upstream.connections == 2


async def test_a_connection_that_was_dropped_while_idle_costs_one_retry_with_permission(upstream: FakeUpstream) -> None:
    permissions = 0

    async def permit() -> bool:
        nonlocal permissions
        permissions += 1
        return True

    async with api_of(upstream.url, may_ask_again=permit) as api:
        await api.fetch(UpstreamQuery(HandleName(NAME)))
        upstream.fault(NAME, "close")
        with pytest.raises(UpstreamUnreachable):
            await api.fetch(UpstreamQuery(HandleName(NAME)))
    # An engine that repeats a request by itself would be seen here.
    assert (upstream.queries(NAME), permissions) == (3, 1)


async def test_a_client_that_was_closed_opens_no_connection(upstream: FakeUpstream) -> None:
    async with api_of(upstream.url) as api:
        await api.fetch(UpstreamQuery(HandleName(NAME)))
        await api.aclose()
        with pytest.raises(UpstreamUnreachable):
            await api.fetch(UpstreamQuery(HandleName(NAME)))
    assert upstream.queries(NAME) == 1


# Redirects


@table("status", [301, 302, 303, 307, 308])
async def test_a_redirect_on_the_own_origin_is_followed(upstream: FakeUpstream, status: int) -> None:
    upstream.fault(NAME, "redirect", count=1, status=status, location="/moved/api/handles/10.1234/Name")
    assert (await ask(upstream.url)).code is ResponseCode.SUCCESS
    assert upstream.targets[-1] == "/moved/api/handles/10.1234/Name"


@pytest.mark.parametrize("location", ["{}/api/handles/10.1234/Name", "//{}/api/handles/10.1234/Name", "https:"])
async def test_a_redirect_to_another_origin_is_not_followed(upstream: FakeUpstream, location: str) -> None:
    async with FakeUpstream() as other:
        other.put(NAME, url="https://elsewhere.example/")
        place = other.url if location.startswith("{}") else other.url.removeprefix("http://")
        upstream.fault(NAME, "redirect", location=location.format(place))
        with pytest.raises(UpstreamRefused, match="another origin"):
            await ask(upstream.url)
        assert other.queries() == 0


async def test_three_redirects_are_followed_and_a_fourth_is_not(upstream: FakeUpstream) -> None:
    upstream.fault(NAME, "redirect", count=3)
    assert (await ask(upstream.url)).code is ResponseCode.SUCCESS
    upstream.fault(NAME, "redirect", count=4)
    with pytest.raises(UpstreamRefused, match="redirects too often"):
        await ask(upstream.url)
    assert upstream.queries(NAME) == 4 + 4


async def test_a_redirect_to_another_name_is_no_answer(upstream: FakeUpstream) -> None:
    upstream.put("10.1234/other", url="https://other.example/")
    upstream.fault(NAME, "redirect", location="/api/handles/10.1234/other")
    with pytest.raises(InvalidAnswer):
        await ask(upstream.url)


async def test_a_redirect_is_asked_for_permission(upstream: FakeUpstream) -> None:
    async def refuse() -> bool:
        return False

    upstream.fault(NAME, "redirect", count=1)
    with pytest.raises(UpstreamRefused):
        await ask(upstream.url, may_ask_again=refuse)
    assert upstream.queries(NAME) == 1


# Registration agencies


async def test_registration_agencies_are_asked_in_one_question(upstream: FakeUpstream) -> None:
    upstream.agency("10.5240", "EIDR")
    async with api_of(upstream.url) as api:
        rows = await api.registration_agencies(["10.5240/a,b/c", "10.9999"])
    assert rows == [{"DOI": "10.5240/a,b/c", "RA": "EIDR"}, {"DOI": "10.9999", "status": "DOI does not exist"}]
    assert list(upstream.targets) == ["/ra/10.5240/a%2Cb%2Fc,10.9999"]


async def test_no_names_are_not_asked_and_too_many_are_refused(upstream: FakeUpstream) -> None:
    upstream.agency("10.5240", "EIDR")
    async with api_of(upstream.url) as api:
        assert await api.registration_agencies([]) == []
        with pytest.raises(RequestTooLarge, match="at most 50 names"):
            await api.registration_agencies(["10.5240"] * 51)
        assert upstream.queries() == 0
        assert len(await api.registration_agencies(["10.5240"] * 50)) == 50


# Configuration


@table(
    "base_url",
    ["", "doi.org", "ftp://doi.example", "https://", "https://doi.example?x=1", "https://a:b", "http://a\nb"],
)
def test_an_upstream_url_that_cannot_be_asked_is_refused(base_url: str) -> None:
    with pytest.raises(ConfigurationError):
        usual_api(base_url)


@pytest.mark.parametrize("contact", ["mailto:bücherei@university.example", "https://a.example\r\nX-Injected: 1"])
def test_a_contact_that_cannot_stand_in_a_header_is_refused(contact: str) -> None:
    with pytest.raises(ConfigurationError):
        usual_api("https://doi.example", contact=contact)


def test_a_missing_certificate_file_is_told() -> None:
    with pytest.raises(ConfigurationError, match=r"/nowhere/ca\.pem"):
        usual_api("https://doi.example", ca_file="/nowhere/ca.pem")


@pytest.mark.parametrize("proxy", ["gopher://proxy.example", "socks5://127.0.0.1:9", "http://", "http://a:b"])
def test_an_egress_proxy_that_cannot_be_used_is_reported(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(ConfigurationError, match="HTTP_PROXY"):
        usual_api("http://doi.example")
