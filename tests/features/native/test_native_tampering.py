"""A machine on the way to the root rewrites the records of prefixes in 31 ways. Signed lookups believe none of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs

from handle_protocol.wire.message import (
    NO_REQUEST_ID,
    AnswerText,
    Credential,
    Digest,
    Envelope,
    Header,
    Query,
    Response,
    Signature,
    Values,
)
from tests.handle_protocol.encoder import encode_response, encode_signature
from tests.handle_protocol.keys import dsa_key, rsa_key, sign
from tests.handle_protocol.server import Content, HandleServer, write_bootstrap
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

_EVIL: Final = "https://evil.example/"
_SHA256: Final = 3
_ENVELOPE: Final = Envelope(77)
_OLD_DIGEST: Final = Digest(_SHA256, hashlib.sha256(b"an earlier request").digest())
#: Makes the bytes that are sent, of an honest answer and one that names the evil server. Neither is signed.
Tampering = Callable[[Response, Response], bytes | Response]


def _with_signature(answer: Response, signed: Response, **changes: Any) -> Response:
    """An answer under the signature of another one."""
    assert signed.credential is not None
    return replace(answer, credential=replace(signed.credential, **changes))


def _made(answer: Response, **changes: Any) -> Response:
    return replace(answer, envelope=structs.replace(answer.envelope, **changes))


def _absent(answer: Response, name: bytes = b"") -> Response:
    digest = Digest(_SHA256, hashlib.sha256(name).digest()) if name else answer.digest
    return replace(
        answer, header=structs.replace(answer.header, response_code=100), body=AnswerText(None), digest=digest
    )


def _section(name: bytes, signature: bytes) -> bytes:
    return encode_signature(Signature(name, signature))


def _credential(answer: Response) -> Credential:
    found = sign(answer, rsa_key()).credential
    assert found is not None
    return found


def _cut(data: bytes, *, repairs: bool) -> bytes:
    short = data[:-40]
    return short[:16] + (len(short) - 20).to_bytes(4) + short[20:] if repairs else short


def _age(version: tuple[int, int], *, is_signed: bool) -> Tampering:
    """The evil answer in an older version, with the signature of the honest one or without."""

    def tamper(honest: Response, evil: Response) -> Response:
        aged = _made(evil, major=version[0], minor=version[1])
        return _with_signature(aged, sign(honest, rsa_key())) if is_signed else aged

    return tamper


def _tamperings() -> Iterator[tuple[str, Tampering]]:
    key, evil_key = rsa_key(), dsa_key()
    yield "no signature", lambda honest, evil: evil
    yield "key of another server", lambda honest, evil: sign(evil, evil_key)
    yield "under the honest signature", lambda honest, evil: _with_signature(evil, sign(honest, key))
    for version in ((2, 10), (2, 8), (2, 7), (2, 5), (2, 1), (1, 0)):
        yield f"version {version}", _age(version, is_signed=True)
        yield f"version {version}, unsigned", _age(version, is_signed=False)
    yield "type HS_MAC", lambda honest, evil: _with_signature(evil, sign(evil, evil_key), type=b"HS_MAC")
    yield (
        "digest SHA1",
        lambda honest, evil: _with_signature(evil, sign(honest, key), section=_section(b"SHA1", b"\1" * 256)),
    )
    yield (
        "empty signature",
        lambda honest, evil: _with_signature(evil, sign(honest, key), section=_section(b"SHA-256", b"")),
    )
    yield "empty credential", lambda honest, evil: replace(evil, credential=Credential(b""))
    yield "another counter", lambda honest, evil: _with_signature(honest, sign(honest, key), counter=7)
    old = Response(_ENVELOPE, Header(1, 1), Values(b"0.NA/10.6666", ()), _OLD_DIGEST)
    yield "replay", lambda honest, evil: sign(replace(old, body=evil.body), key)
    yield (
        "replay, id repaired",
        lambda honest, evil: replace(sign(replace(old, body=evil.body), key), envelope=honest.envelope),
    )
    yield (
        "replay, id and digest repaired",
        lambda honest, evil: replace(
            sign(replace(old, body=evil.body), key), envelope=honest.envelope, digest=honest.digest
        ),
    )
    yield "absent, unsigned", lambda honest, evil: _absent(honest)
    yield "absent, key of another server", lambda honest, evil: sign(_absent(honest), evil_key)
    yield "absent, replay of another name", lambda honest, evil: sign(_absent(honest, b"another request"), key)
    yield "cut", lambda honest, evil: _cut(encode_response(sign(evil, evil_key)), repairs=False)
    yield "cut, length repaired", lambda honest, evil: _cut(encode_response(sign(evil, evil_key)), repairs=True)
    yield (
        "error without an id",
        lambda honest, evil: Response(
            _made(honest, request_id=NO_REQUEST_ID).envelope, Header(0, 4), AnswerText(b"no")
        ),
    )
    yield "referral", lambda honest, evil: replace(evil, header=structs.replace(evil.header, response_code=303))
    yield "not responsible", lambda honest, evil: replace(_absent(honest), header=Header(1, 301))


class _Relay(HandleServer):
    """The root behind a machine that rewrites the record of each prefix in a way of its own."""

    def __init__(self, home: HandleServer, evil: HandleServer, ways: dict[str, Tampering]) -> None:
        super().__init__(transports=frozenset({"tcp"}))
        self._home, self._evil, self._ways = home, evil, ways

    def _write(self, query: Query, data: bytes, content: Content, lie: str | None) -> bytes:
        way = self._ways.get(query.filters.handle.decode())
        if way is None:
            return super()._write(query, data, content, lie)
        honest = self._make_answer(query, data, (self._home.site_value(),))
        sent = way(honest, replace(honest, body=Values(query.filters.handle, (self._evil.site_value(),))))
        return encode_response(sent) if isinstance(sent, Response) else sent


@pytest.mark.parametrize(
    ("verify", "query"), [("lookups", ""), ("lookups", "?cert"), ("when-asked", "?cert"), ("always", ""), ("never", "")]
)
async def test_no_tampered_record_of_a_prefix_steers_a_name_or_denies_it(
    tmp_path: Path, verify: str, query: str
) -> None:
    tamperings = dict(_tamperings())
    prefixes = {f"10.{7_000 + number}": way for number, way in enumerate(tamperings.values())}
    steered, missing = 0, 0
    async with HandleServer(serial=2) as home, HandleServer(serial=3, key=dsa_key()) as evil:
        for prefix in prefixes:
            home.put(f"{prefix}/x", url="https://home.example/")
            evil.put(f"{prefix}/x", url=_EVIL)
        async with _Relay(home, evil, {f"0.NA/{prefix}": way for prefix, way in prefixes.items()}) as root:
            (tmp_path / "root.json").write_bytes(write_bootstrap(root))
            settings = {"upstream_url": "hdl:", "upstream_bootstrap": tmp_path / "root.json", "upstream_verify": verify}
            async with Proxy(**settings, upstream_private_servers=True) as proxy:
                for prefix in prefixes:
                    got = await proxy.get(f"/{prefix}/x{query}")
                    steered += got["location"] == _EVIL
                    missing += got.status == 404
    assert len(prefixes) == 31
    # The control: without signatures, a machine on the way is believed.
    assert (steered > 0, missing > 0) == ((True, True) if verify == "never" else (False, False))
    if verify != "never":
        assert evil.queries() == 0
