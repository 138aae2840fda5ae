"""Sort dirty inputs by what is suggested for each: `python -m bench.suggestions INPUTS EXPECTED`.

INPUTS has a JSON object with the member `input` on each line. EXPECTED has objects with `input` and `doi`, the name
that a person finds in it, or null. Without EXPECTED, the suggestions are printed for reading.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from doi_names.derived import parse
from doi_names.errors import InvalidName
from doi_names.name import fold
from doi_names.presentation import read_typed


def sort(text: str, expected: str | None) -> str:
    """The class of one input."""
    if expected is None:
        return "none in it, something suggested" if parse(text).suggestions else "none in it"
    try:
        if read_typed(text).key == fold(expected):
            return "resolves as it stands"
    except InvalidName:
        pass
    keys = [found.doi.key for found in parse(text).suggestions]
    if fold(expected) not in keys:
        return "wrong suggestion only" if keys else "no suggestion, although a DOI is in it"
    return "right suggestion later" if keys.index(fold(expected)) else "right suggestion first"


def main() -> None:
    """Print the number of inputs in each class, or the suggestions."""
    texts = [json.loads(line)["input"] for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
    if len(sys.argv) < 3:
        for text in texts:
            print(json.dumps(text), *(f"{found.doi} ({found.rule})" for found in parse(text).suggestions), sep="\t")
        return
    lines = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    names = {row["input"]: row["doi"] for row in map(json.loads, lines)}
    for kind, count in Counter(sort(text, names[text]) for text in texts).most_common():
        print(f"{count:6} {kind}")


if __name__ == "__main__":
    main()
