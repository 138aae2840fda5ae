"""Checks of the library rules."""

from __future__ import annotations

from collections.abc import Iterator

from app.features.check import Finding, Inspection
from app.features.library.file import read_library_rules
from app.features.library.settings import LibrarySettings


def find_rule_problems(inspection: Inspection) -> Iterator[Finding]:
    """Every problem in the file of rules, with its line; among them are expectations that do not hold."""
    path = inspection.settings.group(LibrarySettings).library_rules
    for problem in () if path is None else read_library_rules(path).problems:
        yield Finding("error", inspection.source("library_rules"), str(problem), "correct the file; a start fails")
