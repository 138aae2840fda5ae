"""What the browser tests stand on: a proxy, its upstream with records of every kind, and a landing page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.cluster.processes import proxy_before
from tests.constants import BYPASSES
from tests.fake_upstream import FakeUpstream

#: What stands behind the DOI names that lead somewhere.
LANDING_TITLE: Final = "The work itself"
_LANDING: Final = f'<!doctype html><html lang="en"><title>{LANDING_TITLE}</title><h1>{LANDING_TITLE}</h1></html>'

WORK: Final = "10.5555/work"
STALE: Final = "10.5555/stale"
UNKNOWN: Final = "10.5555/nowhere"
UNREACHABLE: Final = "10.5555/unreachable"
EVERY_FORMAT: Final = "10.5555/every-format"
LOOP: Final = "10.5555/loop"
SCRIPT_TARGET: Final = "10.5555/script-target"
INACTIVE: Final = "10.5556/closed"
#: The settings of an invented library.
BRANDING: Final = {"branding_folder": "config/branding-example", "branding_name": "Example University Library"}
LIBRARY_RULES: Final = "config/library-rules.toml"
#: The example of local records, and two names in it.
LOCAL_RECORDS: Final = "config/local-records.toml"
GONE: Final = "10.5072/withdrawn"
DENIED: Final = "10.5072.3/anything"
#: A client may bypass the cache once a minute.
ONE_BYPASS: Final = {BYPASSES: 1}
BYPASSING: Final = f"{WORK}?auth=true"
#: A page is loaded within these seconds.
REFUSED_SECONDS: Final = 10
#: Longer than the proxy takes an address.
TOO_LONG: Final = "10.5555/" + "long-" * 7000


@dataclass(frozen=True, slots=True)
class Site:
    """The base URLs of two running proxies and of the landing page, and the upstream, on which a test sets faults."""

    base: str
    #: The proxy with the branding example.
    branded: str
    landing: str
    upstream: FakeUpstream

    def at(self, path: str, *, branded: bool = False) -> str:
        """The URL of a path at one of the proxies."""
        return (self.branded if branded else self.base) + path

    async def spend_bypass(self, *, branded: bool) -> None:
        """Bypass the cache of a proxy until it refuses every further bypass for a while."""
        url = self.at(f"/{BYPASSING}", branded=branded)
        for _ in range(10 * REFUSED_SECONDS):
            if await asyncio.to_thread(_seconds_refused, url) > REFUSED_SECONDS:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{url} is always answered")


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    """Everything, running; the records are there, and one of them is stale."""
    async with _landing_server() as landing, FakeUpstream() as upstream:
        _put_records(upstream, landing)
        async with _plain_proxy(upstream.url) as base, _branded_proxy(upstream.url) as branded:
            for proxy in (base, branded):
                await _fetch(f"{proxy}/api/handles/{STALE}?auth=true")
            upstream.fault(STALE, "status", status=503)
            upstream.fault(UNREACHABLE, "status", status=503)
            yield Site(base, branded, landing, upstream)


def _plain_proxy(upstream_url: str) -> AbstractAsyncContextManager[str]:
    """A proxy with our own face, and with local records."""
    return proxy_before(upstream_url, local_records=LOCAL_RECORDS, **ONE_BYPASS)


def _branded_proxy(upstream_url: str) -> AbstractAsyncContextManager[str]:
    """The proxy of an invented library, with its own face, its rules and its local records."""
    files = {"library_rules": LIBRARY_RULES, "local_records": LOCAL_RECORDS}
    return proxy_before(upstream_url, **BRANDING, **files, **ONE_BYPASS)


def _seconds_refused(url: str) -> int:
    """How long a proxy refuses this request, 0 if it answers it."""
    try:
        with urlopen(url, timeout=10):
            return 0
    except HTTPError as error:
        return int(error.headers["Retry-After"])


async def _fetch(url: str) -> None:
    def read() -> None:
        with urlopen(url, timeout=10) as answer:
            answer.read()

    await asyncio.to_thread(read)


def _put_records(upstream: FakeUpstream, landing: str) -> None:
    upstream.put(WORK, url=landing)
    upstream.put("10.5555", [_value(1, "HS_SERV", "10.SERV/EXAMPLE"), *_namespace("library@example.org")])
    upstream.put("0.NA/10.5555", [_value(1, "HS_SERV", "10.SERV/EXAMPLE"), *_namespace("library@example.org")])
    upstream.put(STALE, [_value(1, "URL", landing, ttl=0), _value(2, "EMAIL", "library@example.org", ttl=0)])
    agency = [
        _value(1, "10320/ra_name", "Example Agency"),
        _value(2, "PROXY_ERROR_URL", "https://agency.example/report"),
    ]
    upstream.put("10.SERV/EXAMPLE", agency)
    upstream.put(LOOP, [_value(1, "HS_ALIAS", LOOP + "-back")])
    upstream.put(LOOP + "-back", [_value(1, "HS_ALIAS", LOOP)])
    upstream.put(SCRIPT_TARGET, [_value(1, "URL", "javascript:alert(1)")])
    upstream.put(EVERY_FORMAT, every_format(landing))
    upstream.put(INACTIVE, url=landing)
    inactive = "<namespace><status>inactive</status><statusmsg>The registrant has closed.</statusmsg></namespace>"
    for name in ("10.5556", "0.NA/10.5556"):
        upstream.put(name, [_value(1, "HS_NAMESPACE", inactive)])


def _namespace(contact: str) -> list[dict[str, Any]]:
    return [_value(2, "HS_NAMESPACE", f"<namespace><contact>{contact}</contact></namespace>")]


def _value(index: int, kind: str, text: str, *, ttl: int = 86400) -> dict[str, Any]:
    return _of(index, kind, {"format": "string", "value": text}, ttl=ttl)


def _of(index: int, kind: str, data: object, *, ttl: int = 86400) -> dict[str, Any]:
    return {"index": index, "type": kind, "data": data, "ttl": ttl, "timestamp": "2024-02-29T23:59:59Z"}


def every_format(landing: str) -> list[dict[str, Any]]:
    """A value of every data format, and texts that a page must not trip over."""
    locations = (
        '<locations chooseby="locatt,country,weighted">\n'
        f'  <location id="0" href="{landing}" weight="1"/>\n'
        f'  <location id="1" href="{landing}/mirror" country="de" weight="0"/>\n</locations>'
    )
    site = {
        "version": 1,
        "protocolVersion": "2.11",
        "serialNumber": 7,
        "primarySite": True,
        "attributes": [{"name": "desc", "value": "Example site"}],
        "servers": [{"serverId": 1, "address": "192.0.2.10", "interfaces": [{"protocol": "TCP", "port": 2641}]}],
    }
    key = {"kty": "RSA", "n": "c2hvcnQtZXhhbXBsZS1tb2R1bHVz" * 6, "e": "AQAB"}
    admin = {"handle": "10.ADMIN/EXAMPLE", "index": 300, "permissions": "010001110000"}
    return [
        _value(1, "URL", landing),
        _value(2, "10320/loc", locations),
        _value(3, "EMAIL", "library@example.org"),
        _value(4, "DESC", "Ein Text mit Umlauten: äöü, 日本語 and עברית, <b>no bold</b> & \u202eturned\u202c"),
        _value(5, "URL.archive", "https://archive.example.org/" + "a-long-path-without-any-place-to-break/" * 6),
        _value(6, "REPLACES", "10.1000/182"),
        _of(100, "HS_ADMIN", {"format": "admin", "value": admin}),
        _of(
            101,
            "HS_VLIST",
            {
                "format": "vlist",
                "value": [{"handle": "10.ADMIN/A", "index": 300}, {"handle": "not a handle", "index": 1}],
            },
        ),
        _of(102, "HS_SITE", {"format": "site", "value": site}),
        _of(103, "HS_PUBKEY", {"format": "key", "value": key}),
        _of(104, "10.DATA/BYTES", {"format": "base64", "value": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIj"}),
        _of(105, "10.DATA/HEX", {"format": "hex", "value": "cafe" * 12}),
        _value(106, "EMPTY", ""),
        {"index": 107, "type": "NO_TIMESTAMP", "data": {"format": "string", "value": "tab\there\nsecond line\u0007"}},
    ]


@asynccontextmanager
async def _landing_server() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(_LANDING)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n{_LANDING}".encode())
            await writer.drain()
        except (OSError, EOFError):
            pass  # the browser opens connections that it does not use
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/work"
