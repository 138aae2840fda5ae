"""What a check or a probe finds: how bad it is, where, what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

#: An error keeps the proxy from working. A warning is a risk. A note needs no action.
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result that an operator should read."""

    severity: Severity
    #: The setting as it was set, a file, or the probe.
    source: str
    problem: str
    remedy: str = ""


def exit_status(findings: Iterable[Finding]) -> int:
    """2 if there is an error, 1 if there is a warning, else 0."""
    severities = {finding.severity for finding in findings}
    return 2 if "error" in severities else 1 if "warning" in severities else 0
