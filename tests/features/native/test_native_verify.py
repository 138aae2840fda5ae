"""An answer belongs to its query, and its signature proves which server sent it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from doi_proxy.errors import UnprovenAnswer
from handle_protocol.errors import AnswerMismatch, MalformedMessage, SignatureInvalid
from handle_protocol.key import verify_bytes
from handle_protocol.signature import ENVELOPE_SIGNED_SINCE, check_answer, oldest_version, verify_signature
from handle_protocol.wire.message import (
    AnswerText,
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
from tests.handle_protocol.encoder import as_received, encode_signature
from tests.handle_protocol.keys import dsa_key, public_bytes, rsa_key, sign
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


def test_an_answer_to_its_query_passes() -> None:
    check_answer(_answer(), _QUERY)
    check_answer(_answer(header=Header(1, 100, _FLAGS), body=AnswerText(b"")), _QUERY)


def test_the_name_may_differ_in_the_case_of_ascii_letters() -> None:
    query = replace(_QUERY, filters=Filters("10.5072/aä".encode()), flags=OpFlag.PUBLIC_ONLY)
    check_answer(_answer(body=Values("10.5072/Aä".encode(), ())), query)
    with pytest.raises(AnswerMismatch, match="another name"):
        check_answer(_answer(body=Values("10.5072/AÄ".encode(), ())), query)


@pytest.mark.parametrize(
    "changes",
    [
        {"envelope": Envelope(8)},
        {"envelope": Envelope(7, session_id=1)},
        {"header": structs.replace(_SUCCESS, op_code=2)},
        {"digest": None},
        {"digest": Digest(3, bytes(32))},
        {"digest": Digest(1, bytes(16))},
        {"body": Values(b"10.5072/2", ())},
        {"body": Values(b"", ())},
    ],
    ids=["request id", "session", "operation", "no digest", "wrong digest", "wrong MD5", "other name", "no name"],
)
def test_an_answer_to_another_query_is_a_mismatch(changes: dict[str, Any]) -> None:
    with pytest.raises(AnswerMismatch):
        check_answer(_answer(**changes), _QUERY)


def test_a_challenge_may_open_a_session() -> None:
    check_answer(_answer(envelope=Envelope(7, session_id=1), header=Header(1, 402, _FLAGS)), _QUERY)


@pytest.mark.parametrize("key", [rsa_key(), dsa_key()], ids=["RSA", "DSA"])
def test_a_signature_proves_which_key_signed(key: Any) -> None:
    signed = sign(_answer(), key)
    verify_signature(signed, public_bytes(key), oldest_version=ENVELOPE_SIGNED_SINCE)
    other = dsa_key() if key is not None and public_bytes(key).find(RSA) > 0 else rsa_key()
    with pytest.raises(SignatureInvalid):
        verify_signature(signed, public_bytes(other), oldest_version=ENVELOPE_SIGNED_SINCE)


@table(
    "change",
    [
        lambda signed: replace(signed, envelope=structs.replace(signed.envelope, request_id=8)),
        lambda signed: replace(signed, envelope=structs.replace(signed.envelope, session_id=8)),
        lambda signed: replace(signed, envelope=structs.replace(signed.envelope, minor=12)),
        lambda signed: replace(signed, envelope=structs.replace(signed.envelope, suggested_minor=10)),
        lambda signed: replace(signed, header=structs.replace(signed.header, response_code=303)),
        lambda signed: replace(signed, header=structs.replace(signed.header, expiration=1)),
        lambda signed: replace(signed, body=Values(b"10.5072/2", ())),
        lambda signed: replace(signed, digest=Digest(3, bytes(32))),
        lambda signed: replace(signed, credential=replace(signed.credential, counter=1)),
        lambda signed: replace(signed, credential=None),
        lambda signed: replace(signed, credential=Credential(b"")),
        lambda signed: replace(signed, credential=replace(signed.credential, type=b"HS_MACED")),
        lambda signed: replace(signed, envelope=structs.replace(signed.envelope, minor=7)),
    ],
    ids="request-id session minor suggested code expiration body digest counter none empty type version".split(),
)
def test_one_change_makes_a_signature_invalid(change: Callable[[Response], Response]) -> None:
    signed = sign(_answer(), rsa_key())
    with pytest.raises(SignatureInvalid):
        verify_signature(as_received(change(signed)), public_bytes(rsa_key()), oldest_version=(0, 0))


def test_an_answer_in_an_old_version_is_refused_whatever_its_signature() -> None:
    signed = sign(_answer(envelope=Envelope(7, minor=8)), rsa_key())
    verify_signature(signed, public_bytes(rsa_key()), oldest_version=(2, 8))
    with pytest.raises(SignatureInvalid, match=r"version 2\.8, too old"):
        verify_signature(signed, public_bytes(rsa_key()), oldest_version=(2, 9))


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


def test_version_2_11_signs_with_sha_256_alone() -> None:
    credential = Credential(encode_signature(Signature(b"SHA1", bytes(128))))
    with pytest.raises(SignatureInvalid) as caught:
        verify_signature(as_received(_answer(credential=credential)), public_bytes(rsa_key()), oldest_version=(2, 8))
    assert caught.value.detail == "the digest is b'SHA1'"


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
