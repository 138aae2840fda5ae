"""Fills the templates of configuration files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from doi_proxy.system.package_files import read_package_file

_PLACEHOLDER: Final = re.compile(r"@([A-Z_]+)@")


def fill_file(path: str, values: Mapping[str, str]) -> str:
    """The text of a template, such as `nginx/doi-proxy.conf`, with its placeholders replaced."""
    template = read_package_file("doi_proxy.features.setup", "templates", path).decode()
    return "".join(_fill(line, values) for line in template.splitlines(keepends=True))


def _fill(line: str, values: Mapping[str, str]) -> str:
    """A line with its placeholders replaced. A line that is only a placeholder takes several lines, or none."""
    alone = _PLACEHOLDER.fullmatch(line.strip())
    if alone is None:
        return _PLACEHOLDER.sub(lambda match: values[match[1]], line)
    indent = line[: len(line) - len(line.lstrip())]
    return "".join(f"{indent}{row}\n" if row else "\n" for row in values[alone[1]].splitlines())
