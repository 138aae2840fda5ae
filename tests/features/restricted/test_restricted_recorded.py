"""The proof of an identity, beside challenges of the reference server and the formulas of RFC 3652 in other programs.

The recordings have challenges, but no response to one: nothing here shows that the reference server accepts a proof.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.features.native.wire.message import ResponseStatus
from app.features.native.wire.query import Query, encode_challenge_response, encode_query
from app.features.native.wire.response import Response, decode_response
from app.features.restricted.errors import ChallengeRefused
from app.features.restricted.identity import Identity, prove_by_private_key, prove_by_secret
from tests.features.native.encoder import decode_query
from tests.features.native.keys import dsa_key, rsa_key
from tests.features.native.recorded import Row, messages, needs_recordings
from tests.features.restricted.world import write_pem

pytestmark = [pytest.mark.anyio, needs_recordings]

SECRET: Final = b"a secret key of the tests"
SALT: Final = bytes(range(16))
HANDLE: Final = "10.5555/ADMIN"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl: apt-get install openssl")


def challenges() -> list[tuple[Row, bytes, Query, Response]]:
    """The recorded challenges: row, request, the request decoded, and the challenge decoded."""
    found = []
    for row in messages():
        answer = bytes.fromhex(row.get("response_hex") or "")
        if len(answer) > 28 and struct.unpack(">I", answer[24:28])[0] == ResponseStatus.AUTHENTICATION_NEEDED:
            request = bytes.fromhex(row["request_hex"])
            found.append((row, request, decode_query(request), decode_response(answer, digest_requested=True)))
    return found


def openssl(folder: Path, *arguments: str) -> tuple[int, bytes]:
    """The exit status and the output of openssl."""
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, check=False)
    return done.returncode, done.stdout


def identity_of(kind: bytes, prove: Any) -> Identity:
    return Identity(300, HANDLE, kind, prove)


def string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def content_of(row: Row, request: bytes) -> bytes:
    """What is proven, cut out of the recorded bytes: the nonce, and the digest of the header and the body."""
    answer = bytes.fromhex(row["response_hex"])
    code, digest = answer[44], answer[45:77]
    (length,) = struct.unpack(">I", answer[77:81])
    (body,) = struct.unpack(">I", request[40:44])
    assert (code, length) == (3, 16)
    assert digest == hashlib.sha256(request[20 : 44 + body]).digest()
    return answer[81:97] + digest


async def test_the_response_to_each_recorded_challenge_has_the_bytes_of_the_standard() -> None:
    rows = challenges()
    assert len(rows) >= 8 and {row["transport"] for row, *_ in rows} == {"tcp", "udp", "http"}
    for row, request, query, challenge in rows:
        assert encode_query(query) == request, row["id"]
        proven: list[bytes] = []
        identity = identity_of(b"HS_PUBKEY", lambda content, proven=proven: proven.append(content) or b"proof")
        body = await identity.answer(challenge, query)
        assert proven == [content_of(row, request)], row["id"]
        # RFC 3652, 3.5: the type of the key, its handle and index, the proof.
        assert body == string(b"HS_PUBKEY") + string(HANDLE.encode()) + struct.pack(">i", 300) + string(b"proof")
        session = challenge.envelope.session_id
        assert session == struct.unpack(">I", bytes.fromhex(row["response_hex"])[4:8])[0] != 0
        sent = encode_challenge_response(query, session, body)
        # 2.2.1 and 2.2.2: the envelope and the header are those of the request, but for session, operation and lengths.
        assert sent[:4] + sent[8:16] == request[:4] + request[8:16]
        assert struct.unpack(">I", sent[4:8])[0] == session
        assert struct.unpack(">I", sent[16:20])[0] == len(sent) - 20
        assert struct.unpack(">II", sent[20:28]) == (200, 0)
        assert sent[28:40] == request[28:40]
        assert sent[40:] == struct.pack(">I", len(body)) + body + bytes(4)


async def test_a_recorded_challenge_is_not_answered_for_another_request() -> None:
    rows = challenges()
    others = [one[2] for one in rows if one[3].digest != rows[0][3].digest]
    assert others
    for query in others:
        with pytest.raises(ChallengeRefused):
            await identity_of(b"HS_PUBKEY", lambda content: b"").answer(rows[0][3], query)


@pytest.mark.process
@needs_openssl
@pytest.mark.parametrize("key", [rsa_key(), dsa_key()], ids=["RSA", "DSA"])
async def test_openssl_verifies_the_proof_of_a_private_key(tmp_path: Path, key: Any) -> None:
    row, request, query, challenge = challenges()[0]
    body = await identity_of(b"HS_PUBKEY", prove_by_private_key(write_pem(key))).answer(challenge, query)
    proof = body[len(string(b"HS_PUBKEY") + string(HANDLE.encode())) + 4 + 4 :]
    head = string(b"SHA-256")
    assert proof.startswith(head)
    signature = proof[len(head) + 4 :]
    assert proof[len(head) : len(head) + 4] == struct.pack(">I", len(signature))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for name, data in (("key.pem", public), ("signature", signature), ("content", content_of(row, request))):
        (tmp_path / name).write_bytes(data)
    command = ("dgst", "-sha256", "-verify", "key.pem", "-signature", "signature", "content")
    assert openssl(tmp_path, *command) == (0, b"Verified OK\n")
    (tmp_path / "content").write_bytes(bytes(48))
    assert openssl(tmp_path, *command)[0] != 0


@pytest.mark.process
@needs_openssl
async def test_openssl_computes_the_same_proof_of_a_secret_key(tmp_path: Path) -> None:
    row, request, query, challenge = challenges()[0]
    body = await identity_of(b"HS_SECKEY", prove_by_secret(SECRET, SALT)).answer(challenge, query)
    options = ("digest:SHA1", f"hexpass:{SECRET.hex()}", f"hexsalt:{SALT.hex()}", "iter:10000")
    chosen = [word for option in options for word in ("-kdfopt", option)]
    _, key = openssl(tmp_path, "kdf", "-keylen", "20", *chosen, "-binary", "PBKDF2")
    (tmp_path / "content").write_bytes(content_of(row, request))
    mac_options = ("-digest", "SHA1", "-macopt", f"hexkey:{key.hex()}", "-binary", "-in", "content")
    _, mac = openssl(tmp_path, "mac", *mac_options, "HMAC")
    assert len(key) == len(mac) == 20
    # The code, the salt, the iterations and the bits of the key, and the MAC.
    proof = b"\x22" + string(SALT) + struct.pack(">II", 10_000, 160) + string(mac)
    assert body == string(b"HS_SECKEY") + string(HANDLE.encode()) + struct.pack(">i", 300) + string(proof)
