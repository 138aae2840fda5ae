"""Programs that speak the native Handle protocol get the answers of the HTTP API, by each transport."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Final

import pytest

from handle_protocol.wire.message import (
    AnswerText,
    Envelope,
    Filters,
    Header,
    Message,
    OpCode,
    OpFlag,
    Query,
    Values,
    decode_response,
    encode_digested,
    encode_message,
    encode_query,
)
from handle_protocol.wire.site_value import ServiceSite, TransportProtocol, TtlType
from tests.fake_upstream import EVERY_NAME
from tests.features.native_listener.listening import TRANSPORTS, listening, read_manual
from tests.table import table

pytestmark = pytest.mark.anyio

NAME: Final = "10.1000/182"
URL: Final = "http://www.doi.org/hb.html"
_OTHERS: Final = [0, *range(3, 12), 100, 101, 102, 103, 104, 105, 106, 200, 400, 999]


@pytest.mark.parametrize("by", TRANSPORTS)
async def test_a_record_is_the_upstreams(by: str) -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url=URL, ttl=3600)
        for _ in range(2):
            response = await proxy.resolve(NAME.lower(), by=by)
            assert isinstance(response.body, Values) and response.body.handle == NAME.encode()
            (value,) = response.body.values
            assert (value.index, value.type, value.data, value.ttl) == (1, b"URL", URL.encode(), 3600)
        assert proxy.upstream.queries(NAME) == 1
        response = await proxy.resolve("10.1000/none", by=by)
        assert (response.code, response.body) == (100, AnswerText(b""))


@pytest.mark.parametrize("by", TRANSPORTS)
async def test_a_client_of_a_stale_record_asks_again_soon_whatever_the_ttl_was(by: str) -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url=URL)
        await proxy.resolve(NAME, by=by)
        proxy.upstream.fault(EVERY_NAME, "reset")
        proxy.clock.advance(90_000)
        stale = await proxy.resolve(NAME, by=by)
        assert isinstance(stale.body, Values)
        assert [value.ttl for value in stale.body.values] == [30]


async def test_a_ttl_is_counted_down_and_an_absolute_one_stays() -> None:
    async with listening() as proxy:
        url = {"type": "URL", "data": {"format": "string", "value": URL}}
        ttls = (600, "2030-01-01T00:00:00Z", 300)
        values = [{"index": index, "ttl": ttl, **url} for index, ttl in enumerate(ttls, 1)]
        proxy.upstream.put(NAME, values)
        await proxy.resolve(NAME)
        proxy.clock.advance(100)
        response = await proxy.resolve(NAME)
        assert isinstance(response.body, Values)
        assert [value.ttl for value in response.body.values] == [500, 1_893_456_000, 200]
        assert [value.ttl_type for value in response.body.values] == [
            TtlType.RELATIVE,
            TtlType.ABSOLUTE,
            TtlType.RELATIVE,
        ]


async def test_filters_select_values_as_a_handle_server_does() -> None:
    async with listening() as proxy:
        kinds = ((1, "URL"), (2, "EMAIL"), (3, "URL.mirror"), (4, "DESC"))
        values = [{"index": at, "type": kind, "data": {"format": "string", "value": "x"}} for at, kind in kinds]
        proxy.upstream.put(NAME, values)

        async def indexes(**filters: Any) -> list[int]:
            body = (await proxy.resolve(NAME, **filters)).body
            assert isinstance(body, Values)
            return [value.index for value in body.values]

        assert await indexes(types=(b"url",)) == [1]
        assert await indexes(types=(b"URL.",)) == [1, 3]
        assert await indexes(types=(b"DESC",), indexes=(2,)) == [2, 4]
        assert (await proxy.resolve(NAME, types=(b"NONE",))).code == 200
        assert (await proxy.resolve(NAME, indexes=(77,))).code == 200


async def test_an_authoritative_answer_is_not_from_the_cache_and_a_certified_one_is_not_signed() -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url=URL)
        await proxy.resolve(NAME)
        for asked, flag in enumerate((OpFlag.AUTHORITATIVE, OpFlag.CERTIFIED), 2):
            response = await proxy.resolve(NAME, flags=OpFlag.PUBLIC_ONLY | flag)
            assert (response.code, response.credential) == (1, None)
            assert not response.header.flags & OpFlag.CERTIFIED
            assert proxy.upstream.queries(NAME) == asked
        proxy.upstream.fault(NAME, "reset")
        assert (await proxy.resolve(NAME, flags=OpFlag.AUTHORITATIVE)).code == 2
        assert (await proxy.resolve(NAME)).code == 1


async def test_names_that_are_not_resolved_here_are_those_of_others() -> None:
    async with listening() as proxy:
        assert (await proxy.resolve("20.500.12345/x")).code == 301
        assert proxy.upstream.queries() == 0
    async with listening(resolve="any") as proxy:
        assert (await proxy.resolve("20.500.12345/x")).code == 100


@table("handle", [b"", b"10.1000/\xff", b"10.1000/\0", b"10.1000/" + b"a" * 8_192])
async def test_a_handle_that_is_not_one_is_invalid(handle: bytes) -> None:
    async with listening() as proxy:
        assert (await proxy.resolve(handle)).code == 102


async def test_a_prefix_record_is_that_of_the_prefix() -> None:
    async with listening() as proxy:
        proxy.upstream.put("10.1000", url=URL)
        for name in ("10.1000", "0.NA/10.1000", "0.na/10.1000"):
            body = (await proxy.resolve(name)).body
            assert isinstance(body, Values) and body.handle == name.encode()
        assert proxy.upstream.queries("10.1000") == 1


@table("operation", _OTHERS)
async def test_every_other_operation_is_denied(operation: int) -> None:
    async with listening() as proxy:
        query = Query(Filters(NAME.encode()), 7, 1_900_000_000, op_code=operation)
        response = await proxy.query(query)
        assert (response.code, response.header.op_code, response.envelope.request_id) == (5, operation, 7)


@table("session, flags, code", [(9, 2, 500), (0, 0x42, 500), (0, 0x82, 1), (0, 0x1E, 1)])
async def test_there_are_no_sessions(session: int, flags: int, code: int) -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url=URL)
        query = encode_query(Query(Filters(NAME.encode()), 7, 1_900_000_000))
        data = query[:2] + bytes([flags]) + query[3:4] + session.to_bytes(4, "big") + query[8:]
        answer = await proxy.exchange(data)
        assert answer is not None and decode_response(answer, digest_requested=False).code == code


@table(
    "version, answered, algorithm",
    [
        ((2, 11), (2, 11), "sha256"),
        ((3, 0), (2, 11), "sha256"),
        ((2, 7), (2, 7), "sha256"),
        ((2, 5), (2, 5), "sha1"),
        ((2, 1), (2, 1), "sha1"),
        ((2, 0), (2, 0), "md5"),
        ((0, 0), (0, 0), "md5"),
    ],
)
async def test_an_answer_has_the_suggested_version_and_the_digest_of_it(
    version: tuple[int, int], answered: tuple[int, int], algorithm: str
) -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url=URL)
        query = Query(Filters(NAME.encode()), 7, 1_900_000_000, OpFlag.REQUEST_DIGEST)
        data = encode_query(query)
        answer = await proxy.exchange(data[:2] + bytes(version) + data[4:])
        assert answer is not None
        response = decode_response(answer, digest_requested=True)
        assert response.envelope.version == answered and response.digest is not None
        assert response.digest.digest == hashlib.new(algorithm, encode_digested(query)).digest()


async def test_the_file_of_the_manual_is_the_site_of_a_listener_without_udp() -> None:
    (written,) = read_manual(2641)
    async with listening(native_listen="0.0.0.0:0") as proxy:
        query = Query(Filters(b""), 7, 1_900_000_000, op_code=OpCode.SITE_INFORMATION)
        site = (await proxy.query(query)).body
    assert isinstance(site, ServiceSite)
    (server,) = site.servers
    server = replace(
        server, address=written.servers[0].address, interfaces=tuple(replace(i, port=2641) for i in server.interfaces)
    )
    assert written == replace(site, servers=(server,))


@pytest.mark.parametrize("by", TRANSPORTS)
async def test_the_site_information_names_the_listener(by: str) -> None:
    async with listening() as proxy:
        query = Query(Filters(b""), 7, 1_900_000_000, op_code=OpCode.SITE_INFORMATION)
        site = (await proxy.query(query, by=by)).body
        assert isinstance(site, ServiceSite) and site.is_primary
        (server,) = site.servers
        assert str(server.ip) == "127.0.0.1"
        protocols = (TransportProtocol.TCP, TransportProtocol.HTTP, TransportProtocol.UDP)
        assert [(one.protocol, one.port) for one in server.interfaces] == [(one, proxy.port) for one in protocols]


async def test_the_limits_of_clients_hold() -> None:
    async with listening(client_rate=0.001, client_burst=2) as proxy:
        proxy.upstream.put(NAME, url=URL)
        assert [(await proxy.resolve(NAME, by=by)).code for by in TRANSPORTS] == [1, 1, 3]


async def test_a_record_that_the_protocol_cannot_carry_is_trouble() -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, [{"index": 1, "type": "X", "data": {"format": "unheard-of", "value": [1]}}])
        assert (await proxy.resolve(NAME)).code == 2


async def test_an_answer_is_not_a_request() -> None:
    async with listening() as proxy:
        request = Message(Envelope(7), Header(1, response_code=1), b"", b"")
        answer = await proxy.exchange(encode_message(request))
        assert answer is not None
        response = decode_response(answer, digest_requested=False)
        assert (response.code, response.envelope.request_id) == (4, 0xFFFF_FFFF)
        assert await proxy.exchange(encode_message(request), by="udp") is None
