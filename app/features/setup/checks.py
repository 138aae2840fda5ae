"""The list of checks. Each takes the configuration and yields findings; a new check is one more line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from app.assembly.settings import validate
from app.assembly.settings.sources import SourcedValue
from app.features.setup.configuration import Configuration
from app.features.setup.file_checks import (
    find_certificate_problems,
    find_library_rule_problems,
    find_local_record_problems,
    find_missing_libraries,
    find_store_folder_problems,
    find_unreadable_files,
    find_unusable_content,
)
from app.features.setup.finding import Finding
from app.features.setup.machine_checks import find_admin_listener_problems, find_machine_limits, find_port_in_use
from app.features.setup.network_checks import find_store_failure, find_upgrade, find_upstream_failure
from app.features.setup.value_checks import find_contradictions, find_ineffective, find_old_settings, find_risks

Check = Callable[[Configuration], Iterable[Finding]]

#: Checks that need no network.
LOCAL_CHECKS: Final[tuple[Check, ...]] = (
    find_old_settings,
    find_ineffective,
    find_contradictions,
    find_risks,
    find_machine_limits,
    find_missing_libraries,
    find_unreadable_files,
    find_unusable_content,
    find_local_record_problems,
    find_library_rule_problems,
    find_certificate_problems,
    find_store_folder_problems,
    find_port_in_use,
    find_admin_listener_problems,
)
#: Checks that connect to the store and to the upstreams.
NETWORK_CHECKS: Final[tuple[Check, ...]] = (find_store_failure, find_upgrade, find_upstream_failure)


def check_values(values: Mapping[str, SourcedValue], *, offline: bool) -> list[Finding]:
    """Every finding about these settings.

    A value that cannot be used is an error. The other checks then see its default.
    """
    settings, problems = validate(values)
    findings = [Finding("error", one.source, one.message) for one in problems]
    if settings is None:
        wrong = {one.name for one in problems}
        values = {name: one for name, one in values.items() if name not in wrong}
        settings, more = validate(values)
        findings += [Finding("error", one.source, one.message) for one in more if one not in problems]
    if settings is None:
        return findings
    configuration = Configuration(settings, values)
    checks = LOCAL_CHECKS if offline else LOCAL_CHECKS + NETWORK_CHECKS
    return findings + [finding for check in checks for finding in check(configuration)]
