"""What a file is, its blocks, and tar archives."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.registry import import_parts, import_worker
from doi_proxy.features.registry.import_parts import (
    MAX_HEADER_BYTES,
    ArchiveReader,
    InvalidArchive,
    LeftOut,
    OversizeRecord,
    Part,
    cut_blocks,
    find_parts,
    gunzip,
    is_tar,
    list_source_files,
)
from doi_proxy.features.registry.import_parts import TAR_BLOCK_BYTES as BLOCK_BYTES
from doi_proxy.features.registry.import_worker import PartReport, ReadingOptions, read_part
from doi_proxy.features.registry.json_values import RegistryFormat, detect_format
from tests.features.registry.samples import (
    crossref_file,
    crossref_work,
    datacite_file,
    datacite_record,
    json_lines,
    tar,
    write,
)
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


def members(data: bytes, *, seek: bool = False) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The members of an archive and their data."""
    file = io.BytesIO(data)
    reader = ArchiveReader(file.read, (lambda count: file.seek(count, io.SEEK_CUR)) if seek else None)  # type: ignore[arg-type]
    while (member := reader.next()) is not None:
        content = b""
        while piece := reader.take(100):
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
        assert archive[member.offset_data : member.offset_data + member.size] == data
        assert (member.mtime, member.isreg()) == (1_720_000_000, True)


def test_links_devices_and_folders_have_no_data() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for kind, name in ((tarfile.SYMTYPE, "link.json"), (tarfile.CHRTYPE, "dev.json"), (tarfile.DIRTYPE, "folder")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    assert [(member.name, member.isreg(), data) for member, data in members(out.getvalue())] == [
        ("link.json", False, b""),
        ("dev.json", False, b""),
    ]


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (tar(FILES)[:600], "ends too early"),
        (tar(FILES)[:1_100], "ends too early"),
        (tar({"a.json": b"x" * 600})[:BLOCK_BYTES] + b"y" * BLOCK_BYTES * 4, "damaged before byte 2048"),
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


# --- The parts of registry files, and how a process reads one --------------------------------------------------------


NOW = 1_800_000_000
NAMES = [("10.5555/a", "https://example.org/a"), ("10.5555/b", "https://example.org/b")]
KEYS = ["10.5555/A", "10.5555/B"]


def options(form: RegistryFormat | None = None, *, since: int = 0) -> ReadingOptions:
    """The options of a process that reads."""
    return ReadingOptions(form, since, NOW)


def parts_of(path: Path | str) -> list[Part]:
    """The parts of a path, without those that are left out."""
    return [part for part in find_parts(str(path), NOW) if isinstance(part, Part)]


def left_out(path: Path | str) -> list[tuple[str, bool]]:
    """The reasons of the files that are left out."""
    return [(one.reason, one.is_failure) for one in find_parts(str(path), NOW) if isinstance(one, LeftOut)]


def read_all(path: Path | str, form: RegistryFormat | None = None) -> tuple[list[str], list[PartReport]]:
    """The keys of a path, and the reports of its parts."""
    found = [read_part(part, options(form)) for part in parts_of(path)]
    return [row[0] for _, rows in found for row in rows], [report for report, _ in found]


PLAIN = json_lines(crossref_work(*name) for name in NAMES)
FILES_IMPORT_PARTS = {
    "a.json.gz": crossref_file(NAMES),
    "a.jsonl": PLAIN,
    "a.jsonl.gz": datacite_file(NAMES),
    "a.csv": b"doi,url\n10.5555/a,https://example.org/a\n10.5555/b,https://example.org/b\n",
    "a.tar": tar({"x/0.json.gz": crossref_file(NAMES[:1]), "x/1.jsonl": json_lines([datacite_record(*NAMES[1])])}),
    "a.tar.gz": gzip.compress(
        tar({"0.json": json_lines([crossref_work(*NAMES[0])]), "1.json.gz": crossref_file(NAMES[1:])})
    ),
    "two members.jsonl.gz": gzip.compress(PLAIN.splitlines(keepends=True)[0]) + gzip.compress(PLAIN.splitlines()[1]),
}


@pytest.mark.parametrize("name", FILES_IMPORT_PARTS)
def test_every_kind_of_file_is_read(tmp_path: Path, name: str) -> None:
    assert read_all(write(tmp_path / name, FILES_IMPORT_PARTS[name]))[0] == KEYS


@pytest.mark.parametrize("name", FILES_IMPORT_PARTS)
def test_every_kind_of_file_is_read_in_blocks_if_it_is_large(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_parts, "MAX_PART_BYTES", 16)
    monkeypatch.setattr(import_parts, "BLOCK_BYTES", 16)
    keys, reports = read_all(write(tmp_path / name, FILES_IMPORT_PARTS[name]))
    assert (keys, len({report.name for report in reports})) == (KEYS, len(reports))
    assert all("#" in report.name for report in reports)


@pytest.mark.parametrize("name", FILES_IMPORT_PARTS)
def test_every_kind_of_file_is_read_from_standard_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FILES_IMPORT_PARTS[name])))
    assert read_all("-")[0] == KEYS


def test_a_pipe_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert left_out(tmp_path / "pipe.csv") == [("cannot be read to its end: it is not a regular file", True)]


def test_a_folder_is_read_in_the_order_of_names_without_links_and_other_files(tmp_path: Path) -> None:
    write(tmp_path / "dois/updated_2024-08/part_0000.jsonl.gz", datacite_file(NAMES[1:]))
    write(tmp_path / "dois/updated_2024-07/part_0000.jsonl.gz", datacite_file(NAMES[:1]))
    write(tmp_path / "dois/README.md", b"x")
    (tmp_path / "dois/link.jsonl").symlink_to(tmp_path / "dois/README.md")
    (tmp_path / "dois/loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "dois/pipe.json")
    assert read_all(tmp_path)[0] == KEYS
    assert sorted(reason for reason, _ in left_out(tmp_path)) == [
        "is a link; name the file itself",
        "is a link; name the file itself",
        "is not a file of records",
        "is not a file of records",
    ]
    assert [Path(path).name for path, _, _ in list_source_files(str(tmp_path))] == ["part_0000.jsonl.gz"] * 2


def test_a_folder_that_is_too_deep_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_parts, "_MAX_DEPTH", 1)
    write(tmp_path / "a/b/c.json", b"{}")
    assert left_out(tmp_path) == [("is more than 1 folders deep", False)]


def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        list(find_parts(str(tmp_path / "absent"), NOW))


@pytest.mark.parametrize("form", [None, RegistryFormat.DATACITE])
def test_the_list_of_states_in_the_archive_of_datacite_is_known_and_costs_nothing_else(
    tmp_path: Path, form: RegistryFormat | None
) -> None:
    states = gzip.compress(b"doi,state,client_id,updated\n10.5555/a,findable,x,2024-07-01\n")
    archive = write(tmp_path / "a.tar", tar({"2024-07.csv.gz": states, "part_0000.jsonl.gz": datacite_file(NAMES)}))
    keys, reports = read_all(archive, form)
    assert keys == KEYS
    assert [(report.is_list_of_states, report.left_out, report.failure) for report in reports] == [
        (True, "", ""),
        (False, "", ""),
    ]


def test_a_member_past_the_end_of_its_archive_is_a_failure(tmp_path: Path) -> None:
    whole = tar({"a.jsonl": b"x" * 5_000})
    assert left_out(write(tmp_path / "a.tar", whole[:2_000])) == [
        ("the archive ends too early; copy the whole file", True)
    ]


def test_compressed_data_that_was_cut_or_damaged_is_a_failure_and_what_came_before_counts(tmp_path: Path) -> None:
    whole = gzip.compress(json_lines(crossref_work(f"10.5555/{n}", f"https://example.org/{n * n}") for n in range(3)))
    _, (report,) = read_all(write(tmp_path / "a.jsonl.gz", whole[:-20]), RegistryFormat.CROSSREF)
    assert report.failure == "the gzip data ends too early; the whole file is needed"
    _, (report,) = read_all(
        write(tmp_path / "b.jsonl.gz", whole[:40] + b"\0" * 40 + whole[80:]), RegistryFormat.CROSSREF
    )
    assert report.failure.startswith("the gzip data is damaged")


def test_zeros_after_compressed_data_are_padding() -> None:
    assert b"".join(gunzip(iter([gzip.compress(b"abc") + b"\0" * 100, b"\0" * 100]))) == b"abc"


@pytest.mark.parametrize(("limit", "value"), [("_MAX_PART_BYTES", 100), ("_MAX_PART_RECORDS", 1)])
def test_a_part_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(import_worker, limit, value)
    _, (report,) = read_all(write(tmp_path / "a.jsonl", PLAIN))
    assert "it has more than 1 records" in report.failure or "more than 100 bytes" in report.failure


def test_a_file_that_shrinks_while_it_is_read_is_a_failure(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", PLAIN)
    (part,) = parts_of(path)
    path.write_bytes(PLAIN[:100])
    assert "the file was cut while it was read" in read_part(part, options())[0].failure
    path.unlink()
    assert "cannot be read to its end" in read_part(part, options())[0].failure


def test_a_file_that_is_not_what_the_operator_says_is_a_failure(tmp_path: Path) -> None:
    _, (report,) = read_all(write(tmp_path / "a.csv", b"name,target\nx,y\n"), RegistryFormat.CSV)
    assert report.failure.startswith("the first line does not name the columns")


def test_a_report_counts_what_was_read(tmp_path: Path) -> None:
    lines = json_lines([datacite_record(*NAMES[0]), datacite_record(*NAMES[1], updated="2020-01-01"), {}])
    lines += json_lines([datacite_record("10.5555/c", "https://example.org/", state="draft")])
    (part,) = parts_of(write(tmp_path / "a.jsonl", lines))
    # The first record is of that second.
    report, rows = read_part(part, options(since=1_719_792_000))
    assert report == PartReport(part.name, 4, 1, 1, 1, ["record 3: it has no DOI name"], ["DataCite"])
    assert rows == [("10.5555/A", 1_719_792_000, "DataCite", "https://example.org/a")]


def test_records_without_a_date_have_that_of_their_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", FILES_IMPORT_PARTS["a.csv"])
    os.utime(path, (1_234, 1_234))
    rows = [row for part in parts_of(path) for row in read_part(part, options())[1]]
    assert [row[1] for row in rows] == [1_234, 1_234]
    archive = write(tmp_path / "a.tar", tar({"a.csv": FILES_IMPORT_PARTS["a.csv"]}, mtime=5_678))
    assert [row[1] for part in parts_of(archive) for row in read_part(part, options())[1]] == [5_678, 5_678]
