"""The version of the program: its line, and until the release the commit that it was built from.

The build loads this file alone, without the packages beside it.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

#: The one line that a release changes. ".dev" is for the commits before the release.
VERSION: Final = "1.0.0.dev"
#: The file beside this one in a wheel and in a source archive, which have no history. The build writes it.
BUILT: Final = "built_version.txt"
#: `git archive` replaces it by the commit (gitattributes(5), export-subst).
_ARCHIVED: Final = "$Format:%H$"
#: Digits of a commit.
_DIGITS: Final = 8
#: Seconds for one command of git.
_TIMEOUT: Final = 5.0


@cache
def read_version() -> str:
    """The version by PEP 440: VERSION, before a release with N+gCOMMIT. N counts the commits since VERSION changed.

    Without the history, N is left out, and without a trace of the commit, so is the commit. In a checkout, the first
    call starts git. It blocks.
    """
    return find_version(Path(__file__))


def find_version(file: Path, line: str = VERSION) -> str:
    """The version of the program whose copy of this file is `file`, and whose line VERSION has the text `line`."""
    try:
        return file.with_name(BUILT).read_text("ascii").strip()
    except OSError:
        pass
    if not line.endswith(".dev"):
        return line
    archived = "" if _ARCHIVED.startswith("$") else f"+g{_ARCHIVED[:_DIGITS]}"
    return line + (_describe_checkout(file) or archived)


def _describe_checkout(file: Path) -> str:
    """The number of commits since the line VERSION changed, and the commit of the checkout. Empty without a history."""
    if not (file.parents[3] / ".git").exists():
        return ""
    head = _run_git(file, "rev-list", "--max-count=1", "HEAD").strip()
    blamed = _run_git(file, "blame", "--porcelain", "-L/^VERSION/,+1", "HEAD", "--", str(file)).splitlines()
    if not head or not blamed:
        return ""
    # The history of a shallow checkout can begin later than the line.
    is_complete = "boundary" not in blamed
    count = _run_git(file, "rev-list", "--count", "HEAD", f"^{blamed[0].partition(' ')[0]}").strip()
    return f"{count if is_complete else ''}+g{head[:_DIGITS]}"


def _run_git(file: Path, *words: str) -> str:
    """The output of a command of git. Empty if it fails."""
    # A hook of git names its own repository in the environment.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(file.parent), *words]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False)  # noqa: S603
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
