#!/usr/bin/env python3
"""Check the DOIs in files by a resolver: for pre-commit, for a GitHub Action, and by hand. Standard library only.

A line for each DOI that is wrong: file:line, DOI, reason, suggestion. Status 1 if there is one. A DOI that the resolver
could not verify is a warning and changes nothing; if the resolver cannot be reached, all are (`--strict`: status 2).
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from pathlib import Path

from verdicts import CouldNotAsk, choose_action, find_replacement, post

#: Bytes of a file. A larger one is not a text that people wrote.
MAX_BYTES = 16 * 1024 * 1024
TYPES = {
    ".html": "text/html",
    ".md": "text/markdown",
    ".bib": "text/x-bibtex",
    ".ris": "application/x-research-info-systems",
    ".csv": "text/csv",
}


def check_file(resolver: str, path: Path) -> list[tuple[str, int, str]]:
    """The level, line and message of each DOI that is not right. Raises CouldNotAsk, OSError."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")  # a FIFO would wait for ever
    with path.open("rb") as file:
        body = file.read(MAX_BYTES + 1)
    if not body or len(body) > MAX_BYTES or b"\0" in body:
        return []
    text = body.decode("utf-8-sig", "replace")
    query = {"extract": "true", "suggest": "checked"}
    rows = post(resolver, query, text.encode(), TYPES.get(path.suffix.lower(), "text/plain"))
    found = []
    for row in rows:
        action = choose_action(row)
        if action == "keep":
            continue
        start = row.get("start")
        line = text.count("\n", 0, start if isinstance(start, int) else 0) + 1
        reason = "could not be verified" if action == "wait" else "is not registered"
        better = find_replacement(row)
        hint = f"; did you mean {better}?" if better else ""
        found.append(("warning" if action == "wait" else "error", line, f"{row.get('doi')} {reason}{hint}"))
    return found


def write(level: str, path: object, line: int, message: str) -> None:
    """Print one line, as a workflow command in a GitHub Action."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # Workflow commands end at a line break, and "," and ":" divide their properties.
        name = escape(str(path)).replace(":", "%3A").replace(",", "%2C")
        print(f"::{level} file={name},line={line}::{escape(message)}")
    else:
        print(visible(f"{path}:{line}: {level}: {message}"))


def escape(text: str) -> str:
    """A text in a workflow command. A file's name can have a line break, after which another command would begin."""
    return visible(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def visible(text: str) -> str:
    """A text without characters that control a terminal."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def main() -> int:
    """Check each file."""
    parser = argparse.ArgumentParser(description="Check the DOIs in files by a resolver.")
    parser.add_argument("--resolver", required=True, help="the address of a doi-proxy, such as https://doi.example.org")
    parser.add_argument("--strict", action="store_true", help="fail if the resolver cannot be reached")
    parser.add_argument("files", nargs="*", type=Path)
    choice = parser.parse_args()
    status = 0
    for path in choice.files:
        try:
            for level, line, message in check_file(choice.resolver, path):
                write(level, path, line, message)
                status = max(status, int(level == "error"))
        except CouldNotAsk as error:
            # The next file would wait as long.
            write("warning", path, 1, f"no DOI was checked: {error}")
            return 2 if choice.strict else status
        except OSError as error:
            write("error", path, 1, f"cannot be read: {error.strerror}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
