"""The packages of other people that the program is made of: a CycloneDX list, and their licences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

_LICENCE_FILE: Final = re.compile(r"(?:^|/)(?:licen[cs]e|copying|notice)[^/]*$", re.IGNORECASE)
#: Longer texts in the field `License` are a whole licence, not its name.
_LONGEST_NAME: Final = 80


#: Licences that authors name by their SPDX identifiers in the field `License` too.
_SPDX: Final = ("Apache-2.0", "BSD-3-Clause", "MIT", "MPL-2.0", "PSF-2.0")


class Package(NamedTuple):
    """An installed package."""

    name: str
    version: str
    licence: str
    licence_texts: tuple[str, ...]
    #: Whether the licence is an SPDX expression (PEP 639). Otherwise it is in the words of the author.
    has_expression: bool = False


def read_packages(folder: Path) -> list[Package]:
    """The packages that are installed in a folder, with the licences that they declare, by name."""
    found = (_read(package) for package in metadata.distributions(path=[str(folder)]))
    return sorted(found, key=lambda package: _purl(package.name, package.version))


def _read(found: metadata.Distribution) -> Package:
    licence = _find_licence(found)
    has_expression = "License-Expression" in found.metadata or licence in _SPDX
    return Package(found.name, found.version, licence, tuple(_read_texts(found)), has_expression)


def _find_licence(found: metadata.Distribution) -> str:
    about = found.metadata
    if "License-Expression" in about:
        return about["License-Expression"]
    classifiers = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License")]
    named = about["License"].strip() if "License" in about else ""
    return named if named and len(named) <= _LONGEST_NAME else ", ".join(classifiers)


def _read_texts(found: metadata.Distribution) -> Iterator[str]:
    for file in sorted(found.files or (), key=str):
        if _LICENCE_FILE.search(file.as_posix()) and ".dist-info" in file.parent.as_posix():
            yield file.read_text(encoding="utf-8")


def write_list(version: str, commit: str, moment: str, packages: list[Package]) -> str:
    """The list of parts as CycloneDX 1.6 (ECMA-424). `moment` is the time of the commit (RFC 3339)."""
    about = {"type": "application", "name": "doi-proxy", "version": version, "purl": _purl("doi-proxy", version)}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # Two builds of a commit have the same one.
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, f'doi-proxy:{version}:{commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": moment,
            "component": {"bom-ref": about["purl"], **about, "licenses": [{"expression": "Apache-2.0"}]},
        },
        "components": [_write_component(package) for package in packages],
        "dependencies": [
            {"ref": about["purl"], "dependsOn": [_purl(package.name, package.version) for package in packages]}
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _write_component(package: Package) -> dict[str, Any]:
    purl = _purl(package.name, package.version)
    component = {"type": "library", "bom-ref": purl, "name": package.name, "version": package.version, "purl": purl}
    if not package.licence:
        return component
    # "MIT OR Apache-2.0" is not the name of a licence.
    choice = {"expression": package.licence} if package.has_expression else {"license": {"name": package.licence}}
    return {**component, "licenses": [choice]}


def _purl(name: str, version: str) -> str:
    """The package URL (ECMA-427) of a package of PyPI."""
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"


def write_licences(packages: list[Package]) -> str:
    """The licence of each package, with its texts."""
    parts = ["The licences of the packages that doi-proxy installs with it. Its own licence is Apache-2.0.\n"]
    for package in packages:
        named = package.licence or "the package names none"
        texts = "".join(f"\n{text.strip()}\n" for text in package.licence_texts)
        parts.append(f"{'=' * 80}\n{package.name} {package.version}: {named}\n{texts}")
    return "\n".join(parts)
