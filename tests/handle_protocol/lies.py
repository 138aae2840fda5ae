"""How the handle server of the tests lies and fails. Each function turns the honest answer into what is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msgspec import structs

from handle_protocol.wire.message import (
    ENVELOPE_BYTES,
    MAX_PACKET_BYTES,
    AnswerText,
    Digest,
    Header,
    OpFlag,
    Response,
    ResponseStatus,
    Values,
    decode_envelope,
    encode_envelope,
)
from handle_protocol.wire.site_value import Value
from tests.handle_protocol.encoder import encode_response

_PAYLOAD: Final = MAX_PACKET_BYTES - ENVELOPE_BYTES
MANY_PACKETS: Final = 10_000


class Silence(Exception):
    """No answer is sent, and the connection stays open."""


class Hangup(Exception):
    """The connection is closed, after `data`."""

    def __init__(self, data: bytes = b"") -> None:
        super().__init__()
        self.data = data


#: An answer, or the bytes of a message. An answer is signed afterwards if the query requests it.
Sent = Response | bytes


def _request_id(answer: Response) -> Sent:
    return replace(answer, envelope=structs.replace(answer.envelope, request_id=answer.envelope.request_id ^ 1))


def _op_code(answer: Response) -> Sent:
    return replace(answer, header=structs.replace(answer.header, op_code=2))


def _session(answer: Response) -> Sent:
    return replace(answer, envelope=structs.replace(answer.envelope, session_id=7))


def _other_name(answer: Response) -> Sent:
    values = (Value(1, b"URL", b"http://wrong.example/"),)
    return _with_code(answer, ResponseStatus.SUCCESS, Values(b"10.9999/other", values))


def _cut(answer: Response) -> Sent:
    raise Hangup(encode_response(answer)[:-10])


def _body_length(answer: Response) -> Sent:
    data = bytearray(encode_response(answer))
    data[ENVELOPE_BYTES + 20 : ENVELOPE_BYTES + 24] = b"\x7f\xff\xff\xff"
    return bytes(data)


def _message_length(answer: Response) -> Sent:
    """A message of 2 GB is announced."""
    envelope = structs.replace(answer.envelope, message_length=2**31)
    return encode_envelope(envelope) + encode_response(answer)[ENVELOPE_BYTES:]


def _many_packets(answer: Response) -> Sent:
    """An answer of 10,000 packets. The server splits it."""
    value = Value(1, b"URL", bytes(MANY_PACKETS * _PAYLOAD - 200))
    return _with_code(answer, ResponseStatus.SUCCESS, Values(_handle(answer), (value,)))


def _value_count(answer: Response) -> Sent:
    """The list of values announces four billion elements."""
    data = encode_response(_with_code(answer, ResponseStatus.SUCCESS, Values(_handle(answer), ())))
    return data[:-8] + b"\xff\xff\xff\xff" + data[-4:]


def _old_version(answer: Response) -> Sent:
    """The answer to a query whose suggested version was lowered on the way. The server signs it."""
    return replace(answer, envelope=structs.replace(answer.envelope, minor=10))


def _digest(answer: Response) -> Sent:
    return replace(answer, digest=Digest(3, bytes(32)))


def _no_digest(answer: Response) -> Sent:
    return replace(
        answer, digest=None, header=structs.replace(answer.header, flags=answer.header.flags & ~OpFlag.REQUEST_DIGEST)
    )


def _garbage(answer: Response) -> Sent:
    raise Hangup(b"<html>captive portal</html>")


def _empty(answer: Response) -> Sent:
    raise Hangup


def _silent(answer: Response) -> Sent:
    raise Silence


def _server_error(answer: Response) -> Sent:
    return _with_code(answer, 2, AnswerText(b"internal: /srv/secret"))


def _protocol_error(answer: Response) -> Sent:
    """The server could not read the request, so it does not know the id of the request."""
    header = Header(0, 4, flags=OpFlag.PUBLIC_ONLY)
    return Response(structs.replace(answer.envelope, request_id=0xFFFF_FFFF, minor=3), header, AnswerText(b"no"))


def _not_responsible(answer: Response) -> Sent:
    return _with_code(answer, ResponseStatus.NOT_RESPONSIBLE, AnswerText(b""))


def _with_code(answer: Response, code: int, body: Values | AnswerText) -> Response:
    return replace(answer, header=structs.replace(answer.header, response_code=code), body=body)


def _handle(answer: Response) -> bytes:
    return answer.body.handle if isinstance(answer.body, Values) else b""


LIES: Final[dict[str, Callable[[Response], Sent]]] = {
    "request-id": _request_id,
    "op-code": _op_code,
    "session": _session,
    "other-name": _other_name,
    "cut": _cut,
    "body-length": _body_length,
    "message-length": _message_length,
    "many-packets": _many_packets,
    "value-count": _value_count,
    "old-version": _old_version,
    "digest": _digest,
    "no-digest": _no_digest,
    "garbage": _garbage,
    "empty": _empty,
    "silent": _silent,
    "server-error": _server_error,
    "protocol-error": _protocol_error,
    "not-responsible": _not_responsible,
    # The server signs these wrongly; see HandleServer.
    "signature": lambda answer: answer,
    "other-key": lambda answer: answer,
    "unsigned": lambda answer: answer,
}


def split_lie(data: bytes) -> list[bytes]:
    """The packets of a message that may contradict its own envelope."""
    if len(data) <= MAX_PACKET_BYTES:
        return [data]
    envelope, payload = decode_envelope(data), data[ENVELOPE_BYTES:]
    return [
        encode_envelope(structs.replace(envelope, flags=envelope.packet_flags, message_id=number))
        + payload[start : start + _PAYLOAD]
        for number, start in enumerate(range(0, len(payload), _PAYLOAD))
    ]
