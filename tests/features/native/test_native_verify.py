"""An answer belongs to its query, and its signature proves which server sent it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.errors import UnprovenAnswer
from handle_protocol.errors import AnswerMismatch, MalformedMessage, SignatureInvalid
from handle_protocol.key import verify_bytes
from handle_protocol.signature import ENVELOPE_SIGNED_SINCE, check_answer, oldest_version, verify_signature
from handle_protocol.wire.message import (
    Credential,
    Digest,
    Envelope,
    Filters,
    Header,
    OpFlag,
    Query,
    Response,
    Signature,
    Values,
    decode_filters,
    decode_message,
    decode_response,
    encode_query,
)
from handle_protocol.wire.site_value import RSA, KeyNumbers, encode_public_key
from tests.features.native.clients import client_of, query
from tests.handle_protocol.encoder import as_received
from tests.handle_protocol.keys import dsa_key, rsa_key, sign
from tests.handle_protocol.recorded import Row, messages, needs_recordings, row, rows
from tests.handle_protocol.server import HandleServer
from tests.table import table

_QUERY: Final = Query(
    Filters(b"10.5072/1"),
    request_id=7,
    expiration=1_900_000_000,
    flags=OpFlag.PUBLIC_ONLY | OpFlag.CERTIFIED | OpFlag.REQUEST_DIGEST,
)
_FLAGS: Final = OpFlag.REQUEST_DIGEST | OpFlag.CERTIFIED
_SUCCESS: Final = Header(1, 1, _FLAGS)


def _answer(**changes: Any) -> Response:
    digest = Digest(3, hashlib.sha256(encode_query(_QUERY)[20:-4]).digest())
    return replace(Response(Envelope(7), _SUCCESS, Values(b"10.5072/1", ()), digest), **changes)


def test_the_name_may_differ_in_the_case_of_ascii_letters() -> None:
    query = replace(_QUERY, filters=Filters("10.5072/aä".encode()), flags=OpFlag.PUBLIC_ONLY)
    check_answer(_answer(body=Values("10.5072/Aä".encode(), ())), query)
    with pytest.raises(AnswerMismatch, match="another name"):
        check_answer(_answer(body=Values("10.5072/AÄ".encode(), ())), query)


def test_a_challenge_may_open_a_session() -> None:
    check_answer(_answer(envelope=Envelope(7, session_id=1), header=Header(1, 402, _FLAGS)), _QUERY)


@table(
    ("site", "oldest"),
    [((2, 11), (2, 11)), ((2, 10), (2, 10)), ((2, 12), (2, 11)), ((3, 0), (2, 11)), ((2, 8), (2, 8)), ((2, 1), (2, 8))],
)
def test_an_answer_may_not_be_older_than_the_site(site: tuple[int, int], oldest: tuple[int, int]) -> None:
    assert oldest_version(site) == oldest


@pytest.mark.anyio
async def test_the_site_in_the_verified_record_says_which_answers_are_too_old() -> None:
    async with HandleServer(key=dsa_key()) as server:
        server.put("10.5072/1", url="https://example.org/")
        server.lie("10.5072/1", "old-version")
        async with client_of(server, known=[server.site(minor=10)]) as client:
            assert (await client.fetch(query("10.5072/1", certified=True))).is_verified
        async with client_of(server) as client:
            with pytest.raises(UnprovenAnswer, match="too old"):
                await client.fetch(query("10.5072/1", certified=True))


def _rsa(exponent: bytes, modulus: bytes) -> bytes:
    return encode_public_key(KeyNumbers(RSA, (exponent, modulus)))


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\0",
        _rsa(b"", b""),
        _rsa(b"\1\0\1", b"\xff"),
        _rsa(b"\1\0\1", b"\1" * 1_025),
        _rsa(b"\1" * 9, b"\1" * 128),
        _rsa(b"\2", b"\1" * 128),
        _rsa(b"\3", b"\x0f"),
    ],
    ids=["none", "cut", "zero", "negative", "long", "long exponent", "even exponent", "short"],
)
def test_a_key_that_cannot_be_used_makes_the_signature_invalid(key: bytes) -> None:
    with pytest.raises(SignatureInvalid):
        verify_signature(sign(_answer(), rsa_key()), key, oldest_version=(2, 8))


def test_an_exponent_can_have_64_bits() -> None:
    with pytest.raises(SignatureInvalid) as raised:
        verify_signature(sign(_answer(), rsa_key()), _rsa(b"\0" + b"\xff" * 8, b"\1" * 128), oldest_version=(2, 8))
    assert raised.value.detail == ""


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_key_and_any_credential_are_invalid_and_nothing_else(key: bytes, section: bytes) -> None:
    with pytest.raises(SignatureInvalid):
        verify_signature(as_received(_answer(credential=Credential(section))), key, oldest_version=(2, 8))


# --- recorded answers --------------------------------------------------------------------------------------------


@needs_recordings
@table("item", [item for item in rows() if item["what"].startswith("signature check")])
def test_a_recorded_signature_is_valid_or_not_as_noted(item: Row) -> None:
    noted = item["decoded"]
    signature = Signature(noted["digest"].encode(), bytes.fromhex(noted["signature_hex"]))
    arguments = bytes.fromhex(noted["signed_hex"]), signature, bytes.fromhex(noted["public_key_hex"])
    if noted["valid"]:
        verify_bytes(*arguments)
    else:
        with pytest.raises(SignatureInvalid):
            verify_bytes(*arguments)


def _signed_rows() -> list[Any]:
    wanted = [item for item in messages() if "credential" in (item["decoded"].get("response") or {})]
    return [pytest.param(item, id=item["id"]) for item in wanted if item.get("response_hex")]


@needs_recordings
@table("item", _signed_rows())
def test_a_recorded_answer_is_verified_as_noted(item: Row) -> None:
    response = decode_response(bytes.fromhex(item["response_hex"]), digest_requested=True)
    key = bytes.fromhex(row({"A": "n0001", "B": "n0002"}[item["decoded"]["server"]])["response_hex"])
    if item["decoded"]["response"]["checks"]["signature_matches"]:
        verify_signature(response, key, oldest_version=(0, 0))
    else:
        with pytest.raises(SignatureInvalid):
            verify_signature(response, key, oldest_version=(0, 0))
    if response.envelope.version < ENVELOPE_SIGNED_SINCE:
        with pytest.raises(SignatureInvalid):
            verify_signature(response, key, oldest_version=ENVELOPE_SIGNED_SINCE)


def _rows_with_digest() -> list[Any]:
    wanted = [item for item in messages() if "request_digest" in (item["decoded"].get("response") or {})]
    return [pytest.param(item, id=item["id"]) for item in wanted if item.get("response_hex")]


@needs_recordings
@table("item", _rows_with_digest())
def test_the_digest_of_a_recorded_request_matches(item: Row) -> None:
    request = decode_message(bytes.fromhex(item["request_hex"]))
    try:
        filters = decode_filters(request.body)
    except MalformedMessage:
        return  # there are no bytes to compare
    header = request.header
    query = Query(
        filters,
        request.envelope.request_id,
        header.expiration,
        header.flags | OpFlag.REQUEST_DIGEST,
        header.op_code,
        header.site_serial,
    )
    response = decode_response(bytes.fromhex(item["response_hex"]), digest_requested=True)
    if header.flags & OpFlag.REQUEST_DIGEST:
        check_answer(response, query)
        with pytest.raises(AnswerMismatch):
            check_answer(response, replace(query, site_serial=1))
