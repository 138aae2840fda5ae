"""`doi-proxy check`: examines settings, files, store and upstream before a start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from doi_proxy.features.command import CommandContext
from doi_proxy.features.setup.doctor import (
    find_authority_problems,
    find_contradictions,
    find_ineffective,
    find_machine_limits,
    find_management_problems,
    find_port_in_use,
    find_refused_routes,
    find_risks,
    find_store_folder_problems,
    find_unreadable_files,
)
from doi_proxy.server.tls import find_certificate_problems
from doi_proxy.system.check import Check, Finding, exit_status, find_deprecated
from doi_proxy.system.files import print_json, printable

_SUMMARIES: Final = ("No errors and no warnings.", "There are warnings.", "There are errors.")
#: What is checked besides the parts of the core and the features. A new check is one more line here.
CHECKS: Final[tuple[Check, ...]] = (
    find_ineffective,
    find_deprecated,
    find_contradictions,
    find_refused_routes,
    find_risks,
    find_machine_limits,
    find_unreadable_files,
    find_authority_problems,
    find_certificate_problems,
    find_store_folder_problems,
    find_port_in_use,
    find_management_problems,
)


def check_settings(context: CommandContext, *, offline: bool, as_json: bool) -> int:
    """Print every finding. Exit status 2 with an error, 1 with a warning, else 0."""
    return show_findings(context.inspect(CHECKS, offline=offline), as_json=as_json)


def show_findings(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print findings as lines, or as one JSON object. Returns the exit status."""
    status = exit_status(findings)
    if as_json:
        print_json({"status": status, "findings": [asdict(finding) for finding in findings]})
        return status
    for finding in sorted(findings, key=lambda finding: ("error", "warning", "note").index(finding.severity)):
        print(printable(f"{finding.severity}: {finding}"))
    print(_SUMMARIES[status])
    return status
