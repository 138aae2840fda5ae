"""What changed in this checkout since a commit: `python -m tools.changes [REF]` prints the paths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
#: What a change is based on, the first that exists and is not the commit itself.
_MAIN: Final = ("origin/main", "main")


def run_git(*arguments: str, check: bool = True) -> str:
    """What git prints. Without `check`, "" if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=check)
    return done.stdout if done.returncode == 0 else ""


def find_base() -> str:
    """The commit that a change is compared with: `SINCE`, else where it left main, else the commit before it."""
    if since := os.environ.get("SINCE"):
        return since
    commit = run_git("rev-parse", "HEAD").strip()
    bases = (run_git("merge-base", "HEAD", branch, check=False).strip() for branch in _MAIN)
    return next((base for base in bases if base not in ("", commit)), "HEAD~1")


def list_changes(since: str) -> list[str]:
    """The paths that differ between a commit and the working tree, new files among them, deleted ones too."""
    changed = run_git("diff", "--name-only", "--no-renames", since, "--").splitlines()
    return sorted({*changed, *run_git("ls-files", "--others", "--exclude-standard").splitlines()})


if __name__ == "__main__":
    print("\n".join(list_changes(sys.argv[1] if sys.argv[1:] else find_base())))
