"""A row of the SQLite store says where the target of a plain redirect is. It never decides more than its values do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from struct import Struct
from typing import Final
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from doi_proxy.cache.entry import Entry
from doi_proxy.errors import DamagedEntry
from doi_proxy.resolver.resolver import MAX_BYTES_NOW
from doi_proxy.resolver.target import TARGET_RULES, read_unconditional_target, web_target
from doi_proxy.store.stored_entry import MARK_OFFSET, PLACE, WITH_TARGET, RedirectAnswer, pack, unpack
from handle_protocol.referral import Answer, ResponseCode
from tests.cache.entries import NOW, entry, missing, verified
from tests.table import table

KEY: Final = "10.1000/182"
#: Where the place is in a row, and the values after it.
PLACE_AT: Final = 22
CHECK: Final = Struct("<I")
LOC: Final = '<locations><location href="http://example.org/l"/></locations>'


def record(*values: tuple[str, str], ensure_ascii: bool = False) -> Entry:
    """A record with values of a type and a text."""
    listed = [
        {"index": number, "type": kind, "data": {"format": "string", "value": text}, "ttl": 86400}
        for number, (kind, text) in enumerate(values, 1)
    ]
    text = json.dumps(listed, separators=(",", ":"), ensure_ascii=ensure_ascii)
    return Entry(KEY, Answer(ResponseCode.SUCCESS, text.encode()), NOW, NOW + 86_400.0, NOW + 10**6)


def target_of(read: Entry) -> str | None:
    """The target of an entry that a store has noted."""
    return read.answer.target if isinstance(read.answer, RedirectAnswer) else None


def noted(one: Entry) -> str | None:
    """The target that the row of an entry notes. What else the row says is what the entry says."""
    read = unpack(one.key, pack(one))
    assert read == one
    assert read is not None
    return target_of(read)


@table(
    ("values", "target"),
    [
        ([("URL", "http://www.doi.org/hb.html")], "http://www.doi.org/hb.html"),
        ([("DESC", "text"), ("URL", "https://a.example/?q=1#f")], "https://a.example/?q=1#f"),
        ([("URL", "https://a.example/1"), ("URL", "https://a.example/2")], "https://a.example/1"),
        ([("URL.x", "https://a.example/x"), ("url", "https://a.example/u")], "https://a.example/u"),
        ([("URL", "https://a.example/a/../b/./c")], "https://a.example/a/../b/./c"),
        ([("URL", "https://a.example/" + "x" * 10_000)], "https://a.example/" + "x" * 10_000),
        ([("URL", "HTTPS://A.example/1")], "HTTPS://A.example/1"),
        ([("URL", "mailto:a@example.org")], "mailto:a@example.org"),
        # The text is elsewhere too: it is the same text.
        ([("DESC", "https://a.example/1"), ("URL", "https://a.example/1")], "https://a.example/1"),
        # The values do not contain the target as it is, or it needs more care.
        ([("URL", " https://a.example/1 ")], None),
        ([("URL", "https://ex\N{LATIN SMALL LETTER A WITH DIAERESIS}mple.org/")], None),
        ([("URL", "https://a.example/a b")], None),
        ([("URL", "https://a.example/\r\nset-cookie: a=b")], None),
        ([("URL", 'https://a.example/"')], None),
        ([("URL", "https://a.example/\\")], None),
        ([("URL", "https://a.example/" + "x" * MAX_BYTES_NOW)], None),
        # They lead nowhere, or not every client to the same target.
        ([("URL", "javascript:alert(1)")], None),
        ([("URL", "https:")], None),
        ([("DESC", "https://a.example/1")], None),
        ([("HS_ALIAS", "10.1000/2"), ("URL", "https://a.example/1")], None),
        ([("10320/loc", LOC), ("URL", "https://a.example/1")], None),
        ([("URL", "https://a.example/1"), ("10320/headers", "x")], None),
        ([("10320/links", "<links/>"), ("URL", "https://a.example/1")], None),
    ],
)
def test_a_row_notes_the_target_of_a_plain_redirect(values: Sequence[tuple[str, str]], target: str | None) -> None:
    one = record(*values)
    assert noted(one) == target
    if target is not None:
        assert noted(verified(one)) == target
        found = read_unconditional_target(one.answer.values)
        assert found is not None and (found.location, found.display, found.status) == (target, target, 302)


def test_values_that_escape_a_slash_have_no_place() -> None:
    one = record(("URL", "https://a.example/1"))
    assert noted(replace(one, answer=replace(one.answer, values=one.answer.values.replace(b"/", b"\\/")))) is None


def test_negative_answers_and_values_that_are_not_json_have_no_place() -> None:
    for one in (missing(), replace(entry(), answer=Answer(ResponseCode.SUCCESS, b"{" * 40))):
        assert not pack(one)[MARK_OFFSET] & WITH_TARGET


@given(st.lists(st.tuples(st.sampled_from(["URL", "url.x", "DESC", "HS_ALIAS"]), st.text()), max_size=4), st.booleans())
def test_what_a_row_notes_is_what_its_values_decide(values: list[tuple[str, str]], escapes: bool) -> None:
    one = record(*((kind, f"https:{text}") for kind, text in values), ensure_ascii=escapes)
    target = noted(one)
    if target is not None:
        found = read_unconditional_target(one.answer.values)
        assert found is not None and found.location == found.display == target


def forge(one: Entry, rules: int, start: int, end: int) -> bytes:
    """The row of an entry with another place, and a right checksum."""
    body = pack(one)[CHECK.size :]
    assert body[MARK_OFFSET - CHECK.size] & WITH_TARGET
    at = PLACE_AT - CHECK.size
    body = body[:at] + PLACE.pack(rules, start, end) + body[at + PLACE.size :]
    return CHECK.pack(crc32(body, crc32(one.key.encode()))) + body


@given(st.integers(0, 3), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF) | st.integers(0, 400))
def test_a_forged_place_gives_a_safe_url_of_the_values_or_none(rules: int, start: int, end: int) -> None:
    one = record(("DESC", "a\r\nset-cookie: a=b javascript:alert(1)"), ("URL", "https://a.example/1"))
    read = unpack(KEY, forge(one, rules, start, end))
    assert read == one
    assert read is not None
    target = target_of(read)
    if target is not None:
        assert rules == TARGET_RULES and web_target(target) == target and target.encode() in one.answer.values


@pytest.mark.parametrize("rules", [0, TARGET_RULES + 1, 0xFF])
def test_a_target_of_other_rules_is_decided_anew(rules: int) -> None:
    one = entry(KEY)
    written = pack(one)
    place = PLACE.unpack_from(written, PLACE_AT)
    assert forge(one, *place) == written
    read = unpack(KEY, forge(one, rules, *place[1:]))
    assert read is not None and target_of(read) is None
    # The next time that it is written, it has the target of these rules.
    assert pack(read) == written


def test_damage_of_a_place_is_noticed() -> None:
    written = bytearray(pack(entry(KEY)))
    written[PLACE_AT + 1] ^= 1
    with pytest.raises(DamagedEntry):
        unpack(KEY, bytes(written))


def test_an_answer_with_its_target_is_equal_to_one_without_it() -> None:
    plain = entry().answer
    noting = RedirectAnswer(plain.code, plain.values, start=1, end=2)
    assert noting == plain and plain == noting and hash(noting) is not None
    assert noting != replace(plain, is_verified=True)
    assert noting != replace(plain, values=b"[]")
    assert noting != "text"
