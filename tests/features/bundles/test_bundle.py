"""Bundles: streaming, the checksum, and damaged lines, which do not affect other lines."""

from __future__ import annotations

from io import BytesIO

from doi_proxy.cache.entry import Entry
from doi_proxy.features.bundles.bundle import MAX_LINE, BundleEnd, BundleItem, Checksum, Refused, read_bundle
from tests.cache.entries import bundle, entry, missing

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
