"""The codec of the native protocol: small messages, hostile ones, and properties of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from handle_protocol.errors import MalformedMessage, UnusableAnswer
from handle_protocol.json_sites import write_json_values
from handle_protocol.value import read_values
from handle_protocol.wire.message import (
    MAX_PACKET_BYTES,
    AnswerText,
    Body,
    Credential,
    Digest,
    Envelope,
    Filters,
    Header,
    OpCode,
    OpFlag,
    PacketBuffer,
    Query,
    Response,
    ResponseStatus,
    Signature,
    Values,
    decode_credential,
    decode_envelope,
    decode_filters,
    decode_message,
    decode_response,
    decode_signature,
    encode_message,
    encode_query,
    split_message,
)
from handle_protocol.wire.site_value import (
    DSA,
    RSA,
    FieldReader,
    Interface,
    KeyNumbers,
    Permission,
    Server,
    ServiceSite,
    Value,
    ValueReference,
    decode_public_key,
    decode_site,
    encode_public_key,
    encode_site,
)
from tests.handle_protocol.encoder import decode_query, encode_credential, encode_response, encode_signature
from tests.table import table

_U8: Final = st.integers(0, 0xFF)
_U16: Final = st.integers(0, 0xFFFF)
_U32: Final = st.integers(0, 0xFFFF_FFFF)
_I32: Final = st.integers(-(2**31), 2**31 - 1)
_STRINGS: Final = st.binary(max_size=40)
#: A request for "10.5072/1" with no filters, byte by byte.
_SMALL_REQUEST: Final = bytes.fromhex(
    "020b020b 00000000 00000007 00000000 00000031"  # envelope: 2.11, suggests 2.11, request id 7, 49 bytes follow
    "00000001 00000000 01000000 ffff 00 00 713fb300 00000015"  # header: resolution, PUBL, 21 bytes of body
    "00000009 31302e353037322f31 00000000 00000000"  # the handle, no indexes, no types
    "00000000"  # no credential
)


def test_a_request_has_the_bytes_of_the_specification() -> None:
    query = Query(Filters(b"10.5072/1"), request_id=7, expiration=1_900_000_000)
    assert encode_query(query) == _SMALL_REQUEST
    assert decode_query(_SMALL_REQUEST) == query


def test_below_version_2_1_an_answer_has_a_digest_and_no_flag() -> None:
    response = _response(ResponseStatus.HANDLE_NOT_FOUND, AnswerText(b""), digest=Digest(0, bytes(16)))
    response = replace(response, envelope=structs.replace(response.envelope, major=2, minor=0))
    decoded = decode_response(encode_response(response), digest_requested=True)
    assert decoded.digest == Digest(0, bytes(16))


def _response(code: int, body: Body, op_code: int = OpCode.RESOLUTION, **more: Any) -> Response:
    digest = more.get("digest")
    flags = OpFlag.REQUEST_DIGEST if digest and digest.code else 0
    return _with_length(Response(Envelope(7), Header(op_code, code, flags), body, digest, more.get("credential")))


def _with_length(response: Response) -> Response:
    return replace(
        response, envelope=structs.replace(response.envelope, message_length=len(encode_response(response)) - 20)
    )


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("00000000000000000000000001020304", "1.2.3.4"),
        ("00000000000000000000ffff01020304", "1.2.3.4"),
        ("00000000000000000000000000000001", "::1"),
        ("20010db8000000000000000000000010", "2001:db8::10"),
    ],
)
def test_the_address_of_a_server_is_ipv4_or_ipv6(address: str, text: str) -> None:
    assert Server(1, bytes.fromhex(address), b"", ()).ip == ip_address(text)


def test_more_references_than_records_have_are_ignored_whatever_value_they_belong_to() -> None:
    references = tuple(ValueReference(b"a" * number, number) for number in range(501))
    values = tuple(Value(index, b"URL", b"x", references=references) for index in range(3))
    data = encode_response(_response(1, Values(b"10.5072/1", values)))
    body = decode_response(data, digest_requested=False).body
    assert isinstance(body, Values)
    assert [value.references for value in body.values] == [references, references[:499], ()]
    assert [value.data for value in body.values] == [b"x"] * 3


@table("data", [b"\0\0\0\1" * 3, b"\x7f\xff\xff\xff" + bytes(8), b"\0\0\0\5" + bytes(8)])
def test_references_that_are_ignored_must_end_too(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="cannot be decoded"):
        FieldReader(data, "answer").skip(2, 4)


def test_a_malformed_message_is_an_invalid_answer_that_names_the_field() -> None:
    with pytest.raises(UnusableAnswer) as caught:
        decode_response(_SMALL_REQUEST[:-1], digest_requested=False)
    assert isinstance(caught.value, MalformedMessage)
    assert caught.value.detail == "envelope: the message length is 49, not 48"


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (40, "message, offset 24: 4294967295 bytes are announced and 25 remain"),
        (44, "request, offset 4: 4294967295 bytes are announced and 17 remain"),
        (57, "request, offset 17: 4294967295 elements are announced and 4 bytes remain"),
        (61, "request, offset 21: 4294967295 elements are announced and 0 bytes remain"),
    ],
)
def test_a_length_is_compared_with_the_bytes_that_remain(offset: int, reason: str) -> None:
    data = bytearray(_SMALL_REQUEST)
    data[offset : offset + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(MalformedMessage) as caught:
        decode_query(bytes(data))
    assert caught.value.detail == reason


def test_data_that_its_type_does_not_explain_is_text_or_base64() -> None:
    values = [Value(1, b"HS_SITE", b"not a site"), Value(2, b"HS_ADMIN", b"\xff"), Value(3, b"\xff", b"x")]
    assert write_json_values(values) == (
        b'[{"index":1,"type":"HS_SITE","data":{"format":"string","value":"not a site"},"ttl":86400},'
        b'{"index":2,"type":"HS_ADMIN","data":{"format":"base64","value":"/w=="},"ttl":86400},'
        b'{"index":3,"type":"\xef\xbf\xbd","data":{"format":"string","value":"x"},"ttl":86400}]'
    )


def test_data_that_becomes_large_json_is_explained_up_to_a_limit() -> None:
    site = encode_site(ServiceSite(1, tuple(Server(number, bytes(16), b"", ()) for number in range(100))))
    values = [Value(number, b"HS_SITE", site) for number in range(30)]
    record = read_values(write_json_values(values))
    assert [value.data.format for value in record.values] == ["site"] * 23 + ["base64"] * 7


# --- packets -----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=3_000), st.randoms())
def test_a_message_survives_its_packets_in_any_order(body: bytes, chance: Any) -> None:
    message = encode_message(structs.replace(decode_message(_SMALL_REQUEST), body=body))
    packets = split_message(message)
    assert all(len(packet) <= MAX_PACKET_BYTES for packet in packets)
    chance.shuffle(packets)
    buffer = PacketBuffer(4_096)
    assert [buffer.add(packet) for packet in packets[:-1]] == [None] * (len(packets) - 1)
    joined = buffer.add(packets[-1])
    assert joined is not None
    assert joined[20:] == message[20:]
    assert structs.replace(decode_envelope(joined), flags=2) == decode_envelope(message)


def test_the_first_of_two_packets_with_one_number_counts() -> None:
    first, second = split_message(encode_message(structs.replace(decode_message(_SMALL_REQUEST), body=bytes(600))))
    buffer = PacketBuffer(4_096)
    buffer.add(first)
    assert buffer.add(first[:-1] + b"\x01") is None
    joined = buffer.add(second)
    assert joined is not None
    assert b"\x01" not in joined[44:]


@pytest.mark.parametrize(
    "change",
    [
        lambda packet: packet[:-1],
        lambda packet: packet + b"\0",
        lambda packet: packet[:12] + b"\xff\xff\xff\xff" + packet[16:],
        lambda packet: packet[:16] + b"\x00\x00\x03\x00" + packet[20:],
        lambda packet: packet[:16] + b"\xff\xff\xff\xff" + packet[20:],
        lambda packet: packet[:19],
        lambda packet: b"",
    ],
    ids=["shorter", "longer", "number too high", "other length", "length above the limit", "no envelope", "empty"],
)
def test_a_packet_that_does_not_fit_is_refused(change: Callable[[bytes], bytes]) -> None:
    packets = split_message(encode_message(structs.replace(decode_message(_SMALL_REQUEST), body=bytes(600))))
    buffer = PacketBuffer(4_096)
    buffer.add(packets[0])
    with pytest.raises(MalformedMessage):
        buffer.add(change(packets[1]))


# --- properties --------------------------------------------------------------------------------------------------

_REFERENCES: Final = st.lists(st.builds(ValueReference, _STRINGS, _I32), max_size=3).map(tuple)
_VALUES: Final = st.lists(
    st.builds(Value, _I32, _STRINGS, _STRINGS, _I32, _U8, _U8, _U32, _REFERENCES), max_size=4
).map(tuple)
_INTERFACES: Final = st.lists(st.builds(Interface, _U8, _U8, _U32), max_size=3).map(tuple)
_SERVERS: Final = st.lists(
    st.builds(Server, _U32, st.binary(min_size=16, max_size=16), _STRINGS, _INTERFACES), max_size=3
).map(tuple)
_SITES: Final = st.builds(
    ServiceSite,
    _U16,
    _SERVERS,
    _U8,
    _U8,
    st.lists(st.tuples(_STRINGS, _STRINGS), max_size=3).map(tuple),
    _STRINGS,
    _U16,
    _U8,
    _U8,
)
_CREDENTIALS: Final = st.none() | st.builds(Credential, _STRINGS, _STRINGS, _STRINGS, _U32, _U8, _U8, _U16)
_DIGESTS: Final = (
    st.none()
    | st.binary(min_size=32, max_size=32).map(lambda digest: Digest(3, digest))
    | st.binary(min_size=20, max_size=20).map(lambda digest: Digest(2, digest))
)
_BODIES: Final = (
    st.tuples(st.just(1), st.just(1), st.builds(Values, _STRINGS, _VALUES))
    | st.tuples(st.just(1), st.just(303), st.builds(Values, _STRINGS, _VALUES))
    | st.tuples(st.just(2), st.just(1), _SITES)
    | st.tuples(st.just(1), st.just(402), st.builds(AnswerText, _STRINGS))
    | st.tuples(_U32, st.sampled_from((2, 4, 100, 200, 301, 999)), st.builds(AnswerText, st.none() | _STRINGS))
)


@given(
    _U32,
    st.builds(Filters, _STRINGS, st.lists(_I32, max_size=4).map(tuple), st.lists(_STRINGS, max_size=4).map(tuple)),
    _U32,
    _U32,
    _U16,
)
def test_a_request_survives_its_encoding(
    request_id: int, filters: Filters, expiration: int, flags: int, serial: int
) -> None:
    query = Query(filters, request_id, expiration, flags, OpCode.RESOLUTION, serial)
    assert decode_query(encode_query(query)) == query


@given(_BODIES, _DIGESTS, _CREDENTIALS, _U32, _U16)
def test_an_answer_survives_its_encoding(
    body: tuple[int, int, Body], digest: Digest | None, credential: Credential | None, session: int, serial: int
) -> None:
    flags = OpFlag.REQUEST_DIGEST if digest else 0
    header = Header(body[0], body[1], flags, serial)
    response = _with_length(Response(Envelope(7, session_id=session), header, body[2], digest, credential))
    assert decode_response(encode_response(response), digest_requested=False) == response


@given(_CREDENTIALS, _STRINGS, _STRINGS)
def test_a_credential_and_its_signature_survive_their_encoding(
    credential: Credential | None, name: bytes, signature: bytes
) -> None:
    assert decode_credential(encode_credential(credential)) == credential
    assert decode_signature(encode_signature(Signature(name, signature))) == Signature(name, signature)


@given(st.sampled_from((RSA, DSA)), st.lists(_STRINGS, min_size=4, max_size=4), _U16, st.binary(max_size=8))
def test_a_key_survives_its_encoding(kind: bytes, numbers: list[bytes], flags: int, rest: bytes) -> None:
    key = KeyNumbers(kind, tuple(numbers[:2] if kind == RSA else numbers), flags, rest)
    assert decode_public_key(encode_public_key(key)) == key


_DECODERS: Final[tuple[Callable[[bytes], object], ...]] = (
    decode_envelope,
    decode_message,
    decode_query,
    decode_filters,
    decode_site,
    decode_credential,
    decode_signature,
    decode_public_key,
    PacketBuffer(4_096).add,
    lambda data: decode_response(data, digest_requested=True),
)


@given(st.sampled_from(_DECODERS), st.binary(max_size=200))
def test_any_bytes_are_decoded_or_malformed(decode: Callable[[bytes], object], data: bytes) -> None:
    try:
        decode(data)
    except MalformedMessage as error:
        assert error.detail


@given(_BODIES, _DIGESTS, st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_an_answer_with_changed_bytes_is_encoded_to_the_same_bytes_or_malformed(
    body: tuple[int, int, Body], digest: Digest | None, offset: int, change: bytes
) -> None:
    header = Header(body[0], body[1], OpFlag.REQUEST_DIGEST if digest else 0)
    data = encode_response(Response(Envelope(7), header, body[2], digest))
    changed = (data[:offset] + change + data[offset + len(change) :])[: len(data)]
    try:
        response = decode_response(changed, digest_requested=False)
    except MalformedMessage:
        return
    assert encode_response(response) == changed


@given(_VALUES)
def test_the_json_of_any_values_is_a_record(values: tuple[Value, ...]) -> None:
    record = read_values(write_json_values(values))
    assert len(record.values) == sum(bool(value.permissions & Permission.PUBLIC_READ) for value in values)
