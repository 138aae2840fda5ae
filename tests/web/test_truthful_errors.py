"""What is answered when the upstream fails: the stale record if there is one, else "could not verify", never a guess.

The table: every fault of the fake upstream, by what the cache holds, by who asks.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from doi_names.errors import InvalidName, NotADOI
from doi_proxy.assembly.features import text_packages
from doi_proxy.errors import CouldNotVerify, PrefixDenied, as_failure
from doi_proxy.web.languages import CORE, load_catalogues
from tests.constants import FAILURE_TTL, QUEUE_TIMEOUT, STALE_TIMEOUT
from tests.fake_upstream import EVERY_NAME, FakeUpstream
from tests.table import table
from tests.upstream.faults import FAULTS
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

TARGET: Final = "http://example.org/target"
REFUSED: Final = "upstream-refused"
BAD: Final = "upstream-bad-answer"
UNREACHABLE: Final = "upstream-unreachable"
TIMEOUT: Final = "upstream-timeout"


@dataclass(frozen=True)
class Failing:
    """A fault, and what becomes of a question that meets it."""

    kind: str
    status: int
    token: str
    #: A connection that is dropped is tried once more; redirects on the upstream's own origin are followed.
    questions: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.kind, *map(str, self.options.values())]).replace("/", "")


TABLE: Final = [
    Failing("reset", 502, UNREACHABLE, 2),
    Failing("close", 502, UNREACHABLE, 2),
    Failing("truncate", 502, UNREACHABLE, 2),
    Failing("not_http", 502, UNREACHABLE, 2),
    Failing("status", 502, REFUSED, 1, {"status": 403}),
    Failing("status", 502, REFUSED, 1, {"status": 500}),
    Failing("status", 502, REFUSED, 1, {"status": 502}),
    Failing("status", 502, REFUSED, 1, {"status": 503}),
    Failing("status", 502, REFUSED, 1, {"status": 504}),
    Failing("code_2", 502, REFUSED),
    Failing("redirect", 502, REFUSED, 4),
    Failing("redirect", 502, REFUSED, 1, {"location": "http://127.0.0.1:9/api/handles/x"}),
    # An HTTP status that says "not found" without the handle API's own words says nothing about the name.
    Failing("status", 502, BAD, 1, {"status": 404}),
    Failing("status", 502, BAD, 1, {"status": 410}),
    Failing("status", 502, BAD, 1, {"status": 200}),
    Failing("garbage", 502, BAD),
    Failing("html", 502, BAD),
    Failing("empty", 502, BAD),
    Failing("cookie", 502, BAD),
    Failing("unknown_coding", 502, BAD),
    Failing("bad_gzip", 502, BAD),
    Failing("huge", 502, BAD),
    Failing("bomb", 502, BAD),
    Failing("wrong_name", 502, BAD),
    Failing("values_no_list", 502, BAD),
    Failing("deep", 502, BAD),
]
SLOW: Final = [Failing("hang", 504, TIMEOUT), Failing("drip", 504, TIMEOUT)]
#: Faults after which the right answer, or a valid one, comes.
ANSWERED: Final = {"delay", "unavailable_but_known", "denies"}

FACES: Final = ("page", "HEAD", "REST", "values page", "JSONP")
ERROR_TYPES: Final = {
    REFUSED: "http_protocol_error",
    BAD: "http_protocol_error",
    UNREACHABLE: "destination_unavailable",
    TIMEOUT: "http_response_timeout",
    "breaker-open": "destination_unavailable",
    "upstream-paused": "destination_unavailable",
    "budget-spent": "connection_limit_reached",
}


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    # Patience is longer than the faults, so the answer reports the failure.
    async with Proxy(**{STALE_TIMEOUT: 20, "upstream_timeout": 20}) as proxy:
        yield proxy


@pytest.fixture(scope="module")
async def slow() -> AsyncIterator[Proxy]:
    async with Proxy(**{"upstream_timeout": 0.02, STALE_TIMEOUT: 20}) as proxy:
        yield proxy


async def ask(proxy: Proxy, face: str, name: str) -> Reply:
    target = {"REST": f"/api/handles/{name}", "JSONP": f"/api/handles/{name}?callback=f"}.get(face, f"/{name}")
    if face == "values page":
        return await proxy.get(target + "?noredirect")
    return await proxy.ask("HEAD" if face == "HEAD" else "GET", target)


async def known(proxy: Proxy, ttl: int = 60) -> str:
    """A name that is registered and cached."""
    name = proxy.name()
    proxy.upstream.put(name, url=TARGET, ttl=ttl)
    assert await asked_until_answered(proxy, name) == 302
    return name


async def missing(proxy: Proxy) -> str:
    """A name that is not registered, which is cached."""
    name = proxy.name()
    assert await asked_until_answered(proxy, name) == 404
    proxy.upstream.put(name, url=TARGET)
    return name


async def asked_until_answered(proxy: Proxy, name: str) -> int:
    """The status. A healthy upstream on a busy machine may miss a deadline as short as that of `slow`."""
    for _ in range(50):
        status = (await proxy.get("/" + name)).status
        if status < 500:
            break
    return status


def says_could_not_verify(reply: Reply, face: str, name: str, failing: Failing) -> None:
    assert (reply.status, reply["cache-control"], reply["location"]) == (failing.status, "no-store", None)
    said = reply["proxy-status"] or ""
    assert said.startswith(f"doi-proxy; error={ERROR_TYPES[failing.token]}; details=")
    assert failing.token in said
    if face == "REST":
        assert list(reply.json) == ["responseCode", "message", "handle"]
        assert (reply.json["responseCode"], reply.json["handle"]) == (2, name)
    elif face == "JSONP":
        assert reply.text.startswith('f({"responseCode":2,')
    elif face != "HEAD":
        assert "could not be verified" in reply.text and "Not Found" not in reply.text


def is_found(reply: Reply, face: str) -> None:
    if face in ("page", "HEAD"):
        assert (reply.status, reply["location"]) == (302, TARGET)
    else:
        assert reply.status == 200 and TARGET in reply.text


def is_missing(reply: Reply, face: str, name: str) -> None:
    assert reply.status == 404
    if face == "REST":
        assert reply.json == {"responseCode": 100, "handle": name}


def was_asked(proxy: Proxy, name: str, before: int, failing: Failing) -> None:
    asked = proxy.upstream.queries(name) - before
    # On a busy machine a deadline as short as that of `slow` can end before the question leaves.
    assert asked == failing.questions or (failing in SLOW and asked == 0)


def test_every_fault_of_the_fake_upstream_is_in_the_table() -> None:
    assert {failing.kind for failing in TABLE + SLOW} | ANSWERED == set(FAULTS)


everything = table("failing", TABLE + SLOW, ids=str)
everyone = table("face", FACES)


@everything
@everyone
async def test_cold_it_could_not_be_verified(proxy: Proxy, slow: Proxy, failing: Failing, face: str) -> None:
    proxy = slow if failing in SLOW else proxy
    name = proxy.name()
    proxy.upstream.put(name, url=TARGET)
    proxy.upstream.fault(name, failing.kind, **failing.options)
    says_could_not_verify(await ask(proxy, face, name), face, name, failing)
    was_asked(proxy, name, 0, failing)


@everything
@everyone
async def test_for_a_fresh_record_there_is_no_query(proxy: Proxy, slow: Proxy, failing: Failing, face: str) -> None:
    proxy = slow if failing in SLOW else proxy
    name = await known(proxy)
    before = proxy.upstream.queries(name)
    proxy.upstream.fault(name, failing.kind, **failing.options)
    reply = await ask(proxy, face, name)
    is_found(reply, face)
    assert (reply["cache-status"], proxy.upstream.queries(name)) == ("doi-proxy; hit; ttl=60", before)


@everything
@everyone
async def test_stale_the_record_is_answered_and_says_so(proxy: Proxy, slow: Proxy, failing: Failing, face: str) -> None:
    proxy = slow if failing in SLOW else proxy
    name = await known(proxy, ttl=60)
    before = proxy.upstream.queries(name)
    proxy.clock.advance(97)
    proxy.upstream.fault(name, failing.kind, **failing.options)
    reply = await ask(proxy, face, name)
    is_found(reply, face)
    assert reply["cache-status"] == f"doi-proxy; hit; ttl=-37; detail={failing.token}"
    # A REST answer's max-age counts from its Age.
    assert (reply.max_age or 0) - int(reply["age"] or 0) <= 30
    was_asked(proxy, name, before, failing)
    if face == "values page":
        assert "may be out of date" in reply.text


@everything
@everyone
async def test_for_a_cached_not_found_there_is_no_query(proxy: Proxy, slow: Proxy, failing: Failing, face: str) -> None:
    proxy = slow if failing in SLOW else proxy
    name = await missing(proxy)
    before = proxy.upstream.queries(name)
    proxy.upstream.fault(name, failing.kind, **failing.options)
    reply = await ask(proxy, face, name)
    is_missing(reply, face, name)
    assert (reply["cache-status"], proxy.upstream.queries(name)) == ("doi-proxy; hit; ttl=60", before)


@everything
@everyone
async def test_no_longer_known_to_be_missing_it_could_not_be_verified(
    proxy: Proxy, slow: Proxy, failing: Failing, face: str
) -> None:
    proxy = slow if failing in SLOW else proxy
    name = await missing(proxy)
    before = proxy.upstream.queries(name)
    proxy.clock.advance(61)
    proxy.upstream.fault(name, failing.kind, **failing.options)
    says_could_not_verify(await ask(proxy, face, name), face, name, failing)
    was_asked(proxy, name, before, failing)


@everyone
async def test_not_found_is_what_the_body_says_whatever_the_http_status(proxy: Proxy, face: str) -> None:
    name = proxy.name()
    proxy.upstream.fault(name, "unavailable_but_known")
    is_missing(await ask(proxy, face, name), face, name)


@everyone
async def test_past_the_grace_it_could_not_be_verified(face: str) -> None:
    async with Proxy(cache_grace=1000) as proxy:
        name = await known(proxy, ttl=60)
        proxy.upstream.fault(name, "close")
        proxy.clock.advance(1059)
        is_found(await ask(proxy, face, name), face)
        proxy.clock.advance(1)
        says_could_not_verify(await ask(proxy, face, name), face, name, TABLE[1])


async def test_the_stale_json_is_the_fresh_json(proxy: Proxy) -> None:
    name = await known(proxy)
    fresh = await ask(proxy, "REST", name)
    proxy.clock.advance(100)
    proxy.upstream.fault(name, "garbage")
    stale = await ask(proxy, "REST", name)
    assert (stale.body, stale["etag"]) == (fresh.body, fresh["etag"])


async def test_a_stale_page_without_the_values_asked_for_says_that_it_is_stale(proxy: Proxy) -> None:
    name = await known(proxy)
    proxy.clock.advance(100)
    proxy.upstream.fault(name, "garbage")
    reply = await proxy.get(f"/{name}?type=NOPE")
    assert reply.status == 200
    assert "may be out of date" in reply.text


@everyone
async def test_a_broken_circuit_is_503_with_retry_after_and_no_question(face: str) -> None:
    async with Proxy(upstream_breaker_failures=2, upstream_breaker_cooldown=15) as proxy:
        stale = await known(proxy, ttl=60)
        fresh = await known(proxy, ttl=6000)
        proxy.clock.advance(97)
        for _ in range(2):
            name = proxy.name()
            proxy.upstream.fault(name, "reset")
            assert (await ask(proxy, "REST", name)).status == 502
        name, before = proxy.name(), proxy.upstream.queries()
        reply = await ask(proxy, face, name)
        says_could_not_verify(reply, face, name, Failing("", 503, "breaker-open"))
        assert 1 <= int(reply["retry-after"] or 0) <= 15
        reply = await ask(proxy, face, stale)
        is_found(reply, face)
        assert reply["cache-status"] == "doi-proxy; hit; ttl=-37; detail=breaker-open"
        is_found(await ask(proxy, face, fresh), face)
        assert proxy.upstream.queries() == before


@everyone
async def test_a_spent_budget_is_503_with_retry_after_and_no_question(face: str) -> None:
    async with Proxy(**{"upstream_rate": 0.01, "upstream_burst": 1, QUEUE_TIMEOUT: 1}) as proxy:
        stale = await known(proxy, ttl=60)
        proxy.clock.advance(97)
        name = proxy.name()
        reply = await ask(proxy, face, name)
        says_could_not_verify(reply, face, name, Failing("", 503, "budget-spent"))
        assert 1 <= int(reply["retry-after"] or 0) <= 100
        reply = await ask(proxy, face, stale)
        is_found(reply, face)
        # Both queries waited a second for a token.
        assert reply["cache-status"] == "doi-proxy; hit; ttl=-39; detail=budget-spent"
        assert proxy.upstream.queries() == 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("wish", "seconds"), [(10, 10), (3600, 60)])
async def test_an_upstream_that_names_a_pause_is_obeyed_for_a_minute_at_most(
    status: int, wish: int, seconds: int
) -> None:
    async with Proxy() as proxy:
        stale = await known(proxy, ttl=60)
        proxy.clock.advance(97)
        refused, other = proxy.name(), proxy.name()
        proxy.upstream.fault(refused, "status", status=status, retry_after=wish)
        reply = await ask(proxy, "REST", refused)
        assert (reply.status, reply["retry-after"]) == (502, str(seconds))
        reply = await ask(proxy, "REST", other)
        says_could_not_verify(reply, "REST", other, Failing("", 503, "upstream-paused"))
        assert seconds - 5 <= int(reply["retry-after"] or 0) <= seconds
        is_found(await ask(proxy, "REST", stale), "REST")
        assert proxy.upstream.queries(other) == 0


async def test_one_of_two_upstreams_that_wants_a_pause_leaves_the_other_to_answer() -> None:
    async with FakeUpstream() as first, Proxy() as second_only:
        url = f"{first.url},{second_only.upstream.url}"
        async with Proxy(upstream_url=url) as proxy:
            first.fault(EVERY_NAME, "status", status=429, retry_after=3600)
            for _ in range(3):
                name = proxy.name()
                second_only.upstream.put(name, url=TARGET)
                is_found(await ask(proxy, "REST", name), "REST")
            assert (first.queries(), second_only.upstream.queries()) == (1, 3)
            ready = (await proxy.get("/readyz")).json
            assert [one["state"] for one in ready["upstreams"]] == ["backing-off", "ok"]
            assert 55 <= ready["upstreams"][0]["retry_after"] <= 60


@pytest.mark.parametrize(
    ("fault", "options", "names"),
    [
        ("status", {"status": 403}, 48),
        ("status", {"status": 403, "retry_after": 3600}, 1),
        ("html", {}, 10),
        ("code_2", {}, 10),
    ],
)
async def test_what_befalls_the_names_of_one_client_is_not_the_trouble_of_another(
    fault: str, options: dict[str, int], names: int
) -> None:
    async with Proxy(**{"upstream_breaker_failures": 10, FAILURE_TTL: 15}) as proxy:
        for _ in range(names):
            name = proxy.name()
            proxy.upstream.fault(name, fault, **options)
            for _ in range(2):
                reply = await ask(proxy, "REST", name)
                assert (reply.status, reply["retry-after"] is not None) == (502, True)
            assert proxy.upstream.queries(name) == 1
        name = proxy.name()
        proxy.upstream.put(name, url=TARGET)
        is_found(await ask(proxy, "page", name), "page")


@table(
    "setting", [{"upstream_url": "http://127.0.0.1:9"}, {"upstream_url": "http://localhost:9"}], ids=["address", "name"]
)
@everyone
async def test_without_any_upstream_it_could_not_be_verified(setting: dict[str, str], face: str) -> None:
    async with Proxy(**setting) as proxy:
        name = proxy.name()
        reply = await ask(proxy, face, name)
        says_could_not_verify(reply, face, name, Failing("", 502, UNREACHABLE))
        # No host, and no words of a library.
        assert not re.search("localhost|127\\.0\\.0\\.1|ConnectError|attempts", reply.text)


def test_every_failure_names_an_error_type_of_the_registry() -> None:
    # RFC 9209, section 2.3.
    registered = {
        "dns_timeout", "dns_error", "destination_not_found", "destination_unavailable", "destination_ip_prohibited",
        "destination_ip_unroutable", "connection_refused", "connection_terminated", "connection_timeout",
        "connection_read_timeout", "connection_write_timeout", "connection_limit_reached", "tls_protocol_error",
        "tls_certificate_error", "tls_alert_received", "http_request_error", "http_request_denied",
        "http_response_incomplete", "http_response_header_section_size", "http_response_header_size",
        "http_response_body_size", "http_response_trailer_section_size", "http_response_trailer_size",
        "http_response_transfer_coding", "http_response_content_coding", "http_response_timeout",
        "http_upgrade_failed", "http_protocol_error", "proxy_internal_response", "proxy_internal_error",
        "proxy_configuration_error", "proxy_loop_detected",
    }  # fmt: skip
    kinds: list[type[CouldNotVerify]] = [CouldNotVerify, *CouldNotVerify.__subclasses__()]
    assert {kind.proxy_error for kind in kinds} <= registered
    # 403 is the refusal of a prefix by the operator.
    assert {kind.status for kind in kinds if kind is not PrefixDenied} <= {502, 503, 504}
    assert PrefixDenied.status == 403


def _failures(kind: type[CouldNotVerify] = CouldNotVerify) -> list[type[CouldNotVerify]]:
    return [kind, *(one for below in kind.__subclasses__() for one in _failures(below))]


@table("language", ["en", "de", "fr", "es"])
@table("token", sorted({kind.token for kind in _failures()}))
async def test_every_failure_has_a_sentence_for_people_in_every_language(language: str, token: str) -> None:
    packages = (CORE, *text_packages())
    texts = load_catalogues((language,), packages=packages)[language].texts
    assert texts[f"failure.{token}"].endswith(".")


@table("error", [InvalidName, *InvalidName.__subclasses__()])
async def test_every_wrong_name_has_a_sentence_for_people(error: type[InvalidName]) -> None:
    texts = load_catalogues(("en",), packages=(CORE,))["en"].texts
    if as_failure(error()).status == 400 and error is not NotADOI:
        assert texts[f"failure.{error.token}"].endswith(".")


@table(
    ("path", "status", "words"),
    [
        ("/10.5555/a%ff", 400, "Copiez le DOI de nouveau"),
        ("/10.5555/a%zz", 400, "deux chiffres hexadécimaux"),
        ("/10.5555/a%00", 400, "un caractère qu’un DOI ne doit pas contenir"),
        ("/10.5555/" + "a" * 9_000, 414, "Saisissez seulement le DOI."),
        ("/10.5555/" + "a" * 33_000, 414, "Saisissez seulement le DOI."),
    ],
)
async def test_a_wrong_name_is_explained_in_the_language_of_the_page(path: str, status: int, words: str) -> None:
    async with Proxy() as proxy:
        page = await proxy.get(path, accept_language="fr")
        assert page.status == status and words in page.text
        assert 'lang="en"' not in page.text


async def test_the_reason_on_a_page_is_in_its_language_and_names_no_internals() -> None:
    # Port 9 is "discard" (RFC 863): nothing listens there.
    async with Proxy(upstream_url="http://user:secret@127.0.0.1:9") as proxy:
        page = await proxy.get("/10.5555/unknown", accept_language="de")
        assert (page.status, page["content-type"]) == (502, "text/html;charset=utf-8")
        assert "Das Register war nicht erreichbar." in page.text
        for internal in ("127.0.0.1", "secret", "Error", "httpx"):
            assert internal not in page.text
