"""The line about the HS_SIGNATURE of a record, on its page and in Cache-Status."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from handle_protocol.json_sites import write_json_values
from handle_protocol.signature_chain import encode_signed
from handle_protocol.wire.site_value import Value, ValueReference
from tests.handle_protocol.keys import dsa_key, rsa_key
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.handle_protocol.tokens import Json, Key, base64url, token
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

NAME: Final = "10.5555/signed"
PREFIX: Final = "0.NA/10.5555"
SIGNER: Final = f"300:{PREFIX}"
ROOT: Final = "300:0.0/0.0"
NOW: Final = 1_800_000_000


def _number(number: int) -> str:
    return base64url(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def jwk(key: Key) -> Json:
    """The public key as a JSON Web Key."""
    if isinstance(key, RSAPrivateKey):
        rsa = key.public_key().public_numbers()
        return {"kty": "RSA", "n": _number(rsa.n), "e": _number(rsa.e)}
    dsa = key.public_key().public_numbers()
    group = dsa.parameter_numbers
    return {"kty": "DSA", "y": _number(dsa.y), "p": _number(group.p), "q": _number(group.q), "g": _number(group.g)}


def text(index: int, kind: str, content: str) -> Json:
    """A value whose data is a string."""
    return {"index": index, "type": kind, "data": {"format": "string", "value": content}, "ttl": 86400}


def signature(values: list[Json], key: Key, **changes: Any) -> Json:
    """An HS_SIGNATURE value over other values."""
    digests = [
        {"index": value["index"], "digest": b64encode(hashlib.sha256(encode_signed(value)).digest()).decode()}
        for value in values
    ]
    claims = {"digests": {"alg": "SHA-256", "digests": digests}, "iss": SIGNER, "sub": NAME, **changes}
    return text(400, "HS_SIGNATURE", token(claims, key))


def certificate(key: Key, issuer: Key, **changes: Any) -> Json:
    """An HS_CERT value for a key."""
    perms = [{"handle": PREFIX, "perm": "handlesUnderThisPrefix"}]
    claims = {"sub": SIGNER, "iss": ROOT, "publicKey": jwk(key), "perms": perms, **changes}
    return text(401, "HS_CERT", token(claims, issuer))


def values() -> list[Json]:
    """The values that are signed. None of them is a target, so the name has a page."""
    return [text(1, "DESC", "signed"), text(2, "EMAIL", "a@b.example")]


@asynccontextmanager
async def proxies(folder: Path, root: Key, **settings: Any) -> AsyncIterator[Proxy]:
    """A proxy that knows the key of the root, and an upstream with the certificate of the prefix."""
    site = {
        "version": 1, "protocolVersion": "2.11", "serialNumber": 1, "primarySite": True, "multiPrimary": False,
        "servers": [{"serverId": 1, "address": "192.0.2.1", "interfaces": []}],
    }  # fmt: skip
    answer = {
        "responseCode": 1,
        "handle": "0.NA/0.NA",
        "values": [
            {"index": 1, "type": "HS_SITE", "data": {"format": "site", "value": site}},
            {"index": 300, "type": "HS_PUBKEY", "data": {"format": "key", "value": jwk(root)}},
        ],
    }
    (folder / "root.json").write_text(json.dumps(answer))
    async with Proxy(upstream_bootstrap=folder / "root.json", **settings) as proxy:
        yield proxy


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    async with proxies(tmp_path, dsa_key()) as proxy:
        proxy.upstream.put("10.5555", values=[certificate(rsa_key(), dsa_key())])
        yield proxy


async def show(proxy: Proxy, *shown: Json) -> Reply:
    """The page of a record with these values."""
    proxy.upstream.put(NAME, values=list(shown))
    return await proxy.get(f"/{NAME}?noredirect", accept="text/html")


def state(got: Reply) -> str:
    """What Cache-Status says about the signature."""
    return (got["cache-status"] or "").partition("; signature=")[2]


async def test_a_signature_by_a_key_that_the_root_certified_is_valid(proxy: Proxy) -> None:
    got = await show(proxy, *values(), signature(values(), rsa_key()))
    assert f"Every value is signed by {SIGNER}." in got.text
    assert state(got) == "valid"
    again = await proxy.get(f"/{NAME}?noredirect", accept="text/html")
    assert (state(again), proxy.upstream.queries()) == ("valid", 2)


async def test_a_chain_of_two_certificates_is_followed(proxy: Proxy) -> None:
    upper = "300:10.5555/upper"
    everything = [{"perm": "everything"}]
    proxy.upstream.put("10.5555", values=[certificate(rsa_key(), rsa_key(), iss=upper)])
    proxy.upstream.put("10.5555/upper", values=[certificate(rsa_key(), dsa_key(), sub=upper, perms=everything)])
    assert state(await show(proxy, *values(), signature(values(), rsa_key()))) == "valid"


@pytest.mark.parametrize("place", ["401:10.5555/store", "10.5555/store", "0:10.5555/store"])
async def test_the_chain_claim_says_where_the_certificates_are(proxy: Proxy, place: str) -> None:
    proxy.upstream.put("10.5555", values=[text(1, "DESC", "no certificate")])
    proxy.upstream.put("10.5555/store", values=[certificate(rsa_key(), dsa_key())])
    assert state(await show(proxy, *values(), signature(values(), rsa_key()))) == "unproven"
    proxy.clock.advance(1e6)
    assert state(await show(proxy, *values(), signature(values(), rsa_key(), chain=[place]))) == "valid"


async def test_the_chain_of_a_signature_leads_over_several_certificates(proxy: Proxy) -> None:
    upper = "300:10.5555/upper"
    lower = certificate(rsa_key(), rsa_key(), iss=upper)
    higher = {**certificate(rsa_key(), dsa_key(), sub=upper, perms=[{"perm": "everything"}]), "index": 7}
    proxy.upstream.put("10.5555/store", values=[lower, higher])
    chain = ["401:10.5555/store", "7:10.5555/store", "300:0.0/0.0"]
    assert state(await show(proxy, *values(), signature(values(), rsa_key(), chain=chain))) == "valid"
    # The certificate can have the rest of the chain.
    proxy.clock.advance(1e6)
    proxy.upstream.put("10.5555/store", values=[certificate(rsa_key(), rsa_key(), iss=upper, chain=chain[1:]), higher])
    assert state(await show(proxy, *values(), signature(values(), rsa_key(), chain=chain[:1]))) == "valid"


@pytest.mark.parametrize(
    "chain",
    [
        ["402:10.5555/store"],
        ["10.5555/nothing"],
        ["1:10.5555/store"],
        ["7:10.5555/store"],
        ["99999999999:10.5555/nothing"],
        [""],
        ["10.5555/nothing", "10.5555/store"],
        ["x" * 60_000],
        ["\ud800/x".encode("utf-8", "surrogatepass").decode("latin-1")],
    ],
)
async def test_a_chain_that_leads_nowhere_proves_nothing(proxy: Proxy, chain: list[str]) -> None:
    other = {**certificate(rsa_key(), dsa_key(), sub="300:10.5555/other"), "index": 7}
    proxy.upstream.put("10.5555/store", values=[text(1, "DESC", "x"), other, certificate(rsa_key(), dsa_key())])
    assert state(await show(proxy, *values(), signature(values(), rsa_key(), chain=chain))) == "unproven"


async def test_a_chain_to_a_certificate_of_another_issuer_is_broken(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555/store", values=[certificate(rsa_key(), rsa_key())])
    assert state(await show(proxy, *values(), signature(values(), rsa_key(), chain=["401:10.5555/store"]))) == "broken"


async def test_a_long_chain_claim_costs_a_bounded_number_of_queries(proxy: Proxy) -> None:
    chain = [f"10.5555/c-{number}" for number in range(1_000)]
    for number in range(10):
        link = certificate(rsa_key(), rsa_key(), sub=SIGNER, iss=SIGNER)
        proxy.upstream.put(f"10.5555/c-{number}", values=[link])
    assert state(await show(proxy, *values(), signature(values(), rsa_key(), chain=chain))) == "unproven"
    assert proxy.upstream.queries() <= 7


@pytest.mark.parametrize(("first", "second", "expected"), [(1, 2, "valid"), (2, 1, "broken"), (None, 1, "valid")])
async def test_of_two_certificates_the_one_that_was_issued_last_counts(
    proxy: Proxy, first: int | None, second: int, expected: str
) -> None:
    wrong = certificate(rsa_key(), dsa_key(), perms=[], **({} if first is None else {"iat": first}))
    right = {**certificate(rsa_key(), dsa_key(), iat=second), "index": 402}
    proxy.upstream.put("10.5555", values=[wrong, right])
    assert state(await show(proxy, *values(), signature(values(), rsa_key()))) == expected


async def test_a_value_that_nobody_signed_is_not_called_signed(proxy: Proxy) -> None:
    got = await show(proxy, *values(), text(9, "DESC", "added later"), signature(values(), rsa_key()))
    assert "2 of 3 values are signed" in got.text
    assert state(got) == "partial"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"exp": 1_000_000_000}, "expired"),
        ({"nbf": 9_000_000_000}, "expired"),
        ({"exp": 9_000_000_000, "nbf": 1_000_000_000}, "valid"),
        ({"sub": "10.5555/other"}, "broken"),
        ({"iss": "300:0.NA/10.6666"}, "unproven"),
        ({"iss": "300:10.5555/no-certificate"}, "unproven"),
        ({"iss": ""}, "unproven"),
        ({"iss": ROOT}, "broken"),
        ({"digests": {"alg": "MD5", "digests": []}}, "broken"),
        ({"digests": {"alg": "SHA-256", "digests": [{"index": 7, "digest": "AAAA"}]}}, "broken"),
        ({"digests": {"alg": "SHA-256", "digests": []}}, "partial"),
    ],
)
async def test_what_a_signature_claims_counts(proxy: Proxy, change: Json, expected: str) -> None:
    assert state(await show(proxy, *values(), signature(values(), rsa_key(), **change))) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"exp": 1_000_000_000}, "expired"),
        ({"perms": []}, "broken"),
        ({"perms": [{"handle": "0.NA/10.6666", "perm": "handlesUnderThisPrefix"}]}, "broken"),
        ({"perms": [{"handle": NAME.upper(), "perm": "thisHandle"}]}, "valid"),
        ({"perms": [{"handle": "0.NA/10", "perm": "derivedPrefixes"}]}, "valid"),
        ({"perms": [{"handle": "0.NA/10.555", "perm": "derivedPrefixes"}]}, "broken"),
        ({"perms": [{"handle": NAME, "perm": "unknown"}]}, "broken"),
        ({"publicKey": jwk(dsa_key())}, "broken"),
        ({"publicKey": {"kty": "RSA", "n": "", "e": ""}}, "broken"),
        ({"publicKey": {"kty": "RSA", "n": "_" * 60_000, "e": "AQAB"}}, "broken"),
        ({"publicKey": {"kty": "oct", "k": "AAAA"}}, "unproven"),
    ],
)
async def test_what_a_certificate_claims_counts(proxy: Proxy, change: Json, expected: str) -> None:
    proxy.upstream.put("10.5555", values=[certificate(rsa_key(), dsa_key(), **change)])
    assert state(await show(proxy, *values(), signature(values(), rsa_key()))) == expected


async def test_a_certificate_that_its_own_subject_issued_proves_nothing(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555", values=[certificate(rsa_key(), rsa_key(), iss=SIGNER)])
    assert state(await show(proxy, *values(), signature(values(), rsa_key()))) == "unproven"
    assert proxy.upstream.queries("10.5555") == 1


async def test_a_certificate_that_the_root_did_not_issue_is_broken(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555", values=[certificate(rsa_key(), rsa_key())])
    got = await show(proxy, *values(), signature(values(), rsa_key()))
    assert state(got) == "broken"
    assert "does not hold" in got.text


def _replace_data(value: Json, change: Callable[[str], str]) -> Json:
    return {**value, "data": {"format": "string", "value": change(value["data"]["value"])}}


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t[:-8] + "AAAAAAAA",
        lambda t: t.replace(t.partition(".")[0], base64url(b'{"alg":"none"}')),
        lambda t: t.replace(t.partition(".")[0], base64url(b'{"alg":"HS256"}')),
        lambda t: base64url(b'{"alg":"none"}') + "." + t.split(".")[1] + ".",
        lambda t: t.partition(".")[0],
        lambda t: "[" * 100_000,
        lambda t: t + ".x",
        lambda t: "",
        lambda t: base64url(b'{"alg":"RS256"}') + "." + base64url(b"[" * 100_000) + ".AAAA",
    ],
)
async def test_a_token_that_is_wrong_is_broken(proxy: Proxy, change: Callable[[str], str]) -> None:
    assert state(await show(proxy, *values(), _replace_data(signature(values(), rsa_key()), change))) == "broken"


async def test_a_changed_value_and_two_with_one_index_are_broken(proxy: Proxy) -> None:
    signed = signature(values(), rsa_key())
    assert state(await show(proxy, values()[0], text(2, "EMAIL", "evil@b.example"), signed)) == "broken"
    proxy.clock.advance(1e6)
    assert state(await show(proxy, text(1, "DESC", "evil"), *values(), signed)) == "broken"


@pytest.mark.parametrize(("kept", "verdict"), [(290.0, "valid"), (29.0, "unproven")])
async def test_a_verdict_is_kept_for_a_time_and_one_without_a_certificate_for_a_short_one(
    tmp_path: Path, kept: float, verdict: str
) -> None:
    async with proxies(tmp_path, dsa_key(), cache_ttl_ceiling=0.0, cache_negative_ttl=0.0, cache_grace=0.0) as proxy:
        if verdict == "valid":
            proxy.upstream.put("10.5555", values=[certificate(rsa_key(), dsa_key())])
        signed = signature(values(), rsa_key())
        queries = []
        for seconds in (0.0, kept, 12.0):
            proxy.clock.advance(seconds)
            assert state(await show(proxy, *values(), signed)) == verdict
            queries.append(proxy.upstream.queries("10.5555"))
        assert queries[0] == queries[1] < queries[2]


async def test_the_worst_of_two_signatures_counts(proxy: Proxy) -> None:
    second = {**signature(values(), dsa_key()), "index": 410}
    assert state(await show(proxy, *values(), signature(values(), rsa_key()), second)) == "broken"


async def test_an_issuer_that_cannot_be_asked_is_not_called_wrong(proxy: Proxy) -> None:
    proxy.upstream.fault("10.5555", "status", status=500)
    got = await show(proxy, *values(), signature(values(), rsa_key()))
    assert (got.status, state(got)) == (200, "unproven")


async def test_a_long_chain_costs_a_bounded_number_of_queries(proxy: Proxy) -> None:
    proxy.upstream.put("10.5555", values=[certificate(rsa_key(), rsa_key(), iss="300:10.5555/c-0")])
    for number in range(40):
        link = certificate(rsa_key(), rsa_key(), sub=f"300:10.5555/c-{number}", iss=f"300:10.5555/c-{number + 1}")
        proxy.upstream.put(f"10.5555/c-{number}", values=[link])
    assert state(await show(proxy, *values(), signature(values(), rsa_key()))) == "unproven"
    assert proxy.upstream.queries() <= 7


async def test_the_name_of_a_signer_is_text(proxy: Proxy) -> None:
    evil = "300:10.5555/<script>alert(1)</script>" + "x" * 10_000
    got = await show(proxy, *values(), signature(values(), rsa_key(), iss=evil))
    assert "<script>alert" not in got.text
    assert "&lt;script&gt;" in got.text
    assert "x" * 300 not in got.text


async def test_a_redirect_and_json_verify_nothing(proxy: Proxy) -> None:
    target = text(3, "URL", "https://target.example/")
    proxy.upstream.put(NAME, values=[*values(), target, signature(values(), rsa_key())])
    for path in (f"/{NAME}", f"/{NAME}", f"/api/handles/{NAME}"):
        assert "signature" not in ((await proxy.get(path))["cache-status"] or "")
    assert proxy.upstream.queries("10.5555") == 0


async def test_without_the_key_of_the_root_nothing_is_proven() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put("10.5555", values=[certificate(rsa_key(), dsa_key())])
        signed = signature(values(), rsa_key())
        assert state(await show(proxy, *values(), signed)) == "unproven"
        proxy.clock.advance(1e6)
        assert state(await show(proxy, values()[0], signed)) == "broken"


async def test_the_records_of_a_dump_are_proven_without_an_upstream(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    listed = {NAME: [*values(), signature(values(), rsa_key())], PREFIX: [certificate(rsa_key(), dsa_key())]}
    entries = [f"[[record]]\ndoi = {json.dumps(n)}\nvalues = {json.dumps(json.dumps(v))}\n" for n, v in listed.items()]
    (records / "dump.toml").write_text("\n".join(entries))
    async with proxies(tmp_path, dsa_key(), local_records=records, upstream_url="http://127.0.0.1:1") as proxy:
        got = await proxy.get(f"/{NAME}?noredirect", accept="text/html")
        assert got["cache-status"] == "doi-proxy; hit; detail=local; signature=valid"


async def test_a_handle_server_delivers_them_and_its_root_key_counts(tmp_path: Path) -> None:
    async with HandleServer(key=dsa_key()) as root, HandleServer(serial=2) as home:
        (tmp_path / "root.json").write_bytes(write_bootstrap(root))
        issued = certificate(rsa_key(), dsa_key())["data"]["value"]
        root.put_values("0.NA/10.5555", home.site_value(), Value(401, b"HS_CERT", issued.encode()))
        described = Value(1, b"DESC", b"signed", references=(ValueReference(b"10.5555/x", 7),))
        signed = signature(json.loads(write_json_values([described])), rsa_key())["data"]["value"]
        home.put_values(NAME, described, Value(400, b"HS_SIGNATURE", signed.encode()))
        settings = {"upstream_url": "hdl:", "upstream_bootstrap": tmp_path / "root.json"}
        async with Proxy(**settings, upstream_private_servers=True) as proxy:
            got = await proxy.get(f"/{NAME}?noredirect", accept="text/html")
            assert f"Every value is signed by {SIGNER}." in got.text
            assert state(got) == "valid"
