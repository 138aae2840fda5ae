"""Every recorded message is decoded as its row says, and encoded again to the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from handle_protocol.errors import AnswerTooLarge, MalformedMessage
from handle_protocol.json_sites import write_json_values
from handle_protocol.wire.message import (
    DIGEST_NAMES,
    AnswerText,
    Envelope,
    Message,
    OpFlag,
    PacketBuffer,
    Response,
    ResponseStatus,
    Values,
    decode_envelope,
    decode_filters,
    decode_message,
    decode_response,
    decode_signature,
    encode_envelope,
    encode_filters,
    encode_message,
    split_message,
)
from handle_protocol.wire.site_value import (
    U32,
    KeyNumbers,
    Purpose,
    ServiceSite,
    SiteKind,
    TransportProtocol,
    Value,
    decode_public_key,
    decode_references,
    decode_site,
    encode_public_key,
    encode_site,
)
from tests.handle_protocol.encoder import encode_response, encode_signature
from tests.handle_protocol.recorded import Row, messages, needs_recordings, rows
from tests.table import table

pytestmark = needs_recordings
_MAX_BYTES = 1 << 20


def _describe_text(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _describe_envelope(envelope: Envelope) -> dict[str, Any]:
    return {
        "major": envelope.major,
        "minor": envelope.minor,
        "compressed": bool(envelope.flags & 0x80),
        "encrypted": bool(envelope.flags & 0x40),
        "truncated": bool(envelope.flags & 0x20),
        "suggest_major": envelope.suggested_major,
        "suggest_minor": envelope.suggested_minor,
        "session_id": envelope.session_id,
        "request_id": envelope.request_id,
        "message_id": envelope.message_id,
        "message_length": envelope.message_length,
    }


def _describe_header(message: Message) -> dict[str, Any]:
    header = message.header
    return {
        "op_code": header.op_code,
        "response_code": header.response_code,
        "op_flags": f"{header.flags:08x}",
        "site_info_serial": header.site_serial,
        "recursion_count": header.recursion_count,
        "expiration": header.expiration,
        "body_length": len(message.body),
    }


def _describe_key(key: KeyNumbers) -> dict[str, str]:
    names = {b"RSA_PUB_KEY": ("exponent", "modulus"), b"DSA_PUB_KEY": ("q", "p", "g", "y")}[key.type]
    numbers = {f"{name}_hex": number.hex() for name, number in zip(names, key.numbers, strict=True)}
    return {"key_type": key.type.decode(), **numbers}


def _describe_site(site: ServiceSite) -> dict[str, Any]:
    servers = []
    for server in site.servers:
        interfaces = [
            {
                "admin": bool(one.purpose & Purpose.ADMIN),
                "query": bool(one.purpose & Purpose.QUERY),
                "protocol": TransportProtocol(one.protocol).name,
                "port": one.port,
            }
            for one in server.interfaces
        ]
        described = {
            "server_id": server.id,
            "address": str(server.ip),
            "public_key_hex": server.public_key.hex(),
            "interfaces": interfaces,
        }
        if server.public_key:
            described["public_key"] = _describe_key(decode_public_key(server.public_key))
        servers.append(described)
    return {
        "format_version": site.format_version,
        "protocol_major": site.major,
        "protocol_minor": site.minor,
        "serial_number": site.serial,
        "primary_site": site.is_primary,
        "multi_primary": bool(site.kind & SiteKind.SEVERAL_PRIMARIES),
        "hash_option": site.hash_option,
        "hash_filter": site.hash_filter.decode(),
        "attributes": [[name.decode(), value.decode()] for name, value in site.attributes],
        "servers": servers,
        "rest_hex": "",
    }


def _describe_value(value: Value) -> dict[str, Any]:
    references = [{"handle": _describe_text(one.handle), "index": one.index} for one in value.references]
    return {
        "index": value.index,
        "timestamp": value.timestamp,
        "ttl_type": value.ttl_type,
        "ttl": value.ttl,
        "permissions": value.permissions,
        "type": _describe_text(value.type),
        "data_length": len(value.data),
        "references": references,
    }


def _without(described: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in described.items() if name not in names}


def _exchanges(key: str) -> Iterator[Any]:
    for item in messages():
        if item.get(key) and item["decoded"].get("request" if key == "request_hex" else "response"):
            yield pytest.param(item, id=item["id"])


@table("item", list(_exchanges("request_hex")))
def test_a_recorded_request_is_decoded_and_encoded_to_the_same_bytes(item: Row) -> None:
    data, expected = bytes.fromhex(item["request_hex"]), item["decoded"]["request"]
    assert _describe_envelope(decode_envelope(data)) == expected["envelope"]
    if item["what"].startswith("TCP: two requests"):
        data = data[: 20 + expected["envelope"]["message_length"]]
    if expected["envelope"]["message_length"] != len(data) - 20:
        with pytest.raises(MalformedMessage):
            decode_message(data)
        data = data[:16] + U32.pack(len(data) - 20) + data[20:]
    if "header" not in expected or "error" in expected:
        with pytest.raises(MalformedMessage):
            decode_message(data)
        return
    message = decode_message(data)
    assert _describe_header(message) == _without(expected["header"], "op_flag_names")
    assert encode_message(message) == data
    if "handle" not in expected or message.header.op_code not in (1, 2):
        return
    if "decode_error" in expected or "body_rest_hex" in expected:
        with pytest.raises(MalformedMessage):
            decode_filters(message.body)
        return
    filters = decode_filters(message.body)
    assert _describe_text(filters.handle) == expected["handle"]
    assert list(filters.indexes) == expected["indexes"]
    assert [_describe_text(one) for one in filters.types] == expected["types"]
    assert encode_filters(filters) == message.body


def _answer(item: Row) -> bytes:
    if item.get("response_hex"):
        return bytes.fromhex(item["response_hex"])
    buffer = PacketBuffer(_MAX_BYTES)
    packets = [bytes.fromhex(packet) for packet in item["packets_hex"]]
    joined = [message for packet in packets if (message := buffer.add(packet)) is not None]
    assert len(joined) == 1
    return joined[0]


def _answers() -> Iterator[Any]:
    for item in messages():
        decoded = item["decoded"]
        if decoded.get("response") and not decoded.get("response_cut"):
            yield pytest.param(item, id=item["id"])


def _describe_response(response: Response) -> dict[str, Any]:
    described: dict[str, Any] = {}
    match response.body:
        case Values(handle, values):
            described["handle"] = _describe_text(handle)
            described["values"] = [_describe_value(value) for value in values]
        case AnswerText(nonce) if response.code == ResponseStatus.AUTHENTICATION_NEEDED and nonce:
            described["challenge"] = {"nonce_hex": nonce.hex()}
        case ServiceSite() as site:
            described["site"] = _describe_site(site)
        case AnswerText(text):
            described["error_message"] = _describe_text(text or b"")
    if response.digest is not None:
        name = {"md5": "MD5", "sha1": "SHA-1", "sha256": "SHA-256"}[DIGEST_NAMES[response.digest.code]]
        described["request_digest"] = {
            "code": response.digest.code,
            "algorithm": name,
            "hex": response.digest.digest.hex(),
        }
    if response.credential is not None:
        credential = response.credential
        signature = decode_signature(credential.section)
        assert encode_signature(signature) == credential.section
        described["credential"] = {
            "version": credential.version,
            "reserved": credential.reserved,
            "flags": credential.flags,
            "signer_handle": credential.signer.decode(),
            "type": credential.type.decode(),
            "section_length": len(credential.section),
            "digest_algorithm": signature.digest_name.decode(),
            "signature_hex": signature.signature.hex(),
            "session_counter": credential.counter,
        }
    return described


@table("item", list(_answers()))
def test_a_recorded_answer_is_decoded_and_encoded_to_the_same_bytes(item: Row) -> None:
    data, expected = _answer(item), item["decoded"]["response"]
    message = decode_message(data)
    assert _describe_envelope(message.envelope) == expected["envelope"]
    assert _describe_header(message) == _without(expected["header"], "op_flag_names")
    flags = int.from_bytes(bytes.fromhex(item["request_hex"])[28:32], "big")
    response = decode_response(data, digest_requested=bool(flags & OpFlag.REQUEST_DIGEST))
    described = _describe_response(response)
    assert encode_response(response) == data
    if isinstance(response.body, Values):
        _compare_values(response.body.values, expected["values"])
        described["values"] = expected["values"]
    if "credential" in expected:
        expected = expected | {"credential": _without(expected["credential"], "consumed")}
    names = ("handle", "values", "challenge", "site", "error_message", "request_digest", "credential")
    assert described == {name: expected[name] for name in names if name in expected}


def _compare_values(values: tuple[Value, ...], expected: list[dict[str, Any]]) -> None:
    assert len(values) == len(expected)
    for value, row in zip(values, expected, strict=True):
        explained = ("data", "permission_names", "admin", "vlist", "site", "public_key")
        assert _describe_value(value) == _without(row, *explained)
        if "hex" in row["data"] or "text" in row["data"]:
            assert value.data == (
                bytes.fromhex(row["data"]["hex"]) if "hex" in row["data"] else row["data"]["text"].encode()
            )
        if "site" in row:
            assert _describe_site(decode_site(value.data)) == row["site"]
            assert encode_site(decode_site(value.data)) == value.data
        if "public_key" in row:
            key = decode_public_key(value.data)
            assert _describe_key(key) == row["public_key"]
            assert encode_public_key(key) == value.data
        if "vlist" in row:
            references = decode_references(value.data)
            assert [[one.handle.decode(), one.index] for one in references] == row["vlist"]


@pytest.mark.parametrize("item", [item for item in rows() if item["what"].startswith("site value decoded")])
def test_a_recorded_site_value_is_decoded_field_by_field(item: Row) -> None:
    data = bytes.fromhex(item["response_hex"])
    site = decode_site(data)
    assert _describe_site(site) == item["decoded"]["site"]
    assert encode_site(site) == data


@pytest.mark.parametrize("item", [item for item in rows() if "public key" in item["what"]])
def test_a_recorded_key_is_decoded_and_encoded(item: Row) -> None:
    data = bytes.fromhex(item["response_hex"])
    assert _describe_key(decode_public_key(data)) == item["decoded"]["public_key"]
    assert encode_public_key(decode_public_key(data)) == data


@pytest.mark.parametrize("item", [item for item in rows() if item.get("request_packets_hex") and item["request_hex"]])
def test_a_long_request_is_split_as_it_was_sent(item: Row) -> None:
    packets = [bytes.fromhex(packet) for packet in item["request_packets_hex"]]
    assert split_message(bytes.fromhex(item["request_hex"])) == packets


def test_every_recorded_packet_has_an_envelope_that_is_encoded_to_the_same_bytes() -> None:
    packets = [bytes.fromhex(one) for item in rows() for one in item.get("packets_hex", ())]
    assert len(packets) > 80
    for packet in packets:
        assert encode_envelope(decode_envelope(packet)) == packet[:20]


def test_packets_of_several_answers_in_one_socket_are_joined_by_their_request_id() -> None:
    item = next(item for item in rows() if "three requests in flight" in item["what"])
    buffers: dict[int, PacketBuffer] = {}
    joined = []
    for packet in map(bytes.fromhex, item["packets_hex"]):
        buffer = buffers.setdefault(decode_envelope(packet).request_id, PacketBuffer(_MAX_BYTES))
        if (message := buffer.add(packet)) is not None:
            joined.append(decode_response(message, digest_requested=False))
    assert [(one.envelope.request_id & 0xFF, one.code) for one in joined] == [(1, 1), (3, 1), (2, 100)]


def _same_records() -> Iterator[Any]:
    """Pairs of a native answer with all values and the answer of the JSON API about the same name."""
    native: dict[str, Row] = {}
    for item in messages():
        request, response = item["decoded"].get("request", {}), item["decoded"].get("response") or {}
        is_whole = not request.get("indexes") and not request.get("types") and "values" in response
        if is_whole and response["header"]["response_code"] == 1 and not item["decoded"].get("response_cut"):
            native.setdefault(response["handle"]["text"], item)
    for item in rows():
        answer = item["decoded"].get("json", {})
        if item["transport"] == "json" and "?" not in item["what"] and answer.get("handle") in native:
            yield pytest.param(native[answer["handle"]], answer, id=answer["handle"])


@table(("item", "expected"), list(_same_records()))
def test_a_record_is_the_same_json_as_from_the_handle_api(item: Row, expected: dict[str, Any]) -> None:
    body = decode_response(_answer(item), digest_requested=False).body
    assert isinstance(body, Values)
    written = write_json_values(body.values)
    assert json.loads(written) == expected["values"]
    assert written.decode() == json.dumps(expected["values"], separators=(",", ":"), ensure_ascii=False)


def test_a_packet_of_a_long_message_that_was_cut_is_refused() -> None:
    item = next(item for item in rows() if "record of 300 kB over UDP" in item["what"])
    first, last = map(bytes.fromhex, item["packets_hex"])
    buffer = PacketBuffer(_MAX_BYTES)
    assert buffer.add(first) is None
    assert buffer.add(last) is None
    with pytest.raises(MalformedMessage):
        buffer.add(encode_envelope(structs.replace(decode_envelope(last), message_id=613)) + last[20:])
    with pytest.raises(AnswerTooLarge, match="longer than 262144 bytes"):
        PacketBuffer(262_144).add(first)
