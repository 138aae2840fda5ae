"""The folder that the workers of one machine share until the service ends: for metrics, and for locks."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from doi_proxy.errors import DoiProxyError
from doi_proxy.system.files import lock_beside, lock_folder

#: The environment variable with the folder. prometheus-client reads it in each worker.
FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
#: The prefix of the folders that `temporary_folder` creates.
FOLDER_PREFIX: Final = "doi-proxy-counts-"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder for the workers' files and remove it at the end. Raises DoiProxyError.

    Folders that killed services of this user left behind are removed too.
    """
    try:
        parent = Path(tempfile.gettempdir())
        for existing in parent.glob(f"{FOLDER_PREFIX}*"):
            _remove_if_abandoned(existing)
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
    except OSError as error:
        raise DoiProxyError(
            f"--workers: cannot create a temporary folder for the workers' files: {error}; set TMPDIR to a "
            "writable folder"
        ) from error
    lock = lock_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder whose service and workers have all ended. A new folder without slots may not be locked yet."""
    # Other users can create anything of such a name where they like, such as a pipe.
    own = lock_folder(folder)
    if own is None:
        return
    # Workers outlive the service that started them for a moment.
    locks = [own, *(lock_beside(file) for file in folder.glob("slot-*.lock"))]
    if len(locks) > 1 and None not in locks:
        shutil.rmtree(folder, ignore_errors=True)
    for lock in locks:
        if lock is not None:
            os.close(lock)
