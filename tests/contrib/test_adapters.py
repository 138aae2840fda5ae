"""The adapters of contrib/ before a real proxy, run as pre-commit, a GitHub runner and a bot run them."""

from __future__ import annotations

import os
import re
import socketserver
import subprocess
import sys
import threading
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from anyio.from_thread import start_blocking_portal

from tests.cluster.processes import proxy_before
from tests.fake_upstream import FakeUpstream

pytestmark = pytest.mark.process

ROOT: Final = Path(__file__).resolve().parents[2]
CONTRIB: Final = ROOT / "contrib"
GOOD, BAD, UNKNOWN = "10.1000/182", "10.1000/none", "10.1000/slow"
#: Nothing listens there.
NOBODY: Final = "http://127.0.0.1:9"
_RUN: Final = 60


@pytest.fixture(scope="module")
def resolver() -> Iterator[str]:
    """The address of a proxy that knows one name, misses one, and cannot verify one."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(FakeUpstream()) as upstream,
        portal.wrap_async_context_manager(proxy_before(upstream.url)) as url,
    ):
        upstream.put(GOOD, url="https://example.org/")
        upstream.fault(UNKNOWN, "status", status=500)
        yield url


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {key: value for key, value in os.environ.items() if key != "GITHUB_ACTIONS"}
    return subprocess.run(
        command, cwd=cwd, env=known | environment, check=False, capture_output=True, text=True, timeout=_RUN
    )


def check(resolver: str, folder: Path, *arguments: str) -> tuple[int, list[str]]:
    done = run(sys.executable, str(CONTRIB / "check_dois.py"), "--resolver", resolver, *arguments, cwd=folder)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_wrong_dois_are_shown_with_file_and_line(resolver: str, tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text(f"# Title\n\nSee {GOOD}\nand https://doi.org/{BAD}.\n", "utf-8")
    (tmp_path / "refs.bib").write_text(f"@book{{a,\n  doi = {{{GOOD}.}}\n}}\n", "utf-8")
    (tmp_path / "picture.bin").write_bytes(b"\0" + BAD.encode())
    files = ("paper.md", "refs.bib", "picture.bin")
    assert check(resolver, tmp_path, *files) == (1, [f"paper.md:4: error: {BAD} is not registered"])
    assert check(resolver, tmp_path, "refs.bib") == (0, [])
    assert check(resolver, tmp_path, "absent.md") == (
        1,
        ["absent.md:1: error: cannot be read: No such file or directory"],
    )


def test_a_doi_that_could_not_be_verified_is_not_called_wrong(resolver: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(UNKNOWN, "utf-8")
    assert check(resolver, tmp_path, "a.txt") == (0, [f"a.txt:1: warning: {UNKNOWN} could not be verified"])


def test_a_resolver_that_cannot_be_reached_fails_only_a_strict_run(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(BAD, "utf-8")
    status, said = check(NOBODY, tmp_path, "a.txt")
    assert status == 0 and said[0].startswith(f"a.txt:1: warning: no DOI was checked: {NOBODY}: ")
    assert check(NOBODY, tmp_path, "--strict", "a.txt")[0] == 2


#: Answers of what is not a doi-proxy, or lies.
HOSTILE: Final = {
    "no object": b'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"no"',
    "rows of numbers": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,2]",
    "rows without a verdict": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[{}]",
    "deeply nested": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000,
    "no HTTP": b"SSH-2.0-server\r\n\r\n",
    "an answer that is cut off": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[",
    "chunks that are cut off": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n[",
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server with one answer for everything."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(HOSTILE[request.param])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_that_is_not_a_resolver_is_named_without_a_traceback(hostile: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(BAD, "utf-8")
    status, said = check(hostile, tmp_path, "--strict", "a.txt")
    assert status == 2 and said[0].startswith(f"a.txt:1: warning: no DOI was checked: {hostile}: ")
    done = run(sys.executable, str(CONTRIB / "verdicts.py"), hostile, BAD, cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_the_name_of_a_file_is_no_workflow_command_and_no_escape_sequence(resolver: str, tmp_path: Path) -> None:
    name = "a\n::add-path::evil\x1b[2J.md"
    (tmp_path / name).write_text(BAD, "utf-8")
    command = (sys.executable, str(CONTRIB / "check_dois.py"), "--resolver", resolver, name)
    done = run(*command, cwd=tmp_path, GITHUB_ACTIONS="true")
    (line,) = done.stdout.splitlines()
    assert line == rf"::error file=a%0A%3A%3Aadd-path%3A%3Aevil\x1b[2J.md,line=1::{BAD} is not registered"
    assert check(resolver, tmp_path, name)[1] == [rf"a\n::add-path::evil\x1b[2J.md:1: error: {BAD} is not registered"]


def test_a_file_that_never_ends_is_not_opened(resolver: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.md")
    assert check(resolver, tmp_path, "a.md") == (1, ["a.md:1: error: cannot be read: it is not a regular file"])


def test_the_github_action_marks_the_lines_of_the_files_that_git_knows(resolver: str, tmp_path: Path) -> None:
    action = yaml.safe_load((CONTRIB / "action.yml").read_text("utf-8"))
    step = action["runs"]["steps"][0]
    (tmp_path / "a, b.md").write_text(f"\n{BAD}\n", "utf-8")
    (tmp_path / "unknown to git.md").write_text(BAD, "utf-8")
    for command in (("git", "init", "-q"), ("git", "add", "a, b.md")):
        assert run(*command, cwd=tmp_path).returncode == 0
    inputs = {"RESOLVER": resolver, "FILES": action["inputs"]["files"]["default"]}
    assert step["env"].keys() == inputs.keys()
    done = run(
        *("bash", "-eo", "pipefail", "-c", step["run"]),
        cwd=tmp_path,
        GITHUB_ACTIONS="true",
        GITHUB_ACTION_PATH=str(CONTRIB),
        **inputs,
    )
    assert done.returncode != 0
    assert done.stdout.splitlines() == [f"::error file=a%2C b.md,line=2::{BAD} is not registered"]


def test_the_hook_runs_as_pre_commit_runs_it(resolver: str, tmp_path: Path) -> None:
    hook = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))[0]
    assert re.search(hook["files"], "paper.md") and not re.search(hook["files"], "paper.png")
    (tmp_path / "paper.md").write_text(BAD, "utf-8")
    assert hook["language"] == "script"
    done = run(str(ROOT / hook["entry"]), "--resolver", resolver, "paper.md", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, f"paper.md:1: error: {BAD} is not registered\n")


def test_a_bot_keeps_marks_replaces_or_waits(resolver: str, tmp_path: Path) -> None:
    done = run(sys.executable, str(CONTRIB / "verdicts.py"), resolver, GOOD, BAD, UNKNOWN, f"{GOOD}.", cwd=tmp_path)
    assert [line.split("\t") for line in done.stdout.splitlines()] == [
        ["keep", GOOD, "resolved", "-"],
        ["mark", BAD, "not_found", "-"],
        ["wait", UNKNOWN, "unverified", "-"],
        ["replace", f"{GOOD}.", "not_found", GOOD],
    ]
    away = run(sys.executable, str(CONTRIB / "verdicts.py"), NOBODY, GOOD, cwd=tmp_path)
    assert away.returncode == 2 and away.stderr.startswith(NOBODY) and "Traceback" not in away.stderr


def rules() -> list[tuple[str, str, set[int]]]:
    """The pattern, the replacement and the accepted statuses of each link checker."""
    lychee = tomllib.loads((CONTRIB / "lychee.toml").read_text("utf-8"))
    pattern, replacement = lychee["remap"][0].split(" ")
    spans = [[int(one) for one in entry.split("..=")] for entry in lychee["accept"]]
    accepted = {status for span in spans for status in range(span[0], span[-1] + 1)}
    spector = yaml.safe_load((CONTRIB / "linkspector.yml").read_text("utf-8"))
    replaced = spector["replacementPatterns"][0]
    assert not re.search(spector["ignorePatterns"][0]["pattern"], "https://doi.org/10.1000/182")
    assert re.search(spector["ignorePatterns"][0]["pattern"], "https://example.org/10.1000/182")
    return [
        (pattern, replacement, accepted),
        (replaced["pattern"], replaced["replacement"], set(spector["aliveStatusCodes"])),
    ]


@pytest.mark.parametrize("rule", rules(), ids=["lychee", "linkspector"])
@pytest.mark.parametrize(("name", "is_alive"), [(GOOD, True), (BAD, False), (UNKNOWN, True)])
def test_a_link_checker_calls_only_an_unregistered_name_dead(
    resolver: str, rule: tuple[str, str, set[int]], name: str, is_alive: bool
) -> None:
    pattern, replacement, accepted = rule
    mapped = re.sub(pattern, replacement.replace("$1", r"\1"), f"https://dx.doi.org/{name}")
    assert mapped == f"https://doi.example.org/api/handles/{name}"
    try:
        with urllib.request.urlopen(mapped.replace("https://doi.example.org", resolver)) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        with error:
            status = error.code
    assert (status in accepted) is is_alive
