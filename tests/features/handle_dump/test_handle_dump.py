"""`cache import --format handle-dump`: a server's names outlive it, and a changed value is refused."""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.commands.main import main
from handle_protocol.json_sites import write_json_values
from handle_protocol.signature_chain import encode_signed
from handle_protocol.value import read_value
from handle_protocol.wire.message import encode_references, encode_value
from handle_protocol.wire.site_value import Server, ServiceSite, TtlType, Value, ValueReference, encode_site
from tests.handle_protocol.keys import dsa_key, public_bytes, rsa_key
from tests.handle_protocol.tokens import Key, token
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

_KEY_NAME: Final = "10.7777/key"
#: The digest of a value leaves out its index and its time stamp.
_SKIPPED: Final = 8
Records = dict[str, list[Any]]


def sign(handle: str, values: list[Value], key: Key, **changes: Any) -> Value:
    """An HS_SIGNATURE value, as the reference software makes it."""
    digests = [
        {
            "index": value.index,
            "digest": b64encode(hashlib.sha256(encode_value(value)[_SKIPPED:]).digest()).decode(),
        }
        for value in values
    ]
    claims = {"digests": {"alg": "SHA-256", "digests": digests}, "iss": f"300:{_KEY_NAME}", "sub": handle, **changes}
    return Value(400, b"HS_SIGNATURE", token(claims, key).encode())


def to_json(*values: Value) -> list[Any]:
    """Values as a dump has them."""
    objects: list[Any] = json.loads(write_json_values(values))
    return objects


def make_records(count: int, key: Key) -> Records:
    """Signed records, and that of their key."""
    records: Records = {_KEY_NAME: to_json(Value(300, b"HS_PUBKEY", public_bytes(key)))}
    for number in range(count):
        handle = f"10.7777/n-{number}"
        admin = b"\x0f\xf2" + (4).to_bytes(4, "big") + b"10.7" + (300).to_bytes(4, "big")
        values = [
            Value(1, b"URL", f"https://target.example/{number}?ü".encode()),
            Value(2, b"DESC", b"\x00\x01binary", ttl=5, permissions=2, references=(ValueReference(b"10.1/x", 7),)),
            Value(100, b"HS_ADMIN", admin),
        ]
        records[handle] = to_json(*values, sign(handle, values, key))
    return records


def as_json(records: Records) -> str:
    """The export of the reference software."""
    named = {handle: {"handle": handle, "values": values} for handle, values in records.items()}
    return json.dumps({"homedPrefixes": ["0.NA/10.7777"], "handleRecords": named}, indent=2)


def as_list(records: Records) -> str:
    """The list of the reference software."""
    return "".join(f"{handle}\n{json.dumps(values, indent=2)}\n\n" for handle, values in records.items())


def run(folder: Path, text: str | bytes, *options: str) -> int:
    """Import a dump into the folder `records`."""
    (folder / "records").mkdir(exist_ok=True)
    (folder / "dump.json").write_bytes(text.encode() if isinstance(text, str) else text)
    return import_file(folder, folder / "dump.json", *options)


def import_file(folder: Path, file: Path, *options: str) -> int:
    flags = ["--local-records", str(folder / "records"), "--store-url", f"sqlite:///{folder}/store.sqlite3"]
    return main(["cache", "import", "--format", "handle-dump", str(file), *flags, *options])


def test_a_signature_covers_values_of_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, handle = rsa_key(), "10.7777/odd"
    admin = b"\x04\x70" + (4).to_bytes(4, "big") + b"10.7" + (300).to_bytes(4, "big")
    values = [
        Value(1, b"HS_ADMIN", admin),
        Value(2, b"HS_ADMIN", admin + bytes(2)),  # as old servers wrote it
        Value(3, b"DESC", b"ends in 2001", 1_000_000_000, TtlType.ABSOLUTE, timestamp=2**32 - 1),
        Value(4, b"HS_SITE", encode_site(ServiceSite(1, (Server(1, bytes(16), public_bytes(dsa_key()), ()),)))),
        Value(5, b"HS_PUBKEY", public_bytes(key)),
        Value(6, b"HS_VLIST", encode_references((ValueReference(b"10.7777/key", 300),))),
        Value(7, b"DESC", b"\xff", ttl=-1, permissions=15),
    ]
    records = {_KEY_NAME: to_json(Value(300, b"HS_PUBKEY", public_bytes(key)))}
    records[handle] = to_json(*values, sign(handle, values, key))
    assert run(tmp_path, as_json(records)) == 0
    assert "1 records have a signature of their values, 1 by a key of the dump" in capsys.readouterr().out
    # What the digest covers does not depend on the codec that is tested.
    assert [encode_signed(read_value(json.dumps(one).encode())) for one in records[handle][1:3]] == [
        b"\0\0\1\x51\x80\x0e\0\0\0\x08HS_ADMIN\0\0\0\x10" + admin + bytes(2 + 4),
        b"\1\x3b\x9a\xca\0\x0e\0\0\0\x04DESC\0\0\0\x0cends in 2001" + bytes(4),
    ]


@pytest.mark.parametrize("write", [as_json, as_list])
async def test_the_names_of_a_dump_are_served_after_their_server_is_gone(
    tmp_path: Path, write: Callable[[Records], str], capsys: pytest.CaptureFixture[str]
) -> None:
    records = make_records(40, rsa_key())
    records["10.7777/n-1"].append({"index": 500, "type": "HS_SECKEY", "data": {"format": "string", "value": "secret"}})
    assert run(tmp_path, write(records)) == 0
    said = capsys.readouterr().out
    assert "41 records" in said
    assert "\n1 values that the public may not read, left out; 0 records have no others" in said
    assert "40 records have a signature of their values, 40 by a key of the dump" in said
    async with Proxy(local_records=tmp_path / "records", upstream_url="http://127.0.0.1:1") as proxy:
        for number in range(40):
            got = await proxy.get(f"/10.7777/n-{number}")
            assert (got.status, got["location"]) == (302, f"https://target.example/{number}?%C3%BC")
        for number in range(0, 40, 13):
            served = (await proxy.get(f"/api/handles/10.7777/n-{number}")).json["values"]
            assert served == [value for value in records[f"10.7777/n-{number}"] if value["type"] != "HS_SECKEY"]
            assert served[-1]["type"] == "HS_SIGNATURE"
        assert "secret" not in (tmp_path / "records/dump.ndjson").read_text()
        # It may be newer than the dump: nobody can say that it does not exist.
        assert (await proxy.get("/10.7777/not-in-the-dump")).status == 502


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda v: v[0]["data"].update(value="https://evil.example/"), "value at index 1 is not the one"),
        (lambda v: v[1].update(ttl=6), "value at index 2 is not the one"),
        (lambda v: v[1].update(permissions="1111"), "value at index 2 is not the one"),
        (lambda v: v[1]["references"].pop(), "value at index 2 is not the one"),
        (lambda v: v[2]["data"]["value"].update(permissions="111111111111"), "value at index 100 is not the one"),
        (lambda v: v.pop(0), "value at index 1 is not the one"),
        (lambda v: v[1].update(ttl="2030-01-01T00:00:00Z"), "value at index 2 is not the one"),
        (lambda v: v[1]["data"].update(format="unknown"), "cannot be compared"),
        (
            lambda v: v[3]["data"].update(value=v[3]["data"]["value"][:-8] + "AAAAAAAA"),
            "was not made by 300:10.7777/key",
        ),
        (lambda v: v.append(v[0]), "is there twice"),
    ],
)
def test_a_changed_value_under_a_signature_is_refused_with_its_name(
    tmp_path: Path, change: Callable[[list[Any]], object], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    records = make_records(3, dsa_key())
    assert run(tmp_path, as_json(records)) == 0
    before = (tmp_path / "records/dump.ndjson").read_bytes()
    change(records["10.7777/n-1"])
    assert run(tmp_path, as_json(records)) == 1
    said = capsys.readouterr().err
    assert "10.7777/n-1" in said
    assert expected in said
    # The import before stays in force, and no file is left behind.
    assert [file.read_bytes() for file in (tmp_path / "records").iterdir()] == [before]


async def test_the_ends_of_lines_of_javascript_are_escapes_as_the_server_had_them(tmp_path: Path) -> None:
    records = {"10.7777/1": to_json(Value(1, b"DESC", "a\u2028b\u2029\\u2028".encode()))}
    assert run(tmp_path, as_json(records)) == 0
    async with Proxy(local_records=tmp_path / "records", upstream_url="http://127.0.0.1:1") as proxy:
        got = await proxy.get("/api/handles/10.7777/1")
        assert rb'"value":"a\u2028b\u2029\\u2028"' in got.body
        assert got.json["values"][0]["data"]["value"] == "a\u2028b\u2029\\u2028"


async def test_a_name_without_public_values_is_answered_as_its_server_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = make_records(1, rsa_key())
    secret = {"index": 1, "type": "URL", "data": {"format": "string", "value": "secret"}, "permissions": "1100"}
    records |= {"10.7777/bare": [], "10.7777/private": [secret]}
    assert run(tmp_path, as_json(records)) == 0
    assert "1 values that the public may not read, left out; 2 records have no others" in capsys.readouterr().out
    assert "secret" not in (tmp_path / "records/dump.ndjson").read_text()
    async with Proxy(local_records=tmp_path / "records", upstream_url="http://127.0.0.1:1") as proxy:
        for name in ("bare", "private"):
            got = await proxy.get(f"/api/handles/10.7777/{name}")
            assert (got.status, got.json["responseCode"], got.json["values"]) == (200, 200, [])
            assert (await proxy.get(f"/10.7777/{name}")).status == 200


def test_the_signature_of_another_record_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = make_records(2, rsa_key())
    records["10.7777/n-1"] = records["10.7777/n-0"]
    assert run(tmp_path, as_json(records)) == 1
    assert "10.7777/n-1: the signature at index 400 is about 10.7777/n-0" in capsys.readouterr().err


def test_a_signature_without_its_key_is_not_called_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = make_records(2, rsa_key())
    del records[_KEY_NAME]
    assert run(tmp_path, as_json(records)) == 0
    assert "2 records have a signature of their values, 0 by a key of the dump" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        as_json(make_records(1, rsa_key()))[:-40],
        as_json(make_records(1, rsa_key())) + "x",
        as_list(make_records(1, rsa_key()))[:-40],
        "",
        "{}",
        '{"handleRecords": {}}',
        '{"handleRecords": ' + "[" * 100_000,
        b"\xff\xfe",
        b"10.1/x\n",
        b"10.1/x\n\xff",
    ],
)
def test_a_dump_that_is_cut_or_wrong_imports_nothing(
    tmp_path: Path, text: str | bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, text) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert list((tmp_path / "records").iterdir()) == []


@table(
    "record",
    [
        '"10.1/x": {"values": [1]}',
        '"10.1/\\u0001": {"values": [{"index": 1, "type": "URL"}]}',
        '"10.1/x": {"values": [{"index": "1", "type": "URL", "data": 1}]}',
        '"10.1/x": {"values": 1}',
        '"10.1/x": {"values": [{"index": 1, "type": "URL", "data": {"value": "\xff"}}]}',
    ],
)
def test_a_record_that_cannot_be_used_is_named_and_nothing_is_imported(
    tmp_path: Path, record: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, f'{{"handleRecords": {{{record}}}}}'.encode("latin-1")) == 1
    flaw, summary = capsys.readouterr().err.splitlines()
    assert "10.1/" in flaw
    assert summary.endswith(
        "records that cannot be used: 1; --skip-unusable FILE leaves them out; nothing was imported"
    )
    assert list((tmp_path / "records").iterdir()) == []


def make_flawed_records() -> Records:
    """Records of a real server, of which some are odd."""
    records = make_records(3, rsa_key())
    url = to_json(Value(1, b"URL", b"https://target.example/"))
    odd = {"10.7777/N-A\0B": url, "10.7777/trail ": url, "10.7777/N-1": url, "HOME": url, "10.7777/no-list": None}
    odd["10.7777/junk"] = [*url, *to_json(Value(400, b"HS_SIGNATURE", b"junk"))]
    return {"10.7777/first": url, **odd, **records, "10.7777/last": url}


def test_a_dump_is_read_to_its_end_and_every_record_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, as_json(make_flawed_records())) == 1
    said = capsys.readouterr().err
    assert [line.partition("dump.json: ")[2] for line in said.splitlines()] == [
        "'10.7777/N-A\\x00B': a proxy could not use it: doi: The name contains U+0000 at character 12, a control "
        "character, which a DOI name must not contain.",
        "'10.7777/trail ': a proxy could not use it: doi is not a bare DOI name; write it without https://doi.org/, "
        "doi: and white space",
        "HOME has no slash after its prefix",
        "10.7777/no-list has no list of values",
        "10.7777/n-1 has a record already, in the dump",
        "records that cannot be used: 5; --skip-unusable FILE leaves them out; nothing was imported",
    ]
    assert list((tmp_path / "records").iterdir()) == []


async def test_the_rest_of_a_dump_is_served_and_the_names_of_what_was_left_out_are_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = tmp_path / "skipped.txt"
    assert run(tmp_path, as_json(make_flawed_records()), "--skip-unusable", str(skipped)) == 0
    said = capsys.readouterr().out
    assert said.startswith("7 records of the dump are in ")
    assert "1 signatures cannot be read; their records are imported with them as they stand\n" in said
    assert f"5 records that cannot be used, left out; their names are in {skipped}\n" in said
    lines = [line.split("\t") for line in skipped.read_text().splitlines()]
    assert [json.loads(name) for name, _ in lines] == [
        "10.7777/N-A\0B", "10.7777/trail ", "HOME", "10.7777/no-list", "10.7777/n-1",
    ]  # fmt: skip
    assert lines[3][1] == "10.7777/no-list has no list of values"
    async with Proxy(local_records=tmp_path / "records", upstream_url="http://127.0.0.1:1") as proxy:
        statuses = {name: (await proxy.get(f"/10.7777/{name}")).status for name in ("first", "last", "n-2", "junk")}
    assert statuses == {"first": 302, "last": 302, "n-2": 302, "junk": 302}


def test_the_names_of_what_was_left_out_go_through_a_pipe_which_stays(tmp_path: Path) -> None:
    """With /dev/null, root put a file in the place of the device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(tmp_path, as_json(make_flawed_records()), "--skip-unusable", str(pipe)) == 0
        assert pipe.is_fifo()
        assert len(os.read(reader, 64 * 1024).splitlines()) == 5
    finally:
        os.close(reader)


def test_a_dump_that_is_cut_off_cannot_be_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skipped = tmp_path / "skipped.txt"
    assert run(tmp_path, as_json(make_flawed_records())[:-40], "--skip-unusable", str(skipped)) == 1
    assert "the dump cannot be read" in capsys.readouterr().err
    assert not skipped.exists()


@pytest.mark.parametrize(
    ("write", "damage", "problem"),
    [
        (as_list, lambda dump: dump[:-3], "after the record of '10.7777/n-1': the dump cannot be read: "),
        (as_json, lambda dump: dump[:-40], "the dump cannot be read: Input data was truncated"),
        (as_json, lambda dump: dump.replace(b"n-2", b"n-\xff"), "the dump is not UTF-8"),
        (as_json, lambda dump: dump.replace(b"n-2", b"n-\\ud800"), "the dump cannot be read: JSON is malformed"),
        (as_json, lambda dump: b"\x1f\x8b\x08" + dump, "the dump is compressed; unpack it"),
    ],
)
def test_a_dump_that_cannot_be_read_to_its_end_says_where_or_why(
    write: Callable[[Records], str],
    damage: Callable[[bytes], bytes],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dump = write({f"10.7777/n-{number}": [] for number in range(3)})
    assert run(tmp_path, damage(dump.encode())) == 1
    assert problem in capsys.readouterr().err


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert run(tmp_path, b"\xef\xbb\xbf" + as_json({"10.7777/n": []}).encode()) == 0


@pytest.mark.parametrize("form", ["bundle", "csv"])
def test_only_a_dump_has_records_to_skip(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("name,url\n")
    assert main(["cache", "import", "--format", form, str(tmp_path / "file"), "--skip-unusable", "x"]) == 2
    assert "--skip-unusable is for the dump of a handle server" in capsys.readouterr().err


def test_a_pipe_and_a_missing_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "records").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    assert import_file(tmp_path, tmp_path / "pipe.json") == 1
    assert "not a regular file" in capsys.readouterr().err
    (tmp_path / "records").rmdir()
    assert import_file(tmp_path, tmp_path / "pipe.json") == 2
    assert "needs a folder in local_records" in capsys.readouterr().err


def test_a_name_that_another_file_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "records").mkdir()
    other = '[[record]]\ndoi = "10.7777/n-0"\ntarget = "https://other.example/"\n'
    (tmp_path / "records/other.toml").write_text(other)
    assert run(tmp_path, as_json(make_records(1, rsa_key()))) == 1
    assert "has a record already" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "records").iterdir()] == ["other.toml"]


def test_an_import_writes_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "victim").write_text("of another user")
    for name in ("dump.part", "dump.ndjson.partial", ".dump.ndjson.partial"):
        (tmp_path / "records" / name).symlink_to(tmp_path / "victim")
    assert run(tmp_path, as_json(make_records(1, rsa_key()))) == 0
    assert (tmp_path / "victim").read_text() == "of another user"
    assert (tmp_path / "records/dump.ndjson").stat().st_mode & 0o777 == 0o644


def test_a_dump_with_a_hidden_name_becomes_a_file_that_a_proxy_reads(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / ".dump.json").write_text(as_json(make_records(1, rsa_key())))
    assert import_file(tmp_path, tmp_path / ".dump.json") == 0
    assert [file.name for file in (tmp_path / "records").iterdir()] == ["dump.ndjson"]


@pytest.mark.parametrize("name", ["dump.ndjson", "dump.toml"])
def test_a_file_of_the_operator_is_never_replaced(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own, text = tmp_path / "records" / name, '[[record]]\ndoi = "10.5555/1"\ntarget = "https://ours.example/"\n'
    own.parent.mkdir()
    own.write_text(text)
    assert run(tmp_path, as_json(make_records(1, rsa_key()))) == (2 if name == "dump.ndjson" else 0)
    is_refused = "dump.ndjson was not written by an import; rename it or the dump" in capsys.readouterr().err
    assert is_refused == (name == "dump.ndjson")
    assert own.read_text() == text
    own.unlink()
    assert [run(tmp_path, as_json(make_records(count, rsa_key()))) for count in (1, 2)] == [0, 0]


def test_a_file_of_toml_that_an_earlier_import_wrote_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = tmp_path / "records/dump.toml"
    earlier.parent.mkdir()
    mark = "# Written by doi-proxy cache import --format handle-dump; the next import replaces this file.\n"
    earlier.write_text(f'{mark}[[record]]\ndoi = "10.7777/n-0"\nvalues = "[]"\n')
    assert run(tmp_path, as_json(make_records(1, rsa_key()))) == 0
    assert f"{earlier}, which an earlier import wrote, is replaced by it\n" in capsys.readouterr().out
    assert [file.name for file in earlier.parent.iterdir()] == ["dump.ndjson"]


async def test_a_start_with_a_broken_file_has_the_records_of_a_dump(tmp_path: Path) -> None:
    records, store = tmp_path / "records", f"sqlite:///{tmp_path}/store.sqlite3"
    records.mkdir()
    (records / "own.toml").write_text('[[record]]\ndoi = "10.5555/1"\ntarget = "https://ours.example/"\n')
    assert run(tmp_path, as_json(make_records(1, rsa_key()))) == 0
    for text in ("", "[[record]]\n"):
        (records / "other.toml").write_text(text)
        async with Proxy(local_records=records, store_url=store, upstream_url="http://127.0.0.1:1") as proxy:
            found = [(await proxy.get(f"/{name}"))["location"] for name in ("10.7777/n-0", "10.5555/1")]
        assert found == ["https://target.example/0?%C3%BC", "https://ours.example/"]


@pytest.mark.parametrize("option", ["--restart", "--no-checksum", "--missing=count", "--since=2026-01-01"])
def test_an_option_of_other_formats_is_refused(tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "import", "--format", "handle-dump", str(tmp_path / "dump.json"), option]) == 2
    assert "are not for the dump of a handle server" in capsys.readouterr().err
