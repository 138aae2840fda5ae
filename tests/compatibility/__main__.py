"""`python -m tests.compatibility`: writes the shapes and the stores of this minor release into its folder, such as 1.0.

What is there stays: the stores are those of the release, and a shape is replaced only by one that has all of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from doi_proxy.system.version import VERSION
from tests.compatibility.shapes import list_losses, read_shapes
from tests.compatibility.stores import write_stores


def main() -> None:
    """Write the files. Raises SystemExit if a shape has lost something."""
    parser = argparse.ArgumentParser(prog="python -m tests.compatibility")
    parser.add_argument("release", nargs="?", default=name_folder(VERSION), help="default: that of this version")
    folder = Path(__file__).with_name(parser.parse_args().release)
    folder.mkdir(exist_ok=True)
    write_shapes(folder)
    if not (folder / "written.json").exists():
        write_stores(folder)


def name_folder(version: str) -> str:
    """The folder of the minor release to which a version belongs."""
    return ".".join(version.split(".")[:2])


def write_shapes(folder: Path) -> None:
    """Write the shapes that have what the written ones have. Raises SystemExit for the first other one."""
    for name, shape in read_shapes().items():
        file = folder / f"{name}.json"
        old = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if losses := list(list_losses(old, shape, name)):
            sys.exit(f"{file}: {losses[0]}; if this release was not made yet, remove the file, and write it again")
        file.write_text(json.dumps(shape, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
