"""The kind of each line of the input: doi, short_doi, not_a_doi, error (a copying error, or not registered), unknown.

usage: classify.py BASE_URL < LINES. Needs httpx.
"""

from __future__ import annotations

import sys
from typing import Any

import httpx

OTHER_KINDS = {"not_found": "error", "unverified": "unknown", "rate_limited": "unknown"}


def classify(parsed: dict[str, Any], verdicts: dict[str, str]) -> str:
    """The kind of one text."""
    if parsed["doi"] is None:
        return "error" if parsed["suggestions"] else "not_a_doi"
    return OTHER_KINDS.get(verdicts[parsed["doi"]], str(parsed["kind"]))


def main() -> None:
    """Read the lines, and print a kind for each."""
    texts = [line.rstrip("\n") for line in sys.stdin]
    with httpx.Client(base_url=sys.argv[1]) as client:
        parsed = client.post("/api/parse", json=texts).raise_for_status().json()
        names = sorted({one["doi"] for one in parsed if one["doi"] is not None})
        literal = {"output": "json", "encoding": "literal"}
        rows = client.post("/api/resolve", params=literal, json=names).raise_for_status().json()
    verdicts = {row["input"]: row["verdict"] for row in rows}
    for one in parsed:
        print(classify(one, verdicts))


main()
