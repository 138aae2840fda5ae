"""The native source answers as an HTTP API does, with `auth` and `cert`, at one server and from the root."""

from __future__ import annotations

import json
from typing import Final

import pytest

from doi_proxy.errors import OversizedAnswer, UnprovenAnswer, UpstreamRefused, UpstreamUnreachable
from doi_proxy.features.native.root_file import HandleServerUnreachable, NoResponsibleService
from handle_protocol.referral import Answer, ResponseCode
from handle_protocol.value import MAX_VALUES
from handle_protocol.wire.message import OpFlag
from handle_protocol.wire.site_value import Permission, SiteKind, Value, ValueReference
from tests.features.native.clients import TCP, Exchanges, client_of, query
from tests.handle_protocol.keys import dsa_key
from tests.handle_protocol.server import HandleServer
from tests.table import table

pytestmark = pytest.mark.anyio

NAME = "10.1000/182"
PREFIX = "0.NA/10.1000"


#: Records over a limit of this program, with the sentence of the HTTP client.
TOO_LARGE: Final = [
    ((Value(1, b"X", b""),) * (MAX_VALUES + 1), f"The record has {MAX_VALUES + 1} values; the limit is {MAX_VALUES}"),
    ((Value(1, b"X", b"x" * 1_100_000),), r"The answer is longer than 1048576 bytes\."),
    # 200 kB on the wire, and "\u000b" for each of them in JSON.
    ((Value(1, b"X", b"\x0b" * 200_000),), r"The values of the record have 12\d{5} bytes; the limit is 262144\."),
]


@table(("values", "sentence"), TOO_LARGE)
async def test_a_record_over_a_limit_is_refused_at_once_and_is_no_failure_of_the_server(
    values: tuple[Value, ...], sentence: str
) -> None:
    seen = Exchanges()
    async with HandleServer() as server, client_of(server, observer=seen) as client:
        server.put_values(NAME, *values)
        for number in range(2):
            with pytest.raises(OversizedAnswer, match=sentence):
                await client.fetch(query(NAME, certified=bool(number)))
        assert server.queries() == 2
        assert [is_answered for _, is_answered in seen.seen] == [True, True]


async def test_references_beyond_the_limit_are_ignored() -> None:
    many = tuple(ValueReference(b"10.1000/%d" % number, number) for number in range(700))
    async with HandleServer() as server, client_of(server) as client:
        server.put_values(NAME, Value(1, b"X", b"", references=many), Value(2, b"Y", b"y", references=many))
        values = json.loads((await client.fetch(query(NAME))).values)
        assert [len(value["references"]) for value in values] == [700, 300]
        assert values[1]["references"][299] == {"handle": "10.1000/299", "index": 299}


async def test_a_record_without_public_values_has_no_values() -> None:
    async with HandleServer() as server, client_of(server) as client:
        server.put_values(NAME, Value(1, b"URL", b"http://secret.example/", permissions=Permission.ADMIN_READ))
        assert await client.fetch(query(NAME)) == Answer(ResponseCode.VALUES_NOT_FOUND)


async def test_every_query_is_for_public_values_and_for_a_digest() -> None:
    async with HandleServer() as server, client_of(server) as client:
        await client.fetch(query(NAME))
        assert server.flags == [OpFlag.PUBLIC_ONLY | OpFlag.REQUEST_DIGEST]


async def test_a_verified_answer_says_so() -> None:
    async with HandleServer() as server, client_of(server) as client:
        server.put(NAME, url="http://www.doi.org/hb.html")
        assert not (await client.fetch(query(NAME))).is_verified
        assert (await client.fetch(query(NAME, certified=True))).is_verified
        # So does the proof that a name does not exist.
        assert await client.fetch(query("10.1000/none", certified=True)) == Answer(
            ResponseCode.HANDLE_NOT_FOUND, is_verified=True
        )


async def test_answers_signed_with_a_dsa_key_are_verified() -> None:
    async with HandleServer(key=dsa_key()) as server, client_of(server) as client:
        assert (await client.fetch(query(NAME, certified=True))).is_verified


async def test_a_server_without_a_known_key_cannot_prove_anything() -> None:
    async with HandleServer() as server, client_of(server, known=()) as client:
        with pytest.raises(UnprovenAnswer):
            await client.fetch(query(NAME, certified=True))
        assert (await client.fetch(query(NAME))).code is ResponseCode.HANDLE_NOT_FOUND


async def test_upstream_verify_decides_about_signatures() -> None:
    async with HandleServer() as server:
        async with client_of(server, verification="always") as client:
            assert (await client.fetch(query(NAME))).is_verified
            server.lie(NAME, "unsigned")
            with pytest.raises(UnprovenAnswer):
                await client.fetch(query(NAME))
        async with client_of(server, verification="never") as client:
            assert not (await client.fetch(query(NAME, certified=True))).is_verified


async def test_a_server_that_is_not_responsible_works_and_does_not_answer() -> None:
    async with HandleServer() as server, client_of(server) as client:
        server.lie("", "not-responsible")
        assert (await client.probe()).code is ResponseCode.HANDLE_NOT_FOUND
        with pytest.raises(UpstreamRefused) as caught:
            await client.fetch(query(NAME))
        assert caught.value.concerns_name


# From the root


async def test_the_prefix_record_leads_from_the_root_to_the_server() -> None:
    async with HandleServer() as root, HandleServer(serial=2) as home, client_of(root, from_root=True) as client:
        root.put_values(PREFIX, home.site_value())
        home.put(NAME, url="http://www.doi.org/hb.html")
        for _ in range(2):
            assert (await client.fetch(query(NAME, certified=True))).is_verified
        assert (root.queries(PREFIX), root.queries(NAME), home.queries(NAME)) == (1, 0, 2)


async def test_a_service_handle_and_a_referral_are_followed() -> None:
    async with HandleServer() as root, HandleServer(serial=2) as home, client_of(root, from_root=True) as client:
        root.put_values(PREFIX, Value(1, b"HS_SERV", b"0.SERV/1000"))
        root.put_values("0.NA/0.SERV", root.site_value())
        root.put_values("0.SERV/1000", home.site_value())
        home.refer("10.1000", home.site_value(b"HS_SITE.PREFIX"))
        home.put(NAME, url="http://www.doi.org/hb.html")
        assert (await client.fetch(query(NAME))).code is ResponseCode.SUCCESS


async def test_a_referral_loop_ends() -> None:
    async with HandleServer() as root, HandleServer(serial=2) as home, client_of(root, from_root=True) as client:
        root.put_values(PREFIX, home.site_value())
        home.refer("10.1000", home.site_value(b"HS_SITE.PREFIX"))
        with pytest.raises(NoResponsibleService):
            await client.fetch(query(NAME))
        assert home.queries() <= 20


async def test_a_prefix_that_the_root_does_not_know_is_not_found() -> None:
    async with HandleServer() as root, client_of(root, from_root=True) as client:
        assert (await client.fetch(query(NAME))).code is ResponseCode.HANDLE_NOT_FOUND


async def test_a_wrong_signature_on_the_way_ends_the_search() -> None:
    async with HandleServer() as root, HandleServer(serial=2) as home, client_of(root, from_root=True) as client:
        root.put_values(PREFIX, home.site_value())
        root.lie(PREFIX, "other-key")
        with pytest.raises(UnprovenAnswer):
            await client.fetch(query(NAME, certified=True))
        assert home.queries() == 0


async def test_auth_asks_a_primary_site() -> None:
    async with (
        HandleServer() as root,
        HandleServer(serial=2) as primary,
        HandleServer(serial=3) as mirror,
        client_of(root, from_root=True) as client,
    ):
        root.put_values(PREFIX, mirror.site_value(kind=0), primary.site_value(kind=SiteKind.PRIMARY))
        for number in range(5):
            await client.fetch(query(f"10.1000/{number}", authoritative=True))
        assert (primary.queries(), mirror.queries()) == (5, 0)


async def test_another_site_answers_if_one_is_closed() -> None:
    async with HandleServer(serial=3) as mirror:
        pass
    async with HandleServer() as root, HandleServer(serial=2) as home, client_of(root, from_root=True) as client:
        root.put_values(PREFIX, mirror.site_value(), home.site_value())
        home.put(NAME, url="http://www.doi.org/hb.html")
        assert (await client.fetch(query(NAME))).code is ResponseCode.SUCCESS


async def test_the_failure_of_the_server_of_a_prefix_concerns_its_names_alone() -> None:
    async with HandleServer(serial=2) as home:
        pass
    async with HandleServer() as root, client_of(root, from_root=True) as client:
        root.put_values(PREFIX, home.site_value())
        with pytest.raises(HandleServerUnreachable) as caught:
            await client.fetch(query(NAME))
        assert caught.value.concerns_name
        await client.probe()


async def test_the_failure_of_the_root_concerns_every_name() -> None:
    async with HandleServer() as root:
        pass
    async with client_of(root, from_root=True, protocols=(TCP,)) as client:
        with pytest.raises(UpstreamUnreachable) as caught:
            await client.fetch(query(NAME))
        assert not caught.value.concerns_name


async def test_servers_at_private_addresses_are_not_queried_unless_the_operator_says_so() -> None:
    async with HandleServer() as root, client_of(root, from_root=True, private_servers=False) as client:
        with pytest.raises(NoResponsibleService):
            await client.fetch(query(NAME))
        assert root.queries() == 0
