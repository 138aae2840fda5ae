"""The file of library rules: its start, its reload and its changes while the proxy runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.library.copy import LibraryRules
from doi_proxy.features.library.library import RULES_FILE
from doi_proxy.main import create
from doi_proxy.store.kept_file import KeptFile
from doi_proxy.system.toml_text import FileProblem
from tests.clock import Clock
from tests.features.library.in_force import library_of
from tests.features.library.test_redirects import EZPROXY, HOME, RULES, TARGET
from tests.table import table
from tests.values import BROWSER
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


SERVICE: Final = '[[service]]\nname = "{}"\nlabel = "A"\nkind = "libkey"\nlibrary = "1"\n'


def write(file: Path, name: str) -> None:
    """Write a file with one rule, as an editor does: with a new inode."""
    fresh = file.with_suffix(".new")
    fresh.write_text(SERVICE.format(name) + f'[[rule]]\nservice = "{name}"\n', encoding="utf-8")
    fresh.replace(file)


def keep(path: Path, use: Callable[[LibraryRules], None]) -> KeptFile[LibraryRules]:
    return KeptFile(RULES_FILE, use, settings_of(path))


def settings_of(path: Path | None) -> Settings:
    return Settings(store_url="memory:", library_rules=path)


def names(used: list[LibraryRules]) -> list[str]:
    return [one.services[0].name if one.services else "" for one in used]


def test_a_broken_file_ends_the_start_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('[[rule]]\nservice = "x"\n', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"rules\.toml:2:1: service is 'x'"):
        create(settings_of(file))


async def test_a_broken_change_leaves_the_rules_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, used = tmp_path / "rules.toml", list[LibraryRules]()
    write(file, "a")
    library = keep(file, used.append)
    file.write_text("[[rule]]\n", encoding="utf-8")
    for _ in range(4):
        await library.look()
    assert names(used) == ["a"] and library.problems
    assert caplog.text.count("rules.toml:1:1: service is missing") == 1
    file.unlink()
    for _ in range(3):
        await library.look()
    assert names(used) == ["a"] and "it cannot be read" in library.problems[0].message
    write(file, "b")
    for _ in range(3):
        await library.look()
    assert names(used) == ["a", "b"] and library.problems == ()


async def test_a_reload_takes_another_file_or_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second, absent = tmp_path / "first.toml", tmp_path / "second.toml", tmp_path / "absent.toml"
    write(first, "a")
    write(second, "b")
    used = list[LibraryRules]()
    library = keep(first, used.append)

    async def reload(path: Path | None) -> str:
        library.reload(settings_of(path))
        await library.look()
        return names(used)[-1]

    assert await reload(second) == "b"
    assert await reload(absent) == "b"
    assert "absent.toml: it cannot be read: No such file" in caplog.text
    assert "library_rules: the last good version is in force; correct the file" in caplog.text
    write(absent, "c")
    await library.look()
    await library.look()
    assert names(used)[-1] == "c" and library.problems == ()
    assert await reload(None) == "" and library.path is None


def test_a_reload_reads_no_file_on_the_event_loop(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    write(file, "a")
    lifecycle = Lifecycle(settings_of(file))
    app = create(lifecycle.settings, clock=Clock(), lifecycle=lifecycle)
    write(file, "b")
    lifecycle.reload(lifecycle.settings)
    rules = library_of(app).rules
    assert [service.name for service in rules.services] == ["a"]


def _large(file: Path) -> None:
    file.write_bytes(b"#" * 10 * RULES_FILE.most)


def _binary(file: Path) -> None:
    file.write_bytes(b"# \n\xff")


def _loop(file: Path) -> None:
    file.symlink_to(file)


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (_large, "the text has more than 1048576 bytes; remove rules"),
        (_binary, "rules.toml:2:1: the text is not UTF-8"),
        (_loop, "it cannot be read"),
        (os.mkfifo, "it is not a regular file"),
        (Path.mkdir, "it cannot be read: it is not a regular file"),
        (lambda _: None, "it cannot be read: No such file"),
    ],
    ids=["large", "binary", "loop", "pipe", "folder", "absent"],
)
def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path, prepare: Any, problem: str) -> None:
    prepare(tmp_path / "rules.toml")
    found = RULES_FILE.read(tmp_path / "rules.toml").problems
    assert len(found) == 1 and problem in str(found[0])


# --- `/preferences`: the choice of a service, its cookie, and forms that other sites send ----------------------------


@pytest.fixture(scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    file = tmp_path_factory.mktemp("library") / "rules.toml"
    file.write_text(RULES, encoding="utf-8")
    async with Proxy(library_rules=file) as proxy:
        proxy.upstream.put("10.1234/1", url=TARGET)
        yield proxy


@pytest.mark.parametrize(
    ("cookie", "checked"),
    [
        ("", 'value="" checked'),
        ("Library-OpenURL=none", 'value="none" checked'),
        ('Library-OpenURL="https://findit.example.edu/resolve"', 'value="findit" checked'),
        ("Library-OpenURL=https://evil.example/", 'value="" checked'),
    ],
)
async def test_the_page_offers_the_services_and_shows_the_choice(proxy: Proxy, cookie: str, checked: str) -> None:
    got = await proxy.get("/preferences", cookie=cookie)
    assert got.status == 200
    assert checked in got.text and got.text.count("checked") == 1
    assert "EZproxy &lt;b&gt;" in got.text and "?nols=y" in got.text
    assert (got["cache-control"], got["vary"]) == ("no-store", "Accept, Accept-Language, Cookie")
    assert got["set-cookie"] is None


@pytest.mark.parametrize(("service", "location"), [("findit", "findit"), ("none", TARGET), ("", EZPROXY)])
async def test_a_choice_decides_the_next_redirect(proxy: Proxy, service: str, location: str) -> None:
    saved = await proxy.post("/preferences", f"service={service}")
    assert (saved.status, saved["location"]) == (303, "/preferences?saved")
    pair = (saved["set-cookie"] or "").partition(";")[0]
    got = await proxy.ask("GET", "/10.1234/1", client=HOME, accept=BROWSER, cookie=pair)
    assert location in (got["location"] or "")


async def test_the_cookie_holds_the_choice_alone(proxy: Proxy) -> None:
    saved = await proxy.post("/preferences", "service=findit", client=HOME)
    assert saved["set-cookie"] == (
        'Library-OpenURL="https://findit.example.edu/resolve"; Path=/; Max-Age=15552000; SameSite=Lax; HttpOnly'
    )
    removed = await proxy.post("/preferences", "service=")
    assert removed["set-cookie"] == 'Library-OpenURL=""; Path=/; Max-Age=0; SameSite=Lax; HttpOnly'


async def test_the_cookie_is_for_the_sub_path_and_for_https_alone(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES, encoding="utf-8")
    async with Proxy(library_rules=file, public_url="https://www.example.edu/doi/") as proxy:
        saved = await proxy.post("/doi/preferences", "service=none", origin="https://www.example.edu")
        assert saved["location"] == "/doi/preferences?saved"
        assert "; Path=/doi; " in (saved["set-cookie"] or "")
        assert (saved["set-cookie"] or "").endswith("; Secure")


@pytest.mark.parametrize("body", ["service=evil", "service=https://findit.example.edu/resolve", "", "service=FINDIT"])
async def test_a_service_that_is_not_configured_is_refused(proxy: Proxy, body: str) -> None:
    got = await proxy.post("/preferences", body)
    assert (got.status, got["set-cookie"]) == (400, None)


@table(
    ("headers", "status"),
    [
        ({}, 303),
        ({"sec_fetch_site": "same-origin"}, 303),
        ({"sec_fetch_site": "same-origin", "origin": "null"}, 303),
        ({"sec_fetch_site": "none"}, 303),
        ({"origin": "http://doi.example.org"}, 303),
        ({"origin": "https://doi.example.org"}, 303),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site", "origin": "http://doi.example.org"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://doi.example.org.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[::1"}, 403),
    ],
)
async def test_a_form_of_another_site_is_refused(proxy: Proxy, headers: dict[str, str], status: int) -> None:
    got = await proxy.post("/preferences", "service=none", **headers)
    assert got.status == status
    assert (got["set-cookie"] is not None) == (status == 303)


async def test_a_body_that_is_too_large_is_refused(proxy: Proxy) -> None:
    got = await proxy.post("/preferences", "service=" + "x" * 100_000)
    assert (got.status, got["set-cookie"]) == (413, None)


async def test_pages_link_to_it_where_there_are_rules(proxy: Proxy) -> None:
    assert 'href="/preferences"' in (await proxy.get("/")).text


async def test_without_rules_the_page_says_so() -> None:
    async with Proxy() as proxy:
        got = await proxy.get("/preferences")
        assert got.status == 200 and "<form" not in got.text
        assert (await proxy.post("/preferences", "service=ezproxy")).status == 400


async def test_a_fault_does_not_end_the_watching(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, used = tmp_path / "rules.toml", list[LibraryRules]()
    faults = [OSError("a file system that is away"), OSError("a file system that is away")]

    def use(rules: LibraryRules) -> None:
        if used and faults:
            raise faults.pop()
        used.append(rules)

    write(file, "first")
    kept = keep(file, use)
    watching = asyncio.create_task(kept.run())
    write(file, "second")
    states = set[str]()
    while len(used) < 2:
        await asyncio.sleep(0.5)
        states.add(kept.state)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert (names(used), states, kept.state) == (["first", "second"], {"ok", "broken"}, "ok")
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_a_file_that_may_be_read_again_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    write(file, "first")
    before = file.stat()
    kept = keep(file, lambda rules: None)
    file.chmod(0o600)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    kept._kind = replace(kept._kind, parse=lambda texts: (LibraryRules(), [FileProblem("a", 1, 1, "read again")]))
    for _ in range(2):
        await kept.look()
    assert [problem.message for problem in kept.problems] == ["read again"]
