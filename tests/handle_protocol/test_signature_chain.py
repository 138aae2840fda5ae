"""What the HS_SIGNATURE values of a record are worth, by the certificates of their issuers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from handle_protocol.signature_chain import SignatureVerdict, judge_signatures
from handle_protocol.value import Record, parse_record
from tests.handle_protocol.keys import dsa_key, public_bytes, rsa_key
from tests.handle_protocol.tokens import (
    NAME,
    PREFIX,
    ROOT,
    SIGNER,
    Json,
    base64url,
    certificate,
    jwk,
    signature,
    text,
)

NOW: Final = 1_800_000_000.0


def _read(shown: list[Json]) -> Record:
    return parse_record(json.dumps(shown).encode())


class Records:
    """The records of issuers. The prefix has a certificate by the root, whose key is the DSA key."""

    def __init__(self) -> None:
        self._values = {PREFIX: [certificate(rsa_key(), dsa_key())]}
        self.asked: list[str] = []

    def put(self, handle: str, *values: Json) -> None:
        """Replace a record."""
        self._values[handle] = list(values)

    def judge(self, *shown: Json, root_keys: tuple[bytes, ...] | None = None) -> SignatureVerdict:
        """The verdict about a record with these values."""
        keys = (public_bytes(dsa_key()),) if root_keys is None else root_keys
        record, issuers = _read(list(shown)), dict[str, Record | None]()
        while True:
            verdict = judge_signatures(NAME, record, issuers, root_keys=keys, now=NOW)
            assert verdict is not None
            if not verdict.missing:
                return verdict
            self.asked += verdict.missing
            issuers |= {one: _read(self._values[one]) if one in self._values else None for one in verdict.missing}

    def state(self, *shown: Json) -> str:
        """The same in a word."""
        return self.judge(*shown).state


@pytest.fixture
def records() -> Records:
    return Records()


def values() -> list[Json]:
    """The values that are signed."""
    return [text(1, "DESC", "signed"), text(2, "EMAIL", "a@b.example")]


def test_a_signature_by_a_key_that_the_root_certified_is_valid(records: Records) -> None:
    verdict = records.judge(*values(), signature(values(), rsa_key()))
    assert verdict == SignatureVerdict("valid", SIGNER, covered=2, total=2)
    assert records.asked == [PREFIX]


def test_a_record_without_a_signature_has_no_verdict() -> None:
    assert judge_signatures(NAME, _read(values()), {}, root_keys=(), now=NOW) is None


def test_a_chain_of_two_certificates_is_followed(records: Records) -> None:
    upper = "300:10.5555/upper"
    everything = [{"perm": "everything"}]
    records.put(PREFIX, certificate(rsa_key(), rsa_key(), iss=upper))
    records.put("10.5555/upper", certificate(rsa_key(), dsa_key(), sub=upper, perms=everything))
    assert records.state(*values(), signature(values(), rsa_key())) == "valid"


@pytest.mark.parametrize("place", ["401:10.5555/store", "10.5555/store", "0:10.5555/store"])
def test_the_chain_claim_says_where_the_certificates_are(records: Records, place: str) -> None:
    records.put(PREFIX, text(1, "DESC", "no certificate"))
    records.put("10.5555/store", certificate(rsa_key(), dsa_key()))
    assert records.state(*values(), signature(values(), rsa_key())) == "unproven"
    assert records.state(*values(), signature(values(), rsa_key(), chain=[place])) == "valid"


def test_the_chain_of_a_signature_leads_over_several_certificates(records: Records) -> None:
    upper = "300:10.5555/upper"
    lower = certificate(rsa_key(), rsa_key(), iss=upper)
    higher = {**certificate(rsa_key(), dsa_key(), sub=upper, perms=[{"perm": "everything"}]), "index": 7}
    records.put("10.5555/store", lower, higher)
    chain = ["401:10.5555/store", "7:10.5555/store", "300:0.0/0.0"]
    assert records.state(*values(), signature(values(), rsa_key(), chain=chain)) == "valid"
    # The certificate can have the rest of the chain.
    records.put("10.5555/store", certificate(rsa_key(), rsa_key(), iss=upper, chain=chain[1:]), higher)
    assert records.state(*values(), signature(values(), rsa_key(), chain=chain[:1])) == "valid"


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
    ],
)
def test_a_chain_that_leads_nowhere_proves_nothing(records: Records, chain: list[str]) -> None:
    other = {**certificate(rsa_key(), dsa_key(), sub="300:10.5555/other"), "index": 7}
    records.put("10.5555/store", text(1, "DESC", "x"), other, certificate(rsa_key(), dsa_key()))
    assert records.state(*values(), signature(values(), rsa_key(), chain=chain)) == "unproven"


def test_a_certificate_that_the_root_did_not_issue_is_broken(records: Records) -> None:
    records.put(PREFIX, certificate(rsa_key(), rsa_key()))
    assert records.state(*values(), signature(values(), rsa_key())) == "broken"
    records.put("10.5555/store", certificate(rsa_key(), rsa_key()))
    assert records.state(*values(), signature(values(), rsa_key(), chain=["401:10.5555/store"])) == "broken"


def test_a_long_chain_costs_a_bounded_number_of_lookups(records: Records) -> None:
    for number in range(10):
        link = certificate(rsa_key(), rsa_key(), sub=SIGNER, iss=SIGNER)
        records.put(f"10.5555/c-{number}", link)
    chain = [f"10.5555/c-{number}" for number in range(1_000)]
    assert records.state(*values(), signature(values(), rsa_key(), chain=chain)) == "unproven"
    assert len(records.asked) == 5
    records.asked.clear()
    records.put(PREFIX, certificate(rsa_key(), rsa_key(), iss="300:10.5555/c-0"))
    for number in range(10):
        link = certificate(rsa_key(), rsa_key(), sub=f"300:10.5555/c-{number}", iss=f"300:10.5555/c-{number + 1}")
        records.put(f"10.5555/c-{number}", link)
    assert records.state(*values(), signature(values(), rsa_key())) == "unproven"
    assert len(records.asked) == 5


@pytest.mark.parametrize(("first", "second", "expected"), [(1, 2, "valid"), (2, 1, "broken"), (None, 1, "valid")])
def test_of_two_certificates_the_one_that_was_issued_last_counts(
    records: Records, first: int | None, second: int, expected: str
) -> None:
    wrong = certificate(rsa_key(), dsa_key(), perms=[], **({} if first is None else {"iat": first}))
    right = {**certificate(rsa_key(), dsa_key(), iat=second), "index": 402}
    records.put(PREFIX, wrong, right)
    assert records.state(*values(), signature(values(), rsa_key())) == expected


def test_a_value_that_nobody_signed_is_not_called_signed(records: Records) -> None:
    verdict = records.judge(*values(), text(9, "DESC", "added later"), signature(values(), rsa_key()))
    assert (verdict.state, verdict.covered, verdict.total) == ("partial", 2, 3)


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
def test_what_a_signature_claims_counts(records: Records, change: Json, expected: str) -> None:
    verdict = records.judge(*values(), signature(values(), rsa_key(), **change))
    assert (verdict.state, verdict.ends) == (expected, 9e9 if expected == "valid" else None)


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
        # Its own subject issued it.
        ({"iss": SIGNER}, "broken"),
    ],
)
def test_what_a_certificate_claims_counts(records: Records, change: Json, expected: str) -> None:
    records.put(PREFIX, certificate(rsa_key(), dsa_key(), **change))
    assert records.state(*values(), signature(values(), rsa_key())) == expected


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
def test_a_token_that_is_wrong_is_broken(records: Records, change: Callable[[str], str]) -> None:
    assert records.state(*values(), _replace_data(signature(values(), rsa_key()), change)) == "broken"


def test_a_changed_value_and_two_with_one_index_are_broken(records: Records) -> None:
    signed = signature(values(), rsa_key())
    assert records.state(values()[0], text(2, "EMAIL", "evil@b.example"), signed) == "broken"
    assert records.state(text(1, "DESC", "evil"), *values(), signed) == "broken"


def test_the_worst_of_two_signatures_counts(records: Records) -> None:
    second = {**signature(values(), dsa_key()), "index": 410}
    assert records.state(*values(), signature(values(), rsa_key()), second) == "broken"


def test_the_name_of_a_signer_is_bounded(records: Records) -> None:
    verdict = records.judge(*values(), signature(values(), rsa_key(), iss="300:10.5555/" + "x" * 10_000))
    assert len(verdict.signer) == 200


def test_without_the_key_of_the_root_nothing_is_proven(records: Records) -> None:
    signed: Any = signature(values(), rsa_key())
    assert records.judge(*values(), signed, root_keys=()).state == "unproven"
    assert records.judge(values()[0], signed, root_keys=()).state == "broken"
