"""Reads the files that are in the program's packages, such as texts, templates and the stylesheet."""

from __future__ import annotations

from importlib.resources import files


def has_package_file(package: str, *path: str) -> bool:
    """Whether a package has this file."""
    return files(package).joinpath(*path).is_file()


def read_package_file(package: str, *path: str) -> bytes:
    """The content of a file of a package. Raises OSError without one."""
    return files(package).joinpath(*path).read_bytes()
