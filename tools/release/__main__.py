"""`make release VERSION=1.0.0`: builds every artefact twice, compares the builds, and leaves one in dist/.

Exit status 1 if the checkout is not ready for the release, or if the two builds differ.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from doi_proxy.system.version import VERSION
from tools.changes import ROOT, run_git
from tools.nightly import find_record
from tools.release.build import build, read_commit
from tools.release.readiness import (
    find_changes,
    find_failures_of_the_night,
    find_missing_section,
    find_wrong_version,
    list_skipped,
)
from tools.release.signature import PUBLIC_KEY, SUMS, find_missing_key, sign, write_sums

_DIST: Final = ROOT / "dist"


def main() -> int:
    """Check, build, compare, sum and sign. Returns the exit status."""
    options = _read_options()
    record = _read_record()
    night = list(find_failures_of_the_night(record))
    refused = [
        *find_wrong_version(options.version, VERSION),
        *find_missing_section(options.version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")),
        *find_changes(run_git("status", "--porcelain")),
        *(find_missing_key(options.minisign_key, PUBLIC_KEY) if options.minisign_key else ()),
        *(() if options.nightly == "skip" else night),
    ]
    if refused:
        print(*(f"release: {reason}" for reason in refused), sep="\n", file=sys.stderr)
        return 1
    for reason in night:
        print(f"release: NIGHTLY=skip, although {reason}")
    began = time.monotonic()
    release = read_commit(options.version, options.maintainer, options.homepage, options.deb_python, options.image_base)
    builds = []
    with tempfile.TemporaryDirectory(prefix="doi-proxy-release-") as name:
        for number in ("first", "second"):
            folder = Path(name, number)
            folder.mkdir()
            # The work of both has one place: some tools write the places of files into what they build.
            work = Path(name, "work")
            missing = build(release, work, folder)
            shutil.rmtree(work)
            builds.append(folder)
        differences = list(compare(*builds))
        if differences:
            print("release: the two builds differ in", *differences, sep="\n  ", file=sys.stderr)
            return 1
        shutil.rmtree(_DIST, ignore_errors=True)
        shutil.copytree(builds[0], _DIST)
    write_sums(_DIST)
    if options.minisign_key:
        sign(_DIST, options.version, options.minisign_key, PUBLIC_KEY)
    else:
        missing.append(f"{SUMS} is not signed: MINISIGN_KEY names no key")
    _report([*list_skipped(record), *missing], began)
    return 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.release")
    parser.add_argument("version")
    parser.add_argument("--nightly", default="")
    parser.add_argument("--maintainer", default="")
    parser.add_argument("--homepage", default="")
    parser.add_argument("--minisign-key", type=lambda name: Path(name).absolute() if name else None)
    parser.add_argument("--deb-python", type=Path, default=Path("/usr/bin/python3"))
    parser.add_argument("--image-base", default="")
    return parser.parse_args()


def _read_record() -> dict[str, Any] | None:
    record = find_record()
    return json.loads(record.read_text("utf-8")) if record.exists() else None


def compare(first: Path, second: Path) -> Iterator[str]:
    """The files that differ, or that one folder alone has."""
    names = sorted({path.relative_to(root) for root in (first, second) for path in root.rglob("*") if path.is_file()})
    for name in names:
        both = first / name, second / name
        if not all(path.is_file() for path in both) or not filecmp.cmp(*both, shallow=False):
            yield name.as_posix()


def _report(missing: list[str], began: float) -> None:
    for line in missing:
        print(f"release: {line}")
    for path in sorted(path for path in _DIST.rglob("*") if path.is_file()):
        print(f"{path.stat().st_size:12,}  {path.relative_to(ROOT)}")
    print(f"Two builds are equal, byte for byte. They took {(time.monotonic() - began) / 60:.1f} minutes.")


if __name__ == "__main__":
    sys.exit(main())
