"""What a client with the rules of the reference software's Java client gets from the listener.

Its rules were recorded at Handle.Net 9.3.1: an authoritative query goes to primary sites alone; the interfaces of the
server are tried in their order; UDP is tried at 0, 0.5 and 1.5 s, and given up after 3 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from handle_protocol.site import select_server
from handle_protocol.wire.message import Filters, OpCode, OpFlag, Query, Response, decode_response, encode_query
from handle_protocol.wire.site_value import Interface, Purpose, ServiceSite, TransportProtocol
from tests.features.native_listener.listening import Listening, listening, read_manual
from tests.table import table

pytestmark = pytest.mark.anyio

NAME: Final = "10.1000/182"
URL: Final = "http://www.doi.org/hb.html"
_UDP_PAUSES: Final = (0.5, 1.0, 1.5)
_STREAMS: Final = {TransportProtocol.TCP: "tcp", TransportProtocol.HTTP: "http"}
_PLAIN: Final = OpFlag.PUBLIC_ONLY
#: The address of a client on another machine.
_ELSEWHERE: Final = "198.51.100.7"


@dataclass
class JavaClient:
    """A client of the sites that its file names."""

    listener: Listening
    sites: Sequence[ServiceSite]
    address: str = _ELSEWHERE

    async def resolve(self, name: str, flags: int = _PLAIN) -> Response:
        """The first answer."""
        request = encode_query(Query(Filters(name.encode()), 7, 1_900_000_000, flags))
        for interface in self._list_interfaces(name, is_authoritative=bool(flags & OpFlag.AUTHORITATIVE)):
            assert interface.port == self.listener.port
            answer = await self._send(request, interface)
            if answer is not None:
                return decode_response(answer, digest_requested=False)
        raise AssertionError("the client knows no interface that it may query, or none of them answers")

    def _list_interfaces(self, name: str, *, is_authoritative: bool) -> list[Interface]:
        sites = [site for site in self.sites if site.is_primary or not is_authoritative]
        servers = [server for site in sites if (server := select_server(site, name.encode())) is not None]
        return [one for server in servers for one in server.interfaces if one.purpose & Purpose.QUERY]

    async def _send(self, request: bytes, interface: Interface) -> bytes | None:
        if interface.protocol != TransportProtocol.UDP:
            by = _STREAMS[TransportProtocol(interface.protocol)]
            return await self.listener.exchange(request, by=by, client=self.address)
        for pause in _UDP_PAUSES:
            try:
                async with asyncio.timeout(pause):
                    if answer := await self.listener.exchange(request, by="udp", client=self.address):
                        return answer
            except TimeoutError:
                continue
        return None


async def _read_information(listener: Listening) -> tuple[ServiceSite, ...]:
    site = (await listener.query(Query(Filters(b""), 7, 1_900_000_000, op_code=OpCode.SITE_INFORMATION))).body
    assert isinstance(site, ServiceSite)
    return (site,)


async def _sites(listener: Listening, source: str) -> tuple[ServiceSite, ...]:
    return read_manual(listener.port) if source == "manual" else await _read_information(listener)


@pytest.mark.parametrize("source", ["manual", "site information"])
@table("flags", [_PLAIN, _PLAIN | OpFlag.AUTHORITATIVE, _PLAIN | OpFlag.REQUEST_DIGEST, 0])
async def test_every_query_is_answered_at_once(source: str, flags: int) -> None:
    async with listening(native_listen_udp=True) as listener:
        listener.upstream.put(NAME, url=URL)
        client = JavaClient(listener, await _sites(listener, source))
        began = asyncio.get_running_loop().time()
        assert [(await client.resolve(name, flags)).code for name in [NAME] * 20 + ["10.1000/none"]] == [1] * 20 + [100]
        assert asyncio.get_running_loop().time() - began < 1


@table(("allowed", "seconds"), [("", 3.0), ("198.51.100.0/24\n", 0.0)])
async def test_udp_in_the_first_place_costs_three_seconds_above_the_limit_and_nothing_without_it(
    allowed: str, seconds: float, tmp_path: Path
) -> None:
    networks = tmp_path / "networks.txt"
    networks.write_text(allowed)
    async with listening(native_listen_udp=True, client_allow_file=networks) as listener:
        listener.upstream.put(NAME, url=URL)
        (site,) = read_manual(listener.port)
        (server,) = site.servers
        interfaces = (replace(server.interfaces[0], protocol=TransportProtocol.UDP), *server.interfaces)
        client = JavaClient(listener, [replace(site, servers=(replace(server, interfaces=interfaces),))])
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(client.resolve(NAME) for _ in range(30)))
        assert [answer.code for answer in answers] == [1] * 30
        assert asyncio.get_running_loop().time() - began == pytest.approx(seconds, abs=0.1)
