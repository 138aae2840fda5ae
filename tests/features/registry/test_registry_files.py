"""What a file is, its blocks, and tar archives."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.features.registry.import_parts import (
    MAX_HEADER_BYTES,
    ArchiveReader,
    InvalidArchive,
    Member,
    OversizeRecord,
    cut_blocks,
    is_gzip,
    is_tar,
)
from doi_proxy.features.registry.import_parts import TAR_BLOCK_BYTES as BLOCK_BYTES
from doi_proxy.features.registry.json_values import RegistryFormat, detect_format
from tests.features.registry.samples import crossref_work, datacite_record, json_lines, tar
from tests.table import table

WORK = crossref_work("10.5555/Work", "https://example.org/work")
RECORD = datacite_record("10.5555/record", "https://example.org/record")


@table(
    ("head", "form"),
    [
        (json_lines([WORK]), RegistryFormat.CROSSREF),
        (json.dumps({"items": [WORK]}, indent=2).encode(), RegistryFormat.CROSSREF),
        (json_lines([RECORD]), RegistryFormat.DATACITE),
        (b"\xef\xbb\xbf\n" + json.dumps([RECORD], indent=2).encode(), RegistryFormat.DATACITE),
        (b"DOI;URL\n", RegistryFormat.CSV),
        (b'"10.5555/a","https://example.org/"', RegistryFormat.CSV),
        (b'{"handle":"10.5555/A","responseCode":1,"values":[{"DOI":"x"}]}', None),
        (b'{"checksum":"sha256:00","lines":0}', None),
        (b'{"title": "x"}', None),
        (b"", None),
        (b"\x00\x01", None),
    ],
)
def test_the_format_of_records_is_known_by_their_first_bytes(head: bytes, form: RegistryFormat | None) -> None:
    assert detect_format(head) is form


def test_compressed_data_is_known_by_its_first_bytes() -> None:
    assert [is_gzip(gzip.compress(b"x")), is_gzip(b"{}"), is_gzip(b"")] == [True, False, False]


# --- blocks -------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=12)), st.integers(1, 20), st.integers(1, 9))
def test_blocks_are_the_file_end_with_lines_and_do_not_depend_on_the_pieces(
    lines: list[bytes], block_bytes: int, piece_bytes: int
) -> None:
    data = b"10.5555/a\n" + b"\n".join(lines)
    blocks = list(cut_blocks([data], block_bytes, 1_000))
    whole = b"".join(blocks)
    assert data.startswith(whole)
    assert not data[len(whole) :].strip()
    assert all(block.endswith(b"\n") and len(block) >= block_bytes for block in blocks[:-1])
    pieces = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
    assert list(cut_blocks(pieces, block_bytes, 1_000)) == blocks


def test_a_document_over_many_lines_is_one_block() -> None:
    document = json.dumps({"items": [{"DOI": "10.5555/a"}] * 20}, indent=1).encode()
    assert list(cut_blocks([document], 16, 10_000)) == [document]


def test_lines_and_documents_have_a_limit() -> None:
    with pytest.raises(OversizeRecord, match="longer than 100 bytes"):
        list(cut_blocks([b"x" * 60, b"x" * 60], 16, 100))
    with pytest.raises(OversizeRecord, match="longer than 100 bytes"):
        list(cut_blocks([b"{\n" + b" " * 120], 16, 100))


# --- tar ----------------------------------------------------------------------------------------------------------


def members(data: bytes, *, seek: bool = False) -> Iterator[tuple[Member, bytes]]:
    """The members of an archive and their data."""
    file = io.BytesIO(data)
    reader = ArchiveReader(file.read, (lambda count: file.seek(count, io.SEEK_CUR)) if seek else None)  # type: ignore[arg-type]
    while (member := reader.next()) is not None:
        content = b""
        while piece := reader.read(100):
            content += piece
        yield member, content


FILES = {"dois/a.jsonl": b"a" * 700, "empty.json": b"", "long/" * 40 + "b.json": b"b" * BLOCK_BYTES, "ü.json": b"c"}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "GNU"])
def test_members_have_their_names_data_offsets_and_times(form: int) -> None:
    archive = tar(FILES, form=form)
    assert is_tar(archive)
    found = list(members(archive))
    assert {member.name: data for member, data in found} == FILES
    for member, data in found:
        assert archive[member.offset : member.offset + member.size] == data
        assert (member.date, member.is_regular) == (1_720_000_000, True)


@pytest.mark.parametrize("seek", [False, True], ids=["read", "seek"])
def test_members_that_are_not_read_are_skipped(seek: bool) -> None:
    file = io.BytesIO(tar(FILES))
    reader = ArchiveReader(file.read, (lambda count: file.seek(count, io.SEEK_CUR)) if seek else None)  # type: ignore[arg-type]
    names = []
    while (member := reader.next()) is not None:
        names.append(member.name)
        reader.read(3)
    assert names == list(FILES)


def test_links_devices_and_folders_have_no_data() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for kind, name in ((tarfile.SYMTYPE, "link.json"), (tarfile.CHRTYPE, "dev.json"), (tarfile.DIRTYPE, "folder")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    assert [(member.name, member.is_regular, data) for member, data in members(out.getvalue())] == [
        ("link.json", False, b""),
        ("dev.json", False, b""),
    ]


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (tar(FILES)[:600], "ends too early"),
        (tar(FILES)[:1_100], "ends too early"),
        (tar({"a.json": b"x" * 600})[:BLOCK_BYTES] + b"y" * BLOCK_BYTES * 4, "damaged at byte 1536"),
    ],
)
def test_damaged_and_cut_archives_are_refused(archive: bytes, reason: str) -> None:
    with pytest.raises(InvalidArchive, match=reason):
        list(members(archive))


def test_an_archive_without_the_blocks_of_zeros_at_its_end_is_read() -> None:
    assert [member.name for member, _ in members(tar({"a.json": b"x"})[: 2 * BLOCK_BYTES])] == ["a.json"]


def _header(name: str, kind: bytes, size: bytes) -> bytes:
    header = bytearray(BLOCK_BYTES)
    header[: len(name)] = name.encode()
    header[124 : 124 + len(size)] = size
    header[156:157] = kind
    header[257:262] = b"ustar"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (_header("a.json", b"0", b"9999"), "damaged before byte 512"),
        (_header("x", b"x", b"00000000006") + b"99 a=b".ljust(BLOCK_BYTES, b"\0"), "damaged before byte 1024"),
        (_header("x", b"x", b"00000000006") + b"0 a=bc".ljust(BLOCK_BYTES, b"\0"), "damaged before byte 1024"),
        (_header("x", b"x", b"00000000013") + b"11 size=-5\n".ljust(BLOCK_BYTES, b"\0"), "damaged before byte 1024"),
        (_header("a.json", b"0", b"\x80" + b"\xff" * 11), "ends too early"),
    ],
)
def test_hostile_headers_are_refused_before_anything_is_read(archive: bytes, reason: str) -> None:
    with pytest.raises(InvalidArchive, match=reason):
        list(members(archive))


def _sparse_map() -> Iterator[bytes]:
    """A sparse file of the pax format 1.0, whose map has no end."""
    records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n28 GNU.sparse.realsize=10\n21 GNU.sparse.name=a\n"
    yield _header("x", b"x", b"%011o" % len(records)) + records.ljust(BLOCK_BYTES, b"\0")
    yield _header("a.json", b"0", b"77777777777") + b"99999999\n"
    yield from repeat(b"1" * BLOCK_BYTES)


def _sparse_blocks() -> Iterator[bytes]:
    """A sparse file of the old format of GNU tar, whose map goes on in further blocks."""
    header = bytearray(_header("a.json", b"S", b"00000000001"))
    header[482:483] = b"1"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    yield bytes(header)
    yield from repeat(b"00000000001\0" * 42 + b"1".ljust(8, b"\0"))


@pytest.mark.parametrize(
    "archive",
    [
        chain((_header("x", b"x", b"77777777777"),), repeat(b"1 a=b\n" * 100)),
        chain((_header("x", b"g", b"00000200000"),), repeat(b"1 a=b\n" * 100)),
        chain((_header("x", b"L", b"\x80" + b"\xff" * 11),), repeat(b"x" * BLOCK_BYTES)),
        chain((_header("x", b"K", b"00000200000"),), repeat(b"x" * BLOCK_BYTES)),
        repeat(_header("x", b"x", b"00000000000")),
        repeat(_header("x", b"L", b"00000000001") + b"x".ljust(BLOCK_BYTES, b"\0")),
        _sparse_map(),
        _sparse_blocks(),
    ],
    ids=["pax", "global", "name", "link", "many headers", "many names", "sparse map", "sparse blocks"],
)
def test_a_giant_header_is_refused_within_a_bound_of_bytes(archive: Iterator[bytes]) -> None:
    """Each archive has no end."""
    rest, taken = b"", 0

    def read(count: int) -> bytes:
        nonlocal rest, taken
        while len(rest) < count:
            rest += next(archive)
        data, rest = rest[:count], rest[count:]
        taken += count
        return data

    with pytest.raises(InvalidArchive):
        ArchiveReader(read).next()
    assert taken <= MAX_HEADER_BYTES


def test_the_headers_of_earlier_members_are_not_remembered() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(50):
            info = tarfile.TarInfo(f"{number}.json")
            info.pax_headers = {"comment": "x" * 4_000}
            archive.addfile(info)
    assert [member.name for member, _ in members(out.getvalue())] == [f"{number}.json" for number in range(50)]


@given(st.binary(max_size=3 * BLOCK_BYTES), st.integers(0, 1_500))
def test_any_bytes_are_an_archive_or_refused(noise: bytes, at: int) -> None:
    archive = bytearray(tar({"a.json": b"x" * 600}))
    archive[at : at + len(noise)] = noise
    try:
        for member, data in members(bytes(archive)):
            assert len(data) == member.size
    except InvalidArchive:
        return
