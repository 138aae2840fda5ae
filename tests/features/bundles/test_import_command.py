"""`doi-proxy cache import` of bundles and of registry files: what it prints, and its exit status."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from doi_proxy.commands.main import main
from doi_proxy.features.registry.sqlite_blocks import RegistryTable
from tests.features.registry.samples import crossref_work, datacite_record, json_lines, tar, write

pytestmark = pytest.mark.usefixtures("plain_environment")

WORK = crossref_work("10.5555/Work", "https://example.org/work")
RECORD = datacite_record("10.5555/record", "https://example.org/record")
NONE_OF_ALL = "new 0, changed 0, same 0, older 0, repeated 0, before 0, drafts 0, refused 0"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The path of a store that is not there yet."""
    return tmp_path / "store.sqlite3"


def imports(store: Path, *arguments: str | Path) -> int:
    """Run the command. Returns its exit status."""
    return main(["cache", "import", "--store-url", f"sqlite:///{store}", *map(str, arguments)])


def url_of(store: Path, key: str) -> str | None:
    """The URL that a store has of a name."""
    with RegistryTable(store, now=time.time()) as table:
        record = table.find(key)
    return None if record is None else record[3]


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("crossref.jsonl.gz", gzip.compress(json_lines([WORK]))),
        ("all.tar", tar({"0.json": json_lines([WORK])})),
        ("all.tar.gz", gzip.compress(tar({"0.json": json_lines([WORK])}))),
        ("folder/0.json", json_lines([WORK])),
        ("table.csv", b"doi,url\n10.5555/work,https://example.org/work\n"),
    ],
)
def test_the_format_need_not_be_named(
    store: Path, tmp_path: Path, name: str, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / name, data)
    assert imports(store, path.parent if "/" in name else path) == 0
    assert url_of(store, "10.5555/WORK") == "https://example.org/work"
    assert capsys.readouterr() == (f"1 records: {NONE_OF_ALL.replace('new 0', 'new 1')}\n", "")


@pytest.mark.process
@pytest.mark.parametrize("compressed", [False, True])
def test_standard_input_is_read_whatever_it_contains(
    store: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json_lines([RECORD])
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(gzip.compress(data) if compressed else data)))
    )
    assert imports(store, "-") == 0
    assert url_of(store, "10.5555/RECORD") == "https://example.org/record"
    assert "new 1, " in capsys.readouterr().out


@pytest.mark.process
def test_what_was_left_out_and_refused_is_reported_with_its_place(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = datacite_record("10.5555/draft", "https://example.org/", state="draft")
    write(tmp_path / "files/a.jsonl", json_lines([RECORD, {"id": "10.5555/none"}, draft]))
    write(tmp_path / "files/b.jsonl.gz", gzip.compress(json_lines([WORK]))[:-9])
    write(tmp_path / "files/README", b"x")
    assert imports(store, "--format", "datacite", tmp_path / "files") == 1
    output = capsys.readouterr()
    assert output.out == "3 records: new 1, changed 0, same 0, older 0, repeated 0, before 0, drafts 1, refused 1\n"
    assert output.err.splitlines() == [
        f"{tmp_path}/files/README: is not a file of records",
        f"{tmp_path}/files/b.jsonl.gz: the gzip data ends too early; the whole file is needed",
        f"refused: {tmp_path}/files/a.jsonl: record 2: '10.5555/none' has no URL",
    ]


@pytest.mark.process
def test_a_second_import_changes_what_is_newer_and_says_what_is_absent(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = b"doi,url,agency,date\n10.5555/a,https://example.org/1,X,2020-01-01\n10.5555/b,https://example.org/2,X,2020-01-01\n"
    later = b"doi,url,agency,date\n10.5555/a,https://example.org/3,X,2021-01-01\n"
    path = write(tmp_path / "later.csv", later)
    assert imports(store, write(tmp_path / "first.csv", first)) == 0
    assert imports(store, "--missing", "count", path) == 0
    assert imports(store, "--missing", "forget", path) == 0
    assert imports(store, "--since", "2022-01-01", path) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"2 records: {NONE_OF_ALL.replace('new 0', 'new 2')}",
        f"1 records: {NONE_OF_ALL.replace('changed 0', 'changed 1')}",
        "1 names of the store are not in these files; --missing forget forgets them",
        f"1 records: {NONE_OF_ALL.replace('same 0', 'same 1')}",
        "1 names are not in these files, and were forgotten",
        f"1 records: {NONE_OF_ALL.replace('before 0', 'before 1')}",
    ]
    assert (url_of(store, "10.5555/A"), url_of(store, "10.5555/B")) == ("https://example.org/3", None)


@pytest.mark.process
def test_if_every_record_is_refused_the_exit_status_is_1_and_the_cause_is_named(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = crossref_work("10.5555/old", None)
    assert imports(store, write(tmp_path / "a.jsonl", json_lines([old, old]))) == 1
    output = capsys.readouterr()
    assert output.out == f"2 records: {NONE_OF_ALL.replace('refused 0', 'refused 2')}\n"
    cause = "no work has resource.primary.URL: files from before 2022 do not have it"
    assert output.err.splitlines()[-1] == f"no record was usable: {cause}"
    assert imports(store, write(tmp_path / "b.csv", b"doi,url\n10.5555/a,\n")) == 1
    assert "no record was usable: the files are of another kind" in capsys.readouterr().err


@pytest.mark.process
def test_lists_of_states_and_several_locations_are_counted_in_one_line_each(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several = {"primary": {"URL": "https://example.org/work"}, "secondary": [{"URL": "https://mirror.example/"}]}
    write(tmp_path / "files/a.jsonl", json_lines([WORK | {"resource": several}]))
    for month in range(1, 4):
        write(tmp_path / f"files/2024-0{month}.csv", b"doi,state,client_id,updated\n10.5555/a,findable,x,2024-07-01\n")
    assert imports(store, tmp_path / "files") == 0
    assert capsys.readouterr() == (
        f"1 records: {NONE_OF_ALL.replace('new 0', 'new 1')}; 1 with several locations, of which the primary one is "
        "stored\n",
        "3 lists of states left out\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--since", "yesterday", "a.csv"], "--since yesterday: this is not a date of ISO 8601"),
        (["--since", "2022-01-01", "--missing", "count", "a.csv"], "--missing cannot be used with it"),
        (["--no-checksum", "a.csv"], "--no-checksum is for bundles"),
        (["--missing", "forget", "bundle.ndjson"], "--missing is for the files of registration agencies"),
        (["--restart", "--format", "bundle", "a.csv"], "--restart is for the files of registration agencies"),
        (["absent.csv"], "absent.csv: cannot be read"),
        (["--format", "csv", "absent.csv"], "absent.csv: cannot be read"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", b"doi,url\n")
    write(tmp_path / "bundle.ndjson", b'{"handle":"10.5555/A","values":[]}\n')
    assert imports(store, *arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.process
def test_the_commands_of_the_manual_make_a_store_what_the_bundle_says(tmp_path: Path) -> None:
    """Of the old store nothing is left, also no record of its log, and the registry records are those of the file."""
    page = Path(__file__).parents[3] / "docs/offline.md"
    (script,) = re.findall(r"```\n(systemctl stop.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    store = tmp_path / "store.sqlite3"
    value = '{"index":1,"type":"URL","data":{"format":"string","value":"https://example.org/"},"ttl":86400}'
    old, new = (f'{{"handle":"10.5555/{name}","values":[{value}]}}\n'.encode() for name in ("old", "new"))
    write(tmp_path / "old.ndjson", old)
    assert imports(store, "--no-checksum", tmp_path / "old.ndjson") == 0
    checksum = f'{{"checksum":"sha256:{hashlib.sha256(new).hexdigest()}","lines":1}}\n'.encode()
    write(tmp_path / "all.ndjson.gz", gzip.compress(new + checksum))
    write(tmp_path / "registry.csv", b"doi,url\n10.5555/work,https://example.org/work\n")
    write(tmp_path / "bin/systemctl", b'#!/bin/sh\necho "$@" >> calls\n').chmod(0o755)
    search_path = os.pathsep.join((str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, env=os.environ | {"PATH": search_path}, check=True)
    assert (tmp_path / "calls").read_text() == "stop doi-proxy.target\nstart doi-proxy.target\n"
    shown = subprocess.run(
        ["doi-proxy", "cache", "show", "--store-url", f"sqlite:///{store}", "10.5555/old", "10.5555/new"],
        env=os.environ | {"PATH": search_path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no entry for 10.5555/old" in shown.stderr
    assert '"10.5555/NEW"' in shown.stdout and shown.returncode == 1
    assert url_of(store, "10.5555/WORK") == "https://example.org/work"


def test_only_a_store_in_a_file_holds_registry_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.csv", b"doi,url\n")
    assert main(["cache", "import", "--store-url", "valkey://127.0.0.1:1/0", str(path)]) == 2
    assert "only a store sqlite:///path holds the records of registration agencies" in capsys.readouterr().err
