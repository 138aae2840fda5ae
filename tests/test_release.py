"""What a release promises: one version everywhere, a changelog in order, a package that serves by itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Sequence
from datetime import date
from email.message import Message
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

import pytest

from doi_proxy.system.version import VERSION, read_version
from tests.cluster.processes import ROOT, START_DEADLINE, Process, until
from tools.release.build import VERSION_FILE

pytestmark = pytest.mark.repository

UV: Final = ROOT / ".tools/bin/uv"
#: For one command that installs packages, in seconds: the end of a command that hangs.
INSTALL_DEADLINE: Final = 1_200
#: A heading of the changelog: a version, and the day of its release (ISO 8601) unless it is still to come.
RELEASE: Final = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (unreleased|\d{4}-\d{2}-\d{2})$", re.MULTILINE)
#: The section of a version that is not released yet has at most this many lines.
MAX_SECTION_LINES: Final = 60
#: The sections that Keep a Changelog 1.1.0 names.
SECTIONS: Final = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_the_newest_section_of_the_changelog_is_about_the_version_of_the_program() -> None:
    assert RELEASE.findall(changelog())[0][0] == VERSION.removesuffix(".dev")


def test_the_releases_of_the_changelog_are_dated_except_the_next_and_the_newest_stands_first() -> None:
    found = RELEASE.findall(changelog())
    assert len(found) == len(re.findall(r"^## ", changelog(), re.MULTILINE))
    assert "unreleased" not in [day for _, day in found[1:]]
    releases = [
        (numbers(version), date.max if day == "unreleased" else date.fromisoformat(day)) for version, day in found
    ]
    assert releases == sorted(releases, reverse=True)


def test_the_section_of_the_next_release_is_short() -> None:
    section = changelog().partition(" - unreleased\n")[2].partition("\n## ")[0]
    assert len(section.splitlines()) < MAX_SECTION_LINES


def test_the_changelog_sorts_changes_into_the_sections_of_keep_a_changelog() -> None:
    for release in re.split(r"^## ", changelog(), flags=re.MULTILINE)[1:]:
        sections = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert set(sections) <= SECTIONS
        assert len(set(sections)) == len(sections)


def test_the_pages_that_a_released_project_needs_are_in_the_repository() -> None:
    expected = ("SECURITY.md", ".github/pull_request_template.md", ".github/ISSUE_TEMPLATE/bug.yml", "docs/releases.md")
    assert [name for name in expected if not (ROOT / name).is_file()] == []


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=INSTALL_DEADLINE, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive of this checkout."""
    if not UV.is_file():
        pytest.skip("there is no .tools/bin/uv: run the tests by make test")
    folder = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder)
    return folder


@pytest.mark.nightly
def test_the_source_archive_holds_what_a_build_from_it_needs(distribution: Path) -> None:
    with tarfile.open(next(distribution.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "app/doi_proxy/web/texts/home.html",
        VERSION_FILE,
    }
    assert wanted <= names


@pytest.mark.nightly
def test_an_archive_of_git_reports_its_commit(tmp_path: Path) -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not head:
        pytest.skip("this checkout has no history")
    run("git", "archive", "--output", tmp_path / "archive.tar", "HEAD")
    run("tar", "-xf", tmp_path / "archive.tar", "-C", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "doi_proxy", "--version"],
        cwd=tmp_path / "app",
        capture_output=True,
        text=True,
        check=True,
    )
    built_from = f"+g{head[:8]}" if VERSION.endswith(".dev") else ""
    assert done.stdout == f"doi-proxy {VERSION}{built_from}\n"


class Unfollowed(urllib.request.HTTPRedirectHandler):
    """Gives a redirect back as it is."""

    def redirect_request(self, *args: object) -> None:
        """Follow nothing."""


def get(url: str) -> tuple[int, Message, bytes]:
    try:
        with urllib.request.build_opener(Unfollowed).open(url, timeout=START_DEADLINE) as reply:
            return reply.status, reply.headers, reply.read()
    except HTTPError as reply:
        return reply.code, reply.headers, reply.read()


@pytest.fixture(scope="module")
def environment(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it needs, and nothing else."""
    environment = tmp_path_factory.mktemp("wheel") / "environment"
    run(UV, "venv", "--quiet", "--python", sys.executable, environment)
    python = environment / "bin/python"
    locked = ROOT / "requirements/runtime.lock"
    run(UV, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", locked)
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", next(distribution.glob("*.whl")))
    return environment


@pytest.mark.nightly
@pytest.mark.anyio
async def test_the_wheel_serves_from_an_empty_environment(environment: Path, tmp_path: Path) -> None:
    python = environment / "bin/python"
    assert (environment / "share/man/man1/doi-proxy.1").is_file()
    program = environment / "bin/doi-proxy"
    assert run(program, "--version") == f"doi-proxy {read_version()}\n"
    metadata = "import importlib.metadata; print(importlib.metadata.version('doi-proxy'))"
    assert run(python, "-c", metadata).strip() == read_version()
    assert run(program, "runbook", "--page", "index") == (ROOT / "docs/index.md").read_text(encoding="utf-8")
    seed = environment / "share/doi-proxy/seed.ndjson"
    settings = {
        "DOI_PROXY_UPSTREAM_URL": "http://127.0.0.1:9",
        "DOI_PROXY_STORE_URL": f"sqlite:///{tmp_path}/store.sqlite3",
    }
    process = Process(
        [str(program), "serve", "--port", "0", "--seed", str(seed)], tmp_path / "log", settings, folder=tmp_path
    )
    try:
        port = process.read_port()
        await until(lambda: answers(port), START_DEADLINE, "the installed program answers")
        status, headers, _ = get(f"http://127.0.0.1:{port}/10.1000/182")
        assert (status, headers["Location"]) == (302, "http://www.doi.org/hb.html")
        assert b"<form" in get(f"http://127.0.0.1:{port}/")[2]
        assert get(f"http://127.0.0.1:{port}/static/style.css")[0] == 200
    finally:
        process.terminate()


@pytest.mark.nightly
def test_a_stranger_tries_the_wheel_with_one_command(distribution: Path, tmp_path: Path) -> None:
    """`uvx --from WHEEL doi-proxy demo`: nothing is installed before, and nothing is left behind."""
    command = [UV, "tool", "run", "--python", sys.executable, "--from", next(distribution.glob("*.whl")), "doi-proxy"]
    done = subprocess.run(
        [*map(str, command), "demo"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=INSTALL_DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("detail=upstream-unreachable") >= 6
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_a_stranger_installs_the_wheel_with_pip_and_with_uv_as_the_page_says(
    distribution: Path, tmp_path: Path
) -> None:
    section = (ROOT / "docs/releases.md").read_text("utf-8").partition("## Install from the files\n")[2]
    scripts = re.findall(r"^```\n(.+?)^```$", section.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
    wheel = next(distribution.glob("*.whl"))
    shutil.copy(wheel, tmp_path)
    # Python without the virtual environment of the tests. uv installs in folders of the test.
    path = os.pathsep.join([f"{sys.base_prefix}/bin", str(UV.parent), "/usr/bin", "/bin"])
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environment |= {"PATH": path, "UV_PYTHON": sys.executable}
    environment |= {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    printed = [
        subprocess.run(
            ["bash", "-e", "-c", script.replace("doi_proxy-1.0.0-py3-none-any.whl", wheel.name)],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, timeout=INSTALL_DEADLINE, check=True,
        ).stdout.splitlines()[-1]
        for script in scripts
    ]  # fmt: skip
    assert printed == [f"doi-proxy {read_version()}"] * 2


def read_printed_version(program: Sequence[object], folder: Path) -> str:
    """What a program prints that is started in a folder whose modules go before the installed ones."""
    command, path = [str(word) for word in (*program, "--version")], {"PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=True).stdout


@pytest.mark.nightly
@pytest.mark.anyio
async def test_a_project_with_a_folder_app_starts_the_program_and_not_its_own(
    environment: Path, tmp_path: Path
) -> None:
    own = tmp_path / "app"
    own.mkdir()
    for name in ("__init__.py", "__main__.py", "main.py", "commands.py"):
        (own / name).write_text("raise SystemExit('the code of the project')\n")
    programs = ([environment / "bin/doi-proxy"], [environment / "bin/python", "-m", "doi_proxy"])
    assert {read_printed_version(program, tmp_path) for program in programs} == {f"doi-proxy {read_version()}\n"}
    factory = ["-m", "uvicorn", "--factory", "doi_proxy.main:create_from_environment", "--port", "0"]
    settings = {"DOI_PROXY_UPSTREAM_URL": "http://127.0.0.1:9", "PYTHONPATH": str(tmp_path)}
    command = [str(environment / "bin/python"), *factory]
    process = Process(command, tmp_path / "log", {**settings, "DOI_PROXY_STORE_URL": "memory:"}, folder=tmp_path)
    try:
        port = process.read_port()
        await until(lambda: answers(port), START_DEADLINE, "the installed program answers")
        assert b"<form" in get(f"http://127.0.0.1:{port}/")[2]
    finally:
        process.terminate()


async def answers(port: int) -> bool:
    try:
        return get(f"http://127.0.0.1:{port}/healthz")[0] == 200
    except OSError:
        return False
