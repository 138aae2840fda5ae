#!/usr/bin/env python3
"""The verdicts of a resolver on DOIs, and what a bot that edits citations may do with each.

usage: verdicts.py RESOLVER DOI...      one line for each: action, DOI, verdict, suggestion

Standard library only. A program imports `ask_verdicts` and `choose_action`.
"""

from __future__ import annotations

import http.client
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

#: Seconds between two rows. The resolver looks every name up before it answers.
TIMEOUT = 120.0
#: Bytes of the largest answer: a file of 16 MiB has fewer.
MAX_ANSWER = 256 * 1024 * 1024


class CouldNotAsk(Exception):
    """The resolver gave no answer, so nothing is known about any DOI."""


def post(resolver: str, query: dict[str, str], body: bytes, content_type: str) -> list[dict[str, Any]]:
    """The rows of `POST /api/resolve`. Raises CouldNotAsk."""
    url = f"{resolver.rstrip('/')}/api/resolve?{urllib.parse.urlencode({**query, 'output': 'json'})}"
    request = urllib.request.Request(url, body, {"Content-Type": content_type})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            data = answer.read(MAX_ANSWER + 1)
        rows = json.loads(data) if len(data) <= MAX_ANSWER else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise CouldNotAsk(f"{resolver}: {reason}; try again later, or check the address of the resolver") from error
    if not isinstance(rows, list) or not all(map(is_row, rows)):
        raise CouldNotAsk(f"{resolver}: its answer is not that of a doi-proxy; check the address of the resolver")
    return rows


def is_row(row: Any) -> bool:
    """Whether a part of the answer has what is used of it."""
    if not isinstance(row, dict) or not isinstance(row.get("verdict"), str) or not isinstance(row.get("input"), str):
        return False
    suggestions = row.get("suggestions", [])
    return isinstance(suggestions, list) and all(isinstance(one, dict) and "doi" in one for one in suggestions)


def ask_verdicts(resolver: str, dois: list[str]) -> list[dict[str, Any]]:
    """A row for each DOI, in their order. Raises CouldNotAsk."""
    return post(resolver, {"suggest": "checked", "encoding": "literal"}, json.dumps(dois).encode(), "application/json")


def choose_action(row: dict[str, Any]) -> str:
    """`keep` a link, `replace` it by the suggestion, `mark` it for a person, or `wait`, because it is not known."""
    if row["verdict"] in ("unverified", "rate_limited"):
        return "wait"
    if row["verdict"] in ("resolved", "alias", "no_target"):
        return "keep"
    return "replace" if find_replacement(row) else "mark"


def find_replacement(row: dict[str, Any]) -> str | None:
    """The only suggestion that exists. None if there is not exactly one."""
    found = [one["doi"] for one in row.get("suggestions", ()) if one.get("exists")]
    return str(found[0]) if len(found) == 1 else None


def main() -> int:
    """Print a line for each DOI. Status 2 if the resolver could not be asked."""
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        rows = ask_verdicts(sys.argv[1], sys.argv[2:])
    except CouldNotAsk as error:
        print(error, file=sys.stderr)
        return 2
    for row in rows:
        print(choose_action(row), row["input"], row["verdict"], find_replacement(row) or "-", sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())
