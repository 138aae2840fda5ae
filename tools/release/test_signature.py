"""The sums of a release and their signature, verified as docs/releases.md tells a stranger."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tools.changes import ROOT
from tools.release.signature import find_missing_key, sign, write_sums

pytestmark = pytest.mark.repository

needs_minisign = pytest.mark.skipif(
    shutil.which("minisign") is None, reason="minisign is not installed (Debian package: minisign)"
)
#: For one command, in seconds.
DEADLINE: Final = 60


class Keys(NamedTuple):
    """The files of a pair of keys."""

    secret: Path
    public: Path


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False)


def make_keys(folder: Path) -> Keys:
    """A new pair of keys, without a password."""
    folder.mkdir()
    keys = Keys(folder / "secret", folder / "minisign.pub")
    assert run("minisign", "-G", "-W", "-s", keys.secret, "-p", keys.public, folder=folder).returncode == 0
    return keys


def make_release(folder: Path) -> Path:
    """A folder like dist/, with its sums."""
    (folder / "apt/pool").mkdir(parents=True)
    for name in ("doi_proxy.whl", "apt/pool/doi-proxy.deb"):
        (folder / name).write_text(name)
    write_sums(folder)
    return folder


def verify(folder: Path, public: Path) -> subprocess.CompletedProcess[str]:
    """Run the commands of the page in a folder of downloads."""
    section = (ROOT / "docs/releases.md").read_text("utf-8").partition("## Verify a download\n")[2]
    (script,) = re.findall(r"^```\n(.+?)^```$", section.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
    shutil.copy(public, folder / "minisign.pub")
    return run("bash", "-e", "-c", script, folder=folder)


@needs_minisign
def test_a_stranger_verifies_what_was_signed_and_learns_its_version(tmp_path: Path) -> None:
    keys, release = make_keys(tmp_path / "keys"), make_release(tmp_path / "release")
    sign(release, "1.0.0", *keys)
    # Only one file was fetched.
    (release / "apt/pool/doi-proxy.deb").unlink()
    done = verify(release, keys.public)
    assert done.returncode == 0, done.stderr
    assert "Trusted comment: doi-proxy 1.0.0\n" in done.stdout
    assert done.stdout.endswith("doi_proxy.whl: OK\n")


@needs_minisign
@pytest.mark.parametrize("changed", ["doi_proxy.whl", "apt/pool/doi-proxy.deb", "SHA256SUMS", "SHA256SUMS.minisig"])
def test_a_changed_file_is_refused(tmp_path: Path, changed: str) -> None:
    keys, release = make_keys(tmp_path / "keys"), make_release(tmp_path / "release")
    sign(release, "1.0.0", *keys)
    path = release / changed
    path.write_text(path.read_text().replace("doi", "DOI"))
    assert verify(release, keys.public).returncode != 0


@needs_minisign
def test_sums_that_were_signed_with_another_key_are_refused_by_the_stranger_and_by_the_release(tmp_path: Path) -> None:
    keys, others = make_keys(tmp_path / "keys"), make_keys(tmp_path / "others")
    release = make_release(tmp_path / "release")
    with pytest.raises(subprocess.CalledProcessError):
        sign(release, "1.0.0", others.secret, keys.public)
    assert verify(release, keys.public).returncode != 0


@needs_minisign
def test_a_key_that_cannot_be_used_is_noticed_before_anything_is_built(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")
    assert list(find_missing_key(*keys)) == []
    keys.public.unlink()
    (reason,) = find_missing_key(*keys)
    assert reason.startswith("there is no minisign.pub in ")
    (reason, _) = find_missing_key(tmp_path / "none", keys.public)
    assert reason == f"MINISIGN_KEY={tmp_path}/none is not a file"
