"""The serialization of an entry as a line of a bundle: round trips, and the reasons of a refusal."""

from __future__ import annotations

import contextlib
import json
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from doi_proxy.cache.entry import FOREVER, Entry
from doi_proxy.features.bundles.bundle import (
    MAX_LINE,
    BundleEnd,
    BundleItem,
    Checksum,
    InvalidBundleLine,
    Refused,
    from_line,
    read_bundle,
    to_line,
)
from doi_proxy.store.stored_entry import pack, unpack
from handle_protocol.referral import Answer, ResponseCode
from tests.cache.entries import NOW, bundle, entry, missing, verified
from tests.cache.test_cache_wire import entries
from tests.table import table


@pytest.mark.parametrize(("written", "read"), [("0001-01-01T00:00:00Z", 0.0), ("9999-12-31T23:59:59.9Z", FOREVER)])
def test_every_time_of_a_bundle_can_be_stored(written: str, read: float) -> None:
    line = b'{"handle":"10.1000/182","responseCode":100,"fetched":"%b","fresh_until":"%b","stale_until":"%b"}'
    found = from_line(line % ((written.encode(),) * 3))
    assert (found.fetched_at, found.fresh_until, found.stale_until) == (read, read, read)
    assert unpack(found.key, pack(found)) == found


@given(entries)
def test_from_line_reads_what_to_line_writes(written: Entry) -> None:
    line = to_line(written)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    read = from_line(line)
    # The reader of a bundle verified nothing.
    assert (read.answer, read.key.upper()) == (replace(written.answer, is_verified=False), written.key.upper())
    assert read.fetched_at == pytest.approx(written.fetched_at, abs=1e-6)
    assert read.fresh_until == pytest.approx(written.fresh_until, abs=1e-6)
    assert read.stale_until == pytest.approx(written.stale_until, abs=1e-6)


@pytest.mark.parametrize("member", ["verified", "is_verified", "detail"])
def test_a_line_cannot_say_that_its_record_is_verified(member: str) -> None:
    line = to_line(verified(entry())).replace(b'"values"', b'"%b":true,"values"' % member.encode())
    assert from_line(line) == entry()


def test_a_line_names_its_members_as_the_handle_api_does() -> None:
    assert json.loads(to_line(missing("10.1000/X"))) == {
        "handle": "10.1000/X",
        "responseCode": 100,
        "values": [],
        "fetched": "2023-11-14T22:13:20Z",
        "fresh_until": "2023-11-14T22:14:20Z",
        "stale_until": "2023-11-14T22:14:20Z",
    }


def test_a_line_written_by_hand_is_expired_and_usable_for_ever() -> None:
    line = b'{"handle": "10.1000/abc", "values": [ {"index": 1, "type": "URL", "data": "http://www.doi.org/"} ]}'
    read = from_line(line)
    compact = b'[{"index":1,"type":"URL","data":"http://www.doi.org/"}]'
    assert read == Entry("10.1000/ABC", Answer(ResponseCode.SUCCESS, compact), 0.0, 0.0, FOREVER)
    assert not read.is_fresh(NOW)
    assert read.is_usable(NOW + 1e9)


@table(
    ("line", "reason"),
    [
        (b"", "not a valid JSON record"),
        (b"{", "not a valid JSON record"),
        (b"[]", "not a valid JSON record"),
        (b'{"values":[]}', "handle"),
        (b'{"handle":"","values":[]}', "name"),
        (b'{"handle":"10.1/a\\u0000","values":[]}', "code point|U\\+0000"),
        (b'{"handle":"10.1/a"}', "no `values`"),
        (b'{"handle":"10.1/a","responseCode":2}', "responseCode 2"),
        (b'{"handle":"10.1/a","values":{}}', "values"),
        (b'{"handle":"10.1/a","values":[{"index":1}]}', "type"),
        (b'{"handle":"10.1/a","values":[],"fetched":"soon"}', "fetched 'soon'"),
        (b'{"handle":"10.1/a","values":[],"stale_until":7}', "stale_until"),
        (b'{"handle":"10.1/\xff","values":[]}', "not a valid JSON record"),
        (b"[" * 100_000, "not a valid JSON record"),
    ],
)
def test_the_error_of_an_invalid_line_gives_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidBundleLine, match=reason):
        from_line(line)


@given(st.binary(max_size=100) | st.text(max_size=100).map(lambda text: json.dumps({"handle": text}).encode()))
def test_from_line_raises_only_its_own_error(line: bytes) -> None:
    with contextlib.suppress(InvalidBundleLine):
        from_line(line)


@pytest.mark.usefixtures("western_machine")
@pytest.mark.parametrize("zone", ["", "Z", "+00:00"])
def test_the_times_of_a_line_are_utc_in_any_time_zone(zone: str) -> None:
    line = b'{"handle":"10.1/a","responseCode":100,"fetched":"2023-11-14T22:13:20%b"}' % zone.encode()
    assert from_line(line).fetched_at == 1_700_000_000.0
    assert b'"fetched":"2023-11-14T22:13:20Z"' in to_line(from_line(line))


# --- Bundles: streaming, the checksum, and damaged lines, which do not affect other lines ----------------------------


ENTRIES = [entry("10.1000/1"), missing("10.1000/2"), entry("10.1000/Ä")]


def read(data: bytes) -> list[BundleItem]:
    return list(read_bundle(BytesIO(data)))


def test_an_exported_bundle_is_read_with_the_right_checksum() -> None:
    assert read(bundle(*ENTRIES)) == [*ENTRIES, BundleEnd(lines=3, refused=0, checksum=Checksum.RIGHT)]


def test_an_empty_bundle_has_a_checksum_too() -> None:
    assert read(bundle()) == [BundleEnd(0, 0, Checksum.RIGHT)]


def test_a_damaged_line_is_refused_with_its_number_and_the_rest_goes_on() -> None:
    lines = bundle(*ENTRIES).splitlines(keepends=True)
    lines[1] = b"x" + lines[1]
    first, refused, third, later, end = read(b"".join(lines))
    assert (first, third) == (ENTRIES[0], ENTRIES[2])
    assert isinstance(refused, Refused)
    assert refused.number == 2
    assert "not a valid JSON record" in refused.reason
    assert isinstance(later, Refused)
    assert later.number == 4
    assert end == BundleEnd(3, 2, Checksum.WRONG)


def test_a_changed_but_valid_record_makes_the_checksum_wrong() -> None:
    assert read(bundle(*ENTRIES).replace(b"hb.html", b"hx.html"))[-1] == BundleEnd(3, 1, Checksum.WRONG)


def test_a_missing_line_makes_the_checksum_wrong() -> None:
    assert read(b"".join(bundle(*ENTRIES).splitlines(keepends=True)[1:]))[-1] == BundleEnd(2, 1, Checksum.WRONG)


def test_a_truncated_bundle_has_no_checksum() -> None:
    data = bundle(*ENTRIES)
    assert read(data[: data.index(b'{"checksum"')])[-1] == BundleEnd(3, 0, Checksum.ABSENT)


def test_a_damaged_checksum_line_is_refused() -> None:
    data = bundle(*ENTRIES)
    assert read(data[:-10] + b"\n")[-1] == BundleEnd(3, 1, Checksum.WRONG)


def test_several_bundles_in_one_file_are_one_bundle() -> None:
    assert read(bundle(*ENTRIES) + bundle(*ENTRIES))[-1] == BundleEnd(6, 0, Checksum.RIGHT)
    assert read(bundle(*ENTRIES) + b'{"handle":"10.1/a","values":[]}\n')[-1] == BundleEnd(4, 0, Checksum.ABSENT)


def test_blank_lines_and_a_missing_last_newline_are_accepted() -> None:
    line = b'{"handle":"10.1/a","responseCode":100}'
    first, second, end = read(b"\n" + line + b"\n\n" + line)
    assert isinstance(first, Entry) and first == second
    assert end == BundleEnd(2, 0, Checksum.ABSENT)


def test_a_line_longer_than_allowed_is_refused_without_being_held() -> None:
    long = b'{"handle":"10.1/a","values":"' + 2 * MAX_LINE * b"x" + b'"}\n'
    refused, after, end = read(long + b'{"handle":"10.1/b","responseCode":100}\n')
    assert isinstance(refused, Refused)
    assert refused.number == 1
    assert isinstance(after, Entry)
    assert end == BundleEnd(2, 1, Checksum.ABSENT)
