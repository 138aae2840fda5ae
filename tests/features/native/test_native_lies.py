"""A handle server that lies or fails: each lie is a typed failure, by every transport, and never an answer."""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.errors import (
    AnswerTooLarge,
    CouldNotVerify,
    SignatureInvalid,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from app.features.native.errors import AnswerMismatch, MalformedMessage
from app.features.native.wire.site_value import TransportProtocol
from app.handle.answer import ResponseCode
from tests.features.native.clients import LONG, MAX_BYTES, PROTOCOLS, TCP, UDP, client_of, query
from tests.features.native.lies import LIES
from tests.features.native.server import HandleServer
from tests.table import table

pytestmark = pytest.mark.anyio

NAME: Final = "10.1000/182"
#: By UDP, what does not belong to the request is dropped: these lies are silence there. The last one is believed only
#: after silence.
SILENT_BY_UDP: Final = frozenset({"silent", "request-id", "garbage", "empty", "protocol-error"})
#: The failure by lie. UDP drops what does not belong to the request, so there some lies are silence.
FAILURES: Final[dict[str, tuple[type[CouldNotVerify], ...]]] = {
    "request-id": (AnswerMismatch, UpstreamTimeout),
    "op-code": (MalformedMessage,),
    "session": (AnswerMismatch,),
    "other-name": (AnswerMismatch,),
    "cut": (MalformedMessage, UpstreamUnreachable),
    "body-length": (MalformedMessage,),
    "message-length": (AnswerTooLarge,),
    "many-packets": (AnswerTooLarge,),
    "value-count": (MalformedMessage,),
    "old-version": (SignatureInvalid,),
    "digest": (AnswerMismatch,),
    "no-digest": (AnswerMismatch,),
    "garbage": (MalformedMessage, UpstreamUnreachable, UpstreamTimeout),
    "empty": (UpstreamUnreachable, UpstreamTimeout),
    "silent": (UpstreamTimeout,),
    "server-error": (UpstreamRefused,),
    "protocol-error": (UpstreamRefused,),
    "not-responsible": (UpstreamRefused,),
    "signature": (SignatureInvalid,),
    "other-key": (SignatureInvalid,),
    "unsigned": (SignatureInvalid,),
}


def test_every_lie_has_its_failure() -> None:
    assert set(FAILURES) == set(LIES)


def wait_by_udp(lie: str) -> float:
    """Seconds until UDP sends a message again: few for a lie that is silence there."""
    return 0.1 if lie in SILENT_BY_UDP else LONG


@table("protocol", PROTOCOLS, ids=lambda one: one.name)
@table("lie", LIES)
async def test_a_lie_is_a_typed_failure(lie: str, protocol: TransportProtocol) -> None:
    timeout = 0.5 if lie == "silent" else LONG
    options: dict[str, Any] = {"protocols": (protocol,), "udp_wait": wait_by_udp(lie), "total_timeout": timeout}
    async with HandleServer() as server, client_of(server, **options) as client:
        server.put(NAME, url="http://www.doi.org/hb.html")
        server.lie(NAME, lie)
        with pytest.raises(CouldNotVerify) as caught:
            await client.fetch(query(NAME, certified=True))
        assert isinstance(caught.value, FAILURES[lie])
        assert "secret" not in str(caught.value)


@table("lie", LIES)
async def test_a_lie_of_one_name_does_not_change_the_answers_of_others(lie: str) -> None:
    timeout = 2.0 if lie == "silent" else LONG
    options: dict[str, Any] = {"protocols": (TCP, UDP), "udp_wait": wait_by_udp(lie), "total_timeout": timeout}
    async with HandleServer() as server, client_of(server, **options) as client:
        server.put(NAME, url="http://www.doi.org/hb.html")
        server.lie("10.1000/lie", lie)
        if lie not in ("signature", "other-key", "unsigned", "old-version"):
            with pytest.raises(CouldNotVerify):
                await client.fetch(query("10.1000/lie"))
        assert (await client.fetch(query(NAME))).code is ResponseCode.SUCCESS


async def test_an_answer_of_10000_packets_is_refused_at_its_first_packet() -> None:
    async with HandleServer() as server, client_of(server, protocols=(UDP,)) as client:
        server.put(NAME, url="http://www.doi.org/hb.html")
        server.lie(NAME, "many-packets")
        with pytest.raises(AnswerTooLarge, match=f"longer than {MAX_BYTES} bytes"):
            await client.fetch(query(NAME))


async def test_a_lie_by_one_transport_is_not_believed_because_another_is_tried() -> None:
    async with HandleServer() as server, client_of(server) as client:
        server.lie(NAME, "digest")
        with pytest.raises(AnswerMismatch):
            await client.fetch(query(NAME))
        assert set(server.by_transport) == {"udp", "tcp", "http"}
