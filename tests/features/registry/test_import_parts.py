"""The parts of registry files, and how a process reads one."""

from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.registry import import_parts, import_worker
from doi_proxy.features.registry.import_parts import (
    LeftOut,
    Part,
    UnreadablePart,
    find_parts,
    gunzip,
    list_source_files,
)
from doi_proxy.features.registry.import_worker import PartReport, WorkerOptions, read_part
from doi_proxy.features.registry.json_values import RegistryFormat
from doi_proxy.system.files import GzipLimits
from tests.features.registry.samples import (
    crossref_file,
    crossref_work,
    datacite_file,
    datacite_record,
    json_lines,
    tar,
    write,
)

NOW = 1_800_000_000
NAMES = [("10.5555/a", "https://example.org/a"), ("10.5555/b", "https://example.org/b")]
KEYS = ["10.5555/A", "10.5555/B"]


def options(form: RegistryFormat | None = None, *, since: int = 0) -> WorkerOptions:
    """The options of a process that reads."""
    return WorkerOptions(Path(), 1, 0, form, since, NOW, 1_000)


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
FILES = {
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


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_read(tmp_path: Path, name: str) -> None:
    assert read_all(write(tmp_path / name, FILES[name]))[0] == KEYS


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_read_in_blocks_if_it_is_large(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_parts, "MAX_PART_BYTES", 16)
    monkeypatch.setattr(import_parts, "BLOCK_BYTES", 16)
    keys, reports = read_all(write(tmp_path / name, FILES[name]))
    assert (keys, len({report.name for report in reports})) == (KEYS, len(reports))
    assert all("#" in report.name for report in reports)


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_read_from_standard_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FILES[name])))
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


def test_a_decompression_bomb_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_parts, "_LIMITS", GzipLimits(ratio=400, free_bytes=1_000_000))
    bomb = gzip.compress(b"0" * 5_000_000)
    with pytest.raises(UnreadablePart, match="more than 400 times its size"):
        list(gunzip(iter([bomb])))


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
    path = write(tmp_path / "a.csv", FILES["a.csv"])
    os.utime(path, (1_234, 1_234))
    rows = [row for part in parts_of(path) for row in read_part(part, options())[1]]
    assert [row[1] for row in rows] == [1_234, 1_234]
    archive = write(tmp_path / "a.tar", tar({"a.csv": FILES["a.csv"]}, mtime=5_678))
    assert [row[1] for part in parts_of(archive) for row in read_part(part, options())[1]] == [5_678, 5_678]
