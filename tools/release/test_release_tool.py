"""What `make release` refuses, and what it writes."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.release.__main__ import compare
from tools.release.archives import write_repository, write_tar
from tools.release.build import Release, add_metadata, build, build_manual, read_commit
from tools.release.packages import Package, read_packages, write_licences, write_list
from tools.release.readiness import (
    find_changes,
    find_failures_of_the_night,
    find_missing_section,
    find_wrong_version,
    list_skipped,
)

pytestmark = pytest.mark.repository

MOMENT = 1_700_000_000
FIELDS = "Package: doi-proxy\nVersion: 1.0.0-1\nArchitecture: amd64\n"


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("1.0.0", None),
        ("1.0.0rc1", None),
        ("1.0", "is not a version such as 1.0.0 or 1.0.0rc1"),
        ("1.0.0.dev3", "is not a version"),
        ("v1.0.0", "is not a version"),
        ("1.1.0", "does not belong to the line '1.0.0.dev'"),
    ],
)
def test_a_version_is_that_of_the_line_or_a_candidate_of_it(version: str, reason: str | None) -> None:
    found = "; ".join(find_wrong_version(version, "1.0.0.dev"))
    assert found == "" if reason is None else reason in found


@pytest.mark.parametrize(
    ("version", "changelog", "reason"),
    [
        ("1.0.0", "## [1.0.0] - 2026-12-01\n", None),
        ("1.0.0rc1", "## [1.0.0] - unreleased\n", None),
        ("1.0.0", "## [1.0.0] - unreleased\n", "has no date, but 'unreleased'"),
        ("1.0.0", "## [0.9.0] - 2026-12-01\n", "has no section [1.0.0]"),
    ],
)
def test_the_changelog_has_a_dated_section_of_the_release(version: str, changelog: str, reason: str | None) -> None:
    found = "; ".join(find_missing_section(version, changelog))
    assert found == "" if reason is None else reason in found


def test_what_is_not_committed_is_refused() -> None:
    assert list(find_changes("")) == []
    assert list(find_changes(" M a.py\n?? b\n")) == [
        "2 files are not committed, such as a.py: a release is built from a commit"
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (None, ["make nightly has not run for this commit"]),
        ({"failed": [], "not_run": []}, []),
        ({"failed": ["fuzz"], "not_run": ["image", "mutants"]}, ["failed: fuzz", "did not run: image, mutants"]),
    ],
)
def test_the_record_of_the_night_must_be_green(record: dict[str, Any] | None, expected: list[str]) -> None:
    found = list(find_failures_of_the_night(record))
    assert [reason.removeprefix("parts of make nightly ") for reason in found] == expected


def test_a_release_names_what_the_night_skipped() -> None:
    skipped = "SKIPPED [1] tests/test_image.py:50: there is no image"
    parts = {"image": {"result": "ok", "skipped": [skipped]}, "fuzz": {"result": "not run"}}
    assert list(list_skipped({"parts": parts})) == [f"make nightly, image: {skipped}"]
    assert list(list_skipped(None)) == []


def test_an_archive_depends_on_the_content_alone(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / str(number) / "manual"
        (folder / "b").mkdir(parents=True)
        for name in ("b/c.txt", "a.txt") if number == 1 else ("a.txt", "b/c.txt"):
            (folder / name).write_text(name)
        (folder / "a.txt").chmod(0o600 if number == 1 else 0o644)
        write_tar(folder, tmp_path / f"{number}.tar.gz", MOMENT, "manual/")
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "1.tar.gz") as archive:
        assert archive.getnames() == ["manual/a.txt", "manual/b/c.txt"]
        assert {entry.mtime for entry in archive} == {MOMENT}


def test_the_repository_names_the_package_and_the_sums_of_its_indexes(tmp_path: Path) -> None:
    package = tmp_path / "doi-proxy_1.0.0-1_amd64.deb"
    package.write_bytes(b"package")
    write_repository(package, FIELDS, tmp_path / "apt", MOMENT)
    suite = tmp_path / "apt/dists/stable"
    index = (suite / "main/binary-amd64/Packages").read_text()
    assert index.startswith(FIELDS)
    assert f"Filename: pool/{package.name}\nSize: 7\n" in index
    assert hashlib.sha256(b"package").hexdigest() in index
    assert (
        f" {hashlib.sha256(index.encode()).hexdigest()} {len(index)} main/binary-amd64/Packages\n"
        in (suite / "Release").read_text()
    )
    assert (tmp_path / "apt/pool" / package.name).read_bytes() == b"package"


def test_the_list_of_parts_has_each_package_with_its_licence_and_a_number_that_stays() -> None:
    packages = [
        Package("lxml", "6.1.3", "BSD License", ("text",)),
        Package("Not_Here", "1", "", ()),
        Package("cryptography", "50", "Apache-2.0 OR BSD-3-Clause", ("text",), has_expression=True),
    ]
    first, second = (write_list("1.0.0", "abc", "2026-12-01T00:00:00Z", packages) for _ in range(2))
    assert first == second
    document = json.loads(first)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert [one["purl"] for one in document["components"]] == [
        "pkg:pypi/lxml@6.1.3",
        "pkg:pypi/not-here@1",
        "pkg:pypi/cryptography@50",
    ]
    assert document["components"][0]["licenses"] == [{"license": {"name": "BSD License"}}]
    assert document["components"][2]["licenses"] == [{"expression": "Apache-2.0 OR BSD-3-Clause"}]
    assert "licenses" not in document["components"][1]
    assert document["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert "Not_Here 1: the package names none" in write_licences(packages)


def test_every_package_of_the_program_names_its_licence() -> None:
    lock = (Path(__file__).parents[2] / "requirements/runtime.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    installed = read_packages(Path(pytest.__file__).parents[1])
    packages = [one for one in installed if re.sub("[-_.]+", "-", one.name).lower() in locked]
    assert len(packages) > 50
    assert [one.name for one in packages if not one.licence] == []


def test_the_packages_of_a_folder_are_those_that_are_installed_there(tmp_path: Path) -> None:
    for name, licence in (("b_c", "License: MIT"), ("A", "License-Expression: 0BSD"), ("d", "License: as is")):
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n{licence}\n")
    found = [(package.name, package.licence, package.has_expression) for package in read_packages(tmp_path)]
    assert found == [("A", "0BSD", True), ("b_c", "MIT", True), ("d", "as is", False)]


@pytest.mark.nightly
def test_the_manual_opens_in_a_browser_without_a_server(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    assert build(read_commit("1.0.0", "", "", Path()), tmp_path, tmp_path / "output", [build_manual]) == []
    with tarfile.open(tmp_path / "output/doi-proxy-1.0.0-manual.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    html = tmp_path / "doi-proxy-1.0.0-manual/html"
    pages, missing = [html / "index.html", *html.glob("docs/**/*.html")], set()
    for page in pages:
        for link in re.findall(r'href="([^":?#]+)["?#]', page.read_text(encoding="utf-8")):
            if not (page.parent / link).is_file():
                missing.add(f"{page.relative_to(html)}: {link}")
    assert len(pages) > 40
    assert missing == set()


def test_a_release_names_its_maintainer_and_its_homepage() -> None:
    release = Release("1.0.0", "abc", MOMENT, "A Library <it@library.example>", "https://doi.example", Path())
    project = add_metadata('[project]\ndynamic = ["version"]\ndependencies = []\n', release)
    assert 'maintainers = [{ name = "A Library", email = "it@library.example" }]\n' in project
    assert 'urls = { Homepage = "https://doi.example" }\n' in project
    assert project.endswith("dependencies = []\n")


def test_two_builds_differ_in_what_one_has_alone_or_has_otherwise(tmp_path: Path) -> None:
    for name, content in (
        ("first/a", "1"),
        ("second/a", "1"),
        ("first/b", "1"),
        ("second/b", "2"),
        ("second/c/d", "1"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert list(compare(tmp_path / "first", tmp_path / "second")) == ["b", "c/d"]
