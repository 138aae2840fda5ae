"""Checks of the library rules."""

from __future__ import annotations

from collections.abc import Iterator

from doi_proxy.features.check import Finding, Inspection
from doi_proxy.features.library.file import last_good_rules, read_last_good_rules, read_library_rules
from doi_proxy.features.library.settings import LibrarySettings


def find_rule_problems(inspection: Inspection) -> Iterator[Finding]:
    """Every problem in the file of rules, with its line; among them are expectations that do not hold."""
    path = inspection.settings.group(LibrarySettings).library_rules
    if path is None:
        return
    problems = read_library_rules(path).problems
    if problems and inspection.is_start and read_last_good_rules(last_good_rules(inspection.settings.store_url), path):
        return
    remedy = "correct the file; until then the last good rules are in force, and without any a start fails"
    for problem in problems:
        yield Finding("error", inspection.source("library_rules"), str(problem), remedy)
