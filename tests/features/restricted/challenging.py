"""A handle server with values that the public may not read, which it gives to an identity that answers its challenge.

The proofs are checked by the formulas of the protocol with hashlib and the library of signatures. No code of the
program is used for that.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.dsa import DSAPublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from app.features.native.wire.message import Envelope, Message, OpCode, OpFlag, ResponseStatus, decode_message
from app.features.native.wire.query import Query
from app.features.native.wire.response import AnswerText, Digest, Response
from app.features.native.wire.value import Permission, Value
from tests.features.native.encoder import encode_response
from tests.features.native.keys import sign
from tests.features.native.lies import Hangup
from tests.features.native.server import Content, HandleServer

NAME: Final = "10.1000/staff"
#: A name whose only address the public may not read.
HIDDEN: Final = "10.1000/hidden"
#: Backwards, what the value has that the public may not read. The server turns it round only to send it, so that a
#: test can look for it in the memory of the process.
MARKER_BACKWARDS: Final = "d70c1eb4-rekram"
IDENTITY: Final = "300:10.1000/ADMIN"
SECRET: Final = b"a secret key of the tests"
RESTRICTED: Final = Permission.ADMIN_READ | Permission.ADMIN_WRITE
VALUES: Final = (
    Value(1, b"URL", b"https://target.example/"),
    Value(2, b"EMAIL", f"elpmaxe.ffats@{MARKER_BACKWARDS}".encode(), permissions=RESTRICTED),
    Value(300, b"HS_SECKEY", b"the key of someone", permissions=RESTRICTED),
)
HIDDEN_URL: Final = Value(1, b"URL", f"/{MARKER_BACKWARDS}/elpmaxe.neddih//:sptth".encode(), permissions=RESTRICTED)
Change = Callable[[Response], Any]


class ChallengingServer(HandleServer):
    """See the module. `proves` are the secret key, or the public key, of IDENTITY."""

    def __init__(self, *arguments: Any, proves: bytes | RSAPublicKey | DSAPublicKey = SECRET, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.proves = proves
        self.sessions = 0
        self._pending: dict[int, tuple[Query, bytes, Content]] = {}
        #: The bodies of the responses to challenges.
        self.proofs: list[bytes] = []
        #: What is sent in place of a challenge, and in place of the answer after it.
        self.change_challenge: Change = lambda response: response
        self.change_answer: Change = lambda response: response
        self.refusal = int(ResponseStatus.SUCCESS)
        self.put_values(NAME, *VALUES)
        self.put_values(HIDDEN, HIDDEN_URL)

    async def answer(self, data: bytes, transport: str) -> bytes:
        """See HandleServer."""
        message = decode_message(data)
        if message.header.op_code == OpCode.CHALLENGE_RESPONSE:
            self.by_transport[f"{transport} proof"] += 1
            return self._judge(message)
        return await super().answer(data, transport)

    def _make_answer(self, query: Query, data: bytes, content: Content) -> Response:
        if isinstance(content, tuple) and query.op_code == OpCode.RESOLUTION:
            public = tuple(value for value in content if value.permissions & Permission.PUBLIC_READ)
            if not query.flags & OpFlag.PUBLIC_ONLY and public != content:
                return self._challenge(query, data, content)
            content = public
        return super()._make_answer(query, data, content)

    def _challenge(self, query: Query, data: bytes, content: Content) -> Response:
        self.sessions += 1
        self._pending[self.sessions] = query, data, content
        usual = super()._make_answer(query, data, ResponseStatus.AUTHENTICATION_NEEDED)
        digest = Digest(3, hashlib.sha256(_signed(decode_message(data), data)).digest())
        nonce = hashlib.md5(bytes([self.sessions]), usedforsecurity=False).digest()
        envelope, header = replace(usual.envelope, session_id=self.sessions), usual.header
        header = replace(header, flags=header.flags | OpFlag.REQUEST_DIGEST)
        changed: Response = self.change_challenge(
            replace(usual, envelope=envelope, header=header, digest=digest, body=AnswerText(nonce))
        )
        return changed

    def _judge(self, message: Message) -> bytes:
        self.proofs.append(message.body)
        found = self._pending.pop(message.envelope.session_id, None)
        if found is None:
            # The connection was lost after the proof, so it came again.
            raise Hangup
        query, data, content = found
        nonce = hashlib.md5(bytes([message.envelope.session_id]), usedforsecurity=False).digest()
        digest = hashlib.sha256(_signed(decode_message(data), data)).digest()
        is_proven = is_proof(message.body, nonce + digest, self.proves)
        code = self.refusal if is_proven else 403
        if isinstance(content, tuple) and code == ResponseStatus.SUCCESS:
            content = tuple(_turn(value) for value in content)
        answer = super()._make_answer(query, data, content if code == ResponseStatus.SUCCESS else code)
        answer = replace(answer, envelope=Envelope(message.envelope.request_id))
        changed = self.change_answer(answer)
        if isinstance(changed, bytes):
            return changed
        return encode_response(sign(changed, self.key) if query.flags & OpFlag.CERTIFIED else changed)


def marker() -> str:
    """What only the restricted value has."""
    return MARKER_BACKWARDS[::-1]


def _turn(value: Value) -> Value:
    return replace(value, data=value.data[::-1]) if MARKER_BACKWARDS.encode() in value.data else value


def _signed(message: Message, data: bytes) -> bytes:
    """The header and the body of a message: what its digest is about."""
    return data[20 : 44 + len(message.body)]


def is_proof(body: bytes, content: bytes, key: bytes | RSAPublicKey | DSAPublicKey) -> bool:
    """Whether the body of a response proves IDENTITY to whoever sent `content`, the nonce and the digest."""
    kind, rest = _take(body)
    handle, rest = _take(rest)
    (index,) = struct.unpack(">i", rest[:4])
    proof, rest = _take(rest[4:])
    assert rest == b""
    if f"{index}:{handle.decode()}" != IDENTITY:
        return False
    if isinstance(key, bytes):
        return kind == b"HS_SECKEY" and proof == make_mac(key, content, proof)
    name, signed = _take(proof)
    signature, rest = _take(signed)
    assert (kind, name, rest) == (b"HS_PUBKEY", b"SHA-256", b"")
    try:
        if isinstance(key, RSAPublicKey):
            key.verify(signature, content, PKCS1v15(), SHA256())
        else:
            key.verify(signature, content, SHA256())
    except InvalidSignature:
        return False
    return True


def make_mac(secret: bytes, content: bytes, parameters: bytes) -> bytes:
    """The proof by a secret key, with the salt and the numbers of `parameters`: code, salt, iterations, bits, MAC."""
    assert parameters[0] == 0x22
    salt, rest = _take(parameters[1:])
    iterations, bits = struct.unpack(">II", rest[:8])
    assert (len(salt), iterations, bits) == (16, 10_000, 160)
    mac = hmac.new(hashlib.pbkdf2_hmac("sha1", secret, salt, iterations, bits // 8), content, "sha1").digest()
    return parameters[: 1 + 4 + len(salt) + 8] + struct.pack(">I", len(mac)) + mac


def _take(data: bytes) -> tuple[bytes, bytes]:
    """A string, and the bytes after it."""
    (length,) = struct.unpack(">I", data[:4])
    return data[4 : 4 + length], data[4 + length :]
