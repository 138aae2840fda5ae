"""The shipped configurations of front proxies, run: every name arrives as it was sent, and comes back as it should.

nginx, Apache httpd and Caddy are Debian's; each runs as the current user on free ports, in front of two real proxies.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.front_proxy import CONFIG, Apache, Caddy, FrontProxy, Nginx, program
from tests.cluster.processes import Proxy, UpstreamProcess, until
from tests.cluster.raw_http import Answered

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.process]

#: What is sent, and the name that it means (RFC 3986: percent-decoded once, and nothing else done to it).
TARGETS: Final = {
    "/10.1234/plain": "10.1234/plain",
    "/10.1234%2Fencoded-slash": "10.1234/encoded-slash",
    "/10.1234/a%2Fb/c%2fd": "10.1234/a/b/c/d",
    "/10.1234//double": "10.1234//double",
    "/10.1234/three///slashes": "10.1234/three///slashes",
    "/10.1234/slash-at-the-end/": "10.1234/slash-at-the-end/",
    "/10.1234/escaped%252Fescape": "10.1234/escaped%2Fescape",
    "/10.1234/per%25cent": "10.1234/per%cent",
    "/10.1234/space%20space": "10.1234/space space",
    "/10.1234/semicolon;v=1": "10.1234/semicolon;v=1",
    "/10.1234/plus+plus%2Bplus": "10.1234/plus+plus+plus",
    "/10.1234/%C3%BCml%C3%A4ut": "10.1234/ümläut",
    "/10.1234/%E6%BC%A2%E5%AD%97": "10.1234/漢字",
    "/10.1234/./dot": "10.1234/./dot",
    "/10.1234/a/../dots": "10.1234/a/../dots",
    "/10.1234/%2E%2E/encoded-dots": "10.1234/../encoded-dots",
    "/10.1234/question%3Fmark=1": "10.1234/question?mark=1",
    "/10.1234/hash%23tag": "10.1234/hash#tag",
    "/10.1234/(sici)1096%3C1::aid%3E3.0.co;2-%23": "10.1234/(sici)1096<1::aid>3.0.co;2-#",
    "/10.1234/%22quote'%5Bbrackets%5D%7Bbraces%7D%7C%5C%5E%60": "10.1234/\"quote'[brackets]{braces}|\\^`",
    "/10.1234/amp&equals=at@colon:comma,dollar$star*": "10.1234/amp&equals=at@colon:comma,dollar$star*",
    "/10.1234/tilde~bang!": "10.1234/tilde~bang!",
    "/10.1234/script.php": "10.1234/script.php",
    "/10.1234/.htaccess": "10.1234/.htaccess",
    f"/10.1234/{'long' * 1500}": f"10.1234/{'long' * 1500}",
}
ALIAS: Final = "10.1234/alias of ü"
ALIAS_PATH: Final = "/10.1234/alias%20of%20%C3%BC"
#: A header that says what a front proxy may not change; the others are its own affair.
SAME: Final = ("location", "content-type", "cache-control", "vary", "link", "access-control-allow-origin", "allow")


def url_of(name: str) -> str:
    return f"https://www.example.org/target/{list(TARGETS.values()).index(name)}"


#: A target for the campus, whose address is 127.0.0.2, and one for all other clients.
LIBRARY: Final = {
    "index": 1,
    "type": "10320/loc",
    "ttl": 86400,
    "data": {
        "format": "string",
        "value": '<locations><location href="https://library.example.org/" addresses="127.0.0.2/32" weight="0"/>'
        '<location href="https://publisher.example.org/"/></locations>',
    },
}
#: Readers of the same campus go through EZproxy.
LIBRARY_RULES: Final = """
[[service]]
name = "ezproxy"
label = "EZproxy"
kind = "ezproxy"
url = "https://ezproxy.example.edu/login"
[[rule]]
service = "ezproxy"
networks = ["127.0.0.2/32"]
"""
RECORDS: Final = {name: url_of(name) for name in TARGETS.values()}


@dataclass(frozen=True)
class Site:
    """A front proxy, the two proxies behind it and the upstream behind those."""

    front: FrontProxy
    proxies: tuple[Proxy, Proxy]
    upstream: UpstreamProcess
    #: The sub-path that everything is below.
    base: str = ""


async def open_site(folder: Path, kind: str, sub_path: str = "", **settings: object) -> AsyncIterator[Site]:
    upstream = UpstreamProcess(folder, RECORDS, ttls={"10.1234/plain": 1} if kind == "nginx cache" else {})
    given = {"upstream_rate": 100_000, **settings}
    first, second = (Proxy(folder, upstream.url, f"sqlite:///{folder}/store.sqlite3", **given) for _ in range(2))
    started = [upstream.process, first.process, second.process]
    try:
        # In this order: a front proxy remembers for seconds that a proxy did not answer.
        await asyncio.gather(upstream.ready(), first.ready(), second.ready())
        front = open_front(folder, kind, (first.port, second.port))
        started.append(front.process)
        await front.ready()
        alias = {"index": 1, "type": "HS_ALIAS", "ttl": 86400, "data": {"format": "string", "value": "10.1234/plain"}}
        await upstream.tell("put", handle=ALIAS, values=[alias])
        yield Site(front, (first, second), upstream, sub_path)
    finally:
        for process in started:
            process.kill()


def open_front(folder: Path, kind: str, ports: tuple[int, int]) -> FrontProxy:
    place = folder / "front"
    place.mkdir()
    match kind:
        case "nginx":
            return Nginx(place, ports)
        case "nginx cache":
            return Nginx(place, ports, cached=True)
        case "nginx below /doi":
            return Nginx(place, ports, "doi-proxy-sub-path.conf")
        case "apache2":
            return Apache(place, ports)
        case "apache2 below /doi":
            return Apache(place, ports, sub_path=True)
        case _:
            return Caddy(place, ports)


@pytest.fixture(scope="module", params=["nginx", "nginx below /doi", "apache2", "apache2 below /doi", "caddy"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """Each kind of site in turn."""
    program(request.param.split()[0])
    folder = tmp_path_factory.mktemp("site")
    below: dict[str, Any] = {}
    if "below" in request.param:
        below = {"sub_path": "/doi", "public_url": "https://www.example.org/doi"}
    async for one in open_site(folder, request.param, **below):
        yield one


@pytest.fixture(params=["nginx", "apache2", "caddy"])
async def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    """A site whose parts may be killed."""
    program(request.param)
    async for one in open_site(tmp_path, request.param):
        yield one


@pytest.fixture
async def cached(tmp_path: Path) -> AsyncIterator[Site]:
    """A site of nginx with nginx's own cache; /10.1234/plain has a TTL of a second."""
    program("nginx")
    async for one in open_site(tmp_path, "nginx cache"):
        yield one


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(("target", "name"), TARGETS.items(), ids=[name[:40] for name in TARGETS.values()])
async def test_a_name_arrives_as_it_was_sent(site: Site, target: str, name: str, method: str) -> None:
    answer = await site.front.ask(site.base + target, method=method)
    direct = await site.proxies[0].ask(site.base + target, method=method)
    assert (answer.status, answer.location, answer.body) == (302, RECORDS[name], direct.body)
    assert {key: answer.headers.get(key) for key in SAME} == {key: direct.headers.get(key) for key in SAME}


async def test_bytes_that_should_have_been_encoded_are_refused_or_mean_the_name(site: Site) -> None:
    answer = await site.front.ask(f"{site.base}/10.1234/ümläut".encode())
    assert (answer.status, answer.location) in [(400, ""), (302, RECORDS["10.1234/ümläut"])]


@pytest.mark.parametrize("name", ["10.1234/a/b/c/d", "10.1234//double", "10.1234/escaped%2Fescape", "10.1234/ümläut"])
async def test_the_rest_api_gets_names_as_they_were_sent(site: Site, name: str) -> None:
    target = next(target for target, meant in TARGETS.items() if meant == name)
    answer = await site.front.ask(f"{site.base}/api/handles{target}")
    assert (answer.status, answer.json["handle"]) == (200, name)
    assert answer.headers["content-type"].startswith("application/json")


async def test_a_query_arrives_as_it_was_sent(site: Site) -> None:
    answer = await site.front.ask(f"{site.base}/10.1234/plain?type=URL;urlappend=%3Fa%3D%252F%26b+c&ignored")
    direct = await site.proxies[0].ask(f"{site.base}/10.1234/plain?type=URL;urlappend=%3Fa%3D%252F%26b+c&ignored")
    assert answer.location == direct.location
    assert answer.location.startswith(RECORDS["10.1234/plain"] + "?a=%2F&b+c")


async def test_the_form_is_answered(site: Site) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await site.front.ask(f"{site.base}/", method="POST", headers=form, body=b"hdl=10.1234%2F%2Fdouble")
    assert (answer.status, answer.location) == (302, RECORDS["10.1234//double"])


async def test_a_form_with_a_file_of_four_megabytes_is_answered(site: Site) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=xyz"}
    head = b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    # doi-proxy says itself that this text is too long.
    for size, words in ((200_000, b"The text has no references."), (4_000_000, b"Send it in parts.")):
        body = head + b" " * size + b"\r\n--xyz--\r\n"
        answer = await site.front.ask(f"{site.base}/references", method="POST", headers=headers, body=body)
        assert words in answer.body, answer.status


async def test_no_answer_is_cut_into_ranges(site: Site) -> None:
    target, ranges = f"{site.base}/api/handles/10.1234/plain", ",".join(f"{at}-{at}" for at in range(0, 400, 2))
    whole, asked = [await site.front.ask(target, headers=more) for more in ({}, {"Range": f"bytes={ranges}"})]
    assert (asked.status, len(asked.body)) == (200, len(whole.body))


async def test_a_preflight_is_answered(site: Site) -> None:
    wanted = {"Origin": "https://app.example.org", "Access-Control-Request-Method": "GET"}
    answer = await site.front.ask(f"{site.base}/api/handles/10.1234/plain", method="OPTIONS", headers=wanted)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")


async def test_an_alias_leads_to_the_public_host_by_the_public_scheme(site: Site) -> None:
    secure = await site.front.ask_https(site.base + ALIAS_PATH, host="doi.example.org")
    plain = await site.front.ask(
        site.base + ALIAS_PATH, host="doi.example.org:8080", headers={"X-Forwarded-Proto": "https"}
    )
    assert secure.status == plain.status == 301
    if site.base:
        assert secure.location == plain.location == "https://www.example.org/doi/10.1234/plain"
    else:
        # The port stays, and the scheme is that of the trusted front proxy, not that of a client's header.
        assert secure.location == "https://doi.example.org/10.1234/plain"
        assert plain.location == "http://doi.example.org:8080/10.1234/plain"


async def test_a_page_and_its_files_are_below_the_sub_path(site: Site) -> None:
    page = await site.front.ask(f"{site.base}/")
    assert page.status == 200
    assert f'href="{site.base}/static/style.css?v='.encode() in page.body
    style = await site.front.ask(f"{site.base}/static/style.css")
    assert (style.status, style.headers["content-type"].partition(";")[0]) == (200, "text/css")


async def test_the_resolver_s_own_errors_pass(site: Site) -> None:
    missing = await site.front.ask(f"{site.base}/api/handles/10.1234/unknown")
    assert (missing.status, missing.json["responseCode"]) == (404, 100)
    await site.upstream.tell("fault", name="10.1234/failing", kind="status", status=500)
    failed = await site.front.ask(f"{site.base}/api/handles/10.1234/failing")
    assert (failed.status, failed.json["responseCode"]) == (502, 2)
    assert "proxy-status" in failed.headers


async def test_a_long_location_passes(site: Site) -> None:
    url = "https://www.example.org/" + "x" * 16_000
    await site.upstream.put("10.1234/leads-far", url)
    assert (await site.front.ask(f"{site.base}/10.1234/leads-far")).location == url


async def test_when_one_proxy_is_killed_the_other_answers_and_when_both_are_no_answer_is_false(mortal: Site) -> None:
    targets = [target for target in TARGETS for _ in range(4)]
    mortal.proxies[0].process.kill()
    answers = [await mortal.front.ask(target) for target in targets]
    assert {answer.status for answer in answers} == {302}
    assert [answer.location for answer in answers] == [RECORDS[TARGETS[target]] for target in targets]
    mortal.proxies[1].process.kill()
    assert {(await mortal.front.ask(target)).status for target in targets[:2]} <= {502, 503}


async def test_a_cache_in_nginx_makes_a_hundred_requests_one(cached: Site) -> None:
    answers = await asyncio.gather(*(cached.front.ask("/10.1234//double") for _ in range(100)))
    assert {(answer.status, answer.location) for answer in answers} == {(302, RECORDS["10.1234//double"])}
    caches = [answer.headers["x-cache"] for answer in answers]
    assert (caches.count("MISS"), caches.count("HIT")) == (1, 99)
    assert await cached.upstream.queries("10.1234//double") == 1
    # The record is fresh for a day. The time for which nginx may store the answer is another one.
    assert answers[0].headers["cache-control"] == "public, max-age=300"


async def test_a_cache_in_nginx_keeps_no_answer_that_was_chosen_for_one_client(cached: Site) -> None:
    await cached.upstream.tell("put", handle="10.1234/library", values=[LIBRARY])
    campus = [await cached.front.ask("/10.1234/library", client="127.0.0.2") for _ in range(2)]
    outsider = [await cached.front.ask("/10.1234/library", client="127.0.0.3") for _ in range(2)]
    assert {answer.location for answer in campus} == {"https://library.example.org/"}
    assert {answer.location for answer in outsider} == {"https://publisher.example.org/"}
    assert {answer.headers["x-cache"] for answer in (*campus, *outsider)} == {"MISS"}
    assert {answer.headers["cache-control"] for answer in (*campus, *outsider)} == {"private, max-age=300"}


@pytest.fixture
async def cached_library(tmp_path: Path) -> AsyncIterator[Site]:
    """A site of nginx with nginx's own cache, and with library rules."""
    program("nginx")
    rules = tmp_path / "rules.toml"
    rules.write_text(LIBRARY_RULES, encoding="utf-8")
    async for one in open_site(tmp_path, "nginx cache", library_rules=rules):
        yield one


async def test_a_cache_in_nginx_keeps_no_redirect_through_the_library(cached_library: Site) -> None:
    path, target = "/10.1234/tilde~bang!", url_of("10.1234/tilde~bang!")

    async def ask_twice(client: str, accept: str, query: str = "") -> list[Answered]:
        headers = {"Accept": accept}
        return [await cached_library.front.ask(path + query, client=client, headers=headers) for _ in range(2)]

    campus, outside = await ask_twice("127.0.0.2", "text/html"), await ask_twice("127.0.0.3", "text/html")
    programs, skipped = await ask_twice("127.0.0.3", "*/*"), await ask_twice("127.0.0.2", "text/html", "?nols=y")
    # The cache now has the answer for programs, which is not the one for the campus.
    campus += await ask_twice("127.0.0.2", "text/html")
    assert {one.location for one in campus} == {f"https://ezproxy.example.edu/login?url={target}"}
    assert {one.location for one in (*outside, *programs, *skipped)} == {target}
    assert {one.headers["x-cache"] for one in (*campus, *outside)} == {"MISS"}
    assert {one.headers["cache-control"] for one in (*campus, *outside)} == {"private, no-store"}
    assert [programs[1].headers["x-cache"], skipped[1].headers["x-cache"]] == ["HIT", "HIT"]


async def test_a_cache_in_nginx_shares_what_is_the_same_for_every_client_and_obeys_vary(cached: Site) -> None:
    async def ask(client: str, **headers: str) -> tuple[int, str]:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await cached.front.ask(target, client=client, headers=fields)
        return answer.status, answer.headers["x-cache"]

    target = "/10.1234//double"
    assert await ask("127.0.0.2") == (302, "MISS")
    assert await ask("127.0.0.3") == (302, "HIT")
    # A program that negotiates is another question to the resolver, which it must hear.
    assert (await ask("127.0.0.3", Accept="application/x-bibtex"))[1] == "MISS"
    target = "/10.1234//double?noredirect"
    assert await ask("127.0.0.2", Accept_Language="de") == (200, "MISS")
    assert await ask("127.0.0.3", Accept_Language="de") == (200, "HIT")
    assert await ask("127.0.0.3", Accept_Language="en") == (200, "MISS")


async def test_a_cache_in_nginx_keeps_no_failure_and_a_stale_answer_only_shortly(cached: Site) -> None:
    assert (await cached.front.ask("/10.1234/plain")).status == 302
    cached.upstream.process.kill()
    seen: list[dict[str, str]] = []

    async def stale() -> bool:
        answer = await cached.front.ask("/10.1234/plain")
        assert (answer.status, answer.location) == (302, RECORDS["10.1234/plain"])
        seen.append(answer.headers)
        return "detail=" in answer.headers["cache-status"]

    await until(stale, 10.0, "a stale answer")
    assert int(seen[-1]["cache-control"].partition("max-age=")[2]) <= 30
    failed = [await cached.front.ask("/10.1234/never-seen") for _ in range(2)]
    assert all(answer.status in (502, 503, 504) for answer in failed)
    assert [answer.headers["x-cache"] for answer in failed] == ["MISS", "MISS"]
    assert failed[0].headers["cache-control"] == "no-store"


async def test_nginx_accepts_the_configuration_of_the_compose_file(tmp_path: Path) -> None:
    (tmp_path / "snippets").mkdir()
    for snippet in CONFIG.glob("nginx/doi-proxy-pass*.conf"):
        (tmp_path / "snippets" / snippet.name).write_bytes(snippet.read_bytes())
    text = (CONFIG / "compose/nginx.conf").read_text("utf-8")
    # A name of the compose file's network, and a word that nginx 1.22 does not know yet.
    assert "server proxy:8000 resolve " in text
    text = text.replace("proxy:8000 resolve", "127.0.0.1:8000")
    (tmp_path / "nginx.conf").write_text(text.replace("/tmp/", f"{tmp_path}/"), "utf-8")
    (tmp_path / "resolver.conf").write_text("resolver 127.0.0.11 valid=5s ipv6=off;\n", "utf-8")
    command = [program("nginx"), "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
