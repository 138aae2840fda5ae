"""What a release needs before anything is built. Each function returns the reasons that speak against the release."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

#: A version that can be released: PEP 440 without the forms that are never published.
_VERSION: Final = re.compile(r"(?P<base>[0-9]+\.[0-9]+\.[0-9]+)(?P<candidate>rc[0-9]+)?")


def find_wrong_version(version: str, line: str) -> Iterator[str]:
    """Why a version cannot be released from a checkout whose version line is `line`, such as `1.0.0.dev`."""
    found = _VERSION.fullmatch(version)
    base = line.removesuffix(".dev")
    if found is None:
        yield f"VERSION={version!r} is not a version such as 1.0.0 or 1.0.0rc1"
    elif found["base"] != base:
        yield f"VERSION={version} does not belong to the line {line!r} of app/doi_proxy/system/version.py"


def find_missing_section(version: str, changelog: str) -> Iterator[str]:
    """Why the changelog does not announce a version. A candidate needs its section, a release a dated one."""
    found = _VERSION.fullmatch(version)
    base = found["base"] if found else version
    heading = re.search(rf"^## \[{re.escape(base)}\] - (.+)$", changelog, re.MULTILINE)
    if heading is None:
        yield f"CHANGELOG.md has no section [{base}]"
    elif found and not found["candidate"] and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", heading[1]):
        yield f"CHANGELOG.md: the section [{base}] has no date, but {heading[1]!r}"


def find_changes(status: str) -> Iterator[str]:
    """What is not committed, by the output of `git status --porcelain`."""
    if lines := status.splitlines():
        yield f"{len(lines)} files are not committed, such as {lines[0][3:]}: a release is built from a commit"


def find_failures_of_the_night(record: Mapping[str, Any] | None) -> Iterator[str]:
    """Why the record of `make nightly` is not green. None if there is no record of the commit."""
    if record is None:
        yield "make nightly has not run for this commit"
        return
    for state, words in (("failed", "failed"), ("not_run", "did not run")):
        if names := record[state]:
            yield f"parts of make nightly {words}: {', '.join(names)}"


def list_skipped(record: Mapping[str, Any] | None) -> Iterator[str]:
    """What a record of `make nightly` does not show, because this machine has no program for it."""
    for name, part in (record or {"parts": {}})["parts"].items():
        for line in part.get("skipped", ()):
            yield f"make nightly, {name}: {line}"
