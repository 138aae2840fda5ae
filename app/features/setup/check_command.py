"""`doi-proxy check`: examines settings, files, store and upstream before a start."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from app.assembly.settings.sources import SourcedValue
from app.features.setup.checks import check_values
from app.features.setup.finding import Finding, exit_status

_SUMMARIES: Final = ("No errors and no warnings.", "There are warnings.", "There are errors.")


def check(values: Mapping[str, SourcedValue], *, offline: bool, as_json: bool) -> int:
    """Print every finding. Exit status 2 with an error, 1 with a warning, else 0."""
    findings = check_values(values, offline=offline)
    show_findings(findings, as_json=as_json)
    return exit_status(findings)


def show_findings(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print findings as lines, or as one JSON object."""
    status = exit_status(findings)
    if as_json:
        print(json.dumps({"status": status, "findings": [asdict(one) for one in findings]}, ensure_ascii=False))
        return
    for one in sorted(findings, key=lambda one: ("error", "warning", "note").index(one.severity)):
        remedy = f"; {one.remedy}" if one.remedy else ""
        print(
            f"{one.severity}: {one.source}: {one.problem}{remedy}" if one.source else f"{one.severity}: {one.problem}"
        )
    print(_SUMMARIES[status])
