"""`python -m tests.compatibility 1.0`: writes the shapes and the stores of a release into tests/compatibility/1.0.

Stores that are there already stay: they are those of the release.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.compatibility.shapes import read_shapes
from tests.compatibility.stores import write_stores


def main() -> None:
    """Write the files."""
    folder = Path(__file__).with_name(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, shape in read_shapes().items():
        (folder / f"{name}.json").write_text(json.dumps(shape, indent=1) + "\n", encoding="utf-8")
    if not (folder / "written.json").exists():
        write_stores(folder)


if __name__ == "__main__":
    main()
