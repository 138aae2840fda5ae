"""What a check finds before a start: how bad it is, where, what is wrong, and what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from doi_proxy.errors import DoiProxyError
from doi_proxy.system.options import DEPRECATED, Settings

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

    def __str__(self) -> str:
        text = f"{self.problem}; {self.remedy}" if self.remedy else self.problem
        return f"{self.source}: {text}" if self.source else text


@dataclass(frozen=True, slots=True)
class Inspection:
    """Valid settings to examine. An `offline` check connects to nothing."""

    settings: Settings
    #: Where each setting was set, such as `DOI_PROXY_PORT` or `--port`.
    sources: Mapping[str, str] = field(default_factory=dict)
    offline: bool = True

    def open_pages(self) -> Any:
        """The pages (doi_proxy.web.pages) of the core and of the features, in our own face."""
        raise NotImplementedError

    def is_set(self, name: str) -> bool:
        """Whether a setting has a value that differs from its default. No if its feature is not installed."""
        known = type(self.settings).model_fields.get(name)
        if known is None:
            return False
        # A default can follow from another setting.
        usual = known.get_default(call_default_factory=True, validated_data=dict(self.settings))
        return bool(self.settings.value(name) != usual)

    def source(self, name: str) -> str:
        """Where a setting was set; its name if it has its default."""
        return self.sources.get(name, name)

    def find_refusal(self, name: str, read: Callable[[], object], remedy: str = "") -> Iterator[Finding]:
        """The error of what a setting names, if reading it raises DoiProxyError."""
        try:
            read()
        except DoiProxyError as error:
            problem, _, advice = error.message.partition("; ")
            yield Finding("error", self.source(name), problem, advice or remedy)


Check = Callable[[Inspection], Iterable[Finding]]


def exit_status(findings: Iterable[Finding]) -> int:
    """2 if there is an error, 1 if there is a warning, else 0."""
    severities = {finding.severity for finding in findings}
    return 2 if "error" in severities else 1 if "warning" in severities else 0


def find_deprecated(inspection: Inspection) -> Iterator[Finding]:
    """Settings that are still set and that left."""
    for name, source in inspection.settings.departed.items():
        yield Finding("warning", source, "this setting left", DEPRECATED[name].remedy)


def find_access_problem(path: Path) -> str | None:
    """Why this user cannot read a file or a folder. None if it can."""
    try:
        path.stat()
    except OSError as error:
        return f"{path} cannot be used: {error.strerror}"
    if not (path.is_file() or path.is_dir()):
        return f"{path} is not a regular file"
    needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return None if os.access(path, needed) else f"{path} is not readable by the user who runs this check"
