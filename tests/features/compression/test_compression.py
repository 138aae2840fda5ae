"""Large answers are sent with zstd or gzip to clients that accept it (RFC 9110, sections 8.4, 8.8.3 and 12.5.3)."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
from collections.abc import AsyncIterator
from typing import Final

import pytest

from doi_proxy.features.compression.compression import Compression
from doi_proxy.system.eager import Rest, begin
from doi_proxy.web.negotiation import choose_coding
from doi_proxy.web.request import Request
from doi_proxy.web.responses import JSON, Reply
from tests.table import table
from tests.web.proxy import Proxy

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.anyio

LARGE: Final = "10.5555/large"
HUGE: Final = "10.5555/huge"
LONG: Final = "10.5555/long"


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        proxy.upstream.put(LARGE, url="http://example.org/" + "x" * 9_000)
        proxy.upstream.put(HUGE, url="http://example.org/" + "x" * 40_000)
        yield proxy


@table(
    ("header", "expected"),
    [
        ("gzip", "gzip"),
        ("GZIP, deflate, br", "gzip"),
        ("br, *", "gzip"),
        ("gzip;q=0.5, identity;q=0.5", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("br, zstd", "zstd"),
        ("zstd;q=0.9, gzip", "gzip"),
        ("zstd, gzip;q=0", "zstd"),
        ("zstd;q=0, gzip", "gzip"),
        ("zstd;q=0", None),
        ("zstd;q=0.5, identity", None),
        ("gzip;q=0.5, identity", None),
        ("gzip;q=0, *", None),
        ("identity", None),
        ("", None),
        (None, None),
    ],
)
def test_a_coding_is_used_if_it_is_liked_as_much_as_none(header: str | None, expected: str | None) -> None:
    assert choose_coding(header) == expected


@pytest.mark.parametrize(
    "target", [f"/api/handles/{LARGE}", f"/api/handles/{HUGE}", f"/{LARGE}?noredirect", "/docs", "/openapi.json"]
)
async def test_a_large_answer_is_compressed(proxy: Proxy, target: str) -> None:
    for _ in range(2):  # from the upstream, and from memory
        plain, packed = await proxy.get(target), await proxy.get(target, accept_encoding="gzip")
        assert (plain["content-encoding"], packed["content-encoding"]) == (None, "gzip")
        assert gzip.decompress(packed.body) == plain.body
        assert len(packed.body) < len(plain.body)
        assert plain["vary"] == packed["vary"]
        assert "Accept-Encoding" in (packed["vary"] or "").split(", ")
        head = await proxy.head(target, accept_encoding="gzip")
        assert (head["content-encoding"], head["content-length"]) == ("gzip", str(len(packed.body)))


@pytest.mark.parametrize("target", ["/10.1000/182", "/api/handles/10.1000/182", "/healthz"])
async def test_a_small_answer_is_not(proxy: Proxy, target: str) -> None:
    got = await proxy.get(target, accept_encoding="gzip")
    assert got["content-encoding"] is None
    assert "Accept-Encoding" not in (got["vary"] or "")


async def test_the_tag_of_a_compressed_body_is_weak_and_is_recognised(proxy: Proxy) -> None:
    target = f"/api/handles/{LARGE}"
    plain, packed = await proxy.get(target), await proxy.get(target, accept_encoding="gzip")
    assert packed["etag"] == f"W/{plain['etag']}"
    for tag in (plain["etag"], packed["etag"]):
        got = await proxy.get(target, accept_encoding="gzip", if_none_match=tag or "")
        assert (got.status, got["etag"], got.body) == (304, tag, b"")


def request_of(accept_encoding: bytes) -> Request:
    async def receive() -> dict[str, object]:
        return {}

    scope = {
        "method": "GET",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [(b"accept-encoding", accept_encoding)],
    }
    return Request(scope, receive, public_url=None, sub_path=b"")


async def test_while_one_large_body_is_compressed_others_are_sent_as_they_are() -> None:
    compression, request = Compression(min_bytes=256, memory_bytes=10**6), request_of(b"gzip")
    replies = [Reply(200, (JSON,), os.urandom(50_000).hex().encode()) for _ in range(4)]
    first, *others = await asyncio.gather(*(compression.encode(request, reply) for reply in replies))
    assert gzip.decompress(first.body) == replies[0].body
    assert others == replies[1:]
    # Later it has its turn, and is remembered.
    assert (await compression.encode(request, replies[1])).body != replies[1].body
    assert not isinstance(begin(compression.encode(request, replies[1])), Rest)


async def test_what_is_remembered_is_bounded() -> None:
    compression, request = Compression(min_bytes=256, memory_bytes=60_000), request_of(b"gzip")
    replies = [Reply(200, (JSON,), os.urandom(25_000).hex().encode()) for _ in range(4)]
    for reply in replies:
        await compression.encode(request, reply)
    assert [reply for reply in replies if not is_known(compression, request, reply)] == replies[:2]


def is_known(compression: Compression, request: Request, reply: Reply) -> bool:
    encoded = begin(compression.encode(request, reply))
    if isinstance(encoded, Rest):
        encoded.work.close()
    return not isinstance(encoded, Rest)


async def test_a_picture_is_not_compressed() -> None:
    compression = Compression(min_bytes=256, memory_bytes=10**6)
    reply = Reply(200, ((b"content-type", b"image/png"),), b"x" * 1_000)
    assert compression.prepare(await compression.encode(request_of(b"gzip"), reply)) == reply


@pytest.mark.parametrize("path", [LONG, f"{LONG}?urlappend=1"])
async def test_a_redirect_is_not(proxy: Proxy, path: str) -> None:
    proxy.upstream.put(LONG, url="http://example.org/" + "x" * 12_000)
    for _ in range(2):
        got = await proxy.get(f"/{path}", accept_encoding="gzip")
        assert (got.status, got["content-encoding"]) == (302, None)
        assert len(got.body) > 12_000
        assert "Accept-Encoding" not in (got["vary"] or "")


@pytest.mark.parametrize("target", [f"/api/handles/{LARGE}", f"/api/handles/{HUGE}", "/docs"])
async def test_the_codings_of_one_answer_are_kept_apart(proxy: Proxy, target: str) -> None:
    plain = await proxy.get(target)
    for _ in range(2):  # made, and remembered
        gzipped, packed = [await proxy.get(target, accept_encoding=coding) for coding in ("gzip", "gzip, zstd")]
        assert (gzipped["content-encoding"], packed["content-encoding"]) == ("gzip", "zstd")
        assert gzip.decompress(gzipped.body) == zstd.decompress(packed.body) == plain.body
        assert gzipped["vary"] == packed["vary"] == plain["vary"]
