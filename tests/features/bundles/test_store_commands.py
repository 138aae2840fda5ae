"""`doi-proxy cache …`: bundles travel whole, nothing newer is lost, and running proxies on the same store agree."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import Entry
from doi_proxy.commands.main import main
from doi_proxy.features.bundles import import_bundle
from doi_proxy.features.bundles.export import ExportChoice, export
from doi_proxy.features.lists.command import ResolveChoice
from doi_proxy.features.lists.warm import warm
from doi_proxy.system.files import GzipLimits
from doi_proxy.system.options import write_value
from tests.cache.entries import bundle, entry, missing
from tests.clock import Clock
from tests.cluster.processes import ROOT, Proxy
from tests.fake_upstream import EVERY_NAME, FakeUpstream
from tests.parts import command_context, usual_cache
from tests.registry_records import write_registry
from tests.table import table

pytestmark = pytest.mark.usefixtures("plain_environment")

#: For a process to start, to answer or to end, in seconds; nothing takes so long that goes well.
PATIENCE: Final = 60
HANDBOOK: Final = "http://www.doi.org/hb.html"
SERVICE: Final = "10.SERV/TEST"
#: A prefix record that names a service handle, as those of doi.org do.
NAMESPACE: Final = f"<namespace><locs>{SERVICE}</locs></namespace>"


def value(kind: str, text: str, index: int = 1) -> dict[str, Any]:
    return {"index": index, "type": kind, "data": {"format": "string", "value": text}, "ttl": 86400}


# --- What the tests stand on --------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The URL of a store that is not there yet."""
    return f"sqlite:///{tmp_path}/store.sqlite3"


def records(*keys: str, age: float = 100.0) -> list[Entry]:
    """Records that were fetched so many seconds ago."""
    return [entry(key, f"https://example.org/{key}", fetched_at=time.time() - age) for key in keys]


def fill(url: str, *entries: Entry) -> None:
    async def put() -> None:
        cache = usual_cache(url, clock=time.time)
        for one in entries:
            await cache.put(one)
        await cache.close()

    asyncio.run(put())


def held(url: str) -> dict[str, Entry]:
    """What a store holds."""

    async def scan() -> dict[str, Entry]:
        cache = usual_cache(url, clock=time.time)
        found = {one.key: one async for one in cache.scan()}
        await cache.close()
        return found

    return asyncio.run(scan())


def run(command: str, url: str, *arguments: str | Path) -> int:
    return main(["cache", command, "--store-url", url, *map(str, arguments)])


#: The budget is out of the way.
FREE: Final[dict[str, Any]] = {
    "upstream_rate": 1e6, "upstream_burst": 1e6, "upstream_contact": "mailto:library@example.org"
}  # fmt: skip


def settings_for(upstream: FakeUpstream, url: str, **more: Any) -> Settings:
    return Settings(**{**FREE, "upstream_url": upstream.url, "store_url": url, **more})


@asynccontextmanager
async def serving(folder: Path, upstream_url: str, store_url: str, **more: Any) -> AsyncIterator[Proxy]:
    """A proxy in a process of its own."""
    async with Proxy(folder, upstream_url, store_url, **FREE, **more) as proxy:
        yield proxy
        proxy.process.terminate()
        assert "Traceback" not in proxy.process.log


def flags(settings: Settings) -> list[str]:
    """The settings that differ from their defaults, as flags."""
    given = settings.model_dump(mode="json", exclude_defaults=True)
    return [part for name, one in given.items() for part in ("--" + name.replace("_", "-"), write_value(one))]


def started(*arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "doi_proxy", *arguments], cwd=ROOT, stderr=subprocess.PIPE, **more)


# --- Import -------------------------------------------------------------------------------------------------------


@table(
    ("before", "after", "flags", "status", "new", "refused", "checksum"),
    [
        (b"", b"", (), 0, 3, [], "right"),
        (b'{"checksum":.*\n', b"", (), 1, 3, [], "absent"),
        (b'{"checksum":.*\n', b"", ("--no-checksum",), 0, 3, [], "absent"),
        (b'[^\n]{30}\n{"checksum":.*\n', b"", ("--no-checksum",), 1, 2, [3], "absent"),
        (b"(?m)^.*/2.*$", bytes(range(128, 256)), (), 1, 2, [2, 4], "wrong"),
        (b"example.org", b"example.com", ("--no-checksum",), 1, 3, [4], "wrong"),
    ],
)
def test_a_damaged_line_costs_itself_alone_and_is_told_with_its_number(
    tmp_path: Path,
    store: str,
    capsys: pytest.CaptureFixture[str],
    before: bytes,
    after: bytes,
    flags: tuple[str, ...],
    status: int,
    new: int,
    refused: list[int],
    checksum: str,
) -> None:
    whole = bundle(*records("10.1000/1", "10.1000/2", "10.1000/3"))
    (tmp_path / "b.ndjson").write_bytes(re.sub(before, after, whole) if before else whole)
    Path(store.removeprefix("sqlite:///")).unlink(missing_ok=True)
    assert run("import", store, tmp_path / "b.ndjson", *flags) == status
    output = capsys.readouterr()
    assert f"new {new}, " in output.out
    assert f"refused {len(refused)}; checksum {checksum}" in output.out
    assert [int(number) for number in re.findall(r"^line ([0-9]+) is refused: .", output.err, re.M)] == refused
    assert ("no checksum line" in output.err) == (checksum == "absent" and not flags)
    assert ("checksum is wrong" in output.err) == (checksum == "wrong")


def test_a_compressed_bundle_that_was_cut_off_gives_what_can_be_read(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress(bundle(*records(*(f"10.1000/{number}" for number in range(2_000)))))
    (tmp_path / "b.ndjson.gz").write_bytes(whole[: len(whole) // 2])
    assert run("import", store, tmp_path / "b.ndjson.gz") == 1
    output = capsys.readouterr()
    assert re.search(r"refused 1; checksum absent", output.out)
    assert "the rest of the file cannot be read" in output.err
    assert 0 < len(held(store)) < 2_000


def test_a_compressed_bundle_that_is_a_bomb_is_read_no_further(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_bundle, "_GZIP_LIMITS", GzipLimits(ratio=400, free_bytes=1_000_000))
    (tmp_path / "b.ndjson.gz").write_bytes(gzip.compress(bundle(*records("10.1000/1")) + b" " * 5_000_000))
    assert run("import", store, tmp_path / "b.ndjson.gz") == 1
    output = capsys.readouterr()
    assert "the gzip data decompresses to more than 400 times its size" in output.err
    assert len(held(store)) == 1


def test_an_older_record_never_replaces_a_newer_one_and_a_newer_one_replaces_an_older(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (newer,), (older,) = records("10.1000/1", age=100), records("10.1000/1", age=200)
    fill(store, newer)
    (tmp_path / "older.ndjson").write_bytes(bundle(older))
    assert run("import", store, tmp_path / "older.ndjson") == 0
    assert "kept 1" in capsys.readouterr().out
    assert held(store)["10.1000/1"].fetched_at == newer.fetched_at
    (newest,) = records("10.1000/1", age=50)
    (tmp_path / "newest.ndjson").write_bytes(bundle(newest))
    assert run("import", store, tmp_path / "newest.ndjson") == 0
    assert held(store)["10.1000/1"].fetched_at == pytest.approx(newest.fetched_at)


def test_a_not_found_of_a_bundle_never_takes_a_known_record_away(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store, *records("10.1000/1"))
    gone = [missing(key, fetched_at=time.time()) for key in ("10.1000/1", "10.1000/2")]
    (tmp_path / "b.ndjson").write_bytes(bundle(*gone))
    assert run("import", store, tmp_path / "b.ndjson") == 0
    assert "new 1, kept 1" in capsys.readouterr().out
    assert held(store)["10.1000/1"].answer.code == 1


def test_what_is_past_its_hard_expiry_is_told_apart_and_no_fault(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = [missing("10.1000/1", fetched_at=time.time() - 61), *records("10.1000/2", age=31 * 86_400)]
    (tmp_path / "b.ndjson").write_bytes(bundle(*gone))
    assert run("import", store, tmp_path / "b.ndjson") == 0
    assert "new 0, kept 0, expired 2, refused 0" in capsys.readouterr().out


def test_many_refused_lines_are_counted_and_the_first_are_named(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.ndjson").write_bytes(b"x\n" * 150)
    assert run("import", store, tmp_path / "b.ndjson") == 1
    output = capsys.readouterr()
    assert "refused 150" in output.out
    assert output.err.count("is refused") == 100
    assert "50 more lines are refused" in output.err


# --- Export -------------------------------------------------------------------------------------------------------


def keys_in(data: bytes) -> list[str]:
    lines = [json.loads(line) for line in data.splitlines()]
    assert set(lines[-1]) == {"checksum", "lines"}
    assert lines[-1]["lines"] == len(lines) - 1
    return [line["handle"] for line in lines[:-1]]


@pytest.mark.parametrize("name", ["b.ndjson", "b.ndjson.gz"])
def test_what_is_exported_is_imported_as_it_was(
    name: str, tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store, *records("10.1000/1", "10.1000/\u00e9"), missing("10.1000/3", fetched_at=time.time()))
    assert run("export", store, "--output", tmp_path / name) == 0
    assert capsys.readouterr().out == "3 records exported\n"
    other = f"sqlite:///{tmp_path}/other.sqlite3"
    assert run("import", other, tmp_path / name) == 0
    assert {(one.key, one.answer) for one in held(other).values()} == {
        (one.key, one.answer) for one in held(store).values()
    }
    assert sorted(path.name for path in tmp_path.glob("b.*")) == [name]


@pytest.mark.parametrize("selection", [[], ["--prefix", "10.3000"]], ids=["all", "prefix"])
def test_the_backup_of_a_store_with_registry_records_says_what_it_does_not_have_and_succeeds(
    selection: list[str], tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_registry(Path(store.removeprefix("sqlite:///")), Clock(), dict.fromkeys(("10.3000/R", "10.3000/S"), HANDBOOK))
    message = "2 registry records are not in a bundle; import their files there too\n"
    output = tmp_path / "bundle"
    assert run("export", store, *selection, "--output", output) == 0
    assert capsys.readouterr() == ("0 records exported\n", message)
    assert run("import", store, output) == 1
    assert capsys.readouterr()[1] == "the bundle has no records\n"
    fill(store, *records("10.3000/1"))
    assert run("export", store, *selection, "--output", output) == 0
    assert capsys.readouterr() == ("1 records exported\n", message)


def test_a_name_of_a_list_that_has_a_registry_record_alone_is_not_in_the_bundle(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_registry(Path(store.removeprefix("sqlite:///")), Clock(), {"10.3000/R": HANDBOOK})
    fill(store, *records("10.3000/1"))
    (tmp_path / "list.txt").write_text("10.3000/r\n10.3000/1\n")
    assert run("export", store, "--from", tmp_path / "list.txt", "--output", tmp_path / "b") == 1
    assert keys_in((tmp_path / "b").read_bytes()) == ["10.3000/1"]
    assert "1 registry records are not in a bundle" in capsys.readouterr().err


def test_the_names_of_a_list_travel_with_what_their_redirects_need(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(key: str, *values: dict[str, Any]) -> Entry:
        one = entry(key, fetched_at=time.time())
        answer = type(one.answer)(one.answer.code, json.dumps(values, separators=(",", ":")).encode())
        return Entry(key, answer, one.fetched_at, one.fresh_until, one.stale_until)

    fill(
        store,
        record("10.1000/ALIAS", value("HS_ALIAS", "10.2000/target")),
        record("10.2000/TARGET", value("URL", HANDBOOK)),
        record("10.2000", value("HS_NAMESPACE", NAMESPACE)),
        record(SERVICE, value("10320/loc", "<locations><location href='https://x.example'/></locations>")),
        record("10.1000/OTHER", value("URL", HANDBOOK)),
    )
    (tmp_path / "list.txt").write_text("doi:10.1000/alias\nhttps://doi.org/10.1000/Alias\n10.1000/gone\nno name\n")
    assert run("export", store, "--from", tmp_path / "list.txt", "--output", tmp_path / "b") == 1
    found = keys_in((tmp_path / "b").read_bytes())
    assert sorted(found) == ["10.1000/ALIAS", "10.2000", "10.2000/TARGET", SERVICE]
    output = capsys.readouterr()
    assert "10.1000/gone: not in the store" in output.err
    assert "1 names are not in the store" in output.err
    assert "list.txt, line 4: 'no name': " in output.err


@pytest.mark.process
def test_a_bundle_goes_through_a_pipe_and_the_counts_go_to_standard_error(tmp_path: Path, store: str) -> None:
    fill(store, *records(*(f"10.1000/{number}" for number in range(3_000))))
    other = f"sqlite:///{tmp_path}/other.sqlite3"
    with started("cache", "export", "--store-url", store, stdout=subprocess.PIPE) as exporting:
        done = subprocess.run(
            [sys.executable, "-m", "doi_proxy", "cache", "import", "--store-url", other, "-"],
            cwd=ROOT, check=False, stdin=exporting.stdout, capture_output=True, timeout=PATIENCE,
        )  # fmt: skip
        assert exporting.stderr is not None
        assert exporting.stderr.read() == b"3000 records exported\n"
    assert (done.returncode, done.stdout) == (0, b"new 3000, kept 0, expired 0, refused 0; checksum right\n")
    assert len(held(other)) == 3_000


def test_a_bundle_is_written_to_an_open_file(store: str, tmp_path: Path) -> None:
    """What /dev/stdout names: root put a new file in the place of the link."""
    fill(store, *records("10.1000/1"))
    with (tmp_path / "bundle").open("w+b") as file:
        assert run("export", store, "--output", f"/dev/fd/{file.fileno()}") == 0
        assert b"10.1000/1" in file.read()
    assert [*tmp_path.glob("bundle*")] == [tmp_path / "bundle"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_in_one_line(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(store, *records("10.1000/1"))
    assert run("export", store, "--output", "/dev/full") == 1
    assert re.fullmatch(r"doi-proxy: /dev/full: cannot be written: .*\n", capsys.readouterr().err)


# --- Warm ---------------------------------------------------------------------------------------------------------


def listed(tmp_path: Path, *lines: str) -> str:
    (tmp_path / "list.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(tmp_path / "list.txt")


@pytest.mark.anyio
async def test_every_name_of_a_list_gets_its_verdict_and_a_second_run_sends_no_query(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = listed(
        tmp_path, "10.1000/1", "https://doi.org/10.1000/2", "doi:10.1000/1", "10.1000/A", "10.1000/a",
        "10.1000/gone", "10.1000/bare", "10.1000/bad", "no name",
    )  # fmt: skip
    async with FakeUpstream() as upstream:
        upstream.put("10.1000", [value("HS_NAMESPACE", NAMESPACE)])
        upstream.put(SERVICE, [value("URL", HANDBOOK)])
        for name in ("10.1000/1", "10.1000/2", "10.1000/a", "10.1000/bad"):
            upstream.put(name, url=HANDBOOK)
        upstream.put("10.1000/bare", [])
        upstream.fault("10.1000/bad", "status", status=500)
        settings = settings_for(upstream, store)
        assert await warm(command_context(settings), ResolveChoice((path,)), None) == 1
        output = capsys.readouterr()
        assert output.out == "resolved 5, no_target 1, not_found 1, not_a_doi 1, unverified 1\n"
        assert "unverified: 10.1000/bad: " in output.err
        assert f"not_a_doi: {path}, line 9: 'no name': " in output.err
        assert upstream.queries("10.1000/1") == upstream.queries("10.1000") == upstream.queries(SERVICE) == 1
        upstream.reset()
        upstream.put("10.1000/late", url=HANDBOOK)
        assert await warm(command_context(settings), ResolveChoice((path,)), None) == 0
        assert capsys.readouterr().out == "resolved 6, no_target 1, not_found 1, not_a_doi 1\n"
        assert upstream.queries() == upstream.queries("10.1000/bad") == 1


@pytest.mark.anyio
async def test_a_question_that_the_budget_lets_wait_is_asked_later_and_not_given_up(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeUpstream() as upstream:
        upstream.put("10.1000", [value("URL", HANDBOOK)])
        upstream.put("10.1000/1", url=HANDBOOK)
        upstream.fault("10.1000/1", "status", count=1, status=500)
        settings = settings_for(upstream, store, upstream_breaker_failures=1, upstream_breaker_cooldown=0.05)
        settings = settings.model_copy(update={"upstream_max_concurrency": 1})
        # The first name opens the breaker; the second one finds it open, waits and is asked.
        path = listed(tmp_path, "10.1000/1", "10.1000/2")
        upstream.put("10.1000/2", url=HANDBOOK)
        assert await warm(command_context(settings), ResolveChoice((path,)), None) == 1
        assert upstream.queries("10.1000/2") == 1
    assert "resolved 1, " in capsys.readouterr().out


@pytest.mark.anyio
async def test_a_limit_counts_only_names_that_are_fetched_and_the_next_run_goes_on(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"10.1000/{number}" for number in range(4)]
    async with FakeUpstream() as upstream:
        for name in ("10.1000", *names):
            upstream.put(name, url=HANDBOOK)
        context, choice = command_context(settings_for(upstream, store)), ResolveChoice((listed(tmp_path, *names),))
        for fetched in (2, 4):
            assert await warm(context, choice, 2) == 0
            assert sum(upstream.queries(name) for name in names) == fetched
            assert ("stopped: the limit is reached" in capsys.readouterr().err) == (fetched == 2)


def test_a_record_that_cannot_be_renewed_is_stale_and_the_exit_status_says_so(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def warm_offline() -> int:
        async with FakeUpstream() as upstream:
            upstream.fault(EVERY_NAME, "reset")
            choice = ResolveChoice((listed(tmp_path, "10.1000/1"),))
            return await warm(command_context(settings_for(upstream, store)), choice, None)

    fill(store, *records("10.1000", "10.1000/1", age=90_000.0))
    assert asyncio.run(warm_offline()) == 1
    output = capsys.readouterr()
    assert output.out == "resolved 1; stale 1\n"
    assert "resolved: 10.1000/1: The record is past its TTL: " in output.err


@pytest.mark.process
@pytest.mark.anyio
async def test_an_interrupted_run_finishes_what_is_under_way_and_says_how_to_go_on(tmp_path: Path, store: str) -> None:
    names = ["10.1000/1", "10.1000/2", "10.1000/3", "10.1000/4"]
    async with FakeUpstream() as upstream:
        upstream.put("10.1000", [value("URL", HANDBOOK)])
        for name in names:
            upstream.put(name, url=HANDBOOK)
        upstream.hold("10.1000/2")
        given = flags(settings_for(upstream, store, upstream_max_concurrency=1))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "doi_proxy", "cache", "warm", *given, listed(tmp_path, *names),
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        await upstream.arrived("10.1000/2")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None and process.stderr is not None
        assert b"finishing the names under way" in await process.stderr.readline()
        upstream.release("10.1000/2")
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode == 130
        assert out.startswith(b"resolved ")
        assert b"stopped: by a signal; run the same command again" in err
        assert {"10.1000", "10.1000/1", "10.1000/2"} <= (await asyncio.to_thread(held, store)).keys()
        # One name is read ahead.
        assert upstream.queries("10.1000/4") == 0


# --- Stats and purge ----------------------------------------------------------------------------------------------


def test_the_statistics_tell_fresh_stale_and_negative_entries_apart(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store, *records("10.1000/1", "10.1000/2"), *records("10.1000/3", age=2 * 86_400))
    fill(store, missing("10.1000/4", fetched_at=time.time()))
    assert run("show", store) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts.pop("bytes") > 0
    assert "store.sqlite3" in facts.pop("detail")
    assert facts == {"entries": 4, "registry": 0, "fresh": 2, "stale": 1, "negative": 1, "healthy": True}


def test_a_store_that_fails_is_told_with_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "valkey://127.0.0.1:9/0") == 1
    assert json.loads(capsys.readouterr().out)["healthy"] is False
    assert run("purge", "valkey://127.0.0.1:9/0", "10.1000/1") == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "gone", "left"),
    [
        (["https://doi.org/10.1000/a"], 1, ["10.1000/B", "10.1000/GONE", "10.10001/A", "10.2000/A"]),
        (["10.1000/a", "10.1000/B", "10.1000/none"], 2, ["10.1000/GONE", "10.10001/A", "10.2000/A"]),
        (["--prefix", "10.1000"], 3, ["10.10001/A", "10.2000/A"]),
        (["--negative"], 1, ["10.1000/A", "10.1000/B", "10.10001/A", "10.2000/A"]),
        (["--all"], 5, []),
    ],
)
def test_what_is_chosen_is_purged_and_nothing_else(
    arguments: list[str], gone: int, left: list[str], store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store, *records("10.1000/A", "10.1000/B", "10.10001/A", "10.2000/A"))
    fill(store, missing("10.1000/GONE", fetched_at=time.time()))
    assert run("purge", store, *arguments) == 0
    output = capsys.readouterr()
    assert output.out == f"purged {gone}\n"
    assert ("10.1000/none: no entry" in output.err) == ("10.1000/none" in arguments)
    assert sorted(held(store)) == left


@pytest.mark.process
@pytest.mark.anyio
async def test_a_purge_is_seen_by_a_running_proxy(tmp_path: Path, store: str) -> None:
    async with FakeUpstream() as upstream, serving(tmp_path, upstream.url, store) as proxy:
        upstream.put("10.1000/1", url="https://old.example/")
        assert {(await proxy.ask("/10.1000/1")).location for _ in range(3)} == {"https://old.example/"}
        upstream.put("10.1000/1", url="https://new.example/")
        async with asyncio.timeout(PATIENCE):
            # The proxy writes its records in batches; a command sees what has been written.
            while "10.1000/1" not in await asyncio.to_thread(held, store):
                pass
        purged = await asyncio.to_thread(started("cache", "purge", "--store-url", store, "10.1000/1").communicate)
        assert purged[1] == b""
        async with asyncio.timeout(PATIENCE):
            while (await proxy.ask("/10.1000/1")).location != "https://new.example/":
                pass
        assert upstream.queries("10.1000/1") == 2


@pytest.mark.process
@pytest.mark.anyio
async def test_a_store_in_use_is_exported_imported_and_purged_at_the_same_time(tmp_path: Path, store: str) -> None:
    (tmp_path / "b").write_bytes(bundle(*records(*(f"10.2000/{number}" for number in range(2_000)))))
    names = [f"10.1000/{number}" for number in range(300)]
    await asyncio.to_thread(fill, store, *records("10.3000/1"))
    async with FakeUpstream() as upstream, serving(tmp_path, upstream.url, store) as proxy:
        for name in names:
            upstream.put(name, url=f"https://example.org/{name}")
        commands = [
            ["export", "--output", str(tmp_path / "out")],
            ["import", str(tmp_path / "b")],
            ["purge", "--prefix", "10.1000"],
        ]
        processes = [started("cache", *command, "--store-url", store, stdout=subprocess.PIPE) for command in commands]
        for name in names:
            assert (await proxy.ask("/" + name)).location == f"https://example.org/{name}"
        outputs = [await asyncio.to_thread(process.communicate, timeout=PATIENCE) for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0], outputs
        assert (await proxy.ask("/10.2000/7")).location == "https://example.org/10.2000/7"
        assert upstream.queries("10.2000/7") == 0
        assert (await proxy.ask("/readyz")).json["ready"] is True
    assert keys_in((tmp_path / "out").read_bytes()) is not None


# --- Sealed, and one proxy before another -------------------------------------------------------------------------

LOCATIONS: Final = (
    "<locations><location href='https://a.example/' weight='1'/>"
    "<location href='https://b.example/' weight='0' cr_type='MR'/></locations>"
)
#: What a prefix's service handle says: who wants metadata is sent elsewhere (DOI Handbook, content negotiation).
FOR_PROGRAMS: Final = "<locations><location href='https://data.example/' weight='0' http_role='conneg'/></locations>"
#: What each of them has to answer alike.
PATHS: Final = [
    "/10.1000/182",
    "/10.1000/182?noredirect",
    "/10.1000/alias",
    "/10.1000/loc",
    "/10.1000/loc?locatt=cr_type:MR",
    "/10.1000/%C3%A9%25%23?action=showurls",
    "/api/handles/10.1000/182",
    "/api/handles/10.1000/182?type=URL&pretty",
    "/api/handles/10.1000/alias",
    "/api/handles/10.1000%2Floc",
    "/api/handles/10.1000/%C3%A9%25%23",
]


def register(upstream: FakeUpstream) -> None:
    upstream.put("10.1000", [value("HS_NAMESPACE", NAMESPACE)])
    upstream.put(SERVICE, [value("10320/loc", FOR_PROGRAMS)])
    upstream.put("10.1000/182", [value("URL", HANDBOOK), value("EMAIL", "a@example.org", 2)])
    upstream.put("10.1000/alias", [value("HS_ALIAS", "10.1000/182")])
    upstream.put("10.1000/loc", [value("10320/loc", LOCATIONS)])
    upstream.put("10.1000/\u00e9%#", url="https://example.org/\u00e9")


async def answers(proxy: Proxy) -> list[tuple[int, str, bytes]]:
    """Status, target, and of the REST API every byte."""
    found = []
    for path, accept in [*((path, "*/*") for path in PATHS), ("/10.1000/182", "application/x-bibtex")]:
        got = await proxy.ask(path, headers={"Accept": accept}, host="doi.example.org")
        found.append((got.status, got.location, got.body if path.startswith("/api/") else b""))
    return found


@pytest.mark.process
@pytest.mark.anyio
async def test_a_sealed_proxy_answers_from_a_bundle_as_the_one_it_came_from(tmp_path: Path, store: str) -> None:
    (tmp_path / "list.txt").write_text("10.1000/182\n10.1000/alias\n10.1000/loc\n10.1000/%C3%A9%25%23\n")
    out = str(tmp_path / "bundle.ndjson.gz")
    async with FakeUpstream() as upstream, serving(tmp_path, upstream.url, store) as proxy:
        register(upstream)
        context, path = command_context(settings_for(upstream, store)), str(tmp_path / "list.txt")
        assert await warm(context, ResolveChoice((path,)), None) == 0
        assert await export(context, ExportChoice([path]), out) == 0
        expected = await answers(proxy)
        assert [status for status, _, _ in expected] == [302, 200, 301, 302, 302] + [200] * 6 + [302]
        assert expected[-1][1] == "https://data.example/"
    offline = f"sqlite:///{tmp_path}/offline.sqlite3"
    assert await asyncio.to_thread(run, "import", offline, "--mode", "sealed", out) == 0
    async with serving(tmp_path, "http://127.0.0.1:9", offline, mode="sealed") as sealed:
        assert await answers(sealed) == expected
        page, rest = await sealed.ask("/10.1000/unknown"), await sealed.ask("/api/handles/10.1000/unknown")
        assert (page.status, rest.status) == (504, 504)
        assert rest.json["responseCode"] == 2
        assert "answers from its store alone" in rest.json["message"]
        ready = (await sealed.ask("/readyz")).json
        assert (ready["ready"], ready["detail"]["mode"]) == (True, "sealed")


@pytest.mark.process
@pytest.mark.anyio
async def test_a_proxy_can_be_the_upstream_of_another(tmp_path: Path, store: str) -> None:
    async with FakeUpstream() as upstream, serving(tmp_path, upstream.url, store) as first:
        register(upstream)
        expected = await answers(first)
        upstream.fault("10.1000/bad", "status", status=500)
        questions = upstream.queries()
        async with serving(tmp_path, first.url, f"sqlite:///{tmp_path}/second.sqlite3") as second:
            assert await answers(second) == expected
            assert upstream.queries() == questions
            assert (await second.ask("/10.1000/unknown")).status == 404
            assert (await second.ask("/api/handles/10.1000/bad")).status == 502


# --- What cannot be done ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "--store-url", "memory:"], "--store-url memory:"),
        (["export", "--store-url", "sqlite:///nowhere/x"], "this file does not exist"),
        (["show", "--store-url", "sqlite:///nowhere/x"], "this file does not exist"),
        (["purge", "--all", "--store-url", "sqlite:///nowhere/x"], "this file does not exist"),
        (["show", "--store-url", f"sqlite:///{'x' * 300}"], "cannot be opened: File name too long"),
        (["export", "--from", "x", "--prefix", "10.1000"], "give one of them"),
        (["export", "--column", "doi"], "--column is for the lists of names"),
        (["export", "bundle.ndjson", "-o", "b.ndjson"], "both name the bundle"),
        (["show", "10.1000/1", "--every-entry"], "give no names"),
        (["show", "--server", "http://127.0.0.1:9"], "--server needs names"),
        (["export", "--prefix", "1000"], "a DOI prefix looks like 10.1000"),
        (["purge"], "purge needs names, or exactly one of"),
        (["purge", "10.1000/1", "--all"], "purge needs names, or exactly one of"),
        (["purge", "--prefix", "10.1000/1"], "a DOI prefix looks like 10.1000"),
        (["import", "nowhere.ndjson"], "nowhere.ndjson: cannot be read"),
        (["warm", "nowhere.txt"], "nowhere.txt: this is neither a file nor a DOI name"),
        (["warm", "--mode", "sealed", "pyproject.toml"], "--mode sealed"),
        (["warm", "--column", "doi", "pyproject.toml"], "has no column 'doi'"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line_with_exit_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    given = arguments if "--store-url" in arguments else [*arguments, "--store-url", f"sqlite:///{tmp_path}/x"]
    (tmp_path / "x").touch()
    assert main(["cache", *given, "--upstream-contact", "mailto:library@example.org"]) == 2
    shown = capsys.readouterr().err.splitlines()
    assert message in shown[-1]
    assert shown[-1].startswith("doi-proxy: ")
