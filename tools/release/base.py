"""`python -m tools.release.base FILE`: a base image of Debian packages, where no registry of images can be reached.

FILE is an OCI archive: `make release IMAGE_BASE=oci-archive:FILE`. Needs root, and the Debian packages buildah and
mmdebstrap.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tools.release.image import Buildah

PROGRAMS: Final = ("buildah", "mmdebstrap")
#: The release of Debian that the base image in the Dockerfile has.
_SUITE: Final = "bookworm"
_PACKAGES: Final = "python3,python3-venv,python3-pip,ca-certificates"


def make_base(output: Path) -> None:
    """Make the archive. Raises `subprocess.CalledProcessError` and BuildahFailed."""
    with tempfile.TemporaryDirectory(prefix="doi-proxy-base-") as name:
        tree = Path(name, "tree.tar")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(tree)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        buildah = Buildah(Path(name, "image"))
        container = buildah("from", "scratch")
        buildah("add", "--quiet", container, tree, "/")
        image = buildah("commit", "--quiet", "--rm", container)
        output.parent.mkdir(parents=True, exist_ok=True)
        buildah("push", "--quiet", image, f"oci-archive:{output.absolute()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tools.release.base", description="Make a base image of Debian packages."
    )
    parser.add_argument("file", type=Path)
    make_base(parser.parse_args().file)
