"""The version that a checkout, an archive and a build report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.system import version
from doi_proxy.system.version import BUILT, VERSION, find_version

pytestmark = pytest.mark.process

#: Where the file is below the folder of a checkout.
PLACE: Final = "app/doi_proxy/system/version.py"
#: The line of the checkouts here. In the commit of a release, that of this program has no ".dev".
LINE: Final = "2.0.0.dev"
AUTHOR: Final = {f"GIT_{role}_{kind}": "test" for role in ("AUTHOR", "COMMITTER") for kind in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | AUTHOR
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a change")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with two commits: one before there was a version, and one with the version LINE."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    commit(folder, "README.md", "a")
    commit(folder, PLACE, Path(version.__file__).read_text("utf-8").replace(VERSION, LINE))
    return folder


def head(folder: Path) -> str:
    return git(folder, "rev-parse", "HEAD")[:8]


def test_a_released_version_has_neither_a_number_nor_a_commit(checkout: Path) -> None:
    assert find_version(checkout / PLACE, "2.0.0") == "2.0.0"


def test_the_commits_since_the_line_changed_are_counted(checkout: Path) -> None:
    file = checkout / PLACE
    assert find_version(file, LINE) == f"{LINE}0+g{head(checkout)}"
    for number in (1, 2):
        commit(checkout, "README.md", str(number))
        assert find_version(file, LINE) == f"{LINE}{number}+g{head(checkout)}"
    commit(checkout, PLACE, file.read_text() + "# another line\n")
    assert find_version(file, LINE) == f"{LINE}3+g{head(checkout)}"
    git(checkout, "mv", "app", "src")
    commit(checkout, "README.md", "a file that moves is the same file")
    assert find_version(checkout / "src/doi_proxy/system/version.py", LINE) == f"{LINE}4+g{head(checkout)}"
    commit(checkout, "src/doi_proxy/system/version.py", file_text(checkout).replace(LINE, "2.1.0.dev"))
    assert find_version(checkout / "src/doi_proxy/system/version.py", LINE) == f"{LINE}0+g{head(checkout)}"


def file_text(checkout: Path) -> str:
    return (checkout / "src/doi_proxy/system/version.py").read_text("utf-8")


def test_a_shallow_checkout_has_the_commit_without_a_number(checkout: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{checkout}", str(shallow))
    assert find_version(shallow / PLACE, LINE) == f"{LINE}+g{head(checkout)}"


def test_without_history_the_version_is_the_line_and_a_build_has_its_file(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".git").rename(tmp_path / "history")
    assert find_version(checkout / PLACE, LINE) == LINE
    (checkout / PLACE).with_name(BUILT).write_text(f"{LINE}7+g0123abcd\n")
    assert find_version(checkout / PLACE, LINE) == f"{LINE}7+g0123abcd"


def test_an_archive_of_git_has_the_commit(checkout: Path, tmp_path: Path) -> None:
    commit(checkout, ".gitattributes", f"{PLACE} export-subst\n")
    archive = tmp_path / "archive"
    archive.mkdir()
    git(checkout, "archive", "--output", str(tmp_path / "archive.tar"), "HEAD")
    subprocess.run(["tar", "-xf", str(tmp_path / "archive.tar"), "-C", str(archive)], check=True)
    code = "import runpy, sys; print(runpy.run_path(sys.argv[1])['read_version']())"
    found = subprocess.run(
        [sys.executable, "-c", code, str(archive / PLACE)], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == f"{LINE}+g{head(checkout)}"


def test_a_hook_of_another_repository_does_not_change_the_answer(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = find_version(checkout / PLACE, LINE)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nothing"))
    assert find_version(checkout / PLACE, LINE) == expected
    assert re.fullmatch(re.escape(LINE) + r"0\+g[0-9a-f]{8}", expected)


def test_the_build_can_load_the_module_alone() -> None:
    # -S: without the packages of this environment, of which doi_proxy is one.
    subprocess.run([sys.executable, "-I", "-S", version.__file__], check=True)
